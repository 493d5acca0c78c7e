"""Run records to tidy rows: one per run, seed and metric of a table, after the table's reduction."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, FiniteFloat, ValidationError

from fedrepro.config import RunConfig
from fedrepro.curves import Curve, read_curves, shown
from fedrepro.errors import FedreproError
from fedrepro.files import csv_text, file_digest, write_text
from fedrepro.schema import Table, first_fault
from fedrepro.spec import Paper, load_paper

ADHOC = Path("runs/adhoc")  # where the records of runs go that no paper plans


class Provenance(BaseModel):
    """Where a seed's numbers come from; a record without all of it is refused."""

    command: Any
    versions: dict[str, str]
    device: Any
    threads: int
    precision: str
    started: Any
    finished: Any
    commit: str | None


class Entry(BaseModel):
    """One seed of a record: how its training ended, and its final metrics (none where it diverged).

    `shifted`: the metrics where the stopping threshold, moved by the key, would have ended it, if it would have.
    """

    status: str
    rounds: int
    metrics: dict[str, FiniteFloat]
    shifted: dict[float, dict[str, FiniteFloat]] = {}
    provenance: Provenance


class Data(BaseModel):
    """The data of a record; `substitute` says what stands in for the paper's own."""

    fingerprint: str
    substitute: str | None = None


class Record(BaseModel):
    """What a table needs of runs/<paper>/<run>/record.json.

    `curves`, `samples`: the sha256 of the curves.csv and of the samples beside it; empty where there are no samples.
    """

    budget: str
    digest: str
    code: str
    data: Data
    curves: str
    samples: str = ""
    seeds: dict[int, Entry]


@dataclass(frozen=True)
class Watched:
    """A run as planned, as recorded and as watched: `curves` by seed. `place`: the record's path."""

    place: Path
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

    def last(self, seed: int, metric: str, rounds: int) -> float:
        """The mean of a metric over the last `rounds` rounds of a seed, in the record's unit.

        Raises FedreproError where the curve lacks one of these rounds.
        """
        end = self.record.seeds[seed].rounds
        own = [(round, value) for round, name, value in self.curves.get(seed, []) if name == metric]
        values = [value for round, value in own if end - rounds < round <= end and math.isfinite(value)]
        if len(values) < rounds:
            had = f"{metric} at {len(values)} of the last {rounds} rounds of seed {seed}"
            remedy = "in paper.toml, train as many rounds and watch each of them"
            raise FedreproError(
                f"{self.place.with_name('curves.csv')} has {had}, and their mean is asked for: {remedy}."
            )
        return statistics.fmean(values)

    def checkpoints(self, seed: int, metric: str, parts: int) -> dict[int, float]:
        """Round -> a metric of a seed at the ends of `parts` equal parts of training, in the record's unit.

        Raises FedreproError where the curve lacks one of them.
        """
        ends = [self.config.rounds * part / parts for part in range(1, parts + 1)]
        own = {round: value for round, name, value in self.curves.get(seed, []) if name == metric}
        found = {int(end): own[end] for end in ends if math.isfinite(own.get(end, math.nan))}
        if len(found) < parts:
            had = f"{metric} at {len(found)} of {parts} equal parts of training of seed {seed}"
            remedy = "set rounds and watch.test_every in paper.toml so that each of them is watched"
            raise FedreproError(f"{self.place.with_name('curves.csv')} has {had}, and all are asked for: {remedy}.")
        return found


@dataclass(frozen=True)
class Measure:
    """One number of one seed, reduced as its table asks for.

    `value`: in the record's unit (a fraction for accuracies), None where the seed diverged.

    `status` and `rounds`: how and when the seed's training ended; where a cell is over checkpoints, each with a measure
    of its own, `rounds` is the checkpoint. `threshold`: of the stopping rule, None without one.
    `budget`: of the record. `substitute`: what stands in for the paper's data, empty where it is the paper's own.
    `raised`, `lowered`: the value had the threshold been moved by the largest and the smallest of its shifts.
    """

    run: str
    seed: int
    metric: str
    value: float | None
    status: str
    rounds: int
    threshold: float | None
    budget: str
    substitute: str
    raised: float | None
    lowered: float | None


@dataclass(frozen=True)
class Evaluation:
    """The measures of a table, and for each run without a usable record one sentence that says what is wrong."""

    measures: list[Measure]
    faults: dict[str, str]


def table(paper: str, name: str, root: str | Path = ".") -> Path:
    """Write reports/metrics/<paper>/<table>.csv from the records of the table's runs.

    Raises FedreproError where a record is missing, incomplete or of other settings than the spec's.
    """
    found = collect(load_paper(paper, root), name)
    enforce(found.faults, f"{paper} {name}")
    return write_text(path(paper, name, root), text(found.measures))


def collect(paper: Paper, name: str) -> Evaluation:
    """What the records of a table's runs say, in the order of its cells; nothing is raised for a faulty record."""
    spec, wanted = paper.table(name), paper.measured(name)
    found, faults = watched(paper, wanted, curves=spec.over_curves)
    measures: list[Measure] = []
    for run, each in found.items():
        try:
            measures += _measures(each, run, spec, wanted[run])
        except _Fault as fault:
            faults[run] = remedied(paper, run, str(fault))
        except FedreproError as error:
            faults[run] = str(error)
    return Evaluation(measures, {run: faults[run] for run in wanted if run in faults})


