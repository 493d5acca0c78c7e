"""Convolutional networks as matrix products, with their gradient by hand.

A 5x5 convolution and the 2x2 pooling after it are one product: the four outputs that are pooled together see 6x6
inputs, so a matrix with four shifted copies of the kernel, times the 6x6 windows (of stride 2) as columns, gives all
four, and their maximum is elementwise. The windows hold a third of the numbers that those of a plain convolution would.
Everything is stacked over K clients and runs along the batch, which is the last axis inside. On the small batches of
clients an automatic gradient, and even more so one under `vmap`, costs as much as its numbers.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.errors import UsageError
from fedrepro.nets import pixels
from fedrepro.types import Net, State

KERNEL, WINDOW = 5, 6


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
    CNN of Li et al. 2022 (NIID-Bench; protocols-1, section 2.3): 44,426 parameters on 1x28x28, 62,006 on 3x32x32.
    Parameters: {"conv1": {"weight": [O, I, 5, 5], "bias": [O]}, ..., "fc1": {"weight": [out, in], "bias": [out]}, ...},
    drawn as torch draws its layers'. Raises UsageError where a convolution's output has an odd extent, or none.
    """
    channels, height, width = shape
    for zeros in padding:
        height, width = ((side + 2 * zeros - KERNEL + 1) / 2 for side in (height, width))
        if height < 1 or width < 1 or height % 1 or width % 1:
            raise UsageError(f"images of {shape[1]}x{shape[2]} pixels do not fit this network: choose another `net`.")
    sizes = [(o, c, KERNEL, KERNEL) for c, o in pairwise((channels, *filters))]
    sizes += [(o, c) for c, o in pairwise((filters[-1] * int(height) * int(width), *hidden, classes))]
    names = [f"conv{i + 1}" for i in range(len(filters))] + [f"fc{i + 1}" for i in range(len(hidden) + 1)]

    def flat(params: State) -> list[Tensor]:
        return [params[name][key] for name in names for key in ("weight", "bias")]

    def init(generator: torch.Generator) -> State:
        return {name: _layer(size, generator) for name, size in zip(names, sizes, strict=True)}

    def apply(params: State, x: Tensor) -> Tensor:
        return _Network.apply(padding, pixels(x), *flat(params))[0]

    def descend(params: State, x: Tensor, y: Tensor, live: Tensor) -> tuple[State, Tensor]:
        layers = flat(params)
        with torch.no_grad():
            logits, *kept = _forward(padding, pixels(x), layers)
            slope, risk = _cross_entropy(logits, y, live)
            found = iter(_backward(padding, x.shape[1:], layers[::2], kept, slope))
        return {name: {key: next(found) for key in ("weight", "bias")} for name in names}, risk

    return Net(init, apply, descend)


def _layer(size: tuple[int, ...], generator: torch.Generator) -> dict[str, Tensor]:
    """Weight and bias uniform in +-1/sqrt(fan in), as torch initialises linear and convolutional layers."""
    bound = 1 / math.sqrt(math.prod(size[1:]))
    draw = lambda *of: torch.empty(of).uniform_(-bound, bound, generator=generator)  # noqa: E731
    return {"weight": draw(*size), "bias": draw(size[0])}


