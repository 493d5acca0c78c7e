"""How well a model does on a set of rows, however large: accuracy, loss and the norm of its gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.core import trees
from fedrepro.core.lift import evaluation, modes
from fedrepro.core.types import State

# Rows of one call: enough for full-speed products, few enough for the cache and for one or two colours of ten;
# of large images fewer, since what a network makes of them must fit in memory, and of a gradient fewer still, since all
# of that is kept.
EVALUATION_ROWS, EVALUATION_VALUES = 250, 8_000_000
GRADIENT_SHARE = 8


def in_parts(logits: Callable[[Tensor], Tensor], x: Tensor, dim: int = 0) -> Tensor:
    """`logits` of x [N, ...] in parts of rows, joined along their row axis `dim`."""
    # Clients one after another: a batched product would copy the shared rows once for each of them.
    with evaluation(coloured=not _filled(x[:1]).all()):
        return torch.cat([logits(part).float() for part in x.split(rows_at_once(x))], dim)


def by_colour(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Rows x [N, ...], y [N], images in the order of their first channel that is not empty, where channels are empty.

    So the images of a part have few colours, and an MLP leaves out the other channels (`nets.mlp.inked`).
    """
    filled = _filled(x)
    if filled.all():
        return x, y
    order = filled.byte().argmax(1).argsort(stable=True)
    return x[order], y[order]


def _filled(x: Tensor) -> Tensor:
    """Which channels of images [N, C, ...] have anything: [N, C]; all of rows that are no images."""
    return x.flatten(2).amax(2) > 0 if x.dim() > 2 else torch.ones(len(x), 1, dtype=torch.bool)


def rows_at_once(x: Tensor, share: int = 1) -> int:
    """How many rows of x [N, ...] one evaluation call takes, where a row may have a `share`-th of the memory."""
    return max(1, min(EVALUATION_ROWS, EVALUATION_VALUES // share // x[0].numel()))


def norm(gradient: Callable[[Tensor, Tensor], State], x: Tensor, y: Tensor) -> float:
    """The L2 norm of the mean over rows x [N, ...], y [N] of a `gradient` that sums over them, taken in parts."""
    size, total = rows_at_once(x, GRADIENT_SHARE), None
    with modes(clients="loop"):
        for part in zip(x.split(size), y.split(size), strict=True):
            found = gradient(*part)
            total = found if total is None else trees.add(total, found)
    return sum(leaf.double().square().sum().item() for _, leaf in trees.leaves(total)) ** 0.5 / len(y)


def score(logits: Tensor, y: Tensor) -> tuple[float, float]:
    """Accuracy (a fraction) and mean cross entropy of logits [N, classes] against y [N]."""
    return (logits.argmax(1) == y).double().mean().item(), F.cross_entropy(logits, y).item()
