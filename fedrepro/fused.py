"""Adam's passes over memory as compiled loops on a CPU, with the bits of torch's operations in `optim.adam`.

Leaves are those of K networks [K, ...]; networks that are all the same may be views of one.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from torch import Tensor

from fedrepro.workers import share_out

_compiled = {"cache": True, "nogil": True, "error_model": "numpy"}


def squares(v: Tensor, g: Tensor, rate: float) -> Tensor:
    """v, moved towards g^2 by a rate below a half."""
    new = torch.empty(g.shape, dtype=g.dtype)
    arrays = [_rows(each) for each in (v, g, new)]
    share_out(lambda *part: _squares(*arrays, arrays[1].dtype.type(rate), *part), arrays[1].shape[1], g.numel())
    return new


def moved(p: Tensor, m: Tensor, v: Tensor, floor: Tensor, scale: Tensor) -> Tensor:
    """p + scale m / (sqrt(v) + floor), with a floor and a scale for each network [K]."""
    new = v.sqrt()  # torch's, which does not always round as the processor's
    arrays = [_rows(each) for each in (p, m, new)] + [each.to(m.dtype).numpy() for each in (floor, scale)]
    share_out(lambda *part: _moved(*arrays, *part), arrays[1].shape[1], m.numel())
    return new


def _rows(leaf: Tensor) -> np.ndarray:
    """[K, n], or of views of one network [1, n]."""
    own = leaf if leaf.stride(0) else leaf[:1]
    return own.detach().reshape(len(own), -1).contiguous().numpy()


# The compiler turns loops into those over vectors where all arrays have one axis: hence the small functions.


@numba.njit(**_compiled)
def _squares(v, g, new, rate, first, end):
    for k in range(len(g)):
        _row_of_squares(v[k % len(v)][first:end], g[k][first:end], new[k][first:end], rate)


@numba.njit(**_compiled)
def _row_of_squares(v, g, new, rate):
    for i in range(len(new)):
        new[i] = _towards(v[i], g[i] * g[i], rate)


@numba.njit(fastmath={"contract"}, **_compiled)
def _towards(a, b, rate):
    """As torch.lerp has it: the product and the sum are rounded once."""
    return a + rate * (b - a)


@numba.njit(**_compiled)
def _moved(p, m, new, floor, scale, first, end):
    for k in range(len(m)):
        _row_moved(p[k % len(p)][first:end], m[k][first:end], new[k][first:end], floor[k], scale[k])


@numba.njit(**_compiled)
def _row_moved(p, m, new, floor, scale):
    for i in range(len(new)):
        new[i] = p[i] + m[i] / (new[i] + floor) * scale
