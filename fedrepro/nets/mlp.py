"""The multilayer perceptron, and what other networks take from it: pixels, weights to start from, cross entropy."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.core.lift import coloured
from fedrepro.core.types import Net, State


def pixels(x: Tensor) -> Tensor:
    """Images as network input: bytes 0..255 become floats 0..1; floats pass unchanged."""
    return x if x.is_floating_point() else x / 255


def glorot(shape: tuple[int, ...], fan_in: int, fan_out: int, biases: int, generator: torch.Generator) -> State:
    """A weight uniform in +-sqrt(6 / (in + out)) (Glorot and Bengio 2010, Eq. 16; the Keras default), zero biases."""
    bound = math.sqrt(6 / (fan_in + fan_out))
    return {"weight": torch.empty(shape).uniform_(-bound, bound, generator=generator), "bias": torch.zeros(biases)}


class _Elu(torch.autograd.Function):
    """elu(x) = max(x, exp(min(x, 0)) - 1); its slope is min(y, 0) + 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.maximum(x, x.clamp(max=0).exp_().sub_(1))

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor], y: Tensor) -> None:
        ctx.save_for_backward(y)

    @staticmethod
    def backward(ctx, slope: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return _elu_slope(y).mul_(slope)


def _elu_slope(y: Tensor) -> Tensor:
    return y.clamp(max=0).add_(1)


def elu(x: Tensor) -> Tensor:
    """ELU with alpha 1, within 1e-7 of torch's, whose expm1 is ten times slower on a CPU than an exponential."""
    return _Elu.apply(x)


def inked(x: Tensor) -> slice:
    """From the first to the last column of x [N, D] that is not all zeros: of images of one colour, their channel."""
    columns = ((x.amax(0) != 0) | (x.amin(0) != 0)).nonzero().flatten()
    return slice(int(columns[0]), int(columns[-1]) + 1) if len(columns) else slice(0)


def mlp(*widths: int, last: bool = True, bend: Callable[[Tensor], Tensor] | None = None) -> Net:
    """Flatten, then linear layers with ELU between them (flgames-2022, section 7.3.1), or `bend` in its place.

    `widths`: input, hidden..., output. `last=False` applies ELU after the final layer too, as a representation does.
    Parameters: {"fc1": {"weight": [out, in], "bias": [out]}, ...}; Glorot weights, zero biases.
    """
    names = [f"fc{i}" for i in range(1, len(widths))]

    def init(generator: torch.Generator) -> State:
        layers = zip(names, pairwise(widths), strict=True)
        return {name: glorot((o, i), i, o, o, generator) for name, (i, o) in layers}

    def apply(params: State, x: Tensor) -> Tensor:
        h = x.flatten(1)
        columns = inked(h) if coloured() else slice(None)
        h = pixels(h[:, columns])
        for name in names:
            weight = params[name]["weight"]
            h = F.linear(h, weight[:, columns] if name == names[0] else weight, params[name]["bias"])
            if not last or name != names[-1]:
                h = (bend or elu)(h)
        return h

    def descend(params: State, x: Tensor, y: Tensor, live: Tensor) -> tuple[State, Tensor]:
        dtype = computed_in(x)
        kept = [pixels(x).flatten(2).to(dtype)]
        layers = [tuple(_cast(params[name][key], dtype) for key in ("weight", "bias")) for name in names]
        for i, (weight, bias) in enumerate(layers):
            h = (kept[-1] @ weight.mT).add_(bias.unsqueeze(1))
            kept.append(h if i == len(layers) - 1 else elu(h))
        slope, risk = cross_entropy_slope(kept.pop().float(), y, live)
        slope, found = slope.to(dtype), {}
        for name, (weight, _), h in zip(names[::-1], layers[::-1], kept[::-1], strict=True):
            found[name] = {"weight": (slope.mT @ h).float(), "bias": slope.sum(1).float()}
            if name != names[0]:
                slope = (slope @ weight).mul_(_elu_slope(h))
        return {name: found[name] for name in names}, risk

    return Net(init, apply, descend if last and not bend else None)


def _cast(leaf: Tensor, dtype: torch.dtype) -> Tensor:
    """In that precision; of networks [K, ...] that are views of one, once."""
    return leaf.to(dtype) if leaf.stride(0) else leaf[:1].to(dtype).expand_as(leaf)


def computed_in(x: Tensor) -> torch.dtype:
    """The precision of products."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32


def cross_entropy(logits: Tensor, y: Tensor, live: Tensor) -> Tensor:
    """Softmax cross entropy, the mean over the live rows: logits [B, classes], y [B], live [B] -> scalar."""
    losses = F.cross_entropy(logits, y, reduction="none")
    return (losses * live).sum() / live.sum().clamp(min=1)


def cross_entropy_slope(logits: Tensor, y: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """The slope [K, B, classes] of `cross_entropy` in the logits, as autograd computes it, and its value [K]."""
    logs, count = logits.log_softmax(-1), live.sum(-1, keepdim=True).clamp(min=1)
    losses = -logs.gather(-1, y[..., None])[..., 0]
    own = y[..., None] == torch.arange(logits.shape[-1], device=y.device)
    slope = torch.where(own, -(live / count)[..., None], 0.0)
    return torch._log_softmax_backward_data(slope, logs, -1, logs.dtype), (losses * live).sum(-1) / count[..., 0]
