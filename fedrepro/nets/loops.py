"""Compiled loops for 5x5 convolutions with 2x2 max-pooling and ReLU: what torch has no fast product for on a CPU.

Images are rows of numbers with the batch innermost, [..., H, W*B], so that a tap of a kernel is a shifted row, and the
loops keep the sums of some columns in the processor's registers while they go through the taps. K clients, each with
its own kernels, are shared out among torch's threads; no sum depends on how many there are.

Of each client's numbers a loop takes eight (`WIDTH`) at a time. The vectors are written out, and with them what a
convolution adds up in which order. A compiler that is left to find them chooses their length by processor and version,
starts anew for every row, and finds none across taps. All is in one file, since the stored machine code is made anew
only where the file of a loop changes.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import torch
import torch.nn.functional as F
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model
from torch import Tensor

WIDTH = 8
SPAN = 3 * WIDTH  # columns whose sums a loop keeps in registers, of two rows of two filters
DEAD = np.uint8(4)  # in place of which of four the largest is: ReLU lets none through

# Numba's threads are torch's own, and where they are started they set torch's number.
_threads = torch.get_num_threads()
numba.get_num_threads()
torch.set_num_threads(_threads)


def batch_last(x: Tensor) -> Tensor:
    """Images [K, B, I, H, W] as network input [K, I, H, W, B]: bytes become floats 0..1, as in `nets.mlp.pixels`."""
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
    if (full := _full(length, batch)) > batch:
        return tuple(_narrow(each, batch, full) for each in pooled(_wide(x, batch, full), weight, bias, full))
    h = torch.empty(clients, weight.shape[1], height // 2 - 2, length // 2 - 2 * batch)
    which = torch.empty(h.shape, dtype=torch.uint8)
    _share_out(_pooled, batch, x, weight, bias, h, which)
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
    room = -(-length // (2 * SPAN)) * 2 * SPAN
    to_x = torch.zeros(*x.shape[:3], room) if deeper else torch.zeros(len(x), 0, 0, 0)
    _share_out(_pooled_gradient, batch, x, weight, slope, which, to_weight, to_bias, to_x)
    return to_weight, to_bias, to_x[..., :length] if deeper else None


def _full(length: int, batch: int) -> int:
    """The smallest batch, from this one on, with which the loops have as many columns as they take at once."""
    return max(batch, WIDTH, -(-SPAN // (length // batch - 4)))


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


# The loops over clients, in threads, and those over the numbers of one client

_compiled = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz", "reassoc"}}


@numba.njit(parallel=True, **_compiled)
def _batch_last(x, out, whole):
    for k in numba.prange(len(x)):
        _batch_last_of_one(x[k], out[k], np.float32(whole))


@numba.njit(parallel=True, **_compiled)
def _pooled(x, weight, bias, h, which, batch):
    for k in numba.prange(len(x)):
        _pooled_of_one(x[k], weight[k], bias[k], h[k], which[k], batch)


@numba.njit(parallel=True, **_compiled)
def _pooled_gradient(x, weight, slope, which, to_weight, to_bias, to_x, batch):
    for k in numba.prange(len(x)):
        _pooled_gradient_of_one(x[k], weight[k], slope[k], which[k], to_weight[k], to_bias[k], to_x[k], batch)


@numba.njit(**_compiled)
def _batch_last_of_one(x, out, whole):
    batch, places = x.shape
    for p in range(places):
        for b in range(batch):
            out[p, b] = np.float32(x[b, p]) / whole


@numba.njit(**_compiled)
def _pooled_of_one(x, weight, bias, h, which, batch):
    inputs, outputs = len(x), len(weight)
    # The two rows of outputs behind a row of h, twice: what has gone through more channels is added to the other one.
    rows = np.empty((2, outputs, 2, x.shape[2] - 4 * batch), np.float32)
    group = _cached(6 * (4 * batch + SPAN))
    for i in range(h.shape[1]):
        side = 0
        for o in range(outputs):
            rows[side, o] = bias[o]
        for low in range(0, inputs, group):
            for o in range(0, outputs, 2):
                _convolve(x, 2 * i, low, min(low + group, inputs), weight, rows[side], rows[1 - side], o, batch)
            side = 1 - side
        for o in range(outputs):
            _pool(rows[side, o], h[o, i], which[o, i], batch)


@numba.njit(**_compiled)
def _pooled_gradient_of_one(x, weight, slope, which, to_weight, to_bias, to_x, batch):
    inputs, outputs = len(x), len(weight)
    # Two rows of slopes before the pooling, with zeros on both sides for the taps that reach beyond them.
    rows = np.zeros((outputs, 2, x.shape[2] + 4 * batch + 2 * SPAN), np.float32)
    turned = weight[:, :, :, ::-1].copy()
    group = _cached(4 * batch + 2 * SPAN)
    for i in range(slope.shape[1]):
        for o in range(outputs):
            to_bias[o] += _passed(slope[o, i], which[o, i])
            _unpool(slope[o, i], which[o, i], rows[o], batch)
        for u in range(2):
            for tap in range(5):
                r = 2 * i + u + tap
                for c in range(inputs):
                    for o in range(0, outputs, 2):
                        _correlate(rows, u, x, r, to_weight, tap, c, o, batch)
                for c in range(0, len(to_x), 2):
                    for low in range(0, outputs, group):
                        _spread(rows, u, low, min(low + group, outputs), turned, tap, to_x, r, c, batch)


@numba.njit(**_compiled)
def _cached(numbers):
    """How many channels go at a time, so that what five taps see of them, so many numbers each, stays in the cache."""
    return max(1, 16_384 // (4 * numbers))


# Filters and channels go two at a time, since to load a row takes as long as to multiply it; the last of an odd number
# goes twice, with itself.


@numba.njit(**_compiled)
def _convolve(x, r, low, high, weight, old, new, o, batch):
    """Two filters o of the channels low..high, in the rows from r: what they add to the old rows [O, 2, n] is new."""
    n, other = old.shape[2], min(o + 1, len(weight) - 1)
    for start in range(0, n, SPAN):
        t = min(start, n - SPAN)  # the last columns may have been done before
        a, b, c = _load(old, (o, 0, t)), _load(old, (o, 0, t + WIDTH)), _load(old, (o, 0, t + 2 * WIDTH))
        d, e, f = _load(old, (o, 1, t)), _load(old, (o, 1, t + WIDTH)), _load(old, (o, 1, t + 2 * WIDTH))
        g, h, p = _load(old, (other, 0, t)), _load(old, (other, 0, t + WIDTH)), _load(old, (other, 0, t + 2 * WIDTH))
        q, y, z = _load(old, (other, 1, t)), _load(old, (other, 1, t + WIDTH)), _load(old, (other, 1, t + 2 * WIDTH))
        for channel in range(low, high):
            for tap in range(5):
                for k in range(5):
                    at = t + k * batch
                    w, v = weight[o, channel, tap, k], weight[other, channel, tap, k]
                    seen = _load(x, (channel, r + tap, at))
                    a, g = _muladd(w, seen, a), _muladd(v, seen, g)
                    seen = _load(x, (channel, r + tap, at + WIDTH))
                    b, h = _muladd(w, seen, b), _muladd(v, seen, h)
                    seen = _load(x, (channel, r + tap, at + 2 * WIDTH))
                    c, p = _muladd(w, seen, c), _muladd(v, seen, p)
                    seen = _load(x, (channel, r + tap + 1, at))
                    d, q = _muladd(w, seen, d), _muladd(v, seen, q)
                    seen = _load(x, (channel, r + tap + 1, at + WIDTH))
                    e, y = _muladd(w, seen, e), _muladd(v, seen, y)
                    seen = _load(x, (channel, r + tap + 1, at + 2 * WIDTH))
                    f, z = _muladd(w, seen, f), _muladd(v, seen, z)
        for j, sums in enumerate(((a, d, g, q), (b, e, h, y), (c, f, p, z))):
            at = t + j * WIDTH
            _store(new, (o, 0, at), sums[0])
            _store(new, (o, 1, at), sums[1])
            _store(new, (other, 0, at), sums[2])
            _store(new, (other, 1, at), sums[3])


@numba.njit(**_compiled)
def _correlate(rows, u, x, r, to_weight, tap, c, o, batch):
    """Add the products of the slopes u of two filters o with row r of channel c to the gradient of its taps."""
    n, first, other = x.shape[2] - 4 * batch, 4 * batch, min(o + 1, len(rows) - 1)
    p0 = p1 = p2 = p3 = p4 = q0 = q1 = q2 = q3 = q4 = _fill(np.float32(0))
    for t in range(0, n - n % WIDTH, WIDTH):
        a, b = _load(rows, (o, u, first + t)), _load(rows, (other, u, first + t))
        seen = _load(x, (c, r, t))
        p0, q0 = _muladd(a, seen, p0), _muladd(b, seen, q0)
        seen = _load(x, (c, r, t + batch))
        p1, q1 = _muladd(a, seen, p1), _muladd(b, seen, q1)
        seen = _load(x, (c, r, t + 2 * batch))
        p2, q2 = _muladd(a, seen, p2), _muladd(b, seen, q2)
        seen = _load(x, (c, r, t + 3 * batch))
        p3, q3 = _muladd(a, seen, p3), _muladd(b, seen, q3)
        seen = _load(x, (c, r, t + 4 * batch))
        p4, q4 = _muladd(a, seen, p4), _muladd(b, seen, q4)
    s0, s1, s2, s3, s4 = _total(p0), _total(p1), _total(p2), _total(p3), _total(p4)
    r0, r1, r2, r3, r4 = _total(q0), _total(q1), _total(q2), _total(q3), _total(q4)
    for t in range(n - n % WIDTH, n):
        a, b = rows[o, u, first + t], rows[other, u, first + t]
        v, w, y = x[c, r, t], x[c, r, t + batch], x[c, r, t + 2 * batch]
        z, e = x[c, r, t + 3 * batch], x[c, r, t + 4 * batch]
        s0, s1, s2, s3, s4 = s0 + a * v, s1 + a * w, s2 + a * y, s3 + a * z, s4 + a * e
        r0, r1, r2, r3, r4 = r0 + b * v, r1 + b * w, r2 + b * y, r3 + b * z, r4 + b * e
    for k, s in enumerate((s0, s1, s2, s3, s4)):
        to_weight[o, c, tap, k] += s
    if other > o:
        for k, s in enumerate((r0, r1, r2, r3, r4)):
            to_weight[other, c, tap, k] += s


@numba.njit(**_compiled)
def _spread(rows, u, low, high, turned, tap, to_x, r, c, batch):
    """Add the products of the slopes u of the filters low..high with their taps to row r of two channels c."""
    other = min(c + 1, len(to_x) - 1)
    for t in range(0, to_x.shape[2], 2 * SPAN):
        a, b, d = _load(to_x, (c, r, t)), _load(to_x, (c, r, t + WIDTH)), _load(to_x, (c, r, t + 2 * WIDTH))
        h, m, n = _load(to_x, (other, r, t)), _load(to_x, (other, r, t + WIDTH)), _load(to_x, (other, r, t + 2 * WIDTH))
        s = t + SPAN
        e, f, g = _load(to_x, (c, r, s)), _load(to_x, (c, r, s + WIDTH)), _load(to_x, (c, r, s + 2 * WIDTH))
        p, q, y = _load(to_x, (other, r, s)), _load(to_x, (other, r, s + WIDTH)), _load(to_x, (other, r, s + 2 * WIDTH))
        for o in range(low, high):
            for k in range(5):
                at = t + k * batch
                w, v = turned[o, c, tap, k], turned[o, other, tap, k]
                seen = _load(rows, (o, u, at))
                a, h = _muladd(w, seen, a), _muladd(v, seen, h)
                seen = _load(rows, (o, u, at + WIDTH))
                b, m = _muladd(w, seen, b), _muladd(v, seen, m)
                seen = _load(rows, (o, u, at + 2 * WIDTH))
                d, n = _muladd(w, seen, d), _muladd(v, seen, n)
                seen = _load(rows, (o, u, at + 3 * WIDTH))
                e, p = _muladd(w, seen, e), _muladd(v, seen, p)
                seen = _load(rows, (o, u, at + 4 * WIDTH))
                f, q = _muladd(w, seen, f), _muladd(v, seen, q)
                seen = _load(rows, (o, u, at + 5 * WIDTH))
                g, y = _muladd(w, seen, g), _muladd(v, seen, y)
        for j, sums in enumerate(((a, h), (b, m), (d, n), (e, p), (f, q), (g, y))):
            _store(to_x, (c, r, t + j * WIDTH), sums[0])
            _store(to_x, (other, r, t + j * WIDTH), sums[1])


@numba.njit(**_compiled)
def _pool(rows, h, which, batch):
    """h, and which of the four, of two rows of outputs [2, n]."""
    zero, one, two = _fill(np.float32(0)), _fill(np.float32(1)), _fill(np.float32(2))
    three, dead = _fill(np.float32(3)), _fill(np.float32(DEAD))
    for j in range(0, len(h), batch):
        for start in range(0, batch, WIDTH):
            t = min(start, batch - WIDTH)
            a, b = _load(rows, (0, 2 * j + t)), _load(rows, (0, 2 * j + batch + t))
            c, d = _load(rows, (1, 2 * j + t)), _load(rows, (1, 2 * j + batch + t))
            upper, lower = _where_more(b, a, b, a), _where_more(d, c, d, c)
            most = _where_more(lower, upper, lower, upper)
            first = _where_more(lower, upper, _where_more(d, c, three, two), _where_more(b, a, one, zero))
            _store(h, (j + t,), _where_more(zero, most, zero, most))
            _store(which, (j + t,), _where_more(most, zero, first, dead))


@numba.njit(**_compiled)
def _unpool(slope, which, rows, batch):
    """Two rows of slopes before the pooling, from 4 * batch on."""
    zero, one, two, three = _fill(np.float32(0)), _fill(np.float32(1)), _fill(np.float32(2)), _fill(np.float32(3))
    for j in range(0, len(slope), batch):
        for start in range(0, batch, WIDTH):
            t = min(start, batch - WIDTH)
            given, best, at = _load(slope, (j + t,)), _load(which, (j + t,)), 4 * batch + 2 * j + t
            _store(rows, (0, at), _where_same(best, zero, given, zero))
            _store(rows, (0, at + batch), _where_same(best, one, given, zero))
            _store(rows, (1, at), _where_same(best, two, given, zero))
            _store(rows, (1, at + batch), _where_same(best, three, given, zero))


@numba.njit(**_compiled)
def _passed(slope, which):
    """The sum of the slopes that ReLU lets through."""
    sums = np.float32(0)
    for t in range(len(slope)):
        sums += slope[t] if which[t] < DEAD else np.float32(0)
    return sums


# Eight float32 as one value. Places are tuples of indices, and nothing checks that an array has them.

_VECTOR, _BYTES = ir.VectorType(ir.FloatType(), WIDTH), ir.VectorType(ir.IntType(8), WIDTH)


class _Lanes(types.Type):
    def __init__(self):
        super().__init__(name="lanes")


_lanes = _Lanes()


@register_model(_Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


@intrinsic
def _load(context, array, place):
    """The numbers of an array, of float32 or bytes, at a place and after it."""

    def built(context, builder, signature, args):
        if array.dtype == types.float32:
            return builder.load(_pointer(context, builder, signature, args, _VECTOR), align=4)
        return builder.uitofp(builder.load(_pointer(context, builder, signature, args, _BYTES), align=1), _VECTOR)

    return _lanes(array, place), built


@intrinsic
def _store(context, array, place, value):
    """Write numbers to a place of an array and after it; of bytes, numbers from 0 to 255."""

    def built(context, builder, signature, args):
        if array.dtype == types.float32:
            builder.store(args[2], _pointer(context, builder, signature, args, _VECTOR), align=4)
        else:
            whole = builder.fptoui(args[2], _BYTES)
            builder.store(whole, _pointer(context, builder, signature, args, _BYTES), align=1)
        return context.get_dummy_value()

    return types.void(array, place, value), built


@intrinsic
def _fill(context, number):
    """The same number, a float32, eight times."""

    def built(context, builder, signature, args):
        return _filled(builder, *args)

    return _lanes(types.float32), built


@intrinsic
def _muladd(context, factor, x, addend):
    """factor * x + addend, rounded once where the processor can do that; the factor is a float32 or eight."""

    def built(context, builder, signature, args):
        factor, x, addend = args
        factor = factor if signature.args[0] is _lanes else _filled(builder, factor)
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{WIDTH}f32")
        return builder.call(fused, [factor, x, addend])

    return _lanes(factor, x, addend), built


def _where(sign):
    """(x, y, then, otherwise) -> `then` where x has that relation to y, else `otherwise`."""

    @intrinsic
    def chosen(context, x, y, then, otherwise):
        def built(context, builder, signature, args):
            return builder.select(builder.fcmp_ordered(sign, *args[:2]), *args[2:])

        return _lanes(x, y, then, otherwise), built

    return chosen


_where_more, _where_same = _where(">"), _where("==")


@intrinsic
def _total(context, x):
    """The sum of all: the halves are added up, then the halves of that, then the two that are left."""

    def built(context, builder, signature, args):
        (x,), size = args, WIDTH
        while size > 1:
            size //= 2
            upper, lower = (_places(range(start, start + size)) for start in (0, size))
            x = builder.fadd(builder.shuffle_vector(x, x, upper), builder.shuffle_vector(x, x, lower))
        return builder.extract_element(x, ir.IntType(32)(0))

    return types.float32(x), built


def _pointer(context, builder, signature, args, kind):
    """To a vector of that kind, at the place args[1] of the array args[0]."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    places = cgutils.unpack_tuple(builder, args[1])
    pointer = cgutils.get_item_pointer(context, builder, signature.args[0], array, places, wraparound=False)
    return builder.bitcast(pointer, kind.as_pointer())


def _filled(builder, number):
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, _places([0] * WIDTH))


def _places(chosen):
    places = list(chosen)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places)
