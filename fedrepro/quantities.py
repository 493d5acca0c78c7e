"""Records and curves to what claims compare: one number for each seed of each run, as reports/metrics/*/claims.csv."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrepro import evaluate
from fedrepro.curves import digits, shown
from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.evaluate import Watched
from fedrepro.files import csv_text, write_text
from fedrepro.schema import Final, FirstRound, Gap, Growth, Last, Median, Oscillation, Quantity, Share
from fedrepro.spec import Paper


@dataclass(frozen=True)
class Reading:
    """A claim's quantity of one seed, in percent or points of it for accuracies.

    `value`: None where the seed diverged, or its curve is too short. `censored`: the seed was cut off, so that its true
    value is at least this one. `budget`, `substitute`: as in a table's measures.
    """

    claim: str
    run: str
    seed: int
    value: float | None
    censored: bool
    budget: str
    substitute: str


@dataclass(frozen=True)
class Readings:
    """The readings of a paper, and for each run without a usable record one sentence that says what is wrong."""

    readings: list[Reading]
    faults: dict[str, str]


def claims(paper: Paper) -> Path:
    """Write reports/metrics/<paper>/claims.csv from the records and curves of the runs that the claims compare.

    Raises FedreproError where a record is missing, incomplete or of other settings than the spec's.
    """
    found = collect(paper)
    evaluate.enforce(found.faults, f"the claims of {paper.name}")
    return write_text(path(paper.name, paper.root), text(found.readings))


def collect(paper: Paper) -> Readings:
    """What the records and curves say, claim by claim; nothing is raised for a faulty record.

    Raises UsageError where a claim names a metric that a run does not have.
    """
    found, faults = evaluate.watched(paper, paper.claim_runs())
    readings = []
    for name, claim in paper.spec.claims.items():
        references = paper.references(name)
        runs = (run for comparison in paper.comparisons(name) for run in comparison.runs)
        for run in dict.fromkeys(run for run in runs if run in found):
            quantity = of_record(claim.quantity, paper, run)
            check_metric(quantity, found[run], f"{paper.folder / 'paper.toml'}: claims.{name}: run {run}")
            try:
                readings += _readings(name, quantity, run, found[run], found.get(references.get(run) or ""))
            except FedreproError as error:
                faults[run] = str(error)
    return Readings(readings, faults)


def of_record(quantity: Quantity, paper: Paper, run: str) -> Quantity:
    """The quantity with the metric that it is in the record of a run."""
    metric = getattr(quantity, "metric", None)
    return quantity if metric is None else quantity.model_copy(update={"metric": paper.read(metric, run).metric})


def read(quantity: Quantity, run: Watched, seed: int, reference: Watched | None = None) -> tuple[float | None, bool]:
    """The quantity of one seed, and whether the seed was cut off before it could be larger; (None, False) without.

    `reference`: the run of whose accuracy a level is a share, if the quantity has one. Raises FedreproError where a
    mean over the last rounds is asked for and they were not all watched.
    """
    entry = run.record.seeds[seed]
    if entry.status == "diverged":
        return None, False
    if isinstance(quantity, Final):
        return shown(quantity.metric, entry.metrics[quantity.metric]), False
    if isinstance(quantity, Gap):
        return _gap(quantity, entry.metrics), False
    if isinstance(quantity, Last):
        return shown(quantity.metric, run.last(seed, quantity.metric, quantity.rounds)), False
    if isinstance(quantity, Median):
        return statistics.median(looks(quantity, run, seed)), False
    if isinstance(quantity, Growth):
        until = None if quantity.by is None else quantity.by * run.config.rounds
        return growth(run.curve(seed, quantity.metric), until), False
    if isinstance(quantity, FirstRound):
        level = quantity.level
        if isinstance(level, Share):
            level = _share(level, quantity.metric, reference, seed)
        return (None, False) if level is None else first_round(run.curve(seed, quantity.metric), level)
    if isinstance(quantity, Oscillation):
        start = run.config.stop.warm_start if run.config.stop else 0
        curve = run.curve(seed, quantity.metric)
        values = [value for round, value in curve if start < round <= (quantity.until or round)]
        return oscillation(values, quantity.window), False
    return entry.rounds, entry.status == "cap"


def looks(quantity: Median, run: Watched, seed: int) -> list[float]:
    """What the median of a seed is of. Raises FedreproError where a checkpoint was not watched."""
    found = run.checkpoints(seed, quantity.metric, quantity.checkpoints)
    return [shown(quantity.metric, value) for value in found.values()]


def growth(curve: Sequence[tuple[int, float]], until: float | None = None) -> float | None:
    """The last value of a curve (round, value) less its first; with `until`, the part of it that came by that round.

    None where the curve has no two values, and of a part where it has not grown at all.
    """
    if len(curve) < 2:
        return None
    whole = curve[-1][1] - curve[0][1]
    if until is None:
        return whole
    early = [value for round, value in curve if round <= until]
    return (early[-1] - curve[0][1]) / whole if early and whole else None


def oscillation(values: Sequence[float], window: int) -> float | None:
    """How much a curve swings: its standard deviation within each `window` values in a row, averaged over all windows.

    A drift that is slow beside a window moves it little; a swing shorter than a window counts in full. In the unit of
    the values, with the population's standard deviation. None where there are fewer values than a window has.
    """
    if len(values) < window:
        return None
    return float(np.lib.stride_tricks.sliding_window_view(values, window).std(axis=1).mean())


def first_round(curve: Sequence[tuple[int, float]], level: float) -> tuple[int | None, bool]:
    """The first watched round with a value of at least `level`; of a curve without one its last round, and True."""
    if not curve:
        return None, False
    reached = (round for round, value in curve if value >= level)
    round = next(reached, None)
    return (curve[-1][0], True) if round is None else (round, False)


def check_metric(quantity: Quantity, run: Watched, where: str) -> None:
    """Raise UsageError where the run does not have the metric; a run has none at all if all seeds diverged."""
    ends = {name for seed in run.seeds for name in run.record.seeds[seed].metrics}
    known = ends if isinstance(quantity, Final | Gap) else run.metrics
    for metric in (getattr(quantity, name, None) for name in ("metric", "less")):
        if run.seeds and metric is not None and metric not in known:
            raise UsageError(f"{where}: {unknown('metric', metric, known)}")


def path(paper: str, root: str | Path = ".") -> Path:
    """Where the readings of a paper's claims are: beside the measures of its tables."""
    return evaluate.path(paper, "claims", root)


