"""The GANs' plain loop and its modules, which benchmarks/loops.py times, and the way parameters go into modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from torch import nn

from fedrepro.core import trees

_spec = importlib.util.spec_from_file_location("plain_loops", Path(__file__).parents[1] / "benchmarks" / "plain.py")
benchmark = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(benchmark)

LAYERS = nn.Linear, nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm1d, nn.BatchNorm2d


def layers(module: nn.Module) -> list[nn.Module]:
    """The layers that have parameters, in order."""
    return [each for each in module.modules() if isinstance(each, LAYERS)]


def load(module: nn.Module, params: dict, vectors: dict | None = None) -> nn.Module:
    """The module with these parameters; vectors: {layer: v [fan-in]} of its spectral norms."""
    for (name, values), layer in zip(params.items(), layers(module), strict=True):
        normal = getattr(layer, "parametrizations", None)
        with torch.no_grad():
            (normal.weight.original if normal else layer.weight).copy_(turned(layer, values["weight"]))
            layer.bias.copy_(values["bias"])
            if normal:
                v = vectors[name].unflatten(0, values["weight"].shape[1:])  # numbered as the weight's entries are
                normal.weight[0]._v.copy_(turned(layer, v[None])[0].flatten())
    return module


def turned(layer: nn.Module, weight: torch.Tensor) -> torch.Tensor:
    """A convolution's weight [out, kernel, kernel, in] as the module has it; others as they are."""
    return weight.movedim(-1, 1) if isinstance(layer, nn.Conv2d) else weight


def read(module: nn.Module) -> list[torch.Tensor]:
    """The parameters in the order of `trees.leaves(params)`."""
    found = []
    for layer in layers(module):
        normal = getattr(layer, "parametrizations", None)
        weight = (normal.weight.original if normal else layer.weight).detach()
        found += [weight.movedim(1, -1) if isinstance(layer, nn.Conv2d) else weight, layer.bias.detach()]
    return found


def values(params: dict) -> list[torch.Tensor]:
    return [leaf for _, leaf in trees.leaves(params)]
