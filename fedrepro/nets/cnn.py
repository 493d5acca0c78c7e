"""Convolutional networks of few channels, whose gradient for stacked clients is written out.

On a CPU the convolutions are compiled loops (loops.py), with the batch as the last axis, and the linear layers
products of all clients at once; an automatic gradient, and even more so one under `vmap`, would cost as much as its
numbers. On a GPU everything is torch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad_and_value

from fedrepro.core.types import Net, State
from fedrepro.errors import UsageError
from fedrepro.nets.mlp import computed_in, cross_entropy, pixels

KERNEL = 5
# Of one client; more go as several clients with the same parameters, so that threads share them and caches hold them.
ROWS = 128


def cnn(
    shape: tuple[int, ...],
    classes: int,
    *,
    filters: tuple[int, ...] = (6, 16),
    hidden: tuple[int, ...] = (120, 84),
    padding: tuple[int, ...] = (0, 0),
) -> Net:
    """Stages of a 5x5 convolution, 2x2 max-pooling and ReLU, then linear layers with ReLU between them.

    `shape` [channels, height, width]; `padding` zeros around the input of each convolution. The defaults are the small
    CNN of Li et al. 2022 (NIID-Bench; papers/gma-2022/PROTOCOL.md): 44,426 parameters on 1x28x28, 62,006 on 3x32x32.
    Parameters: {"conv1": {"weight": [O, I, 5, 5], "bias": [O]}, ..., "fc1": {"weight": [out, in], "bias": [out]}, ...},
    drawn as torch draws its layers'. Raises UsageError where a convolution's output has an odd extent, or none.
    """
    sizes = _sizes(shape, classes, filters, hidden, padding)

    def flat(params: State) -> list[Tensor]:
        return [params[name][key] for name in sizes for key in ("weight", "bias")]

    def init(generator: torch.Generator) -> State:
        return {name: _layer(size, generator) for name, size in sizes.items()}

    def apply(params: State, x: Tensor) -> Tensor:
        return (_in_loops if x.device.type == "cpu" else _in_torch)(padding, x, flat(params))

    def descend(params: State, x: Tensor, y: Tensor, live: Tensor) -> tuple[State, Tensor]:
        if x.device.type != "cpu":
            return torch.vmap(grad_and_value(lambda p, *rows: cross_entropy(apply(p, rows[0]), *rows[1:])))(
                params, x, y, live
            )
        layers = flat(params)
        with torch.no_grad():
            logits, *kept = _forward(padding, x, layers)
            slope, risk = _cross_entropy(logits, y, live)
            found = iter(_backward(padding, layers[::2], kept, slope))
        return {name: {key: next(found) for key in ("weight", "bias")} for name in sizes}, risk

    return Net(init, apply, descend, alone=True)


def _sizes(
    shape: tuple[int, ...], classes: int, filters: tuple[int, ...], hidden: tuple[int, ...], padding: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """The sizes of the weights, layer by layer. UsageError where a convolution's output cannot be pooled."""
    channels, height, width = shape
    for zeros in padding:
        height, width = ((side + 2 * zeros - KERNEL + 1) / 2 for side in (height, width))
        if height < 1 or width < 1 or height % 1 or width % 1:
            raise UsageError(f"images of {shape[1]}x{shape[2]} pixels do not fit this network: choose another `net`.")
    widths = filters[-1] * int(height) * int(width), *hidden, classes
    sizes = {f"conv{i}": (o, c, KERNEL, KERNEL) for i, (c, o) in enumerate(pairwise((channels, *filters)), 1)}
    return sizes | {f"fc{i}": (o, c) for i, (c, o) in enumerate(pairwise(widths), 1)}


def _layer(size: tuple[int, ...], generator: torch.Generator) -> dict[str, Tensor]:
    """Weight and bias uniform in +-1/sqrt(fan in), as torch initialises linear and convolutional layers."""
    bound = 1 / math.sqrt(math.prod(size[1:]))
    draw = lambda *of: torch.empty(of).uniform_(-bound, bound, generator=generator)  # noqa: E731
    return {"weight": draw(*size), "bias": draw(size[0])}


def _in_loops(padding: tuple[int, ...], x: Tensor, params: list[Tensor]) -> Tensor:
    """The logits [B, classes] of one client."""
    parts, rows = math.ceil(len(x) / ROWS), len(x)
    x = F.pad(x, (0, 0, 0, 0, 0, 0, 0, -rows % parts)).unflatten(0, (parts, -1))
    logits = _Network.apply(padding, x, *(leaf.expand(parts, *leaf.shape) for leaf in params))[0]
    return logits.flatten(0, 1)[:rows]


def _in_torch(padding: tuple[int, ...], x: Tensor, params: list[Tensor]) -> Tensor:
    """The same by torch's layers."""
    layers, x = list(zip(params[::2], params[1::2], strict=True)), pixels(x)
    for (weight, bias), zeros in zip(layers, padding, strict=False):
        x = F.max_pool2d(F.conv2d(x, weight, bias, padding=zeros), 2).relu()
    x = x.flatten(1)
    for weight, bias in layers[len(padding) : -1]:
        x = F.linear(x, weight, bias).relu()
    return F.linear(x, *layers[-1])


