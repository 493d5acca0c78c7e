"""Compiled loops for 5x5 convolutions with 2x2 max-pooling and ReLU: what torch has no fast product for on a CPU.

Images are rows of numbers with the batch innermost, [..., H, W*B], so that a tap of a kernel is a shifted row, and the
loops (compiled.py) keep the sums of some columns in the processor's registers while they go through the taps. K
clients, each with its own kernels, are shared out among torch's threads; no sum depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro import compiled

# Numba's threads are torch's own, and where they are started they set torch's number.
_threads = torch.get_num_threads()
numba.get_num_threads()
torch.set_num_threads(_threads)


def batch_last(x: Tensor) -> Tensor:
    """Images [K, B, I, H, W] as network input [K, I, H, W, B]: bytes 0..255 become floats 0..1, as in `nets.pixels`."""
    clients, batch = x.shape[:2]
    out = torch.empty(clients, x[0, 0].numel(), batch)
    _share_out(compiled.batch_last, 1 if x.is_floating_point() else 255, x.flatten(2), out)
    return out.view(clients, *x.shape[2:], batch)


def pooled(x: Tensor, weight: Tensor, bias: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """ReLU of the largest of each 2x2 outputs of a convolution without padding.

    x [K, I, H, W*B], weight [K, O, I, 5, 5], bias [K, O], float32 -> h [K, O, H/2-2, (W/2-2)*B], and which of its four
    (0 to 3 in reading order, the first of equals) each one is, 4 where ReLU lets nothing through: uint8.
    """
    clients, _, height, length = x.shape
    if (full := _full(length, batch)) > batch:
        return tuple(_narrow(each, batch, full) for each in pooled(_wide(x, batch, full), weight, bias, full))
    h = torch.empty(clients, weight.shape[1], height // 2 - 2, length // 2 - 2 * batch)
    which = torch.empty(h.shape, dtype=torch.uint8)
    _share_out(compiled.pooled, batch, x, weight, bias, h, which)
    return h, which


def pooled_gradient(
    x: Tensor, weight: Tensor, slope: Tensor, which: Tensor, batch: int, deeper: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of `pooled` in its weight, its bias and, if `deeper`, its input, from the slope of its output."""
    length = x.shape[3]
    if (full := _full(length, batch)) > batch:
        x, slope, which = (_wide(each, batch, full) for each in (x, slope, which))
        to_weight, to_bias, to_x = pooled_gradient(x, weight, slope, which, full, deeper)
        return to_weight, to_bias, _narrow(to_x, batch, full) if deeper else None
    to_weight, to_bias = torch.zeros(weight.shape), torch.zeros(weight.shape[:2])
    room = -(-length // (2 * compiled.SPAN)) * 2 * compiled.SPAN
    to_x = torch.zeros(*x.shape[:3], room) if deeper else torch.zeros(len(x), 0, 0, 0)
    _share_out(compiled.pooled_gradient, batch, x, weight, slope, which, to_weight, to_bias, to_x)
    return to_weight, to_bias, to_x[..., :length] if deeper else None


def _full(length: int, batch: int) -> int:
    """The smallest batch, from this one on, with which the loops have as many columns as they take at once."""
    return max(batch, compiled.WIDTH, -(-compiled.SPAN // (length // batch - 4)))


def _wide(x: Tensor, batch: int, full: int) -> Tensor:
    """Rows [..., W*B] filled up with zeros to those of a larger batch."""
    return F.pad(x.unflatten(-1, (-1, batch)), (0, full - batch)).flatten(-2)


def _narrow(x: Tensor, batch: int, full: int) -> Tensor:
    """Undo `_wide`."""
    return x.unflatten(-1, (-1, full))[..., :batch].flatten(-2)


def _share_out(kernel: Callable, number: int, *stacked: Tensor) -> None:
    """Run a kernel that fills the last of its arrays, in as many threads as torch has."""
    numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))
    kernel(*(each.contiguous().numpy() for each in stacked), number)
