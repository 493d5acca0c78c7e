"""Runs with a usable record: what was planned, recorded and watched, for the seeds of the spec."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.papers.expand import at
from fedrepro.papers.paper import Paper
from fedrepro.records import record
from fedrepro.records.config import RunConfig
from fedrepro.records.record import DIVERGED, Record
from fedrepro.results.thresholds import Ended, reached, stopped

TRAINING = "train_accuracy"  # the curve by which a run is calibrated


@dataclass(frozen=True)
class Run:
    """A run. `name`: as the paper calls it. Values are in the record's unit, a fraction for accuracies.

    `printed`: the training accuracy, a fraction, by which its end is found, if that is how it is found.
    """

    name: str
    folder: Path
    config: RunConfig
    record: Record
    printed: float | None = None

    @cached_property
    def ended(self) -> Ended | None:
        """Where it ends by the printed training accuracy; None without one, or where all seeds diverged."""
        if self.printed is None or not self.seeds:
            return None
        rule, curves = self.config.watch.crossings, self.points[TRAINING]
        if rule:
            return stopped(rule, curves, self.printed)
        # A length is looked for where all that the run has is watched.
        whole = set.intersection(*(set(own) for each in self.points.values() for own in each.values()))
        return reached({seed: {x: own[x] for x in sorted(whole)} for seed, own in curves.items()}, self.printed)

    def moved(self, way: str) -> Run:
        """The run with the threshold that was found `raised` or `lowered`: seeds that it then stops have a value."""
        found = copy.copy(self)  # with the points that were read
        vars(found)["ended"] = self.ended._replace(rounds=getattr(self.ended, way))
        return found

    @property
    def seeds(self) -> list[int]:
        """The seeds of the spec but for those that diverged, which have no result."""
        return [seed for seed in self.config.seeds if self.record.seeds[seed].status != DIVERGED]

    @property
    def diverged(self) -> list[int]:
        """The seeds of the spec that diverged."""
        return [seed for seed in self.config.seeds if seed not in self.seeds]

    @property
    def capped(self) -> list[int]:
        """The seeds of the spec that reached the cap without stopping, or that no threshold stops together."""
        if self.ended and self.config.watch.crossings:
            return [] if self.ended.threshold else self.seeds
        return [seed for seed in self.config.seeds if self.record.seeds[seed].status == "cap"]

    @property
    def collapsed(self) -> list[int]:
        """The seeds of the spec that were above chance and end at it; they have a result.

        None where the run trains on past the rounds that its numbers are of: its end says nothing of them.
        """
        if self.config.watch.crossings:
            return []
        return [seed for seed in self.config.seeds if self.record.seeds[seed].collapsed]

    @property
    def substitute(self) -> str:
        """The substitute for the paper's data; empty where it is the paper's own."""
        return self.record.data.substitute or ""

    @property
    def metrics(self) -> set[str]:
        """The metrics at the end of training, of any seed."""
        return {metric for seed in self.seeds for metric in self.record.seeds[seed].metrics}

    @cached_property
    def points(self) -> dict[str, dict[int, dict[int, float]]]:
        """Metric -> seed -> round -> what was watched, where it is finite, in the order of the rounds."""
        found: dict[str, dict[int, dict[int, float]]] = {}
        seeds = self.seeds
        for seed, curve in record.curves(self.folder).items():
            for round, metric, value in curve if seed in seeds else ():
                if metric not in found:
                    found[metric] = {each: {} for each in seeds}
                if math.isfinite(value):
                    found[metric][seed][round] = value
        return found

    @property
    def watched(self) -> set[str]:
        """The metrics of the curves."""
        return set(self.points)

    def curve(self, metric: str) -> pd.DataFrame:
        """One metric, round by seed; NaN where a seed was not watched, or its value is not finite."""
        return pd.DataFrame(self.points.get(metric, {}), columns=self.seeds, dtype=float).sort_index()

    @property
    def ends(self) -> dict[int, int]:
        """Seed -> the round with which it ends."""
        return self.ended.rounds if self.ended else {seed: self.record.seeds[seed].rounds for seed in self.seeds}

    def final(self, metric: str) -> dict[int, float]:
        """Seed -> a metric at the end of training. Raises FedreproError where a seed lacks it."""
        if self.ended:
            return self.at(metric, self.ended.rounds)
        found = {seed: self.record.seeds[seed].metrics.get(metric) for seed in self.seeds}
        if absent := [seed for seed, value in found.items() if value is None]:
            fault = f"{record.path(self.folder)} lacks {metric} of seed {absent[0]}"
            raise FedreproError(remedied(self.record.paper, self.name, fault))
        return found

    def at(self, metric: str, rounds: Mapping[int, int]) -> dict[int, float]:
        """Seed -> a metric at a round of its own. Raises FedreproError where the curve lacks one of them."""
        remedy = "watch each round in which a run may end"
        found = self._at(metric, {seed: [end] for seed, end in rounds.items()}, "the last round", "it is", remedy)
        return {seed: value for seed, values in found.items() for value in values.values()}

    def last(self, metric: str, rounds: int) -> dict[int, float]:
        """Seed -> the mean of a metric over its last `rounds` rounds.

        Raises FedreproError where the curve lacks one of these rounds.
        """
        remedy = "in paper.toml, train as many rounds and watch each of them"
        wanted = {seed: range(end - rounds + 1, end + 1) for seed, end in self.ends.items()}
        own = self._at(metric, wanted, f"the last {rounds} rounds", "their mean is", remedy)
        return {seed: statistics.fmean(values.values()) for seed, values in own.items()}

    def checkpoints(self, metric: str, parts: int) -> dict[int, dict[int, float]]:
        """Seed -> round -> a metric at the ends of `parts` equal parts of training.

        Raises FedreproError where the curve lacks one of them.
        """
        remedy = "set rounds and watch.test_every in paper.toml so that each of them is watched"
        ends = [self.config.rounds * part / parts for part in range(1, parts + 1)]
        wanted = dict.fromkeys(self.seeds, ends)
        return self._at(metric, wanted, f"{parts} equal parts of training", "all are", remedy)

    def _at(
        self, metric: str, rounds: Mapping[int, Sequence[float]], which: str, what: str, remedy: str
    ) -> dict[int, dict[int, float]]:
        """Seed -> round -> value at the rounds of each seed, all of which it must have watched."""
        found, curve = {}, self.points.get(metric, {})
        for seed, wanted in rounds.items():
            own = {int(round): curve[seed][round] for round in wanted if round in curve.get(seed, ())}
            if len(own) < len(wanted):
                had = f"{metric} at {len(own)} of {which} of seed {seed}, and {what} asked for"
                raise FedreproError(f"{self.folder / 'curves.csv'} has {had}: {remedy}.")
            found[seed] = own
        return found


def current(paper: Paper, names: Iterable[str]) -> tuple[dict[str, Run], dict[str, str]]:
    """The runs whose record is whole, of this budget and these settings, and has all seeds.

    For each of the others one sentence that says what is wrong, and what mends it. UsageError for an unknown name.
    """
    found, faults = {}, {}
    for name in names:
        if name not in paper.drafts:
            raise unknown(f"run of {paper.name}", name, paper.drafts)
        try:
            config = paper.run(name)
        except UsageError as error:  # its search comes first
            faults[name] = str(error)
            continue
        folder = paper.home(name, config.method)
        try:
            found[name] = Run(name, folder, config, _record(folder, paper, name, config))
        except FedreproError as error:
            faults[name] = remedied(paper.name, name, str(error), paper.prepared)
    return found, faults


def remedied(paper: str, run: str, fault: str, budget: str | None = None) -> str:
    """The sentence about a run's fault with what mends it; `budget`: a prepared one."""
    return f"{fault}: run `fedrepro train --paper {paper} --run {run}{at(budget)}`."


def _record(folder: Path, paper: Paper, name: str, config: RunConfig) -> Record:
    found, place = record.read(folder), record.path(folder)
    if (found.paper, found.run) != (paper.name, name):
        raise FedreproError(f"{place} is of the run {found.run} of {found.paper}")
    if found.budget != paper.budget:
        raise FedreproError(f"{place} was made at budget {found.budget!r} instead of {paper.budget!r}")
    if found.identity.config != config.digest():
        raise FedreproError(f"{place} was made with other settings than the spec's")
    if absent := [seed for seed in config.seeds if seed not in found.seeds]:
        raise FedreproError(f"{place} lacks seed {absent[0]}")
    return found
