"""Run records to tidy rows: one per run, seed and metric of a table, after the table's reduction."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, FiniteFloat, ValidationError

from fedrepro.config import RunConfig
from fedrepro.errors import FedreproError, unknown
from fedrepro.files import csv_text, write_text
from fedrepro.schema import Table, first_fault
from fedrepro.spec import Paper, load_paper


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
    """What a table needs of runs/<paper>/<run>/record.json. `curves`: the sha256 of the curves.csv beside it."""

    budget: str
    digest: str
    code: str
    data: Data
    curves: str
    seeds: dict[int, Entry]


@dataclass(frozen=True)
class Measure:
    """One number of one seed. `value`: as in the record (a fraction for accuracies), None where the seed diverged.

    `status` and `rounds`: how and when the seed's training ended. `threshold`: of the stopping rule, None without one.
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


def final(entry: Entry) -> dict[str, float]:
    """The metrics at the end of training: of the last round, or of the round at which the run stopped."""
    return entry.metrics


REDUCTIONS: dict[str, Callable[[Entry], dict[str, float]]] = {"final": final}


def table(paper: str, name: str, root: str | Path = ".") -> Path:
    """Write reports/metrics/<paper>/<table>.csv from the records of the table's runs.

    Raises FedreproError where a record is missing, incomplete or of other settings than the spec's.
    """
    found = collect(load_paper(paper, root), name)
    enforce(found.faults, f"{paper} {name}")
    return write_text(path(paper, name, root), text(found.measures))


def collect(paper: Paper, name: str) -> Evaluation:
    """What the records of a table's runs say, in the order of its cells; nothing is raised for a faulty record."""
    spec = paper.table(name)
    if spec.reduction not in REDUCTIONS:
        raise unknown("reduction", spec.reduction, REDUCTIONS)
    measures: list[Measure] = []
    faults: dict[str, str] = {}
    for run in paper.table_runs(name):
        place, config = record_path(paper.name, run, paper.root), paper.run(run)
        try:
            measures += _measures(_record(place, config, paper.budget), config, run, spec)
        except _Fault as fault:
            faults[run] = remedied(paper, run, f"{place} {fault}")
    return Evaluation(measures, faults)


def usable(paper: Paper, run: str) -> Record:
    """The record of a run, whole and of the spec's settings. Raises FedreproError with the remedy where it is not."""
    place, config = record_path(paper.name, run, paper.root), paper.run(run)
    try:
        return _record(place, config, paper.budget)
    except _Fault as fault:
        raise FedreproError(remedied(paper, run, f"{place} {fault}")) from None


def remedied(paper: Paper, run: str, fault: str) -> str:
    """The sentence about a run's fault with what mends it."""
    return f"{fault}: run `dvc repro {paper.stage(run)}`."


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
    if absent := set(runs) - {row.run for row in rows}:
        raise FedreproError(f"{path} lacks run {min(absent)}: {remedy}.")
    if other := {row.budget for row in rows} - {paper.budget}:
        raise FedreproError(f"{path} is of budget {min(other)!r} instead of {paper.budget!r}: {remedy}.")
    return rows


class _Fault(Exception):
    """Why a record cannot be used."""


def _measure(row: dict[str, str]) -> Measure:
    numbers = {key: float(row[key]) if row[key] else None for key in ("value", "threshold", "raised", "lowered")}
    return Measure(**(row | numbers | {"seed": int(row["seed"]), "rounds": int(row["rounds"])}))


def _record(place: Path, config: RunConfig, budget: str) -> Record:
    """The record, once it is known to be whole, of this budget and these settings, and to have all seeds."""
    try:
        record = Record.model_validate_json(place.read_bytes())
    except FileNotFoundError:
        raise _Fault("is missing") from None
    except OSError as error:
        raise _Fault(f"cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise _Fault(f"is incomplete ({first_fault(error).rstrip('.')})") from None
    if record.budget != budget:
        raise _Fault(f"was made at budget {record.budget!r} instead of {budget!r}")
    if record.digest != config.digest():
        raise _Fault("was made with other settings than the spec's")
    if absent := [seed for seed in config.seeds if seed not in record.seeds]:
        raise _Fault(f"lacks seed {absent[0]}")
    return record


def _measures(record: Record, config: RunConfig, run: str, table: Table) -> list[Measure]:
    """The rows of one run: seed by seed, metric by metric."""
    threshold, substitute = config.stop.threshold if config.stop else None, record.data.substitute or ""
    shifts = sorted(config.stop.shifts) if config.stop else []
    measures = []
    for seed in config.seeds:
        entry = record.seeds[seed]
        values = {} if entry.status == "diverged" else REDUCTIONS[table.reduction](entry)
        if entry.status != "diverged" and (absent := [metric for metric in table.metrics if metric not in values]):
            raise _Fault(f"lacks {absent[0]} of seed {seed}")
        ended = (entry.status, entry.rounds, threshold, record.budget, substitute)
        lowered, raised = (entry.shifted.get(shift, {}) for shift in (shifts[0], shifts[-1])) if shifts else ({}, {})
        for metric in table.metrics:
            moved = (raised.get(metric), lowered.get(metric))
            measures.append(Measure(run, seed, metric, values.get(metric), *ended, *moved))
    return measures
