"""How long a run takes and how much memory, from the records of runs like it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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
    """What the seeds of a record took together."""
    memory = max(seed.provenance.peak_rss_mb or 0 for seed in found.seeds.values())
    return Cost(sum(seed.seconds for seed in found.seeds.values()), memory)


class Costs:
    """The costs of a paper's runs. Records are read when the first estimate is asked for, and not before."""

    def __init__(self, paper: Paper):
        self.paper = paper
        self.samples: list[Sample] | None = None

    def of(self, run: str | None, config: RunConfig) -> Cost:
        """The estimate for a run: by its own record, even a stale one, else by those of its method, else by all.

        Only records on the same data and network count. Seconds are scaled by rounds, seeds and local work; what else
        changes the time of a step (batches, precision, a stopping rule) is not.
        """
        if self.samples is None:
            self.samples = list(_samples(self.paper))
        alike = [each for each in self.samples if _kind(each.config) == _kind(config)]
        own = [each for each in alike if each.run == run]
        same = [each for each in alike if each.config.method == config.method]
        if not (best := own or same or alike):
            return Cost()
        rates = [each.cost.seconds / _work(each.config) for each in best]
        return Cost(fmean(rates) * _work(config), max(each.cost.memory for each in best))


def _samples(paper: Paper) -> Iterator[Sample]:
    for folder in (paths.runs(paper.name, "", paper.root), Path(paper.root) / paths.ADHOC):
        for path in sorted(folder.rglob("record.json")):
            try:
                found = record.read(path.parent)
            except FedreproError:
                continue
            yield Sample(found.run, found.config, recorded(found))


def _kind(config: RunConfig) -> tuple:
    """What two runs must have in common to take as long for a step."""
    return config.dataset, sorted(config.data.items(), key=str), config.hyper.get("net")


def _work(config: RunConfig) -> float:
    """The size of a run: rounds of all seeds, times what a client does in one."""
    steps = [value for key in ("epochs", "steps") if isinstance(value := config.hyper.get(key), int | float)]
    return config.rounds * len(config.seeds) * (steps[0] if steps else 1)


def total(costs: Iterable[Cost]) -> tuple[float, int]:
    """The seconds that are known, together, and how many costs are not."""
    known = [cost.seconds for cost in costs]
    return sum(each for each in known if each is not None), known.count(None)