class _Network(torch.autograd.Function):
    """The logits of one client, and whatever `_backward` needs of the way there."""

    generate_vmap_rule = True

    @staticmethod
    def forward(padding: tuple[int, ...], x: Tensor, *params: Tensor) -> tuple[Tensor, ...]:
        return tuple(each[0] for each in _forward(padding, x[None], [leaf[None] for leaf in params]))

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        padding, x, *params = inputs
        logits, *kept = output
        ctx.mark_non_differentiable(*kept)
        ctx.set_materialize_grads(False)
        ctx.padding, ctx.shape, ctx.weights = padding, x.shape, len(params) // 2
        ctx.save_for_backward(*params[::2], *kept)

    @staticmethod
    def backward(ctx, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        saved = [each[None] for each in ctx.saved_tensors]
        weights, kept = saved[: ctx.weights], saved[ctx.weights :]
        return None, None, *(each[0] for each in _backward(ctx.padding, ctx.shape, weights, kept, slope[None]))


def _forward(padding: tuple[int, ...], x: Tensor, params: list[Tensor]) -> list[Tensor]:
    """Logits [K, B, classes] of x [K, B, ...], and what the gradient needs of the way there.

    That is, for each convolution its windows, its outputs before pooling [K, O, 4, P*B] (P places) and after ReLU
    [K, O, P*B], and the input [K, inputs, B] of each linear layer but the first, which reads the last of these.
    """
    dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else torch.float32
    clients, batch = x.shape[:2]
    layers = [(w.to(dtype), b.to(dtype).unsqueeze(-1)) for w, b in zip(params[::2], params[1::2], strict=True)]
    h = x.flatten(2).transpose(1, 2).to(dtype).reshape(clients, *x.shape[2:], batch)
    kept = []
    for (weight, bias), zeros, side in zip(layers, padding, _sides(x.shape[1:], padding)[1:], strict=False):
        windows = _windows(F.pad(h, (0, 0, *[zeros] * 4)) if zeros else h)
        y = (_four(weight) @ windows).view(clients, weight.shape[1], 4, -1)
        h = _pooled(y).add_(bias).relu_()
        kept += [windows, y, h]
        h = h.view(clients, -1, *side, batch)
    h = h.reshape(clients, -1, batch)
    for weight, bias in layers[len(padding) : -1]:
        h = torch.baddbmm(bias, weight, h).relu_()
        kept.append(h)
    weight, bias = layers[-1]
    return [torch.baddbmm(bias, weight, h).transpose(1, 2).float(), *kept]


def _backward(
    padding: tuple[int, ...], shape: tuple[int, ...], weights: list[Tensor], kept: list[Tensor], slope: Tensor
) -> list[Tensor]:
    """Gradients of all weights and biases, in the order of the layers, from the slope [K, B, classes] of the logits.

    `shape` [B, C, H, W] is that of a client's images, `kept` what `_forward` gave beside the logits.
    """
    stages, batch = len(padding), shape[0]
    inputs = [kept[3 * stages - 1].reshape(len(slope), -1, batch), *kept[3 * stages :]]
    slope, gradients = slope.transpose(1, 2).to(kept[0].dtype), []
    for weight, h in zip(weights[: stages - 1 : -1], inputs[::-1], strict=True):
        gradients += [slope.sum(-1), slope @ h.transpose(1, 2)]
        slope = _where_positive(weight.to(h.dtype).transpose(1, 2) @ slope, h)
    for stage in reversed(range(stages)):
        weight, (windows, y, h) = weights[stage], kept[3 * stage : 3 * stage + 3]
        slope = slope.reshape(h.shape)
        dy = _unpooled(slope, y).flatten(1, 2)
        gradients += [slope.sum(-1), _one(dy @ windows.transpose(1, 2), weight.shape)]
        if stage:
            below, zeros = kept[3 * stage - 1], padding[stage]
            height, width = (side + 2 * zeros for side in _sides(shape, padding)[stage])
            slope = _summed(_four(weight.to(h.dtype)).transpose(1, 2) @ dy, height, width, batch)
            slope = slope[:, :, zeros : height - zeros, zeros : width - zeros]
            slope = _where_positive(slope.reshape(below.shape), below)
    return [gradient.float() for gradient in reversed(gradients)]


def _cross_entropy(logits: Tensor, y: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """The slope [K, B, classes] of `nets.cross_entropy` and its value [K], by client; y, live [K, B]."""
    logs = logits.log_softmax(-1)
    share = live / live.sum(-1, keepdim=True).clamp(min=1)
    risk = -(logs.gather(-1, y[..., None])[..., 0] * share).sum(-1)
    slope = logs.exp().scatter_add_(-1, y[..., None], -torch.ones_like(logs[..., :1]))
    return slope * share[..., None], risk


def _sides(shape: tuple[int, ...], padding: tuple[int, ...]) -> list[tuple[int, int]]:
    """Height and width of the input [B, C, H, W] of each stage, before its padding, and of the last one's output."""
    sides = [tuple(shape[2:])]
    for zeros in padding:
        sides.append(tuple((side + 2 * zeros) // 2 - 2 for side in sides[-1]))
    return sides


def _windows(x: Tensor) -> Tensor:
    """The 6x6 windows of stride 2: [K, I, H, W, B] -> [K, I*36, P*B], P = (H/2 - 2) (W/2 - 2)."""
    seen = x.unfold(2, WINDOW, 2).unfold(3, WINDOW, 2)  # [K, I, h, w, B, 6, 6]
    return seen.permute(0, 1, 5, 6, 2, 3, 4).reshape(len(x), x.shape[1] * WINDOW**2, -1)


def _summed(windows: Tensor, height: int, width: int, batch: int) -> Tensor:
    """The adjoint of `_windows`: every place [K, I, H, W, B] gets the sum over the windows that see it."""
    h, w = height // 2 - 2, width // 2 - 2
    blocks = windows.view(len(windows), -1, 3, 2, 3, 2, h, w, batch)  # a window is 3x3 blocks of 2x2 places
    x = windows.new_zeros(len(windows), blocks.shape[1], height // 2, 2, width // 2, 2, batch)
    for i in range(3):
        for j in range(3):
            x[:, :, i : i + h, :, j : j + w] += blocks[:, :, i, :, j].permute(0, 1, 4, 2, 5, 3, 6)
    return x.view(len(windows), -1, height, width, batch)


def _four(weight: Tensor) -> Tensor:
    """The kernel at its four places in a window: [K, O, I, 5, 5] -> [K, O*4, I*36]."""
    clients, out, channels = weight.shape[:3]
    there, _ = _places(channels, weight.device)
    return F.pad(weight.flatten(2), (0, 1))[..., there].view(clients, 4 * out, -1)


def _one(four: Tensor, shape: torch.Size) -> Tensor:
    """The adjoint of `_four`: [K, O*4, I*36] -> [K, O, I, 5, 5]."""
    _, back = _places(shape[2], four.device)
    return four.reshape(*shape[:2], -1)[..., back].view(*shape, 4).sum(-1)


@cache
def _places(channels: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where an entry [4, I, 6, 6] of `_four` finds its weight [I, 5, 5], or a zero; and the entries of each weight."""
    kernel = torch.arange(channels * KERNEL**2).view(channels, KERNEL, KERNEL)
    there = torch.full((4, channels, WINDOW, WINDOW), kernel.numel())
    for place in range(4):
        i, j = divmod(place, 2)
        there[place, :, i : i + KERNEL, j : j + KERNEL] = kernel
    back = there.flatten().argsort(stable=True)[: 4 * kernel.numel()]
    return there.flatten().to(device), back.to(device)


def _pooled(y: Tensor) -> Tensor:
    """The largest of the four: [K, O, 4, N] -> [K, O, N]."""
    a, b, c, d = y.unbind(2)
    return torch.maximum(torch.maximum(a, b), torch.maximum(c, d))


def _unpooled(slope: Tensor, y: Tensor) -> Tensor:
    """The slope [K, O, N] where y [K, O, 4, N] is the largest of its four (the first of equals), else 0."""
    a, b, c, d = y.unbind(2)
    low = _where_positive(slope, torch.maximum(c, d) - torch.maximum(a, b))
    high = slope - low
    high_right, low_right = _where_positive(high, b - a), _where_positive(low, d - c)
    return torch.stack((high - high_right, high_right, low - low_right, low_right), 2)


def _where_positive(slope: Tensor, x: Tensor) -> Tensor:
    """slope where x > 0, else 0: ReLU's own backward, ten times faster on a CPU than `where`."""
    return torch.ops.aten.threshold_backward(slope, x, 0)