def watched(paper: Paper, runs: Iterable[str], curves: bool = True) -> tuple[dict[str, Watched], dict[str, str]]:
    """The runs with a usable record and, unless only that is asked for, its curves.

    For each of the others one sentence that says what is wrong, and what mends it.
    """
    found: dict[str, Watched] = {}
    faults: dict[str, str] = {}
    for run in runs:
        place, config = record_path(paper.name, run, paper.root), paper.run(run)
        try:
            record = _record(place, config, paper.budget)
            found[run] = Watched(place, config, record, _curves(place, record) if curves else {})
        except _Fault as fault:
            faults[run] = remedied(paper, run, str(fault))
    return found, faults


def enforce(faults: dict[str, str], what: str) -> None:
    """Raise FedreproError with the first of the runs' faults, and the number of them, if there is any."""
    if faults:
        more = f" ({len(faults)} runs of {what} lack a usable record)" if len(faults) > 1 else ""
        raise FedreproError(f"{next(iter(faults.values()))}{more}")


def path(paper: str, table: str, root: str | Path = ".") -> Path:
    """Where a table's measures are."""
    return Path(root) / "reports" / "metrics" / paper / f"{table}.csv"


def record_path(paper: str, run: str, root: str | Path = ".") -> Path:
    """Where a planned run's record is."""
    return Path(root) / "runs" / paper / run / "record.json"


def text(measures: list[Measure]) -> str:
    """The measures as CSV; what is None is an empty field."""
    return csv_text(Measure, measures)


def parse(text: str) -> list[Measure]:
    """The inverse of `text`."""
    return [_measure(row) for row in csv.DictReader(io.StringIO(text))]


def stored(path: Path, parse: Callable[[str], list[Any]], paper: Paper, runs: list[str], command: str) -> list[Any]:
    """The rows that `command` wrote, which say their `run` and `budget`; FedreproError where missing or stale."""
    remedy = f"run `{command}`"
    if not path.exists():
        raise FedreproError(f"{path} is missing: {remedy}.")
    try:
        rows = parse(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError, KeyError) as error:
        raise FedreproError(f"{path} cannot be read ({error}): {remedy}.") from error
    if absent := set(runs) - {run for row in rows for run in row.run.split("; ")}:
        raise FedreproError(f"{path} lacks run {min(absent)}: {remedy}.")
    if other := {row.budget for row in rows} - {paper.budget}:
        raise FedreproError(f"{path} is of budget {min(other)!r} instead of {paper.budget!r}: {remedy}.")
    return rows


class _Fault(Exception):
    """Why a record cannot be used."""


def _measure(row: dict[str, str]) -> Measure:
    numbers = {key: float(row[key]) if row[key] else None for key in ("value", "threshold", "raised", "lowered")}
    return Measure(**(row | numbers | {"seed": int(row["seed"]), "rounds": int(row["rounds"])}))


def remedied(paper: Paper, run: str, fault: str) -> str:
    """The sentence about a run's fault with what mends it."""
    return f"{fault}: run `dvc repro {paper.stage(run)}`."


def _curves(place: Path, record: Record) -> dict[int, list[Curve]]:
    path = place.with_name("curves.csv")
    try:
        if file_digest(path) == record.curves:
            return read_curves(path)
    except OSError as error:
        raise _Fault(f"{path} cannot be read ({error.strerror})") from None
    raise _Fault(f"{path} does not belong to the record beside it")


def _record(place: Path, config: RunConfig, budget: str) -> Record:
    """The record, once it is known to be whole, of this budget and these settings, and to have all seeds."""
    try:
        record = Record.model_validate_json(place.read_bytes())
    except FileNotFoundError:
        raise _Fault(f"{place} is missing") from None
    except OSError as error:
        raise _Fault(f"{place} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise _Fault(f"{place} is incomplete ({first_fault(error).rstrip('.')})") from None
    if record.budget != budget:
        raise _Fault(f"{place} was made at budget {record.budget!r} instead of {budget!r}")
    if record.digest != config.digest():
        raise _Fault(f"{place} was made with other settings than the spec's")
    if absent := [seed for seed in config.seeds if seed not in record.seeds]:
        raise _Fault(f"{place} lacks seed {absent[0]}")
    return record


def _measures(run: Watched, name: str, table: Table, metrics: list[str]) -> list[Measure]:
    """The rows of one run: seed by seed, metric by metric."""
    stop, (budget, substitute) = run.config.stop, run.origin
    threshold = stop.threshold if stop else None
    shifts = sorted(stop.shifts) if stop and not table.over_curves else []  # the record has shifted runs' ends alone
    measures = []
    for seed in run.config.seeds:
        entry = run.record.seeds[seed]
        if table.checkpoints and entry.status != "diverged":
            for metric in metrics:
                for round, value in run.checkpoints(seed, metric, table.checkpoints).items():
                    ended = (entry.status, round, threshold, budget, substitute, None, None)
                    measures.append(Measure(name, seed, metric, value, *ended))
            continue
        values = _values(run, seed, table, metrics)
        lowered, raised = (entry.shifted.get(shift, {}) for shift in (shifts[0], shifts[-1])) if shifts else ({}, {})
        for metric in metrics:
            ended = (entry.status, entry.rounds, threshold, budget, substitute, raised.get(metric), lowered.get(metric))
            measures.append(Measure(name, seed, metric, values.get(metric), *ended))
    return measures


def _values(run: Watched, seed: int, table: Table, metrics: list[str]) -> dict[str, float]:
    """What a seed reports, after the table's reduction; nothing where it diverged."""
    entry = run.record.seeds[seed]
    if entry.status == "diverged":
        return {}
    if table.last is not None:
        return {metric: run.last(seed, metric, table.last) for metric in metrics}
    if absent := [metric for metric in metrics if metric not in entry.metrics]:
        raise _Fault(f"{run.place} lacks {absent[0]} of seed {seed}")
    return entry.metrics
