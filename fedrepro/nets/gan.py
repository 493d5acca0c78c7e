"""The generators and critics of f2u-2019 (appendix C), and spectral norm, as pure functions of parameters and state.

Weights are Glorot-uniform and biases zero; batch norm begins with scale 1 and shift 0, and its running mean and
variance with 0 and 1. They are returned by a pass in training, which adds a tenth of the new (PyTorch's momentum 0.1).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.core.types import State
from fedrepro.errors import UsageError
from fedrepro.nets.mlp import glorot, mlp
from fedrepro.nets.modules import channels_last

MOMENTUM = 0.1
NOISE = 128  # numbers in z, for images
EPS = 1e-12  # below this, a vector is not divided by its length (as in torch.nn.utils)


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


def choose(shape: tuple[int, ...], norm: bool = False) -> tuple[Generator, Critic]:
    """The pair of networks for data of a shape; `norm`: as of `points`. UsageError where there is none."""
    if len(shape) == 1:
        return points(shape[0], norm)
    if norm:
        raise UsageError("norm is for generators of points, and those of images have it in any case: leave it out.")
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


def points(size: int, norm: bool = False) -> tuple[Generator, Critic]:
    """The perceptrons for mixtures of Gaussians in R^size, a choice of ours: z in R^2, two hidden layers of 64.

    With `norm` the generator has batch norm before the ReLU of its hidden layers, as the deconvolutions of images have.
    """
    judge = mlp(size, 64, 64, 1, bend=lambda h: F.leaky_relu(h, 0.2))
    critic = Critic(judge.init, lambda params, x: widened(judge.apply(params, x))[:, 0])
    return perceptron(2, 64, 64, size, norm=norm), critic


NETS: dict[tuple[int, ...], Callable[[], tuple[Generator, Critic]]] = {
    (1, 28, 28): dcgan_28,
    (3, 32, 32): dcgan_32,
}


def perceptron(*widths: int, norm: bool) -> Generator:
    """Linear layers with ReLU between them, and with `norm` batch norm before it; `widths`: z, hidden, ..., x.

    Parameters: "fc1", "norm1", "fc2", ..., each {"weight", "bias"}; running: {"norm1": {"mean", "var"}, ...}.
    """
    made, normed = mlp(*widths, bend=F.relu), widths[1:-1] if norm else ()

    def init(generator: torch.Generator) -> State:
        params = {}
        for i, layer in enumerate(made.init(generator).values(), 1):
            params[f"fc{i}"] = layer
            if i <= len(normed):
                params[f"norm{i}"] = scaling(normed[i - 1])
        return params

    def apply(params: State, stats: State, z: Tensor, train: bool) -> tuple[Tensor, State]:
        if not norm:
            return widened(made.apply(params, z)), stats
        h, seen = z, {}
        for i in range(1, len(widths) - 1):
            weight, bias = params[f"fc{i}"]["weight"], params[f"fc{i}"]["bias"]
            h = F.linear(h, weight, bias.detach())  # batch norm takes it away again, as it does below
            h, seen[f"norm{i}"] = batch_norm(params[f"norm{i}"], stats[f"norm{i}"], h, train)
            h = F.relu(h)
        last = params[f"fc{len(widths) - 1}"]
        return widened(F.linear(h, last["weight"], last["bias"])), seen

    return Generator(init, lambda: statistics(normed), apply, widths[0])


def image_generator(first: int, side: int, widths: tuple[int, ...], channels: int) -> Generator:
    """A linear layer to first x side x side and ReLU; 4x4 deconvolutions with stride 2 to each of `widths`, each with
    batch norm and ReLU; a 3x3 deconvolution to `channels` and tanh.

    Parameters: "fc", "deconv1", "norm1", ... and "last", each {"weight", "bias"}; running: {"norm1": {"mean", "var"}}.
    """
    steps = [*pairwise((first, *widths))]

    def init(generator: torch.Generator) -> State:
        params = {"fc": glorot((first * side**2, NOISE), NOISE, first * side**2, first * side**2, generator)}
        for i, (inner, outer) in enumerate(steps, 1):
            params[f"deconv{i}"] = glorot((inner, outer, 4, 4), 16 * inner, 16 * outer, outer, generator)
            params[f"norm{i}"] = scaling(outer)
        inner = widths[-1]
        return params | {"last": glorot((inner, channels, 3, 3), 9 * inner, 9 * channels, channels, generator)}

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

    return Generator(init, lambda: statistics(widths), apply, NOISE)


def scaling(width: int) -> State:
    """The parameters of batch norm at the start: scale 1 and shift 0."""
    return {"weight": torch.ones(width), "bias": torch.zeros(width)}


def statistics(widths: tuple[int, ...]) -> State:
    """The running statistics of batch norm after layers of these widths, at the start."""
    return {f"norm{i}": {"mean": torch.zeros(c), "var": torch.ones(c)} for i, c in enumerate(widths, 1)}


def batch_norm(params: State, stats: State, x: Tensor, train: bool) -> tuple[Tensor, State]:
    """Batch norm of x [N, C, ...] by its own statistics (train) or the running ones, and those to keep."""
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
            params[f"conv{i}"] = glorot(size, area * inner, area * layer.channels, layer.channels, generator)
        return params | {"fc": glorot((1, flat), flat, 1, 1, generator)}

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


# Spectral norm (Miyato et al. 2018, Algorithm 1) as pure functions of stacked weights and their vectors: a weight
# W [K, out, ...] is read as K matrices [out, fan-in], whose vectors v [K, fan-in], of unit length, are the state of the
# power iteration. All is computed in float32, whatever the precision of products.


class Normal(NamedTuple):
    """Weights [K, out, ...] divided by their norms sigma [K], and the singular vectors u [K, out], v [K, fan-in]."""

    weight: Tensor
    u: Tensor
    v: Tensor
    sigma: Tensor


def normalise(weight: Tensor, v: Tensor) -> Normal:
    """One power iteration from v, and the weight divided by what it then shows of its largest singular value."""
    matrix = weight.flatten(2)
    with torch.autocast(weight.device.type, enabled=False):
        u = F.normalize(_times(matrix, v), dim=1, eps=EPS)
        back = _times(matrix.mT, u)
        sigma = back.norm(dim=1).clamp(min=EPS)  # = u W v for the new v
        v = back / sigma[:, None]
        return Normal(weight / sigma.view(-1, *[1] * (weight.dim() - 1)), u, v, sigma)


def through(gradient: Tensor, normal: Normal) -> Tensor:
    """The gradient by W of what has this gradient [K, out, ...] by W / sigma, u and v held fixed.

    sigma = u W v, so that it is (G - <G, W / sigma> u v^T) / sigma.
    """
    with torch.autocast(gradient.device.type, enabled=False):
        g, w = gradient.flatten(2), normal.weight.flatten(2)
        along = (g.flatten(1) * w.flatten(1)).sum(1) / normal.sigma
        scaled = g / normal.sigma[:, None, None]
        return scaled.sub_((normal.u * along[:, None])[:, :, None] * normal.v[:, None]).view_as(gradient)


def power_start(critic: State, generator: torch.Generator, iterations: int = 15) -> State:
    """Vectors {layer: [fan-in]} near the right singular ones, by iterations from random ones (as in torch.nn.utils)."""
    vectors = {}
    for name, layer in critic.items():
        weight = layer["weight"][None]
        v = F.normalize(torch.randn(1, weight[0, 0].numel(), generator=generator), dim=1, eps=EPS)
        for _ in range(iterations):
            v = normalise(weight, v).v
        vectors[name] = v[0]
    return vectors


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """Products of matrices [K, a, b] with vectors [K, b] -> [K, a]."""
    return torch.stack([m @ x for m, x in zip(matrix, vector, strict=True)])
