"""Compiled loops for 5x5 convolutions with 2x2 max-pooling and ReLU: what torch has no fast product for on a CPU.

Images are rows of numbers with the batch innermost, [..., H, W*B], so that a tap of a kernel is a shifted row and each
loop runs over thousands of numbers that lie side by side. K clients, each with its own kernels, are shared out among
torch's number of threads. Sums may be reassociated and products fused, always in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numba
import numpy as np
import torch
from torch import Tensor

_compiled = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz", "reassoc"}}
_ZERO, _DEAD = np.float32(0), np.uint8(4)


def batch_last(x: Tensor) -> Tensor:
    """Images [K, B, I, H, W] as network input [K, I, H, W, B]: bytes 0..255 become floats 0..1, as in `nets.pixels`."""
    clients, batch = x.shape[:2]
    out = torch.empty(clients, x[0, 0].numel(), batch)
    _share_out(_batch_last, 1 if x.is_floating_point() else 255, x.flatten(2), out)
    return out.view(clients, *x.shape[2:], batch)


def pooled(x: Tensor, weight: Tensor, bias: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """ReLU of the largest of each 2x2 outputs of a convolution without padding.

    x [K, I, H, W*B], weight [K, O, I, 5, 5], bias [K, O], float32 -> h [K, O, H/2-2, (W/2-2)*B], and which of its four
    (0 to 3 in reading order, the first of equals) each one is, 4 where ReLU lets nothing through: uint8.
    """
    clients, _, height, length = x.shape
    h = torch.empty(clients, weight.shape[1], height // 2 - 2, length // 2 - 2 * batch)
    which = torch.empty(h.shape, dtype=torch.uint8)
    _share_out(_pooled, batch, x, weight, bias, h, which)
    return h, which


def pooled_gradient(
    x: Tensor, weight: Tensor, slope: Tensor, which: Tensor, batch: int, deeper: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of `pooled` in its weight, its bias and, if `deeper`, its input, from the slope of its output."""
    to_weight, to_bias = torch.zeros(weight.shape), torch.zeros(weight.shape[:2])
    to_x = torch.zeros(x.shape if deeper else (len(x), 0, 0, 0))
    _share_out(_pooled_gradient, batch, x, weight, slope, which, to_weight, to_bias, to_x)
    return to_weight, to_bias, to_x if deeper else None


def _share_out(kernel: Callable, number: int, *stacked: Tensor) -> None:
    """Run a kernel that fills the last of its arrays, client by client.

    Whichever of torch's threads is free takes the next client, so that one that waits for a core keeps nobody waiting.
    """
    arrays, threads = [each.contiguous().numpy() for each in stacked], torch.get_num_threads()
    if threads == 1 or len(stacked[0]) == 1:
        kernel(*arrays, number)
        return
    waiting = iter(range(len(stacked[0])))

    def take() -> None:
        for k in waiting:
            kernel(*(each[k : k + 1] for each in arrays), number)

    helpers = [_pool_of(threads).submit(take) for _ in range(threads - 1)]
    take()
    for each in helpers:
        if not each.cancel():  # it has begun
            each.result()


