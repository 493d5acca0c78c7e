"""Thresholds: when runs ended, found from the training accuracy that a paper prints where it does not say.

flgames-2022, section 7.3.2, stops a run at the first round whose training accuracy is below T, and gives no T. Only
training accuracies are looked at here: what a threshold gives at test is read off the curves once it is found.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedrepro.errors import UsageError
from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.cells import remark_on
from fedrepro.records.config import Crossings
from fedrepro.records.crossings import first

NEAR = 0.01  # of accuracies: as near to the printed one as a threshold has to come
SHIFT = 0.03  # of thresholds: by how much one is moved to see what hangs on it
PLATEAU = 0.9  # quantile of a seed's accuracies after the warm start

Curves = Mapping[int, Mapping[int, float]]  # seed -> round -> training accuracy, a fraction


class Ended(NamedTuple):
    """Where a run ended. `threshold`: T, None of a run that has none but a length. `rounds`: seed -> its last round.

    `accuracy`: the mean training accuracy there, `reached` whether it is near the printed one. `raised`, `lowered`: the
    rounds with the threshold moved by SHIFT, of the seeds that it would have stopped.
    """

    threshold: float | None
    rounds: dict[int, int]
    accuracy: float
    reached: bool
    raised: dict[int, int]
    lowered: dict[int, int]


def stopped(rule: Crossings, curves: Curves, printed: float) -> Ended:
    """Where the threshold stops the seeds that brings their mean training accuracy closest to the printed one.

    The highest of equals. Where no threshold stops all seeds, the ends of their curves, without one.
    """
    found = crossings(rule, curves)
    means = {level: _mean(curves, rounds) for level, rounds in together(found).items()}
    if not means:
        rounds = {seed: max(curve) for seed, curve in curves.items()}
        return Ended(None, rounds, _mean(curves, rounds), False, {}, {})
    level = min(means, key=lambda level: (round(abs(means[level] - printed), 9), -level))
    by = round(SHIFT / rule.step)
    moved = ({seed: own[to] for seed, own in found.items() if to in own} for to in (level + by, level - by))
    rounds = {seed: own[level] for seed, own in found.items()}
    return Ended(round(level * rule.step, 6), rounds, means[level], abs(means[level] - printed) <= NEAR, *moved)


def reached(curves: Curves, printed: float) -> Ended:
    """The first round in which the seeds' mean training accuracy is the printed one or more; else where it is highest.

    `curves` have the rounds that may be the last.
    """
    shared = sorted(set.intersection(*(set(curve) for curve in curves.values())))
    means = {round: _mean(curves, dict.fromkeys(curves, round)) for round in shared}
    last = next((round for round, mean in means.items() if mean >= printed), max(means, key=means.get))
    return Ended(None, dict.fromkeys(curves, last), means[last], abs(means[last] - printed) <= NEAR, {}, {})


def crossings(rule: Crossings, curves: Curves) -> dict[int, dict[int, int]]:
    """Seed -> level -> the round in which that threshold would have stopped it."""
    found = {}
    for seed, curve in curves.items():
        after = [value for round, value in curve.items() if round >= rule.warm_start]
        found[seed] = first(rule, curve, float(np.quantile(after, PLATEAU))) if after else {}
    return found


def together(found: Mapping[int, Mapping[int, int]]) -> dict[int, dict[int, int]]:
    """The levels at which all seeds would have stopped, each with the rounds: level -> seed -> round."""
    shared = set.intersection(*(set(own) for own in found.values())) if found else set()
    return {level: {seed: own[level] for seed, own in found.items()} for level in sorted(shared)}


def printed(paper: Paper, numbers: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    """Run -> the printed training accuracy, a fraction, by which its table says that it is calibrated.

    `numbers`: what the cells are compared with, in percent, by their keys. Raises UsageError where two tables print
    different ones of a run.
    """
    found: dict[str, float] = {}
    for table in paper.spec.tables:
        for cell in paper.cells(table):
            remark = remark_on(paper.table(table).calibrated, cell.facts | {"budget": paper.budget})
            if remark is None or not remark.ends or cell.metric != remark.metric:
                continue
            for run in cell.trained:
                wanted = numbers[cell.key] / 100
                if found.setdefault(run, wanted) != wanted:
                    fault = f"run {run} ends at a training accuracy of {found[run]:.2%} here and {wanted:.2%} there"
                    raise UsageError(f"{paper.folder / 'paper.toml'}: tables.{table}: {fault}: leave one uncalibrated.")
    return found


def _mean(curves: Curves, rounds: Mapping[int, int]) -> float:
    return statistics.fmean(curves[seed][round] for seed, round in rounds.items())
