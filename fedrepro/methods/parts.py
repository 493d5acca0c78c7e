"""What methods are composed of: server rules."""

from __future__ import annotations

from torch import Tensor

from fedrepro import trees
from fedrepro.types import Report, Rule, State


def average(optimiser: Rule) -> Rule:
    """The server follows the weighted mean of the deltas: its optimiser's gradient is minus that mean.

    With `sgd(1.0)` it replaces the model by the clients' weighted average (FedAVG).
    """

    def update(reports: Report, weights: Tensor, s: State) -> tuple[State, State]:
        return optimiser.update(trees.map_tree(lambda d: -d, trees.mean(reports.delta, weights)), s)

    return Rule(optimiser.init, update)
