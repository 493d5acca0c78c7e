"""How well a model does on a set of rows, however large: accuracy, loss and the norm of its gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.core import trees
from fedrepro.core.lift import modes
from fedrepro.core.types import State

# Rows of one evaluation call: large enough for full-speed products, small enough for the cache; of large images fewer,
# since what a network makes of them must fit in memory, and of a gradient fewer still, since all of that is kept.
EVALUATION_ROWS, EVALUATION_VALUES = 1000, 8_000_000
GRADIENT_PART = 8


def in_parts(logits: Callable[[Tensor], Tensor], x: Tensor, dim: int = 0) -> Tensor:
    """`logits` of x [N, ...] in parts of rows, joined along their row axis `dim`."""
    # Clients one after another: a batched product would copy the shared rows once for each of them.
    with modes(clients="loop"):
        return torch.cat([logits(part).float() for part in x.split(rows_at_once(x))], dim)


def rows_at_once(x: Tensor) -> int:
    """How many rows of x [N, ...] one evaluation call takes."""
    return min(EVALUATION_ROWS, max(1, EVALUATION_VALUES // x[0].numel()))


def norm(gradient: Callable[[Tensor, Tensor], State], x: Tensor, y: Tensor) -> float:
    """The L2 norm of the mean over rows x [N, ...], y [N] of a `gradient` that sums over them, taken in parts."""
    size, total = max(1, rows_at_once(x) // GRADIENT_PART), None
    with modes(clients="loop"):
        for part in zip(x.split(size), y.split(size), strict=True):
            found = gradient(*part)
            total = found if total is None else trees.add(total, found)
    return sum(leaf.double().square().sum().item() for _, leaf in trees.leaves(total)) ** 0.5 / len(y)


def score(logits: Tensor, y: Tensor) -> tuple[float, float]:
    """Accuracy (a fraction) and mean cross entropy of logits [N, classes] against y [N]."""
    return (logits.argmax(1) == y).double().mean().item(), F.cross_entropy(logits, y).item()
