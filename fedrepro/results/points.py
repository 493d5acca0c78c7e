"""Points of figures: mean and spread over the seeds; and the panels of galleries, which show what runs ended with."""

from __future__ import annotations

import statistics
from typing import Any

import pandas as pd

from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.figures import Figure
from fedrepro.records.curves import digits, shown
from fedrepro.results import quantities
from fedrepro.results.runs import TRAINING, Run, remedied
from fedrepro.results.thresholds import crossings, together

Rows = list[dict[str, Any]]


def rows(paper: Paper, runs: dict[str, Run], faults: dict[str, str]) -> Rows:
    """The rows of `points`, figure by figure, panel by panel and line by line, and in `faults` what else is wrong.

    Raises UsageError where the spec names a metric that a run has not watched.
    """
    found = []
    for name in paper.figures:
        spec = paper.figure(name)
        draw = _panels if spec.gallery else DRAWN[spec.kind]
        spots = [(spot.line, spot.x, runs[run]) for spot, run in paper.spots(name) if run in runs]
        found += [{"figure": name, **row} for row in draw(paper, name, spots, faults)]
    return found


def _panels(paper: Paper, name: str, spots: list, faults: dict[str, str]) -> Rows:
    """A panel for each run, whose record has the sum of its samples; with the quantity that stands below it."""
    found, spec = [], paper.figure(name)
    for line, x, run in spots:
        path = run.folder / spec.gallery
        if path.exists():
            below = []
            if spec.quantity.metric:
                quantities.check_metric(spec.quantity, run, f"{paper.folder / 'paper.toml'}: figures.{name}")
                below = quantities.looks(spec.quantity, run)
            point = _point(line, x, spec.quantity.metric, below, run)
            found.append(point | {"samples": run.record.samples, "capped": 0})
        else:
            faults.setdefault(run.name, remedied(paper.name, run.name, f"{path} is missing", paper.prepared))
    return found


def _levels(paper: Paper, name: str, spots: list, faults: dict[str, str]) -> Rows:
    """A point for each place in each panel. The quantity of a seed that did not stop is that at the cap."""
    places: dict[tuple[str, str], list[Run]] = {}  # (line, x) -> its runs: several with a grid
    for *place, run in spots:
        places.setdefault(tuple(place), []).append(run)
    found, where = [], f"{paper.folder / 'paper.toml'}: figures.{name}"
    for quantity in paper.figure(name).quantities:
        for (line, x), runs in places.items():
            own = [(quantities.of_record(quantity, paper, run.name), run) for run in runs]
            for each, run in own:
                quantities.check_metric(each, run, f"{where}: run {run.name}")
            try:
                values = [value for each, run in own for value in quantities.looks(each, run)]
            except FedreproError as error:
                for run in runs:
                    faults.setdefault(run.name, str(error))
                continue
            found.append(_point(line, x, own[0][0].metric or quantity.kind, values, *runs))
            if quantity.kind == "median" and values:
                found[-1]["mean"] = digits(statistics.median(values))
    return found


def _curves(paper: Paper, name: str, spots: list, faults: dict[str, str]) -> Rows:
    """A point for each round, at which at least two seeds, or the only one, were watched.

    A run that does not have a metric which others have is not in its panel.
    """
    spec, found = paper.figure(name), []
    faulty = any(run in faults for run in paper.figure_runs(name))
    for metric in spec.metrics:
        for line, _, run in spots:
            if run.seeds and metric not in run.watched:
                others = any(
                    not each.seeds or metric in each.watched for *_, each in spots
                )  # if all diverged, who knows
                _refuse(spec, run, metric, others or faulty, f"{paper.folder / 'paper.toml'}: figures.{name}")
                continue
            points = [(str(x), own) for x, own in watched(run, metric) if spec.until is None or x <= spec.until]
            found += [_point(line, x, metric, own, run) for x, own in points or [("", [])]]
    return found


def watched(run: Run, metric: str) -> list[tuple[int, list[float]]]:
    """(round, values of the seeds as a reader is shown them) where two seeds or more, or the only one, were watched."""
    curve = shown(metric, run.curve(metric))
    curve = curve[curve.count(axis=1) >= min(2, len(run.seeds))]
    return [(x, own[own == own].tolist()) for x, own in zip(curve.index, curve.to_numpy(), strict=True)]


def along(run: Run, metric: str) -> pd.DataFrame:
    """A metric over the rounds: columns round, mean, spread and n. UsageError where the run has not watched it."""
    if metric not in run.watched:
        raise UsageError(f"{run.name}: {unknown('metric', metric, run.watched)}")
    points = watched(run, metric)
    rows = [(x, digits(statistics.fmean(own)), digits(statistics.pstdev(own)), len(own)) for x, own in points]
    return pd.DataFrame(rows, columns=["round", "mean", "spread", "n"])


def _thresholds(paper: Paper, name: str, spots: list, faults: dict[str, str]) -> Rows:
    """A point for each threshold that stops all seeds, at their mean training accuracy, from the highest one on.

    UsageError where a run does not test at its crossings.
    """
    found = []
    for line, _, run in spots:
        rule, curve = run.config.watch.crossings, run.points.get(TRAINING, {})
        if rule is None:
            where = f"{paper.folder / 'paper.toml'}: figures.{name}"
            raise UsageError(f"{where}: run {run.name} does not test at its crossings: give it `watch.crossings`.")
        shared = together(crossings(rule, curve))
        try:
            tested = {level: run.at("test_accuracy", shared[level]) for level in sorted(shared, reverse=True)}
        except FedreproError as error:
            faults.setdefault(run.name, str(error))
            continue
        places = {}
        for level, own in tested.items():
            training = statistics.fmean(curve[seed][round] for seed, round in shared[level].items())
            places.setdefault(f"{shown(TRAINING, training):.2f}", list(own.values()))
        points = [(x, [shown("test_accuracy", each) for each in own]) for x, own in places.items()]
        found += [_point(line, x, "test_accuracy", own, run) for x, own in points or [("", [])]]
    return found


DRAWN = {"levels": _levels, "curves": _curves, "thresholds": _thresholds}


def _refuse(spec: Figure, run: Run, metric: str, others: bool, where: str) -> None:
    """Raise UsageError where no other run of the figure can have the metric, or the run has none of the figure's."""
    if not others:
        raise UsageError(f"{where}: run {run.name}: {unknown('metric', metric, run.watched)}")
    if not run.watched & set(spec.metrics):
        raise UsageError(f"{where}: run {run.name}: it has watched none of {', '.join(spec.metrics)}: leave it out.")


def _point(line: str, x: str, metric: str, values: list[float], *runs: Run) -> dict[str, Any]:
    return {
        **{"metric": metric, "line": line, "x": x, "n": len(values)},
        **({"mean": digits(statistics.fmean(values)), "spread": digits(statistics.pstdev(values))} if values else {}),
        "capped": sum(len(run.capped) for run in runs),
        "diverged": sum(len(run.diverged) for run in runs),
        "collapsed": sum(len(run.collapsed) for run in runs),
        **{"runs": [run.name for run in runs], "samples": ""},
        **{"budget": runs[0].record.budget, "substitute_data": runs[0].substitute},
    }
