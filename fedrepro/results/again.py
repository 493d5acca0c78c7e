"""A run that was trained again beside its record: how far apart they are, and whether another machine explains it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from fedrepro.errors import FedreproError, OutsideTolerance
from fedrepro.papers.load import load_paper
from fedrepro.records.record import Record
from fedrepro.results.runs import Run, current

# Precision -> how far a seed's accuracy, and any other metric relative to its size, may be from its record where
# another processor rounds otherwise: measured, see "The same number elsewhere" in docs/reference.md.
EXPECTED = {"fp32": (0.03, 0.15), "bf16": (0.15, 0.15)}


class Pair(NamedTuple):
    """A metric of one seed: in the record, of the run that was trained again, and how far they may be apart."""

    seed: int
    metric: str
    recorded: float
    again: float
    allowed: float

    @property
    def within(self) -> bool:
        """Whether they are not further apart."""
        return abs(self.again - self.recorded) <= self.allowed


def recorded(paper: str, run: str) -> Run:
    """A planned run with its record; FedreproError where that is missing, damaged or stale, UsageError if unknown."""
    found, faults = current(load_paper(paper), [run])
    if faults:
        raise FedreproError(faults[run])
    return found[run]


def pairs(run: Run, again: Record) -> list[Pair]:
    """Each metric of each seed; that of a seed which diverged in one of the two is infinitely far away."""
    found, (points, share) = [], EXPECTED[run.config.precision]
    for seed in run.config.seeds:
        ours, theirs = run.record.seeds[seed].metrics, again.seeds[seed].metrics
        for metric in dict.fromkeys(chain(ours, theirs)):
            old, new = ours.get(metric, float("inf")), theirs.get(metric, float("inf"))
            allowed = points if metric.endswith("accuracy") else share * abs(ours.get(metric, 0.0))
            found.append(Pair(seed, metric, old, new, allowed))
    return found


def enforce(found: Iterable[Pair]) -> None:
    """Raise OutsideTolerance, with the first, where metrics are further away than another machine explains."""
    if far := [pair for pair in found if not pair.within]:
        one = f"{far[0].metric} of seed {far[0].seed} is {far[0].again:.6g}, recorded {far[0].recorded:.6g}"
        raise OutsideTolerance(f"{one}: {len(far)} metrics are further from the record than another machine explains.")
