"""On a GPU: a step of training is recorded once, with all its kernels, and replayed at the cost of one launch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache

import torch
from torch import Tensor

from fedrepro.core.trees import Tree, leaves, map_tree

RECORDINGS = 64  # that are kept: a round has one for each number of clients that still take steps
LEAST = 4  # steps that pay for a recording


def records(device: torch.device) -> bool:
    """Whether steps can be recorded there."""
    return device.type == "cuda"


class Recording:
    """A step `(carry, fixed, *inputs) -> carry` on tensors of its own, whose shapes do not change."""

    def __init__(self, step: Callable):
        self.step, self.graph = step, torch.cuda.CUDAGraph()
        self.held: tuple[Tree, Tree, tuple[Tensor, ...]] | None = None

    def play(self, carry: Tree, fixed: Tree, inputs: Iterator[tuple[Tensor, ...]]) -> Tree:
        """The carry after a step for each of `inputs`."""
        if self.held:
            map_tree(Tensor.copy_, self.held[0], carry)
            map_tree(Tensor.copy_, self.held[1], fixed)
        else:
            first = next(inputs)
            carry = self.step(carry, fixed, *first)  # compiles what cannot be compiled while it is recorded
            self._record(carry, fixed, first)
        carry, _, held = self.held
        for now in inputs:
            for own, each in zip(held, now, strict=True):
                own.copy_(each)
            self.graph.replay()
        return map_tree(Tensor.clone, carry)

    def _record(self, carry: Tree, fixed: Tree, inputs: tuple[Tensor, ...]) -> None:
        own = lambda leaf: leaf.clone(memory_format=torch.contiguous_format)  # noqa: E731
        self.held = map_tree(own, carry), map_tree(own, fixed), tuple(map(own, inputs))
        carry, fixed, inputs = self.held
        with torch.cuda.graph(self.graph, pool=_room()):
            map_tree(Tensor.copy_, carry, self.step(carry, fixed, *inputs))


@lru_cache(1)
def _room() -> tuple[int, int]:
    """The memory of what is computed on the way, which all recordings share: no two are played at once."""
    return torch.cuda.graph_pool_handle()


def recording(step: Callable, like: Tree, *how: Hashable) -> Recording:
    """The recording of a step for trees of these shapes, in the present precision, and for what else it hangs on."""
    shapes = tuple((name, leaf.shape, leaf.dtype, leaf.device) for name, leaf in leaves(like))
    return _recording(step, shapes, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"), *how)


@lru_cache(RECORDINGS)
def _recording(step: Callable, *how: Hashable) -> Recording:
    return Recording(step)