@cache
def _pool_of(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


@numba.njit(**_compiled)
def _batch_last(x, out, whole):
    clients, batch, places = x.shape
    whole = np.float32(whole)
    for k in range(clients):
        for p in range(places):
            for b in range(batch):
                out[k, p, b] = np.float32(x[k, b, p]) / whole


@numba.njit(**_compiled)
def _pooled(x, weight, bias, h, which, batch):
    clients, inputs, height, length = x.shape
    outputs = h.shape[1]
    rows = np.empty((outputs, 2, length - 4 * batch), np.float32)
    for k in range(clients):
        for i in range(h.shape[2]):
            for o in range(outputs):
                rows[o] = bias[k, o]
            for u in range(2):
                for c in range(inputs):
                    for tap in range(5):
                        seen = x[k, c, 2 * i + u + tap]
                        for o in range(0, outputs - 1, 2):
                            _add_two(
                                rows[o, u], rows[o + 1, u], seen, weight[k, o, c, tap], weight[k, o + 1, c, tap], batch
                            )
                        if outputs % 2:
                            _add(rows[outputs - 1, u], seen, weight[k, outputs - 1, c, tap], batch)
            for o in range(outputs):
                _pool(rows[o, 0], rows[o, 1], h[k, o, i], which[k, o, i], batch)


@numba.njit(**_compiled)
def _pooled_gradient(x, weight, slope, which, to_weight, to_bias, to_x, batch):
    clients, inputs, height, length = x.shape
    outputs, wide = weight.shape[1], length - 4 * batch
    first, end = 4 * batch, 4 * batch + wide
    # Two rows of slopes before the pooling, with zeros on both sides for the taps that reach beyond them.
    rows = np.zeros((outputs, 2, wide + 8 * batch), np.float32)
    for k in range(clients):
        turned = weight[k, :, :, :, ::-1].copy()
        for i in range(slope.shape[2]):
            for o in range(outputs):
                to_bias[k, o] += _total(slope[k, o, i], which[k, o, i])
                for u in range(2):
                    _unpool(slope[k, o, i], which[k, o, i], rows[o, u, first:end], np.uint8(2 * u), batch)
            for u in range(2):
                for tap in range(5):
                    r = 2 * i + u + tap
                    for c in range(inputs):
                        for o in range(0, outputs - 1, 2):
                            p, q = rows[o, u, first:end], rows[o + 1, u, first:end]
                            _dot_two(p, q, x[k, c, r], to_weight[k, o, c, tap], to_weight[k, o + 1, c, tap], batch)
                        if outputs % 2:
                            o = outputs - 1
                            _dot(rows[o, u, first:end], x[k, c, r], to_weight[k, o, c, tap], batch)
                    for c in range(0, to_x.shape[1] - 1, 2):  # for the first layer, to_x has no channels
                        p, q = to_x[k, c, r], to_x[k, c + 1, r]
                        for o in range(outputs):
                            _add_two(p, q, rows[o, u], turned[o, c, tap], turned[o, c + 1, tap], batch)
                    if to_x.shape[1] % 2:
                        c = to_x.shape[1] - 1
                        for o in range(outputs):
                            _add(to_x[k, c, r], rows[o, u], turned[o, c, tap], batch)


# The compiler proves that loops can be done in parallel only for a few arrays at a time: hence the small functions.


@numba.njit(**_compiled)
def _add(row, x, w, step):
    """Add to a row the five taps w of x, each `step` numbers after the one before."""
    n = len(row)
    x0, x1, x2 = x[:n], x[step : step + n], x[2 * step : 2 * step + n]
    x3, x4 = x[3 * step : 3 * step + n], x[4 * step : 4 * step + n]
    w0, w1, w2, w3, w4 = w[0], w[1], w[2], w[3], w[4]
    for t in range(n):
        row[t] += w0 * x0[t] + w1 * x1[t] + w2 * x2[t] + w3 * x3[t] + w4 * x4[t]


@numba.njit(**_compiled)
def _add_two(row, other, x, w, v, step):
    """`_add` to two rows at once, since to load x takes as long as to multiply it."""
    n = len(row)
    x0, x1, x2 = x[:n], x[step : step + n], x[2 * step : 2 * step + n]
    x3, x4 = x[3 * step : 3 * step + n], x[4 * step : 4 * step + n]
    w0, w1, w2, w3, w4 = w[0], w[1], w[2], w[3], w[4]
    v0, v1, v2, v3, v4 = v[0], v[1], v[2], v[3], v[4]
    for t in range(n):
        a, b, c, d, e = x0[t], x1[t], x2[t], x3[t], x4[t]
        p, q = row[t], other[t]  # all is loaded before anything is stored
        row[t] = p + w0 * a + w1 * b + w2 * c + w3 * d + w4 * e
        other[t] = q + v0 * a + v1 * b + v2 * c + v3 * d + v4 * e


@numba.njit(**_compiled)
def _dot(row, x, sums, step):
    """Add to the five sums the products of the row with x at each tap: the transpose of `_add` in w."""
    n = len(row)
    x0, x1, x2 = x[:n], x[step : step + n], x[2 * step : 2 * step + n]
    x3, x4 = x[3 * step : 3 * step + n], x[4 * step : 4 * step + n]
    s0 = s1 = s2 = s3 = s4 = _ZERO
    for t in range(n):
        s0 += row[t] * x0[t]
        s1 += row[t] * x1[t]
        s2 += row[t] * x2[t]
        s3 += row[t] * x3[t]
        s4 += row[t] * x4[t]
    sums[0] += s0
    sums[1] += s1
    sums[2] += s2
    sums[3] += s3
    sums[4] += s4


@numba.njit(**_compiled)
def _dot_two(row, other, x, sums, more, step):
    """`_dot` of two rows at once."""
    n = len(row)
    x0, x1, x2 = x[:n], x[step : step + n], x[2 * step : 2 * step + n]
    x3, x4 = x[3 * step : 3 * step + n], x[4 * step : 4 * step + n]
    s0 = s1 = s2 = s3 = s4 = _ZERO
    r0 = r1 = r2 = r3 = r4 = _ZERO
    for t in range(n):
        a, b, c, d, e = x0[t], x1[t], x2[t], x3[t], x4[t]
        s0 += row[t] * a
        s1 += row[t] * b
        s2 += row[t] * c
        s3 += row[t] * d
        s4 += row[t] * e
        r0 += other[t] * a
        r1 += other[t] * b
        r2 += other[t] * c
        r3 += other[t] * d
        r4 += other[t] * e
    sums[0] += s0
    sums[1] += s1
    sums[2] += s2
    sums[3] += s3
    sums[4] += s4
    more[0] += r0
    more[1] += r1
    more[2] += r2
    more[3] += r3
    more[4] += r4


@numba.njit(**_compiled)
def _pool(upper, lower, h, which, batch):
    """h, and which of the four, of two rows of outputs."""
    for j in range(0, len(h), batch):
        a, b = upper[2 * j : 2 * j + batch], upper[2 * j + batch : 2 * j + 2 * batch]
        c, d = lower[2 * j : 2 * j + batch], lower[2 * j + batch : 2 * j + 2 * batch]
        out, best = h[j : j + batch], which[j : j + batch]
        for t in range(batch):
            out[t] = max(max(max(a[t], b[t]), max(c[t], d[t])), _ZERO)
        for t in range(batch):
            left = np.uint8(0) if a[t] >= b[t] else np.uint8(1)
            right = np.uint8(2) if c[t] >= d[t] else np.uint8(3)
            first = left if max(a[t], b[t]) >= max(c[t], d[t]) else right
            best[t] = first if max(max(a[t], b[t]), max(c[t], d[t])) > _ZERO else _DEAD


@numba.njit(**_compiled)
def _unpool(slope, which, row, first, batch):
    """A row of slopes before the pooling: that of the two outputs `first` and `first + 1` of each four."""
    for j in range(0, len(slope), batch):
        a, b = row[2 * j : 2 * j + batch], row[2 * j + batch : 2 * j + 2 * batch]
        given, best = slope[j : j + batch], which[j : j + batch]
        for t in range(batch):
            a[t] = given[t] if best[t] == first else _ZERO
        for t in range(batch):
            b[t] = given[t] if best[t] == first + 1 else _ZERO


@numba.njit(**_compiled)
def _total(slope, which):
    """The sum of the slopes that ReLU lets through."""
    total = _ZERO
    for t in range(len(slope)):
        total += slope[t] if which[t] < _DEAD else _ZERO
    return total
