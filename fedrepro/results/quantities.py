"""Quantities: what figures and claims read off a run, seed by seed, in percent or points of it for accuracies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from fedrepro.errors import UsageError, unknown
from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.quantities import Quantity, Share
from fedrepro.records.curves import digits, shown
from fedrepro.results.runs import Run

Values = dict[int, float]  # seed -> its value, NaN where its curve is too short to have one


def read(quantity: Quantity, run: Run, reference: Run | None = None) -> tuple[Values, set[int]]:
    """The quantity of each seed that did not diverge, and the seeds that were cut off before it could be larger.

    `reference`: the run of whose accuracy a level is a share, if the quantity has one. Raises FedreproError where a
    mean over the last rounds is asked for, or a median over checkpoints, and they were not all watched.
    """
    if quantity.kind == "rounds":
        return run.ends, set(run.capped)
    if quantity.kind == "first_round":
        return _first_rounds(quantity, run, reference)
    return READ[quantity.kind](quantity, run), set()


def looks(quantity: Quantity, run: Run) -> list[float]:
    """The values behind a point of a figure: a value of each seed, or of a median all that it is of."""
    if quantity.kind == "median":
        return [value for each in _checkpoints(quantity, run).values() for value in each]
    return [value for value in read(quantity, run)[0].values() if not math.isnan(value)]


def of_record(quantity: Quantity, paper: Paper, run: str) -> Quantity:
    """The quantity with the metric that it is in the record of a run."""
    if not quantity.metric:
        return quantity
    return quantity.model_copy(update={"metric": paper.read(quantity.metric, run).metric})


def check_metric(quantity: Quantity, run: Run, where: str) -> None:
    """Raise UsageError where the run does not have the metric; a run has none at all if all seeds diverged."""
    known = run.metrics if quantity.kind in ("final", "gap") else run.watched
    for metric in filter(None, (quantity.metric, quantity.less)):
        if run.seeds and metric not in known:
            raise UsageError(f"{where}: {unknown('metric', metric, known)}")


def growth(curve: pd.Series, until: float | None = None) -> float:
    """The last value of a curve, by round, less its first; with `until`, the part of it that came by that round.

    NaN where the curve has no two values, and of a part where it has not grown at all.
    """
    if len(curve) < 2:
        return math.nan
    whole = curve.iloc[-1] - curve.iloc[0]
    if until is None:
        return whole
    early = curve[curve.index <= until]
    return (early.iloc[-1] - curve.iloc[0]) / whole if len(early) and whole else math.nan


def oscillation(values: Sequence[float], window: int) -> float:
    """How much a curve swings: its standard deviation within each `window` values in a row, averaged over all windows.

    A drift that is slow beside a window moves it little; a swing shorter than a window counts in full. In the unit of
    the values, with the population's standard deviation. NaN where there are fewer values than a window has.
    """
    if len(values) < window:
        return math.nan
    return float(np.lib.stride_tricks.sliding_window_view(np.asarray(values), window).std(axis=1).mean())


def first_round(curve: pd.Series, level: float) -> tuple[float, bool]:
    """The first watched round with a value of at least `level`; of a curve without one its last round, and True."""
    if curve.empty:
        return math.nan, False
    reached = curve.index[curve >= level]
    return (reached[0], False) if len(reached) else (curve.index[-1], True)


def _curves(run: Run, metric: str) -> dict[int, pd.Series]:
    """Seed -> its curve as a reader is shown it, by round."""
    return {seed: curve.dropna() for seed, curve in shown(metric, run.curve(metric)).items()}


def _shown(metric: str, values: Values) -> Values:
    return {seed: shown(metric, value) for seed, value in values.items()}


def _gap(quantity: Quantity, run: Run) -> Values:
    """In the unit of the metrics, which is the same."""
    less = _shown(quantity.less, run.final(quantity.less))
    return {seed: value - less[seed] for seed, value in _shown(quantity.metric, run.final(quantity.metric)).items()}


def _checkpoints(quantity: Quantity, run: Run) -> dict[int, list[float]]:
    found = run.checkpoints(quantity.metric, quantity.checkpoints)
    return {seed: [shown(quantity.metric, value) for value in own.values()] for seed, own in found.items()}


def _growth(quantity: Quantity, run: Run) -> Values:
    until = None if quantity.by is None else quantity.by * run.config.rounds
    return {seed: growth(curve, until) for seed, curve in _curves(run, quantity.metric).items()}


def _oscillation(quantity: Quantity, run: Run) -> Values:
    """From the end of the warm start on."""
    rule = run.config.stop or run.config.watch.crossings
    start = rule.warm_start if rule else 0
    curves = _curves(run, quantity.metric).items()
    return {seed: oscillation(curve.loc[start + 1 : quantity.until], quantity.window) for seed, curve in curves}


def _first_rounds(quantity: Quantity, run: Run, reference: Run | None) -> tuple[Values, set[int]]:
    """A seed has none where the level is a share of a reference that has no such seed, or is not run."""
    level, metric = quantity.level, quantity.metric
    levels = dict.fromkeys(run.seeds, level)
    if isinstance(level, Share):
        ends = _shown(metric, reference.last(metric, level.rounds)) if reference else {}
        levels = {seed: digits(level.share * end) for seed, end in ends.items()}
    found = {s: first_round(curve, levels[s]) for s, curve in _curves(run, metric).items() if s in levels}
    values = dict.fromkeys(run.seeds, math.nan) | {seed: round for seed, (round, _) in found.items()}
    return values, {seed for seed, (_, censored) in found.items() if censored}


READ: dict[str, Callable[[Quantity, Run], Values]] = {
    "final": lambda quantity, run: _shown(quantity.metric, run.final(quantity.metric)),
    "gap": _gap,
    "last": lambda quantity, run: _shown(quantity.metric, run.last(quantity.metric, quantity.rounds)),
    "median": lambda quantity, run: {s: statistics.median(own) for s, own in _checkpoints(quantity, run).items()},
    "growth": _growth,
    "oscillation": _oscillation,
}
