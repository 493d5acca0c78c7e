"""The one seam that vectorises: clients and seeds are leading axes, and this file alone decides how they run.

Modes: "vmap" (one batched call), a number (vmap in chunks of that many), "loop" (one after another). "auto" takes

- of clients, the way that a network (`Net.descend`) or an optimiser (`Rule.together`) has of its own for stacked ones,
  which looks at the device: compiled loops on a CPU, each of torch's threads with some of the clients; else "vmap", but
  "loop" for steps of more than `_SIDE_BY_SIDE` rows;
- of seeds, "vmap", but "loop" for rounds of more than `_TOGETHER` rows.

A phase that is `alone` (convolutions) has seeds one after another whatever is asked for, and the critics of GANs take
their steps in turn. What is drawn does not depend on the mode.
All are equal up to the rounding of batched products: in float32, after one cycle of phases, logits within 1e-5 and
parameters within a tenth of a learning rate (Adam divides a nearly zero gradient by its own size, so its rounding shows
as part of a step).
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar

import torch
from torch import Tensor

from fedrepro.core.recording import LEAST, recording, records
from fedrepro.core.trees import Tree, leaves, map_tree, one, rows, stack
from fedrepro.core.types import Batch, Metrics, State
from fedrepro.errors import UsageError, short

Mode = str | int
_clients: ContextVar[Mode] = ContextVar("clients", default="auto")
_seeds: ContextVar[Mode] = ContextVar("seeds", default="auto")
_large: ContextVar[bool] = ContextVar("large", default=False)  # whether a step has too many rows to batch clients
_stacked: ContextVar[bool] = ContextVar("stacked", default=False)  # whether seeds are batched around the present call
_coloured: ContextVar[bool] = ContextVar("coloured", default=False)

# Above this many rows a seed, batching seeds only moves memory, and above this many rows of one step, batching clients
# (measured: benchmarks/lift.py).
_TOGETHER = 20_000
_SIDE_BY_SIDE = 4_000


@contextlib.contextmanager
def modes(*, clients: Mode | None = None, seeds: Mode | None = None) -> Iterator[None]:
    """Inside the block, clients and seeds run in these modes; "auto" (the default) decides by the size of batches."""
    with contextlib.ExitStack() as within:
        for var, mode in ((_clients, clients), (_seeds, seeds)):
            within.enter_context(_set(var, var.get() if mode is None else mode))
        yield


@contextlib.contextmanager
def evaluation(coloured: bool = False) -> Iterator[None]:
    """Inside the block rows are predicted, of one seed and by one client after another, so that nothing is batched.

    coloured: whether they are images with empty channels.
    """
    with modes(clients="loop"), _set(_coloured, coloured):
        yield


def coloured() -> bool:
    """Whether rows are predicted, without a batch or a gradient, of images with empty channels."""
    return _coloured.get()


def asked(mode: str) -> contextlib.AbstractContextManager:
    """Inside the block, clients and seeds run as a command asks: "auto", "vmap", "loop" or so many batched at once."""
    if mode not in ("auto", "vmap", "loop") and not re.fullmatch("[1-9][0-9]{0,8}", mode):
        known = "auto, vmap, loop, or a number to batch at once, such as 4"
        raise UsageError(f"unknown mode {short(repr(mode))}: there is {known}.")
    chosen = int(mode) if mode.isdecimal() else mode
    return modes(clients=chosen, seeds=chosen)


@contextlib.contextmanager
def _set(var: ContextVar, value: object) -> Iterator[None]:
    token = var.set(value)
    try:
        yield
    finally:
        var.reset(token)


def over_clients(fn: Callable, in_dims: int | tuple = 0, own: Callable | None = None) -> Callable:
    """Lift a function of one client to stacked clients; `in_dims` as in `torch.vmap` (0, or None for shared).

    own: the same for stacked clients, written out; it is taken unless a mode is asked for or seeds are batched around.
    """

    def lifted(*args: Tree) -> Tree:
        mode = _clients.get()
        if mode == "auto" and own and not _stacked.get():
            return own(*args)
        if mode == "auto":
            mode = "loop" if _large.get() else "vmap"
        return _over(fn, in_dims, mode, args)

    return lifted


def surely(all_of: Tensor) -> bool:
    """Whether all of a boolean tensor is true; False where seeds are batched around, so that nobody can know."""
    return not _stacked.get() and bool(all_of.all())


def over_seeds(step: Callable, alone: bool = False) -> Callable:
    """Lift a phase's step to stacked states [S, ...] and one batch for each seed; `alone` as in `Phase`."""

    def lifted(state: State, batches: list[Batch]) -> tuple[State, Metrics]:
        live, mode = batches[0].live, _seeds.get()
        if mode == "auto":
            mode = "vmap" if live.numel() <= _TOGETHER else "loop"
        if alone or any(batch.live.shape != live.shape for batch in batches):
            mode = "loop"  # or clients of one seed have more batches than those of another
        with _set(_large, live.shape[-1] > _SIDE_BY_SIDE):
            if mode == "loop" or len(batches) == 1:
                return _gather([step(one(state, i), batch) for i, batch in enumerate(batches)])
            with _set(_stacked, True):
                return _over(step, 0, mode, (state, stack(batches)))

    return lifted


