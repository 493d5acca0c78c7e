"""Searches: hyper-parameters of a run from a grid, on validation data and a seed that no table reports."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from fedrepro import pilot, runs, schema
from fedrepro.config import RunConfig
from fedrepro.curves import Curve, digits
from fedrepro.drafts import Search
from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.progress import Display
from fedrepro.spec import load_paper

Shown = Callable[[str], AbstractContextManager[Display]]  # title -> a display for as long as the block lasts


def find(paper: str, run: str, shown: Shown, root: Path = Path("."), **how) -> tuple[str, dict]:
    """Train every point of a run's grid, and enter the best one in papers/<paper>/searches.json; `how` as in `execute`.

    Returns the run that the search is named after, and its entry. The points' records and curves are kept in
    runs/<paper>/searches/<run>/<point>/, so that an interrupted search goes on. Test accuracy is not looked at. Raises
    UsageError where the run needs no search or its metric is not watched, FedreproError where every point diverges.
    """
    spec = load_paper(paper, root)
    search = spec.search(run)
    scores = {}
    for number, (name, config) in enumerate(search.configs().items(), 1):
        place = runs.Place(root / "runs" / paper / "searches" / search.run / name, paper, _name(search, name), "search")
        with shown(f"search of {search.run}, {paper}: {name}, {number} of {len(search.points)}") as display:
            scores[name] = _score(search.rule, config, place, watch=display.watch, say=display.say, **how)
    best = choose(scores)
    if best is None:
        raise FedreproError(f"every point of the search of {search.run} diverged: give search.grid smaller values.")
    chosen = {"chosen": search.points[best], "metric": search.rule.metric, "scores": scores}
    entry = {**chosen, "seed": search.rule.seed, "rounds": search.rule.rounds, "config_digest": search.digest()}
    pilot.enter(spec.folder / "searches.json", search.run, entry)
    return search.run, entry


def choose(scores: dict[str, float | None]) -> str | None:
    """The point with the highest score, the first of equals; None where all diverged, and so have no score."""
    there = {name: score for name, score in scores.items() if score is not None}
    return max(there, key=there.get, default=None)


def score(rule: schema.Search, curve: list[Curve]) -> float | None:
    """The mean of the metric over its `last` watched rounds, a fraction for accuracies; None where it is not finite.

    Raises UsageError where the curve does not have the metric, or in fewer rounds.
    """
    values = [value for _, name, value in curve if name == rule.metric]
    if not values:
        raise unknown("metric of a search", rule.metric, {name for _, name, _ in curve})
    if len(values) < rule.last:
        fault = (
            f"{rule.metric} was watched in {len(values)} rounds, and the mean over the last {rule.last} is asked for"
        )
        raise UsageError(f"{fault}: train for more rounds, or watch more of them.")
    mean = statistics.fmean(values[-rule.last :])
    return digits(mean) if math.isfinite(mean) else None


def _score(rule: schema.Search, config: RunConfig, place: runs.Place, **how) -> float | None:
    """Train a point, unless its record is there already, and score it."""
    ended = runs.execute(config, place, **how)["seeds"][str(rule.seed)]
    return None if ended["status"] == "diverged" else score(rule, runs.read_curves(place.curves)[rule.seed])


def _name(search: Search, point: str) -> str:
    """A point's name among all runs of the paper, for its record, lock and checkpoints."""
    return f"search-{search.run}-{point}"
