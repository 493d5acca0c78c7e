"""ResNet-18 with group norm, from scratch or from torchvision's ImageNet weights (fedaug-2022)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from fedrepro import downloads
from fedrepro.core import trees
from fedrepro.core.types import Net, State
from fedrepro.errors import UsageError
from fedrepro.nets.mlp import pixels
from fedrepro.nets.modules import nested, network

Init = Literal["scratch", "imagenet"]

GROUPS = 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's channels
CHECKPOINT = "resnet18-f37072fd.pth"  # as torchvision names it, with the beginning of its sha256


def resnet18(shape: tuple[int, ...], classes: int, init: Init = "scratch") -> Net:
    """ResNet-18 with GroupNorm(2) for batch norm: 11,181,642 parameters with 10 classes, 11,209,857 with 65.

    Colour images of any size, bytes or 0..1, which it normalises itself. "imagenet": the convolutions start from
    torchvision's checkpoint, norms and the final layer "fc" are fresh. Raises UsageError where images are not of three
    channels, and on `init` where the checkpoint is damaged, or neither in the data folder nor to be had.
    """
    if shape[0] != 3:
        raise UsageError(f"resnet18 reads images of 3 channels, and these have {shape[0]}: choose another `net`.")
    net = network(lambda: _module(classes), "fc", _normalised)
    return net if init == "scratch" else net._replace(init=_pretrained(net.init))


def _module(classes: int) -> nn.Module:
    from torchvision.models import resnet18  # slow to import, and needed only here

    return resnet18(num_classes=classes, norm_layer=lambda channels: nn.GroupNorm(GROUPS, channels))


def _normalised(x: Tensor) -> Tensor:
    channels = zip(pixels(x).unbind(1), MEAN, STD, strict=True)
    return torch.stack([(channel - mean) / std for channel, mean, std in channels], 1)


def _pretrained(fresh: Callable[[torch.Generator], State]) -> Callable[[torch.Generator], State]:
    """The initialiser whose convolutions are the checkpoint's and whose other parameters are those of `fresh`."""

    def init(generator: torch.Generator) -> State:
        params = dict(trees.leaves(fresh(generator)))
        saved = torch.load(io.BytesIO(_checkpoint()), map_location="cpu", weights_only=True)
        return nested({name: saved[name].detach() if leaf.dim() == 4 else leaf for name, leaf in params.items()})

    return init


def _checkpoint() -> bytes:
    """The verified content of the checkpoint; into the cache, but not into the user's folder, it is downloaded."""
    from torchvision.models import ResNet18_Weights

    folder, what = downloads.folder(), f"the weights {CHECKPOINT}"
    advice = f"put torchvision's file of that name into {folder}, or set init=scratch"
    if not (folder / CHECKPOINT).is_file() and not downloads.lent():
        urls = [ResNet18_Weights.IMAGENET1K_V1.url]
        downloads.download(folder, {CHECKPOINT: urls}, downloads.check_named, what, advice)
    try:
        content = (folder / CHECKPOINT).read_bytes()
        downloads.check_named(folder / CHECKPOINT, content)
    except OSError as error:
        raise UsageError(f"{what} cannot be had ({error}): {advice}.") from error
    return content