def in_turn(risk: Callable[[State, int], Tensor], params: State) -> tuple[State, Tensor]:
    """The gradients {[K, ...]} of `risk(parameters of one client, k)`, and its values [K], one client after another."""
    gradient, values = map_tree(torch.empty_like, params), []
    for k in range(len(next(leaves(params))[1])):
        own = leaf(one(params, k))
        with torch.enable_grad():
            value = risk(own, k)
        map_tree(torch.Tensor.copy_, one(gradient, k), slopes(value, own))
        values.append(value.detach())
    return gradient, torch.stack(values)


def leaf(tree: Tree) -> Tree:
    """The same values, by which gradients can be taken."""
    return map_tree(lambda values: values.detach().requires_grad_(), tree)


def slopes(value: Tensor, tree: Tree) -> Tree:
    """The gradient of a scalar by all leaves; zero by those that it does not depend on."""
    found = iter(torch.autograd.grad(value, [each for _, each in leaves(tree)], materialize_grads=True))
    return map_tree(lambda _: next(found), tree)


def over_steps(
    step: Callable, carry: Tree, fixed: Tree, inputs: tuple[Tensor, ...], live: Tensor, recorded: bool = False
) -> Tree:
    """Clients' steps in turn: `step(carry, fixed, *inputs, live) -> carry`, stacked over those that still take part.

    carry, fixed: trees [C, ...]; inputs: tensors [C, T, B, ...]; live: bool [C, T, B]. A client takes part in the steps
    in which it has a live row, which come first; it waits while others take more. recorded: whether a GPU records the
    step, which is then one object in all rounds and looks at no number.
    """
    clients, total = live.shape[:2]
    # Under a batch of seeds the number of steps is no number, so that those who wait are masked.
    counts = [total] * clients if _stacked.get() else live.any(-1).sum(-1).tolist()
    order = sorted(range(clients), key=counts.__getitem__, reverse=True)
    if even := counts[order[0]] == counts[order[-1]]:
        order = range(clients)
    carry, fixed, ended = rows(carry, order), rows(fixed, order), []
    busy, begun = torch.tensor(order, device=live.device), 0
    recorded &= records(live.device) and not _stacked.get()
    for end in sorted(set(counts)):
        now = _by_step((*inputs, live), None if even else busy, range(begun, end))
        if recorded and end - begun > LEAST:
            shapes = {str(i): each[0, 0] for i, each in enumerate((*inputs, live))}
            like = {"carry": carry, "fixed": fixed, "inputs": shapes}
            carry = recording(step, like, _clients.get(), _large.get()).play(carry, fixed, now)
        else:
            carry = _one_by_one(step, carry, fixed, now, total)
        if left := sum(count > end for count in counts):
            ended.insert(0, rows(carry, range(left, len(busy))))
            carry, fixed, busy, begun = rows(carry, range(left)), rows(fixed, range(left)), busy[:left], end
    whole = map_tree(lambda *leaf: torch.cat(leaf), carry, *ended) if ended else carry
    return rows(whole, sorted(range(clients), key=order.__getitem__)) if not even else whole


def _by_step(inputs: Sequence[Tensor], busy: Tensor | None, steps: range) -> Iterator[tuple[Tensor, ...]]:
    """The inputs of each step, of the clients that are `busy`."""
    for t in steps:
        yield tuple(each[:, t] if busy is None else each[:, t].index_select(0, busy) for each in inputs)


def _one_by_one(step: Callable, carry: Tree, fixed: Tree, inputs: Iterator[tuple[Tensor, ...]], total: int) -> Tree:
    for now in inputs:
        new = step(carry, fixed, *now)
        carry = _where(now[-1].flatten(1).any(1), new, carry) if _stacked.get() and total > 1 else new
    return carry


def _where(busy: Tensor, new: Tree, old: Tree) -> Tree:
    """The rows of `new` where busy [C], and else those of `old`."""
    return map_tree(lambda a, b: torch.where(busy.view(-1, *[1] * (a.dim() - 1)), a, b), new, old)


def _over(fn: Callable, in_dims: int | tuple, mode: Mode, args: tuple[Tree, ...]) -> Tree:
    """`fn` over the leading axis of its arguments, results stacked; one row never pays for batching."""
    dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
    size = next(len(leaf) for arg, dim in zip(args, dims, strict=True) if dim == 0 for _, leaf in leaves(arg))
    if mode == "loop" or size == 1:
        return _gather(
            [fn(*(a if d is None else one(a, i) for a, d in zip(args, dims, strict=True))) for i in range(size)]
        )
    return torch.vmap(fn, in_dims=dims, chunk_size=mode if isinstance(mode, int) else None)(*args)


def _gather(results: list) -> Tree:
    if type(results[0]) is tuple:
        return tuple(_gather(list(parts)) for parts in zip(*results, strict=True))
    return stack(results)


def keep_freed_memory() -> None:
    """Let the C library keep freed blocks: states are new tensors every round, and fresh pages cost more than sums."""
    with contextlib.suppress(OSError, AttributeError):  # no glibc, nothing to tune
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD
