"""How long a run takes and how much memory, from the records of runs like it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from fedrepro.errors import FedreproError
from fedrepro.papers.expand import Study
from fedrepro.papers.paper import Paper
from fedrepro.records import paths, record
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Identity, Place, Record


class Cost(NamedTuple):
    """Seconds, None where nothing like it is recorded, and MiB of memory, 0 where they are not known."""

    seconds: float | None = None
    memory: int = 0


@dataclass(frozen=True)
class Sample:
    """A recorded run as a measure of others: what it was, the rounds that its seeds played together, what it took.

    `identity`: None where no planned run takes its seeds over, since it is ad hoc, or at the place of another run.
    """

    run: str | None
    config: RunConfig
    rounds: int
    cost: Cost
    identity: Identity | None = None
    folder: Path | None = None


def recorded(found: Record) -> Cost:
    """The cost of all seeds of a record together."""
    memory = max(seed.provenance.peak_rss_mb or 0 for seed in found.seeds.values())
    return Cost(sum(seed.seconds for seed in found.seeds.values()), memory)


class Costs:
    """The costs of a paper's runs. Its records are read when the first estimate is asked for, and not before."""

    def __init__(self, paper: Paper | None, samples: Iterable[Sample] = ()):
        self.paper, self.samples = paper, samples

    def of(self, run: str | None, config: RunConfig) -> Cost:
        """The estimate for a run: by its own record, even a stale one, else by those of its method, else by all.

        Its own record with the same settings gives what that took. Of others only those on the same data and network
        count. Their seconds for each round played are scaled by rounds, seeds and local work; batches and precision,
        which change the time of a step, and a stopping rule, which changes the rounds, are not looked at.
        """
        kind = _kind(config)
        for each in self._known:
            if (each.run, each.config) == (run, config):
                return each.cost
        for key in ((kind, "run", run), (kind, "method", config.method), (kind,)):
            if rates := self._rates.get(key):
                rounds = config.rounds * len(config.seeds)
                return Cost(rates[0] * rounds * _steps(config), rates[1])
        return Cost()

    def lacking(self, config: RunConfig, place: Place, wanted: Identity) -> tuple[int, ...]:
        """The seeds that a planned run cannot take over, since no other record has them with its identity."""
        if place.paper is None:
            return config.seeds
        others = [each for each in self._known if each.identity == wanted and each.folder != place.folder]
        there = {seed for other in others for seed in other.config.seeds}
        return tuple(seed for seed in config.seeds if seed not in there)

    def point(self, study: Study, point: RunConfig) -> Cost:
        """The estimate for a point of a search: as if no data were held back for validation."""
        return self.of(study.run, point.model_copy(update={"data": study.config.data}))

    def later(self, study: Study) -> Cost:
        """The estimate for the stages of a search after the first, where no point of theirs is out."""
        points = [next(iter(stage.values())) for stage in study.rule.stages(study.config)]
        counts, seconds, memory = study.rule.counts(study.config)[1:], 0.0, 0
        for count, (before, point) in zip(counts, itertools.pairwise(points), strict=True):
            each = self.point(study, point)
            if each.seconds is None:
                return Cost(None)
            seconds += count * each.seconds * (1 - before.rounds / point.rounds)
            memory = max(memory, each.memory)
        return Cost(seconds, memory)

    @cached_property
    def _known(self) -> list[Sample]:
        return [*self.samples, *(_samples(self.paper) if self.paper else ())]

    @cached_property
    def _rates(self) -> dict[tuple, tuple[float, int]]:
        """The mean seconds of a piece of work and the most memory: of a kind, by run, by method, and of all."""
        found: dict[tuple, list[tuple[float, int]]] = {}
        for each in self._known:
            kind, rate = _kind(each.config), each.cost.seconds / (each.rounds * _steps(each.config))
            for key in ((kind, "run", each.run), (kind, "method", each.config.method), (kind,)):
                found.setdefault(key, []).append((rate, each.cost.memory))
        return {key: (fmean(rate for rate, _ in own), max(most for _, most in own)) for key, own in found.items()}


def _samples(paper: Paper) -> Iterator[Sample]:
    """The records of the paper's runs, of those of a prepared budget, and of ad hoc runs."""
    prepared = [paths.prepared(paper.name, paper.prepared, "", paper.root)] if paper.prepared else []
    for folder in (*prepared, paths.runs(paper.name, "", paper.root), Path(paper.root) / paths.ADHOC):
        for each in record.folders(folder):
            try:
                found = record.read(each)
            except FedreproError:
                continue
            rounds = sum(seed.rounds for seed in found.seeds.values())
            own = (found.paper, found.run) == (paper.name, each.name)
            yield Sample(found.run, found.config, rounds, recorded(found), found.identity if own else None, each)


def _kind(config: RunConfig) -> str:
    """The traits that two runs share if a step takes as long in both, and whether steps take the place of epochs."""
    instead = bool(config.hyper.get("steps") and config.hyper.get("epochs"))
    return json.dumps([config.dataset, config.data, config.hyper.get("net"), instead], sort_keys=True)


def _steps(config: RunConfig) -> float:
    """The work of a client in a round: its steps, 0 of which are none, else its epochs, else 1."""
    given = (config.hyper.get(key) for key in ("steps", "epochs"))
    return next((value for value in given if isinstance(value, int | float) and value > 0), 1)


def total(costs: Iterable[Cost]) -> tuple[float, int]:
    """The seconds that are known, together, and how many costs are not."""
    known = [cost.seconds for cost in costs]
    return sum(each for each in known if each is not None), known.count(None)
