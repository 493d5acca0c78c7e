"""The same as loops.py for a GPU, in Triton: 5x5 convolutions with 2x2 max-pooling and ReLU, of stacked clients.

Each is a product of matrices whose columns are never written down: a program reads the pixels that its taps see. A tap
is one of the I*5*5 numbers of a kernel, a place one of the numbers [rows, columns*B] of an image with the batch
innermost. Products are in float32, whatever is set, and sums have one order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedrepro.nets.mlp import pixels

PLACES = 64  # that a program computes
TAPS = 32  # that it takes at once
PROGRAMS = 256  # that share the sums over places, at least: two for each of a large GPU's multiprocessors
LEAST = 16  # rows and columns of a product in Triton


def batch_last(x: Tensor) -> Tensor:
    """Images [K, B, I, H, W] as network input [K, I, H, W, B]: bytes become floats 0..1, as in `nets.mlp.pixels`."""
    return pixels(x.permute(0, 2, 3, 4, 1).contiguous())


def pooled(x: Tensor, weight: Tensor, bias: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """As `loops.pooled`."""
    clients, inputs, height, length = x.shape
    h = x.new_empty(clients, weight.shape[1], height // 2 - 2, length // 2 - 2 * batch)
    which = torch.empty_like(h, dtype=torch.uint8)
    grid = triton.cdiv(h[0, 0].numel(), PLACES), clients
    shape = {"batch": batch, "inputs": inputs, "height": height, "length": length, "outputs": weight.shape[1]}
    tensors = [each.contiguous() for each in (x, weight, bias)]
    _pooled[grid](*tensors, h, which, **shape, FILTERS=_padded(weight.shape[1]), PLACES=PLACES, TAPS=TAPS)
    return h, which


def pooled_gradient(
    x: Tensor, weight: Tensor, slope: Tensor, which: Tensor, batch: int, deeper: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As `loops.pooled_gradient`."""
    clients, inputs, height, length = x.shape
    outputs = weight.shape[1]
    x, weight, slope, which = (each.contiguous() for each in (x, weight, slope, which))
    taps = inputs * 25 + 1  # the last one sees ones: its weight is the bias
    blocks, places = triton.cdiv(taps, TAPS), triton.cdiv(slope[0, 0].numel(), PLACES)
    parts = min(places, triton.cdiv(PROGRAMS, blocks * clients))
    sums = x.new_empty(parts, clients, outputs, taps)
    shape = {"batch": batch, "inputs": inputs, "height": height, "length": length, "outputs": outputs}
    sizes = {"PLACES": PLACES, "TAPS": TAPS}
    each = triton.cdiv(places, parts)
    _to_weight[parts, blocks, clients](x, slope, which, sums, each, **shape, FILTERS=_padded(outputs), **sizes)
    to_weight, to_bias = sums.sum(0).split((taps - 1, 1), -1)
    to_x = torch.empty_like(x) if deeper else None
    if deeper:
        grid = triton.cdiv(height * length, PLACES), clients
        _to_input[grid](weight, slope, which, to_x, **shape, CHANNELS=_padded(inputs), **sizes)
    return to_weight.reshape(weight.shape), to_bias.squeeze(-1), to_x


def _padded(count: int) -> int:
    return max(LEAST, triton.next_power_of_2(count))


