"""The memory that a run takes at the least: one that no machine like this could hold is refused before it begins."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedrepro.core import trees
from fedrepro.core.types import Draw, Method, State
from fedrepro.data import Federation
from fedrepro.errors import UsageError

FEWER = {  # part of the memory -> what would make it smaller
    "the data": "fewer seeds",
    "the models of clients and server": "a smaller network, fewer clients or fewer seeds",
    "the batches of one round": "fewer steps or epochs, smaller batches or a smaller cohort",
}


def enough(method: Method, data: Federation, seeds: int) -> None:
    """Raise UsageError where all seeds of a run together take more memory than there is.

    Counted are the data, the state, in a round a second model and a change of it at each client, the largest batches;
    not what a step computes. So it is a lower bound.
    """
    largest = max(method.phases, key=lambda phase: _batches(phase.draw, data))
    sizes = (_data(data), _models(method, data, largest.draw), _batches(largest.draw, data))
    needed = {what: seeds * size for what, size in zip(FEWER, sizes, strict=True)}
    there, total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), sum(needed.values())
    if total > there:
        most = max(needed, key=needed.get)
        raise UsageError(
            f"this run takes at least {total / 2**30:,.0f} GiB of memory and the machine has {there / 2**30:,.0f}, "
            f"most of it for {most}: ask for {FEWER[most]}."
        )


def _data(data: Federation) -> int:
    return _bytes((data.x, data.y, *(each for test in data.tests.values() for each in test)))


def _models(method: Method, data: Federation, draw: Draw) -> int:
    """Of the state as it begins and, where a server has one model, of what clients make of it in a round."""
    try:
        with _Unfilled():
            state = method.init(lambda client, part: torch.Generator("cpu"), data.sizes)
    except Exception:  # it begins with numbers that are computed, so that only computing them tells its size
        return 0
    shared: State = state.get("server", {}).get("params", {})
    whole, model = (_bytes(leaf for _, leaf in trees.leaves(part)) for part in (state, shared))
    return whole + 2 * model * _taking_part(draw, data)


def _batches(draw: Draw, data: Federation) -> int:
    """Of the rows, their labels and numbers, of every client that takes part and all of its steps."""
    size = min(max(data.sizes), draw.chunk if draw.size is None else draw.size)
    passes = -(-max(data.sizes) // size)
    steps = passes if draw.size is None else draw.epochs * passes if draw.epochs else draw.steps
    row = _bytes((data.x[0],)) + 16  # label and number, int64 each
    noise = 4 * draw.noise[0] * draw.noise[1] * size if draw.noise else 0
    return _taking_part(draw, data) * steps * size * row + noise


def _taking_part(draw: Draw, data: Federation) -> int:
    if isinstance(draw.clients, int):
        return min(draw.clients, len(data.sizes))
    return len(data.sizes) if draw.clients == "all" else len(draw.clients)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


class _Unfilled(TorchFunctionMode):
    """Inside of it new tensors have shapes and no memory ("meta"); done here, since torch's own way imports for 2 s."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        if func in (torch.empty, torch.zeros):
            return func(*args, **(kwargs or {}) | {"device": "meta"})
        if func is torch.zeros_like:
            return torch.empty(args[0].shape, dtype=args[0].dtype, device="meta")
        if func is torch.stack:
            return torch.empty((len(args[0]), *args[0][0].shape), dtype=args[0][0].dtype, device="meta")
        return func(*args, **(kwargs or {}))
