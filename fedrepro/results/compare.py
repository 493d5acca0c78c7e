"""Runs beside each other: the settings in which they differ, their final metrics, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd

from fedrepro import data
from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.records.curves import digits, reduced, shown
from fedrepro.results.claims import interval
from fedrepro.results.runs import Run

# Settings that only say how a run is looked at.
WATCHING = ("samples", "train_every", "test_every", "precision", "step_every", "grad_norm")  # of `watch`


class Compared(NamedTuple):
    """The differences between runs, the first of which the others are compared with.

    settings: setting -> run -> value, of those in which the runs differ; a run that does not have one lacks.
    metrics:  rows of metric, run, seeds (with a value), mean, spread (the population's standard deviation; NaN of one
              seed), difference, lo, hi, pairs: the mean over the common seeds of the run less the first one, its 95% t
              interval (NaN for fewer than two) and the number of these seeds. Accuracies are in percent.
    unfair:   the settings beside the method in which runs differ that have it.
    """

    settings: dict[str, dict[str, Any]]
    metrics: pd.DataFrame
    unfair: list[str]


def compare(runs: Sequence[Run], metrics: Sequence[str] = ()) -> Compared:
    """Two or more runs beside each other, by all of their final metrics or by some.

    UsageError for fewer than two runs, and for a metric that none of them has.
    """
    if len(runs) < 2:
        raise UsageError("a comparison is of two runs or more: name another one.")
    settings = different(runs)
    chosen = metrics or known(runs)
    for metric in chosen:
        if metric not in known(runs):
            raise unknown("metric", metric, known(runs))
    rows = [_row(metric, run, runs[0]) for metric in chosen for run in runs]
    return Compared(settings, pd.DataFrame(rows), unfair(settings))


def known(runs: Sequence[Run]) -> list[str]:
    """The final metrics of any of the runs, in the order of their records."""
    every = (seed.metrics for run in runs for seed in run.record.seeds.values())
    return list(dict.fromkeys(chain.from_iterable(every)))


def settings(run: Run, whole: bool = True) -> dict[str, Any]:
    """Everything that was set of a run by names as `--set` has them, with defaults, those of the data if `whole`."""
    found, config = run.record, run.config
    resolved = {key: value for key, value in found.resolved.items() if key != "net"}  # which is `network`
    try:
        own = (data.parameters(config.dataset) if whole else {}) | config.data  # imports torch
    except FedreproError:  # a dataset that is no longer there
        own = config.data
    parts = {"data": own, "stop": config.stop, "watch": config.watch, "numerics": found.identity.numerics}
    flat = {"method": config.method, "dataset": config.dataset, "rounds": config.rounds, "precision": config.precision}
    flat |= resolved
    for name, part in parts.items():
        values = {} if part is None else part if isinstance(part, dict) else part.model_dump(mode="json")
        flat |= {f"{name}.{key}": value for key, value in values.items()}
    return flat | {"data files": found.identity.data[:8]}


def different(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """The settings in which runs differ, setting -> run -> value; a run that does not have one lacks."""
    whole = any((run.config.dataset, run.config.data) != (runs[0].config.dataset, runs[0].config.data) for run in runs)
    every = {run.name: settings(run, whole) for run in runs}
    found = {}
    for name in dict.fromkeys(chain.from_iterable(every.values())):
        row = {run: own[name] for run, own in every.items() if name in own}
        if len(row) < len(every) or _differ(row):
            found[name] = row
    if "method" in found:
        found.pop("numerics.method", None)  # each method has its own
    return found


def unfair(settings: dict[str, dict[str, Any]]) -> list[str]:
    """The settings beside the method in which runs differ that have it; none where runs of one method differ in one."""
    found, watching = [name for name, row in settings.items() if _differ(row)], {f"watch.{each}" for each in WATCHING}
    shared = [name for name in found if name != "method" and name not in watching]
    return shared if "method" in found or len(shared) > 1 else []


def _differ(row: dict[str, Any]) -> bool:
    first, *others = row.values()
    return any(each != first for each in others)


def finals(run: Run, metric: str) -> dict[int, float]:
    """Seed -> a final metric as a reader is shown it, of the seeds that have it."""
    if metric not in run.metrics:
        return {}
    return {seed: digits(shown(metric, value)) for seed, value in run.final(metric).items()}


def _row(metric: str, run: Run, first: Run) -> dict[str, Any]:
    own, other = finals(run, metric), finals(first, metric)
    pairs = [own[seed] - other[seed] for seed in own if seed in other] if run is not first else []
    (mean, spread), (lo, hi) = reduced(list(own.values())), interval(pairs)
    return {
        **{"metric": metric, "run": run.name, "seeds": len(own)},
        **{"mean": digits(mean), "spread": digits(spread), "difference": digits(reduced(pairs)[0])},
        **{"lo": lo, "hi": hi, "pairs": len(pairs)},
    }