def text(readings: list[Reading]) -> str:
    """The readings as CSV."""
    return csv_text(Reading, readings)


def parse(text: str) -> list[Reading]:
    """The inverse of `text`."""
    return [_reading(row) for row in csv.DictReader(io.StringIO(text))]


def stored(paper: Paper) -> list[Reading]:
    """The readings that `fedrepro evaluate` wrote. Raises FedreproError where they are missing or stale."""
    command = f"fedrepro evaluate --paper {paper.name} --claims"
    return evaluate.stored(path(paper.name, paper.root), parse, paper, paper.claim_runs(), command)


def _readings(name: str, quantity: Quantity, run: str, found: Watched, reference: Watched | None) -> list[Reading]:
    """A run's readings for a claim, seed by seed."""
    readings = []
    for seed in found.config.seeds:
        value, censored = read(quantity, found, seed, reference)
        kept = None if value is None else digits(value)
        readings.append(Reading(name, run, seed, kept, censored, *found.origin))
    return readings


def _gap(quantity: Gap, metrics: dict[str, float]) -> float:
    """In the unit of the metrics, which is the same."""
    return shown(quantity.metric, metrics[quantity.metric]) - shown(quantity.less, metrics[quantity.less])


def _share(level: Share, metric: str, reference: Watched | None, seed: int) -> float | None:
    """The level in a reader's unit; None where the reference has no such seed or is not run."""
    if reference is None or seed not in reference.seeds:
        return None
    return digits(level.share * shown(metric, reference.last(seed, metric, level.rounds)))


def _reading(row: dict[str, str]) -> Reading:
    value = float(row["value"]) if row["value"] else None
    return Reading(**(row | {"seed": int(row["seed"]), "value": value, "censored": row["censored"] == "True"}))
