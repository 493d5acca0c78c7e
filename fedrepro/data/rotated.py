"""Rotated digits: the angle is the client's spurious factor (gma-2022, FedRotMNIST)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from fedrepro.data.clients import Treated, federation, numbers
from fedrepro.data.partition import Deal, check_clients
from fedrepro.data.sources import Raw
from fedrepro.data.synth import TEST, Federation


def fedrotmnist(
    raw: Raw,
    seed: int,
    *,
    n: int = 10,
    partition: str = "label-count",
    labels_per_client: int = 2,
    alpha: float = 0.5,
    validation: float = 0.0,
    angles: Sequence[float] | None = None,
    test_angle: float = 90,
) -> Federation:
    """Client i has its digits turned by `angles`[i] degrees (by default evenly from 0 to 75), the test client by 90.

    gma-2022, section 5. Positive is counter-clockwise, as in torchvision; bilinear, zero fill.
    """
    check_clients(n, len(raw.train_y))
    turned = numbers("angles", np.linspace(0, 75, n).tolist() if angles is None else angles, n)
    (test,) = numbers("test_angle", [test_angle], 1)

    def treat(images: Tensor, labels: Tensor, client: int) -> Treated:
        angle = test if client == TEST else turned[client]
        return Treated(rotate(images, angle)[:, None], labels, {"degrees": round(angle, 6)})

    return federation(raw, seed, Deal(partition, n, labels_per_client, alpha), validation, treat, raw.classes)


def rotate(images: Tensor, angle: float) -> Tensor:
    """uint8 [M, H, W] turned counter-clockwise by so many degrees about the centre."""
    from torchvision.transforms.v2 import InterpolationMode  # slow to import, and needed only here
    from torchvision.transforms.v2 import functional as transforms

    return transforms.rotate(images, angle, InterpolationMode.BILINEAR)  # the images are its channels: one grid for all