class _Network(torch.autograd.Function):
    """The logits of stacked clients, and whatever `_backward` needs of the way there."""

    @staticmethod
    def forward(padding: tuple[int, ...], x: Tensor, *params: Tensor) -> tuple[Tensor, ...]:
        return tuple(_forward(padding, x, params))

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        padding, _, *params = inputs
        _, *kept = output
        ctx.mark_non_differentiable(*kept)
        ctx.set_materialize_grads(False)
        ctx.padding, ctx.weights = padding, len(params) // 2
        ctx.save_for_backward(*params[::2], *kept)

    @staticmethod
    def backward(ctx, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *_Gradient.apply(ctx.padding, ctx.weights, slope, *ctx.saved_tensors)

    @staticmethod
    def vmap(info, in_dims: tuple, *args: object) -> tuple[tuple[Tensor, ...], int]:
        return _beside(_Network, info.batch_size, in_dims, args)


class _Gradient(torch.autograd.Function):
    """`_backward`, for `vmap`: of the first `count` of the tensors as weights, and what was kept as the others."""

    @staticmethod
    def forward(padding: tuple[int, ...], count: int, slope: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_backward(padding, tensors[:count], tensors[count:], slope))

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def vmap(info, in_dims: tuple, *args: object) -> tuple[tuple[Tensor, ...], int]:
        return _beside(_Gradient, info.batch_size, in_dims, args)


def _beside(of: type, size: int, in_dims: tuple, args: tuple) -> tuple[tuple[Tensor, ...], int]:
    """The vmap rule of both: a batch of stacked clients is more clients."""

    def merged(each: object, dim: int | None) -> object:
        if not isinstance(each, Tensor):
            return each
        return (each.expand(size, *each.shape) if dim is None else each.movedim(dim, 0)).flatten(0, 1)

    found = of.apply(*map(merged, args, in_dims))
    return tuple(each.unflatten(0, (size, -1)) for each in found), 0


def _forward(padding: tuple[int, ...], x: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Logits [K, B, classes] of x [K, B, ...], and what the gradient needs of the way there.

    That is, for each convolution its input [K, I, H, W*B] and which output each pool let through, and the input
    [K, B, inputs] of each linear layer.
    """
    from fedrepro.nets import loops  # slow to import, and needed only here

    dtype, (clients, batch) = computed_in(x), x.shape[:2]
    layers = list(zip(params[::2], params[1::2], strict=True))
    h = loops.batch_last(x)
    kept = []
    for (weight, bias), zeros in zip(layers, padding, strict=False):
        h = F.pad(h, (0, 0, *[zeros] * 4)) if zeros else h
        kept.append(h.flatten(3))
        h, which = loops.pooled(kept[-1], weight, bias, batch)
        kept.append(which)
        h = h.unflatten(3, (-1, batch))
    # Rows first, from here on: products with a few columns take three times as long as those with a few rows.
    h = h.reshape(clients, -1, batch).mT.to(dtype).contiguous()
    for weight, bias in layers[len(padding) :]:
        kept.append(h)
        h = torch.baddbmm(bias.to(dtype).unsqueeze(1), h, weight.to(dtype).mT)
        h = h if weight is layers[-1][0] else h.relu_()
    return [h.float(), *kept]


def _backward(
    padding: tuple[int, ...], weights: Sequence[Tensor], kept: Sequence[Tensor], slope: Tensor
) -> list[Tensor]:
    """Gradients of all weights and biases, in the order of the layers, from the slope [K, B, classes] of the logits.

    `kept` is what `_forward` gave beside the logits.
    """
    from fedrepro.nets import loops  # slow to import, and needed only here

    stages, batch = len(padding), slope.shape[1]
    inputs = kept[2 * stages :]
    slope, gradients = slope.to(inputs[0].dtype), []
    for depth, (weight, h) in enumerate(zip(weights[: stages - 1 : -1], inputs[::-1], strict=True), 1):
        gradients += [slope.sum(1), slope.mT @ h]
        slope = slope @ weight.to(h.dtype)
        if depth < len(inputs):  # the pools know where theirs is zero
            slope = _where_positive(slope, h)
    slope = slope.float().mT.contiguous()
    for stage in reversed(range(stages)):
        x, which = kept[2 * stage : 2 * stage + 2]
        to_weight, to_bias, slope = loops.pooled_gradient(
            x, weights[stage], slope.reshape(which.shape), which, batch, deeper=stage > 0
        )
        gradients += [to_bias, to_weight]
        if stage and (zeros := padding[stage]):
            slope = slope.unflatten(3, (-1, batch))[:, :, zeros:-zeros, zeros:-zeros]
    return [gradient.float() for gradient in reversed(gradients)]


def _cross_entropy(logits: Tensor, y: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """The slope [K, B, classes] of `nets.mlp.cross_entropy` and its value [K], by client; y, live [K, B]."""
    logs = logits.log_softmax(-1)
    share = live / live.sum(-1, keepdim=True).clamp(min=1)
    risk = -(logs.gather(-1, y[..., None])[..., 0] * share).sum(-1)
    slope = logs.exp().scatter_add_(-1, y[..., None], -torch.ones_like(logs[..., :1]))
    return slope * share[..., None], risk


def _where_positive(slope: Tensor, x: Tensor) -> Tensor:
    """slope where x > 0, else 0: ReLU's own backward, ten times faster on a CPU than `where`."""
    return torch.ops.aten.threshold_backward(slope, x, 0)