@triton.jit
def _seen(tap, batch, height, length):
    """How far from the first pixel of a place the one of a tap is; `tap` counts (channel, row, column)."""
    return (tap // 25 * height + tap // 5 % 5) * length + tap % 5 * batch


@triton.jit
def _corner(place, batch, length):
    """The first pixel behind a pooled place, of a row of `length`."""
    short = length // 2 - 2 * batch
    return place // short * 2 * length + place % short // batch * 2 * batch + place % batch


@triton.jit
def _pooled(
    x, weight, bias, h, which, batch, inputs, height, length, outputs,
    FILTERS: tl.constexpr, PLACES: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    client, total = tl.program_id(1), (height // 2 - 2) * (length // 2 - 2 * batch)
    place, o = tl.program_id(0) * PLACES + tl.arange(0, PLACES), tl.arange(0, FILTERS)
    taps, corner = inputs * 25, _corner(place, batch, length)
    x += client * inputs * height * length
    weight += client * outputs * taps
    start = tl.load(bias + client * outputs + o, o < outputs, 0.0)[:, None] + tl.zeros((FILTERS, PLACES), tl.float32)
    a, b, c, d = start, start, start, start
    for low in range(0, taps, TAPS):
        tap = low + tl.arange(0, TAPS)
        w = tl.load(weight + o[:, None] * taps + tap, (o < outputs)[:, None] & (tap < taps), 0.0)
        at = x + _seen(tap, batch, height, length)[:, None] + corner
        there = (tap < taps)[:, None] & (place < total)
        a = tl.dot(w, tl.load(at, there, 0.0), a, input_precision="ieee")
        b = tl.dot(w, tl.load(at + batch, there, 0.0), b, input_precision="ieee")
        c = tl.dot(w, tl.load(at + length, there, 0.0), c, input_precision="ieee")
        d = tl.dot(w, tl.load(at + length + batch, there, 0.0), d, input_precision="ieee")
    upper, lower = tl.where(b > a, b, a), tl.where(d > c, d, c)
    most = tl.where(lower > upper, lower, upper)
    first = tl.where(lower > upper, tl.where(d > c, 3, 2), tl.where(b > a, 1, 0))
    out = (client * outputs + o)[:, None] * total + place
    there = (o < outputs)[:, None] & (place < total)
    tl.store(h + out, tl.where(most < 0, 0.0, most), there)
    tl.store(which + out, tl.where(most > 0, first, 4).to(tl.uint8), there)


@triton.jit
def _to_weight(
    x, slope, which, sums, each, batch, inputs, height, length, outputs,
    FILTERS: tl.constexpr, PLACES: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """A part of the sums over places, `each` times PLACES of them: [part, client, filter, tap]."""
    part, client, clients = tl.program_id(0), tl.program_id(2), tl.num_programs(2)
    tap, o = tl.program_id(1) * TAPS + tl.arange(0, TAPS), tl.arange(0, FILTERS)
    taps, total = inputs * 25, (height // 2 - 2) * (length // 2 - 2 * batch)
    x += client * inputs * height * length
    seen, ones = _seen(tap, batch, height, length), tl.where(tap == taps, 1.0, 0.0)[:, None]
    found = tl.zeros((FILTERS, TAPS), tl.float32)
    for low in range(part * each * PLACES, min((part + 1) * each * PLACES, total), PLACES):
        place = low + tl.arange(0, PLACES)
        given = (client * outputs + o)[:, None] * total + place
        there = (o < outputs)[:, None] & (place < total)
        s, best = tl.load(slope + given, there, 0.0), tl.load(which + given, there, 4)
        at = x + seen[:, None] + _corner(place, batch, length)
        there = (tap < taps)[:, None] & (place < total)
        for q in tl.static_range(4):
            z = tl.where(best == q, s, 0.0)
            pixel = tl.load(at + q // 2 * length + q % 2 * batch, there, 0.0) + ones
            found = tl.dot(z, tl.trans(pixel), found, input_precision="ieee")
    out = ((part * clients + client) * outputs + o)[:, None] * (taps + 1) + tap
    tl.store(sums + out, found, (o < outputs)[:, None] & (tap <= taps))


@triton.jit
def _to_input(
    weight, slope, which, to_x, batch, inputs, height, length, outputs,
    CHANNELS: tl.constexpr, PLACES: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """The slopes of the pixels: what each tap of each filter hands back, of the place that it was pooled into."""
    client, c = tl.program_id(1), tl.arange(0, CHANNELS)
    pixel = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    rows, short = height // 2 - 2, length // 2 - 2 * batch
    row, column, image = pixel // length, pixel % length // batch, pixel % batch
    weight += client * outputs * inputs * 25
    slope += client * outputs * rows * short
    which += client * outputs * rows * short
    found = tl.zeros((CHANNELS, PLACES), tl.float32)
    for low in range(0, outputs * 25, TAPS):
        tap = low + tl.arange(0, TAPS)
        o = tap // 25
        w = weight + (o * inputs + c[:, None]) * 25 + tap % 25
        w = tl.load(w, (c < inputs)[:, None] & (o < outputs), 0.0)
        r, k = row - (tap // 5 % 5)[:, None], column - (tap % 5)[:, None]
        there = (o < outputs)[:, None] & (r >= 0) & (r < 2 * rows) & (k >= 0) & (k * batch < 2 * short)
        at = (o[:, None] * rows + r // 2) * short + k // 2 * batch + image
        best = tl.load(which + at, there, 4)
        z = tl.where(best == r % 2 * 2 + k % 2, tl.load(slope + at, there, 0.0), 0.0)
        found = tl.dot(w, z, found, input_precision="ieee")
    out = to_x + (client * inputs + c)[:, None] * height * length + pixel
    tl.store(out, found, (c < inputs)[:, None] & (pixel < height * length))
