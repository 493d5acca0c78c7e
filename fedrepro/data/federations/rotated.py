"""Rotated digits: the angle is the client's spurious factor (gma-2022, FedRotMNIST)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from fedrepro.data.federations.clients import Plan, Treated, partitioned
from fedrepro.data.federations.federation import TEST, Number, of_each
from fedrepro.data.sources import Raw


@partitioned()
def fedrotmnist(
    raw: Raw, seed: int, *, n: int, angles: Sequence[Number] | None = None, test_angle: Number = 90
) -> Plan:
    """Client i has its digits turned by `angles`[i] degrees (by default evenly from 0 to 75), the test client by 90.

    gma-2022, section 5. Positive is counter-clockwise, as in torchvision; bilinear, zero fill.
    """
    turned = of_each("angles", np.linspace(0, 75, n) if angles is None else angles, n)

    def treat(images: Tensor, labels: Tensor, client: int) -> Treated:
        angle = float(test_angle) if client == TEST else turned[client]
        return Treated(rotate(images, angle)[:, None], labels, {"degrees": round(angle, 6)})

    return Plan(raw, treat, raw.classes)


def rotate(images: Tensor, angle: float) -> Tensor:
    """uint8 [M, H, W] turned counter-clockwise by so many degrees about the centre."""
    from torchvision.transforms.v2 import InterpolationMode  # slow to import, and needed only here
    from torchvision.transforms.v2 import functional as transforms

    return transforms.rotate(images, angle, InterpolationMode.BILINEAR)  # the images are its channels: one grid for all
