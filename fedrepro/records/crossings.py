"""Crossings: where a training accuracy first falls below each level of a grid, and what a threshold would have given.

The stopping rule of flgames-2022, section 7.3.2, for all thresholds at once: one that the paper does not give is looked
for in the records, and none ever needs another run. Levels are whole numbers here, of the steps of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedrepro.records.config import Crossings


def levels(rule: Crossings) -> range:
    """The levels between the accuracies 0 and 1."""
    return range(1, math.ceil(_steps(rule, 1.0)))


def exceeded(rule: Crossings, accuracy: float) -> int:
    """The highest level below an accuracy; 0 where there is none."""
    return max(math.ceil(_steps(rule, accuracy)) - 1, 0)


def above(rule: Crossings, accuracy: float) -> range:
    """The levels above an accuracy."""
    return range(math.floor(_steps(rule, accuracy)) + 1, levels(rule).stop)


class Passed:
    """The levels that a seed exceeded and crossed while it trains: the highest, now and as it last crossed each one.

    The plateau, and so the margin of a level, is known at the end alone. So a crossing is new if it is the first one
    for some margin that the level may turn out to have. `newest`: the round of the last one that was new; `over`:
    whether the rule's floor is crossed, whatever its margin.
    """

    def __init__(self, rule: Crossings):
        self.rule, self.peak, self.newest, self.over = rule, 0, 0, False
        self.seen = dict.fromkeys(levels(rule), -1)

    def new(self, round: int, accuracy: float) -> bool:
        """Whether the accuracy after a round makes a new crossing of some level; it counts as crossed from then on."""
        self.peak = max(self.peak, exceeded(self.rule, accuracy))
        if round < self.rule.warm_start:
            return False
        widest = math.floor(_steps(self.rule, self.rule.margin))
        crossed = [level for level in above(self.rule, accuracy) if level <= self.peak]
        fresh = [level for level in crossed if self.seen[level] < min(self.peak, level + widest)]
        self.seen |= dict.fromkeys(fresh, self.peak)
        self.newest = round if fresh else self.newest
        self.over |= accuracy < self.rule.floor and self.peak >= _steps(self.rule, self.rule.floor) + widest
        return bool(fresh)


def first(rule: Crossings, accuracies: Mapping[int, float], plateau: float) -> dict[int, int]:
    """Level -> the first round that is below it once the rule is enabled; levels that are never crossed lack.

    `accuracies`: round -> training accuracy after it, in the order of the rounds. `plateau`: that of the seed.
    """
    found: dict[int, int] = {}
    peak, margins = 0, _margins(rule, plateau)
    for after, accuracy in accuracies.items():
        peak = max(peak, exceeded(rule, accuracy))
        if after >= rule.warm_start:
            for level in range(above(rule, accuracy).start, peak + 1):
                if level not in found and level + margins[level] <= peak:
                    found[level] = after
    return found


def _margins(rule: Crossings, plateau: float) -> dict[int, int]:
    """Level -> its margin, in whole steps."""
    widest, top = math.floor(_steps(rule, rule.margin)), _steps(rule, plateau)
    return {level: max(min(widest, math.floor((top - level) / 2)), 0) for level in levels(rule)}


def _steps(rule: Crossings, accuracy: float) -> float:
    """An accuracy in steps of the grid, without the last bits of the division."""
    return round(accuracy / rule.step, 6)
