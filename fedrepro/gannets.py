"""The generators and critics of f2u-2019 (appendix C) as pure functions of parameters and state.

Weights are Glorot-uniform and biases zero; batch norm begins with scale 1 and shift 0, and its running mean and
variance with 0 and 1. They are returned by a pass in training, which adds a tenth of the new (PyTorch's momentum 0.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.errors import UsageError
from fedrepro.modules import channels_last
from fedrepro.types import State

MOMENTUM = 0.1
NOISE = 128  # numbers in z, for images


class Generator(NamedTuple):
    """From z [N, noise] to samples [N, ...].

    init:    (torch generator) -> params
    running: () -> the statistics at the start
    apply:   (params, running, z, train) -> (samples in float32, running); the batch's own statistics in training
    """

    init: Callable[[torch.Generator], State]
    running: Callable[[], State]
    apply: Callable[[State, State, Tensor, bool], tuple[Tensor, State]]
    noise: int


class Critic(NamedTuple):
    """From samples [N, ...] to judgements [N], linear outputs in float32: `apply(params, x)`."""

    init: Callable[[torch.Generator], State]
    apply: Callable[[State, Tensor], Tensor]


class Layer(NamedTuple):
    """A convolution to `channels`; `extra`: zeros more to the right and below, beside a padding of 1 all around."""

    channels: int
    kernel: int
    stride: int
    extra: int = 0


def choose(shape: tuple[int, ...]) -> tuple[Generator, Critic]:
    """The pair of networks for data of a shape. UsageError where there is none."""
    if len(shape) == 1:
        return points(shape[0])
    if shape not in NETS:
        sides = "x".join(map(str, shape))
        raise UsageError(f"no GAN here makes samples of {sides}: take data of 1x28x28, of 3x32x32, or points.")
    return NETS[shape]()


def dcgan_28() -> tuple[Generator, Critic]:
    """The networks for MNIST and Fashion-MNIST: 2,274,689 and 388,865 parameters."""
    layers = Layer(32, 3, 2), Layer(64, 3, 2, extra=1), Layer(128, 3, 2), Layer(256, 3, 2)
    return image_generator(256, 7, (128, 64), 1), image_critic((1, 28, 28), layers, slope=0.2)


def dcgan_32() -> tuple[Generator, Critic]:
    """The networks for CINIC-10: 3,812,355 and 932,161 parameters."""
    layers = Layer(64, 3, 1), Layer(64, 4, 2), Layer(128, 3, 1), Layer(128, 4, 2), Layer(256, 4, 2)
    return image_generator(512, 4, (256, 128, 64), 3), image_critic((3, 32, 32), layers, slope=0.1)


def points(size: int) -> tuple[Generator, Critic]:
    """The perceptrons for mixtures of Gaussians in R^size, a choice of ours: z in R^2, two hidden layers of 64."""
    names, running = ("fc1", "fc2", "fc3"), dict

    def generate(params: State, stats: State, z: Tensor, train: bool) -> tuple[Tensor, State]:
        return perceptron(params, z, F.relu), stats

    def judge(params: State, x: Tensor) -> Tensor:
        return perceptron(params, x, lambda h: F.leaky_relu(h, 0.2))[:, 0]

    def perceptron(params: State, h: Tensor, bend: Callable[[Tensor], Tensor]) -> Tensor:
        for name in names:
            h = F.linear(h, params[name]["weight"], params[name]["bias"])
            h = h if name == names[-1] else bend(h)
        return widened(h)

    def init(*widths: int) -> Callable[[torch.Generator], State]:
        sizes = dict(zip(names, pairwise(widths), strict=True))
        return lambda generator: {name: drawn((o, i), i, o, o, generator) for name, (i, o) in sizes.items()}

    return Generator(init(2, 64, 64, size), running, generate, 2), Critic(init(size, 64, 64, 1), judge)


NETS: dict[tuple[int, ...], Callable[[], tuple[Generator, Critic]]] = {
    (1, 28, 28): dcgan_28,
    (3, 32, 32): dcgan_32,
}


def image_generator(first: int, side: int, widths: tuple[int, ...], channels: int) -> Generator:
    """A linear layer to first x side x side and ReLU; 4x4 deconvolutions with stride 2 to each of `widths`, each with
    batch norm and ReLU; a 3x3 deconvolution to `channels` and tanh.

    Parameters: "fc", "deconv1", "norm1", ... and "last", each {"weight", "bias"}; running: {"norm1": {"mean", "var"}}.
    """
    steps = [*pairwise((first, *widths))]

    def init(generator: torch.Generator) -> State:
        params = {"fc": drawn((first * side**2, NOISE), NOISE, first * side**2, first * side**2, generator)}
        for i, (inner, outer) in enumerate(steps, 1):
            params[f"deconv{i}"] = drawn((inner, outer, 4, 4), 16 * inner, 16 * outer, outer, generator)
            params[f"norm{i}"] = {"weight": torch.ones(outer), "bias": torch.zeros(outer)}
        inner = widths[-1]
        return params | {"last": drawn((inner, channels, 3, 3), 9 * inner, 9 * channels, channels, generator)}

    def running() -> State:
        return {f"norm{i}": {"mean": torch.zeros(c), "var": torch.ones(c)} for i, c in enumerate(widths, 1)}

    def apply(params: State, stats: State, z: Tensor, train: bool) -> tuple[Tensor, State]:
        h = F.relu(F.linear(z, params["fc"]["weight"], params["fc"]["bias"]))
        h, seen = channels_last(h.unflatten(1, (first, side, side))), {}
        for i in range(1, len(widths) + 1):
            up, norm = params[f"deconv{i}"], params[f"norm{i}"]
            # Batch norm takes the bias away again, so it has no gradient: to sum that up costs a tenth of the pass.
            h = F.conv_transpose2d(h, up["weight"], up["bias"].detach(), stride=2, padding=1)
            h, seen[f"norm{i}"] = batch_norm(norm, stats[f"norm{i}"], h, train)
            h = F.relu(h)
        last = params["last"]
        return widened(F.conv_transpose2d(h, last["weight"], last["bias"], padding=1)).tanh(), seen

    return Generator(init, running, apply, NOISE)


def batch_norm(params: State, stats: State, x: Tensor, train: bool) -> tuple[Tensor, State]:
    """Batch norm of x [N, C, H, W] by its own statistics (train) or the running ones, and those to keep."""
    mean, var = stats["mean"], stats["var"]
    if train:
        mean, var = mean.clone(), var.clone()  # torch changes them in place
    return F.batch_norm(x, mean, var, params["weight"], params["bias"], train, MOMENTUM), {"mean": mean, "var": var}


def image_critic(shape: tuple[int, ...], layers: tuple[Layer, ...], slope: float) -> Critic:
    """Convolutions, each with LeakyReLU, and a linear layer to one output.

    Parameters: "conv1", ... and "fc", each {"weight", "bias"}. A convolution's weight is [out, kernel, kernel, in], in
    the order in which torch reads it where images lie channels last.
    """
    channels, *_ = shape
    below = [channels, *(layer.channels for layer in layers)]
    side = shape[1]
    for layer in layers:
        side = (side + layer.extra + 2 - layer.kernel) // layer.stride + 1
    flat = layers[-1].channels * side**2

    def init(generator: torch.Generator) -> State:
        params = {}
        for i, (layer, inner) in enumerate(zip(layers, below, strict=False), 1):
            area, size = layer.kernel**2, (layer.channels, layer.kernel, layer.kernel, inner)
            params[f"conv{i}"] = drawn(size, area * inner, area * layer.channels, layer.channels, generator)
        return params | {"fc": drawn((1, flat), flat, 1, 1, generator)}

    def apply(params: State, x: Tensor) -> Tensor:
        h = channels_last(x)
        for i, layer in enumerate(layers, 1):
            weight, bias = params[f"conv{i}"]["weight"].movedim(3, 1), params[f"conv{i}"]["bias"]
            h = F.pad(h, (0, layer.extra, 0, layer.extra)) if layer.extra else h
            h = F.leaky_relu(F.conv2d(h, weight, bias, stride=layer.stride, padding=1), slope)
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(widened(h.flatten(1)), params["fc"]["weight"], params["fc"]["bias"])[:, 0]

    return Critic(init, apply)


def widened(x: Tensor) -> Tensor:
    """In float32, if it was less."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def drawn(shape: tuple[int, ...], fan_in: int, fan_out: int, biases: int, generator: torch.Generator) -> State:
    """A Glorot-uniform weight (Glorot and Bengio 2010, Eq. 16) and zero biases."""
    bound = math.sqrt(6 / (fan_in + fan_out))
    return {"weight": torch.empty(shape).uniform_(-bound, bound, generator=generator), "bias": torch.zeros(biases)}
