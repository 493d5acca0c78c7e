"""Spectral norm (Miyato et al. 2018, Algorithm 1) as pure functions of stacked weights and their vectors.

A weight W [K, out, ...] is read as K matrices [out, fan-in]; its vector v [K, fan-in] is the state of the power
iteration, of unit length. All is computed in float32, whatever the precision of products.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-12  # below this, a vector is not divided by its length (as in torch.nn.utils)


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


def power_start(weight: Tensor, generator: torch.Generator, iterations: int = 15) -> Tensor:
    """Vectors [K, fan-in] near the right singular ones, by power iterations from random ones (as in torch.nn.utils)."""
    matrix = weight.flatten(2)
    v = F.normalize(torch.randn(matrix.shape[0], matrix.shape[2], generator=generator), dim=1, eps=EPS)
    for _ in range(iterations):
        v = normalise(weight, v).v
    return v


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """Products of matrices [K, a, b] with vectors [K, b] -> [K, a]."""
    return torch.stack([m @ x for m, x in zip(matrix, vector, strict=True)])
