"""The record of a run: what its numbers are, what they depend on and where they come from. Read and written here alone.

A run's folder holds `curves.csv`, for a generator `samples.png` or `samples.csv`, and `record.json`, which is written
last and has the checksums of the others.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import FiniteFloat, ValidationError

from fedrepro.errors import FedreproError
from fedrepro.files import file_digest, write_bytes, write_json, write_text
from fedrepro.records.config import RunConfig, Strict, Value, first_fault
from fedrepro.records.curves import Curve, curves_text, read_curves
from fedrepro.records.paths import SAMPLES, STATE

DIVERGED = "diverged"


class Numerics(Strict):
    """Numbers that are raised by hand in the commit that changes what is computed: by the engine, method or dataset."""

    engine: int
    method: int
    data: int


class Identity(Strict):
    """The settings, data and code version behind a run's numbers; a record with another identity is stale.

    config: `RunConfig.digest`; data: the fingerprint of the source's pinned files; extractor: sha256 of the network
    that judges generated images, "" of a run without such images.
    """

    config: str
    data: str
    numerics: Numerics
    extractor: str = ""


class Provenance(Strict):
    """How, with what and when a seed was trained. No part of it is identity."""

    command: str
    versions: dict[str, str]
    device: str
    threads: int
    peak_rss_mb: int | None = None
    precision: str
    started: str
    finished: str
    commit: str | None


class Seed(Strict):
    """How the training of one seed ended, and its final metrics (none where it diverged).

    `shifted`: the metrics where the stopping threshold, moved by the key, would have ended it, if it would have.
    """

    status: Literal["finished", "stopped", "cap", "diverged"]
    rounds: int
    metrics: dict[str, FiniteFloat]
    shifted: dict[str, dict[str, int | FiniteFloat]] = {}
    rejected: int = 0
    seconds: float
    provenance: Provenance


class Data(Strict):
    """The data of a run. `substitute` says what stands in for the paper's own; `facts`: what was measured, by seed."""

    dataset: str
    source: str
    substitute: str | None = None
    licence: str = ""
    files: dict[str, str] = {}
    facts: dict[str, dict] = {}


class Record(Strict):
    """A whole record. `curves`, `samples`: the sha256 of these files; `extractor`: the name of the judging network.

    `resolved`: every hyper-parameter with its default, and network and optimiser by name.
    """

    format: Literal[2] = 2
    paper: str | None
    run: str | None
    budget: str
    config: RunConfig
    resolved: dict[str, Value | None]
    identity: Identity
    data: Data
    curves: str
    samples: str = ""
    extractor: str = ""
    seeds: dict[int, Seed]

    @property
    def origin(self) -> tuple[str, str]:
        """The budget, and what stands in for the paper's data: empty where it is the paper's own."""
        return self.budget, self.data.substitute or ""


@dataclass(frozen=True)
class Place:
    """The folder of a run, and what its record says it is."""

    folder: Path
    paper: str | None = None
    run: str | None = None
    budget: str = "ad hoc"

    @property
    def state(self) -> Path:
        """The folder of the run's checkpoints, outside everything that a pipeline removes."""
        if self.paper:
            return STATE / f"{self.paper}--{self.run}"
        return STATE / hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]


def path(folder: Path) -> Path:
    """The record of a run's folder."""
    return folder / "record.json"


def samples(folder: Path) -> Path | None:
    """The file of a run's samples, if it has any."""
    return next((folder / name for name in SAMPLES if (folder / name).exists()), None)


def read(folder: Path) -> Record:
    """The record in a run's folder, once it is known to be whole and to belong to the curves and samples beside it.

    Raises FedreproError that says what is wrong, without a remedy.
    """
    place = path(folder)
    try:
        record = Record.model_validate_json(place.read_bytes())
        whole = record.curves == file_digest(folder / "curves.csv") or record.curves == _own_curves(folder, record)
        if not whole:
            raise FedreproError(f"{folder / 'curves.csv'} does not belong to the record beside it")
        if (there := samples(folder)) and file_digest(there) != record.samples:
            raise FedreproError(f"{there} does not belong to the record beside it")
        if record.samples and not there:
            raise FedreproError(f"{folder} has no samples, which belong to its record")
    except FileNotFoundError as error:
        raise FedreproError(f"{error.filename} is missing") from None
    except OSError as error:
        raise FedreproError(f"{error.filename or place} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise FedreproError(f"{place} is incomplete ({first_fault(error).rstrip('.')})") from None
    return record


def _own_curves(folder: Path, record: Record) -> str:
    """sha256 of the curves of the record's own seeds: a run that was cut off before its record leaves those of more."""
    head, *lines = (folder / "curves.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    own = {str(seed) for seed in record.seeds}
    text = head + "".join(line for line in lines if line.partition(",")[0] in own)
    return hashlib.sha256(text.encode()).hexdigest()


def curves(folder: Path) -> dict[int, list[Curve]]:
    """Seed -> its curve, points of (round, metric, value)."""
    return read_curves(folder / "curves.csv")


def write(folder: Path, fields: dict, curves: dict[int, list[Curve]], shown: tuple[str, bytes] | None = None) -> Record:
    """Write a run's curves, where there are new samples these, as (name, content), and then its record.

    `fields`: those of Record but for the checksums.
    """
    digests = {"curves": file_digest(write_text(folder / "curves.csv", curves_text(curves)))}
    if shown:
        write_bytes(folder / shown[0], shown[1])
    digests |= {"samples": file_digest(there)} if (there := samples(folder)) else {}
    record = Record.model_validate(fields | digests)
    content = record.model_dump(mode="json")
    write_json(path(folder), {key: content[key] for key in content if content[key] != ""})
    return record
