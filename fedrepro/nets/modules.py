"""Networks made from torch's own modules, for those whose convolutions are too wide for compiled `loops`.

With 16 channels and more, torch's convolutions on channels-last images, one client after another, are at the machine's
limit (benchmarks/README.md); `vmap` would make grouped convolutions of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedrepro.core import trees
from fedrepro.core.lift import in_turn
from fedrepro.core.types import Net, State
from fedrepro.errors import UsageError
from fedrepro.nets.mlp import cross_entropy, pixels


def network(build: Callable[[], nn.Module], head: str, prepare: Callable[[Tensor], Tensor] = pixels) -> Net:
    """The network of the module that `build` makes, whose final linear layer is called `head`.

    Parameters: the module's own, a nested dict by its path ({"layer1": {"0": {"conv1": {"weight": ...}}}}), drawn as
    the module draws them, from the generator alone. `prepare` makes the module's input [B, C, H, W] of images.
    Raises UsageError for a module with buffers: its running statistics would be neither trained nor averaged.
    """
    with torch.device("meta"):
        frame = build()
    if buffers := [name for name, _ in frame.named_buffers()]:
        raise UsageError(f"a network cannot have buffers, and this one has {buffers[0]!r}: leave out batch norm.")
    last = frame.get_submodule(head)

    def init(generator: torch.Generator) -> State:
        seed = int(torch.randint(2**63 - 1, (), generator=generator, device="cpu"))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return nested({name: leaf.detach() for name, leaf in build().named_parameters()})

    def apply(params: State, x: Tensor) -> Tensor:
        # No cache of casts: it would hold those of all clients and steps until autocast ends, a round later.
        with torch.autocast(x.device.type, enabled=torch.is_autocast_enabled(x.device.type), cache_enabled=False):
            return functional_call(frame, dict(trees.leaves(params)), (channels_last(prepare(x)),)).float()

    def features(params: State, x: Tensor) -> Tensor:
        seen = []
        with last.register_forward_pre_hook(lambda _, given: seen.append(given[0])):
            apply(params, x)
        return seen[0].float()

    def descend(params: State, x: Tensor, y: Tensor, live: Tensor) -> tuple[State, Tensor]:
        return in_turn(lambda own, k: cross_entropy(apply(own, x[k]), y[k], live[k]), params)

    return Net(init, apply, descend, features, head, alone=True)


def nested(named: dict[str, Tensor]) -> State:
    """The nested dict of dotted names."""
    tree: State = {}
    for name, leaf in named.items():
        *path, key = name.split(".")
        place = tree
        for step in path:
            place = place.setdefault(step, {})
        place[key] = leaf
    return tree


def channels_last(x: Tensor) -> Tensor:
    """Images [B, C, H, W] copied so that the channels of a pixel lie side by side."""
    # Not `contiguous(memory_format=...)`: vmap does not know it, and it gives a single channel strides that torch takes
    # for those of the other layout.
    return x.movedim(1, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 1)


def small_cnn(shape: tuple[int, ...], classes: int) -> Net:
    """The network of fedaug-2022 on Rotated MNIST: 28,938 parameters on 1x28x28 (papers/fedaug-2022/PROTOCOL.md).

    5x5 convolutions to 16 and to 32 channels with padding 2, each with ReLU and 2x2 max-pooling, and a linear layer
    "fc". `shape` [channels, height, width]. Raises UsageError for images of fewer than 4x4 pixels.
    """
    channels, height, width = shape
    if min(height, width) < 4:
        raise UsageError(f"images of {height}x{width} pixels do not fit this network: choose another `net`.")
    return network(lambda: SmallCnn(channels, 32 * (height // 4) * (width // 4), classes), "fc")


class SmallCnn(nn.Module):
    """[B, channels, H, W] -> [B, classes]; `inputs` of the linear layer."""

    def __init__(self, channels: int, inputs: int, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 5, padding=2)
        self.conv2 = nn.Conv2d(16, 32, 5, padding=2)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        for convolve in (self.conv1, self.conv2):
            # ReLU after pooling gives the same numbers on a fourth of the values.
            x = F.relu(F.max_pool2d(convolve(x), 2))
        return self.fc(x.flatten(1))
