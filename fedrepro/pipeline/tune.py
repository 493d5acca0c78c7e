"""Tuning: training the search of a run, on a seed that no table reports, and entering what it finds."""

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

from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.files import write_json
from fedrepro.papers.expand import Study
from fedrepro.papers.load import load_paper
from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.tuning import Search, point_name, unset
from fedrepro.pipeline.run import studied
from fedrepro.records import paths, record
from fedrepro.records.curves import Curve, digits, number
from fedrepro.records.record import Record, Seed
from fedrepro.training import runs
from fedrepro.training.checkpoints import Checkpoints
from fedrepro.training.identity import identity
from fedrepro.training.provenance import beginning
from fedrepro.training.train import Training

WINDOW = 3  # watched rounds in a running mean of which a fall is told

Shown = Callable[[str], AbstractContextManager[Any]]  # title -> a display for as long as the block lasts
Train = Callable[[str], tuple[Seed, list[Curve]]]  # point -> how its training ended, and its curve


def tune(paper: str, run: str, shown: Shown, budget: str | None = None, **how) -> tuple[str, dict]:
    """Train the study of a run and enter what it finds in papers/<paper>/tuned.json; `how` as in `runs.execute`.

    Returns the name of the study, and the entry. Records and curves are kept in studies/<paper>/<run>/,
    those of each point of a search in a folder of their own, so that an interrupted search goes on. Test accuracy is
    not looked at. Raises UsageError where the run needs no tuning, its search would replace another one or the search's
    metric is not watched, FedreproError where all of its points diverge.
    """
    spec, study = _study(paper, run, budget)
    rule = study.rule

    def train(point: str) -> tuple[Seed, list[Curve]]:
        ended = try_point(spec, study, point, shown, **how).seeds[rule.seed]
        return ended, record.curves(studied(spec, study, point).place.folder).get(rule.seed, [])

    made = {"seed": rule.seed, "rounds": rule.rounds, "config_digest": study.digest()}
    entry = search(study, train) | made
    enter(spec.folder / "tuned.json", study.name, entry)
    for point in study.points:  # of those that did not go on
        Checkpoints(studied(spec, study, point).place.state, {}, print).clear()
    return study.name, entry


def point(paper: str, run: str, point: str, shown: Shown, budget: str | None = None, **how) -> Record:
    """Train one point of a run's search, and enter nothing; UsageError with the closest name where it has none such."""
    spec, study = _study(paper, run, budget)
    if point not in study.points:
        raise unknown(f"point of the search of {study.name}", point, study.points)
    return try_point(spec, study, point, shown, **how)


def _study(paper: str, run: str, budget: str | None) -> tuple[Paper, Study]:
    """The paper at a budget, and the search of a run; UsageError where that of the budget in use has its name."""
    own = load_paper(paper)
    spec = own.at(budget)
    study = spec.study(run)
    others = (draft.study for draft in own.drafts.values() if draft.study)
    if any(other.name == study.name and other.digest() != study.digest() for other in others):
        fault = f"the search {study.name} is that of budget {own.budget}, and would be replaced"
        raise UsageError(f"{fault}: name budget {spec.budget} in {paths.PARAMS}, or give it a search.name.")
    return spec, study


def try_point(spec: Paper, study: Study, point: str, shown: Shown, **how) -> Record:
    """Train a point of a search, unless its record is current. The next stage goes on from its last round but one.

    The last round is another one in a longer run, which looks at its curves later.
    """
    names, tried, after = list(study.points), studied(spec, study, point), study.longer(point)
    number = f"{point}, {names.index(point) + 1} of {len(names)}"
    with shown(f"search of {study.name}, {spec.name}: {number}") as display:

        def watch(training: Training) -> None:
            display.watch(training)
            if after and training.running and training.round == tried.config.rounds - 1:
                longer = studied(spec, study, after)
                going_on = runs.going_on(identity(longer.config), list(longer.config.seeds))
                Checkpoints(longer.place.state, going_on, display.say).save(training, beginning(training.device))

        return runs.execute(tried.config, tried.place, watch=watch, say=display.say, **how)


def words(entry: dict) -> str:
    """An entry of tuned.json for a reader, with the score: the best point may be no better than chance."""
    chosen = ", ".join(f"{key} {value}" for key, value in entry["chosen"].items())
    metric, scores = entry["metric"], entry["scores"]
    return f"{chosen}, the best of {len(scores)} points: {metric} {number(metric, scores[point_name(entry['chosen'])])}"


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
    """Whether a point is out: it diverged or, with `fall`, lost a client's update, or fell too far below its best.

    The fall is of running means, since a single round goes down by as much while a rate that ends well still learns.
    """
    if ended.status == record.DIVERGED or search.fall is None:
        return ended.status == record.DIVERGED
    values = _values(search, curve)
    means = [statistics.fmean(values[at : at + WINDOW]) for at in range(len(values) - WINDOW + 1)]
    fell = any(best - mean > search.fall for best, mean in zip(itertools.accumulate(means, max), means, strict=True))
    return ended.rejected > 0 or fell


def ranked(scores: dict[int, float | None]) -> list[int]:
    """The places in the grid that have a score, the best first; of equals those that were scored earlier."""
    return sorted((place for place in scores if scores[place] is not None), key=scores.get, reverse=True)


def enter(path: Path, run: str, entry: dict) -> None:
    """Set one entry of tuned.json, in the order of the names."""
    lock = paths.STATE.parent / "tuned.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(lock):
        entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        write_json(path, dict(sorted((entries | {run: entry}).items())))


def search(study: Study, train: Train) -> dict:
    """The best point of the last stage: what is chosen, and the scores of the points of all stages.

    Where all that go on are out, the next best follow, one after another, those of earlier stages last. Raises
    FedreproError where none is left.
    """
    rule, every = study.rule, {}
    stages, counts = [list(stage) for stage in rule.stages(study.config)], rule.counts(study.config)
    order = list(range(counts[0]))  # places in the grid, the best first
    for at, (stage, count) in enumerate(zip(stages, counts, strict=True)):
        last, scores = max(rule.last >> rule.halvings - at, 1), {}
        for index in [*sorted(order[:count]), *order[count:]]:
            if len(scores) >= count and ranked(scores):
                break
            ended, curve = train(stage[index])
            scores[index] = None if out(rule, ended, curve) else score(rule, curve, last)
        every |= {stage[index]: each for index, each in scores.items()}
        best = ranked(scores)
        order = [*best, *(index for index in order if index not in scores)]
    if not best:
        fault = "diverged" if rule.fall is None else "diverged, lost a client's update or fell too far"
        raise FedreproError(f"every point of the search of {study.name} {fault}: give search.grid smaller values.")
    chosen = {key: study.points[stages[-1][best[0]]].hyper[key] for key in unset(study.config)}
    return {"chosen": chosen, "metric": rule.metric, "scores": every}


def _values(search: Search, curve: list[Curve]) -> list[float]:
    """The watched values of a search's metric."""
    return [value for _, name, value in curve if name == search.metric]
