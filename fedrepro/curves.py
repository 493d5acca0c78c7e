"""A run's curves: as CSV, and beside its record as figures and claims read them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedrepro import evaluate
from fedrepro.config import RunConfig
from fedrepro.errors import FedreproError
from fedrepro.evaluate import Record
from fedrepro.files import file_digest
from fedrepro.spec import Paper

Curve = tuple[int, str, float]  # round, metric, value; as in train.py, which is slow to import


def curves_text(curves: dict[int, list[Curve]]) -> str:
    """Curves as CSV: seed, round, metric, value (six significant digits)."""
    points = ((seed, *point) for seed, curve in curves.items() for point in curve)
    return "\n".join(["seed,round,metric,value", *(f"{s},{round},{name},{v:.6g}" for s, round, name, v in points), ""])


def read_curves(path: Path) -> dict[int, list[Curve]]:
    """The curves of each seed, as `curves_text` wrote them."""
    curves: dict[int, list[Curve]] = {}
    for row in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
        curves.setdefault(int(row["seed"]), []).append((int(row["round"]), row["metric"], float(row["value"])))
    return curves


@dataclass(frozen=True)
class Watched:
    """A run as planned, as recorded and as watched: `curves` by seed."""

    config: RunConfig
    record: Record
    curves: dict[int, list[Curve]]

    @property
    def seeds(self) -> list[int]:
        """The seeds of the spec but for those that diverged, which have no result."""
        return [seed for seed in self.config.seeds if self.record.seeds[seed].status != "diverged"]

    @property
    def origin(self) -> tuple[str, str]:
        """The budget, and what stands in for the paper's data: empty where it is the paper's own."""
        return self.record.budget, self.record.data.substitute or ""

    @property
    def metrics(self) -> set[str]:
        """What was watched."""
        return {metric for seed in self.seeds for _, metric, _ in self.curves.get(seed, [])}

    def count(self, status: str) -> int:
        """The number of the spec's seeds that ended so."""
        return [self.record.seeds[seed].status for seed in self.config.seeds].count(status)

    def curve(self, seed: int, metric: str) -> list[tuple[int, float]]:
        """(round, value) of one metric of a seed in the order of rounds, in percent if it is an accuracy."""
        points = ((round, shown(name, value)) for round, name, value in self.curves.get(seed, []) if name == metric)
        return [(round, value) for round, value in points if math.isfinite(value)]


def percent(metric: str) -> bool:
    """Whether a reader is shown the metric in percent."""
    return metric.endswith("accuracy")


def shown(metric: str, value: float) -> float:
    """A value of the record or the curves, in the unit that a reader is shown."""
    return 100 * value if percent(metric) else value


def digits(value: float) -> float:
    """What figures and claims keep of a number: six significant digits, so that it is what its CSV file says."""
    return float(f"{value:.6g}")


def watched(paper: Paper, runs: Iterable[str]) -> tuple[dict[str, Watched], dict[str, str]]:
    """The runs with a usable record and its curves; for each of the others one sentence that says what is wrong."""
    found: dict[str, Watched] = {}
    faults: dict[str, str] = {}
    for run in runs:
        config = paper.run(run)
        try:
            record = evaluate.usable(paper, run)
            found[run] = Watched(config, record, _curves(paper, run, record))
        except FedreproError as error:
            faults[run] = str(error)
    return found, faults


def _curves(paper: Paper, run: str, record: Record) -> dict[int, list[Curve]]:
    path = evaluate.record_path(paper.name, run, paper.root).with_name("curves.csv")
    try:
        if file_digest(path) == record.curves:
            return read_curves(path)
        fault = "does not belong to the record beside it"
    except OSError as error:
        fault = f"cannot be read ({error.strerror})"
    raise FedreproError(evaluate.remedied(paper, run, f"{path} {fault}"))
