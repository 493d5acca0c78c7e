"""Galleries: figures of the samples that runs ended with. Their CSV says which files they show."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass

from fedrepro.errors import FedreproError
from fedrepro.evaluate import Watched, record_path
from fedrepro.files import file_digest
from fedrepro.schema import Gallery, Spot
from fedrepro.spec import Paper


@dataclass(frozen=True)
class Panel:
    """One panel: where it stands, and the run whose samples it shows.

    `samples`: the sha256 of their file. `diverged`: the seeds that did, of which the first one's samples are empty.
    """

    column: str
    row: str
    run: str
    samples: str
    diverged: int
    budget: str
    substitute: str


def collect(spec: Gallery, spots: list[tuple[Spot, str]], found: dict[str, Watched]) -> tuple[list[Panel], dict]:
    """The panels in the order of their cells, and for each run whose samples are not those of its record why."""
    panels, faults = [], {}
    for spot, run in spots:
        path, record = found[run].place.with_name(spec.file), found[run].record
        try:
            whole = file_digest(path) == record.samples
        except OSError as error:
            faults[run] = f"{path} cannot be read ({error.strerror})"
            continue
        if whole:
            lost = found[run].count("diverged")
            panels.append(Panel(spot.line, spot.x, run, record.samples, lost, *found[run].origin))
        else:
            faults[run] = f"{path} does not belong to the record beside it"
    return panels, faults


def parse(text: str) -> list[Panel]:
    """The panels of a CSV file."""
    return [Panel(**(row | {"diverged": int(row["diverged"])})) for row in csv.DictReader(io.StringIO(text))]


def contents(paper: Paper, spec: Gallery, panels: Iterable[Panel]) -> dict[str, bytes]:
    """Run -> its samples. Raises FedreproError where they are missing, or no longer those of the CSV file."""
    read = {}
    for panel in panels:
        path = record_path(paper.name, panel.run, paper.root).with_name(spec.file)
        if not path.exists() or file_digest(path) != panel.samples:
            raise FedreproError(f"{path} is not what the figure was made of: run `dvc repro {paper.stage(panel.run)}`.")
        read[panel.run] = path.read_bytes()
    return read
