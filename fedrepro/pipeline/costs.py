"""How long a run takes and how much memory, from the records of runs like it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from fedrepro.errors import FedreproError
from fedrepro.papers.paper import Paper
from fedrepro.records import paths, record
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Record


class Cost(NamedTuple):
    """Seconds, None where nothing like it is recorded, and MiB of memory, 0 where they are not known."""

    seconds: float | None = None
    memory: int = 0


@dataclass(frozen=True)
class Sample:
    """A recorded run as a measure of others: what it was, and what it took."""

    run: str | None
    config: RunConfig
    cost: Cost


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

        Only records on the same data and network count. Seconds are scaled by rounds, seeds and local work; what else
        changes the time of a step (batches, precision, a stopping rule) is not.
        """
        kind = _kind(config)
        for key in ((kind, "run", run), (kind, "method", config.method), (kind,)):
            if rates := self._rates.get(key):
                return Cost(rates[0] * _work(config), rates[1])
        return Cost()

    @cached_property
    def _rates(self) -> dict[tuple, tuple[float, int]]:
        """The mean seconds of a piece of work and the most memory: of a kind, by run, by method, and of all."""
        found: dict[tuple, list[tuple[float, int]]] = {}
        for each in (*self.samples, *(_samples(self.paper) if self.paper else ())):
            kind, rate = _kind(each.config), each.cost.seconds / _work(each.config)
            for key in ((kind, "run", each.run), (kind, "method", each.config.method), (kind,)):
                found.setdefault(key, []).append((rate, each.cost.memory))
        return {key: (fmean(rate for rate, _ in own), max(most for _, most in own)) for key, own in found.items()}


def _samples(paper: Paper) -> Iterator[Sample]:
    for folder in (paths.runs(paper.name, "", paper.root), Path(paper.root) / paths.ADHOC):
        for path in sorted(folder.rglob("record.json")):
            try:
                found = record.read(path.parent)
            except FedreproError:
                continue
            yield Sample(found.run, found.config, recorded(found))


def _kind(config: RunConfig) -> str:
    """The traits that two runs share if a step takes as long in both."""
    return json.dumps([config.dataset, config.data, config.hyper.get("net")], sort_keys=True)


def _work(config: RunConfig) -> float:
    """The size of a run: rounds of all seeds, times what a client does in one."""
    steps = [value for key in ("epochs", "steps") if isinstance(value := config.hyper.get(key), int | float)]
    return config.rounds * len(config.seeds) * (steps[0] if steps else 1)


def total(costs: Iterable[Cost]) -> tuple[float, int]:
    """The seconds that are known, together, and how many costs are not."""
    known = [cost.seconds for cost in costs]
    return sum(each for each in known if each is not None), known.count(None)
