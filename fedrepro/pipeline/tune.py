"""Tuning: training the pilot or search of a run, on a seed that no table reports, and entering what it finds."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.files import write_json
from fedrepro.papers.expand import Study
from fedrepro.papers.load import Paper, load_paper
from fedrepro.papers.schema.tuning import Pilot, Search
from fedrepro.pipeline.run import studied
from fedrepro.records import paths, record
from fedrepro.records.curves import Curve, digits
from fedrepro.records.record import Record, Seed
from fedrepro.training import runs

Shown = Callable[[str], AbstractContextManager[Any]]  # title -> a display for as long as the block lasts
Train = Callable[[str], tuple[Seed, list[Curve]]]  # point -> how its training ended, and its curve


def tune(
    paper: str, run: str, shown: Shown, root: Path = Path("."), budget: str | None = None, **how
) -> tuple[str, dict]:
    """Train the study of a run and enter what it finds in papers/<paper>/tuned.json; `how` as in `runs.execute`.

    Returns the name of the study, and the entry. Records and curves are kept in studies/<paper>/<run>/,
    those of each point of a search in a folder of their own, so that an interrupted search goes on. Test accuracy is
    not looked at. Raises UsageError where the run needs no tuning or a search's metric is not watched, FedreproError
    where a pilot or all points of a search diverge.
    """
    spec = load_paper(paper, root).at(budget)
    study = spec.study(run)
    rule = study.rule

    def train(point: str) -> tuple[Seed, list[Curve]]:
        ended = try_point(spec, study, point, shown, **how).seeds[rule.seed]
        return ended, record.curves(studied(spec, study, point).place.folder)[rule.seed]

    found = (_pilot if isinstance(rule, Pilot) else search)(study, train)
    made = {"seed": rule.seed, "rounds": rule.rounds, "config_digest": study.digest()}
    entry = {"kind": rule.kind, **found, **made}
    enter(spec.folder / "tuned.json", study.name, entry)
    return study.name, entry


def point(
    paper: str, run: str, point: str, shown: Shown, root: Path = Path("."), budget: str | None = None, **how
) -> Record:
    """Train one point of a run's search, and enter nothing; UsageError with the closest name where it has none such."""
    spec = load_paper(paper, root).at(budget)
    study = spec.study(run)
    if isinstance(study.rule, Pilot) or point not in study.points:
        points = () if isinstance(study.rule, Pilot) else study.points
        raise unknown(f"point of the {study.rule.kind} of {study.name}", point, points)
    return try_point(spec, study, point, shown, **how)


def try_point(spec: Paper, study: Study, point: str, shown: Shown, **how) -> Record:
    """Train a point of a search, or a pilot, unless its record is current."""
    names, tried = list(study.points), studied(spec, study, point)
    number = f": {point}, {names.index(point) + 1} of {len(names)}" if point else ""
    with shown(f"{study.rule.kind} of {study.name}, {spec.name}{number}") as display:
        return runs.execute(tried.config, tried.place, watch=display.watch, say=display.say, **how)


def words(entry: dict) -> str:
    """An entry of tuned.json for a reader."""
    if entry["kind"] == "pilot":
        return f"threshold {entry['threshold']}, between lo {entry['lo']} and hi {entry['hi']}"
    chosen = ", ".join(f"{key} {value}" for key, value in entry["chosen"].items())
    return f"{chosen}, the best of {len(entry['scores'])} points"


def threshold(pilot: Pilot, curve: list[Curve]) -> dict[str, float]:
    """lo, hi and the threshold lo + fraction (hi - lo) of a curve's training accuracy after the warm start."""
    accuracies = [value for round, name, value in curve if name == "train_accuracy" and round > pilot.rule.warm_start]
    lo, hi = np.quantile(accuracies, pilot.quantiles)
    found = {"threshold": lo + pilot.fraction * (hi - lo), "lo": lo, "hi": hi}
    return {key: round(float(value), 4) for key, value in found.items()}


def score(search: Search, curve: list[Curve], last: int | None = None) -> float | None:
    """The mean of the metric over its `last` watched rounds, a fraction for accuracies; None where it is not finite.

    `last`: other than the search's own. Raises UsageError where the curve does not have the metric, or in fewer rounds.
    """
    last = last or search.last
    values = _values(search, curve)
    if not values:
        raise unknown("metric of a search", search.metric, {name for _, name, _ in curve})
    if len(values) < last:
        fault = f"was watched in {len(values)} rounds, and the mean over the last {last} is asked for"
        raise UsageError(f"{search.metric} {fault}: train for more rounds, or watch more of them.")
    mean = statistics.fmean(values[-last:])
    return digits(mean) if math.isfinite(mean) else None


def out(search: Search, ended: Seed, curve: list[Curve]) -> bool:
    """Whether a point is out: it diverged or, with `fall`, lost a client's update, or fell too far below its best."""
    if ended.status == record.DIVERGED or search.fall is None:
        return ended.status == record.DIVERGED
    best = itertools.accumulate(_values(search, curve), max)
    fell = any(high - value > search.fall for high, value in zip(best, _values(search, curve), strict=True))
    return ended.rejected > 0 or fell


def ranked(scores: dict[str, float | None]) -> list[str]:
    """The points that have a score, the best first; of equals the earlier ones."""
    return sorted((name for name in scores if scores[name] is not None), key=scores.get, reverse=True)


def choose(scores: dict[str, float | None]) -> str | None:
    """The point with the highest score, the first of equals; None where all diverged, and so have no score."""
    there = {name: score for name, score in scores.items() if score is not None}
    return max(there, key=there.get, default=None)


def enter(path: Path, run: str, entry: dict) -> None:
    """Set one entry of tuned.json, in the order of the names."""
    lock = paths.STATE.parent / "tuned.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(lock):
        entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        write_json(path, dict(sorted((entries | {run: entry}).items())))


def _pilot(study: Study, train: Train) -> dict:
    ended, curve = train("")
    if ended.status == record.DIVERGED:
        raise FedreproError(
            f"the pilot of {study.name} diverged in round {ended.rounds}: there is no threshold to find."
        )
    return threshold(study.rule, curve)


def search(study: Study, train: Train) -> dict:
    """The best point of the last stage: what is chosen, and the scores of the points of all stages.

    Where all that go on are out, the next best follow, one after another, those of earlier stages last. Raises
    FedreproError where none is left.
    """
    rule, stages, every = study.rule, study.rule.stages(study.config), {}
    left, count = list(range(len(stages[0]))), len(stages[0])
    for number, stage in enumerate(map(list, stages)):
        last, scores = max(rule.last >> rule.halvings - number, 1), {}
        for place, index in enumerate(left):
            if place >= count and choose(scores) is not None:
                break
            ended, curve = train(stage[index])
            scores[stage[index]] = None if out(rule, ended, curve) else score(rule, curve, last)
        every |= scores
        count = math.ceil(count / 2)
        better = [stage.index(point) for point in ranked(scores)]
        left = [*sorted(better[:count]), *better[count:], *left[len(scores) :]]
    best = choose(scores)
    if best is None:
        fault = "diverged" if rule.fall is None else "diverged, lost a client's update or fell too far"
        raise FedreproError(f"every point of the search of {study.name} {fault}: give search.grid smaller values.")
    chosen = {key: study.points[best].hyper[key] for key in rule.open(study.config)}
    return {"chosen": chosen, "metric": rule.metric, "scores": every}


def _values(search: Search, curve: list[Curve]) -> list[float]:
    """The watched values of a search's metric."""
    return [value for _, name, value in curve if name == search.metric]
