"""Adam in one pass over memory, for networks whose optimiser would else take as long as their small convolutions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim.adam import adam as torch_adam

from fedrepro import trees
from fedrepro.types import State


def adam(lr: float, b1: float, b2: float, eps: float) -> Callable[[State, State, State], tuple[State, State]]:
    """`update(params, gradient, s) -> (params, s)`: a step of torch's Adam, up to rounding that of `optim.adam`.

    s is as `optim.adam` begins it. Where its counter `t` is a vector [K], the leaves are those of K networks [K, ...].
    """

    def update(params: State, gradient: State, s: State) -> tuple[State, State]:
        new = [trees.map_tree(fresh, tree) for tree in (params, s["m"], s["v"])]
        # The compiled loop goes through memory in order, whatever the strides.
        moved = [*new[:1], trees.map_tree(Tensor.contiguous, gradient), *new[1:]]
        rows = [each_row(tree, s["t"].dim()) for tree in moved]
        counts = [t.clone() for _ in trees.leaves(params) for t in s["t"].reshape(-1)]
        options = {"lr": lr, "beta1": b1, "beta2": b2, "eps": eps, "weight_decay": 0.0}
        torch_adam(*rows, [], counts, fused=True, amsgrad=False, maximize=False, **options)
        return new[0], {"m": new[1], "v": new[2], "t": s["t"] + 1}

    return update


def fresh(leaf: Tensor) -> Tensor:
    return leaf.detach().clone(memory_format=torch.contiguous_format)


def each_row(tree: State, stacked: int) -> list[Tensor]:
    """The leaves one after another, those of stacked networks row by row (views)."""
    return [row for _, leaf in trees.leaves(tree) for row in (leaf.unbind() if stacked else (leaf,))]
