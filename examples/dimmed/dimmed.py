"""Dimmed images: how bright the ink is tells one client from another; made of scikit-learn's digits or of own files."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedrepro.data import Dataset, Raw, Source
from fedrepro.data.federations.clients import Plan, Treated, partitioned
from fedrepro.data.federations.federation import TEST, Probability, of_each


@partitioned(n=3, partition="iid")
def dimmed(
    raw: Raw,
    seed: int,
    *,
    n: int,
    brightness: Sequence[Probability] = (1.0, 0.75, 0.5),
    test_brightness: Probability = 0.25,
) -> Plan:
    """Images whose ink is dimmed by a factor of each client's own, and by another one at test.

    Client i has its images at `brightness`[i] of their ink, the test client at `test_brightness`.
    """
    inks = of_each("brightness", brightness, n)

    def treat(images: Tensor, labels: Tensor, client: int) -> Treated:
        ink = test_brightness if client == TEST else inks[client]
        x = (images[:, None] * ink).round().to(torch.uint8)
        return Treated(x, labels, {"brightness": ink})

    return Plan(raw, treat, raw.classes)


def npz(source: Source, files: Iterable[tuple[str, np.ndarray]]) -> Raw:
    """The arrays of one .npz file: train_x and test_x uint8 [N, H, W], train_y and test_y, the labels from 0."""
    ((_, content),) = files
    with np.load(io.BytesIO(content)) as arrays:  # which unpickles nothing
        train_x, train_y, test_x, test_y = (
            torch.from_numpy(arrays[name]) for name in ("train_x", "train_y", "test_x", "test_y")
        )
    return Raw(train_x, train_y.long(), test_x, test_y.long(), source.classes)


digits = Dataset(dimmed, source="digits", shape=(1, 28, 28))

own = Dataset(
    dimmed,
    source=Source(
        name="own",
        origin="a file of the user's",
        licence="the user's own",
        reader="dimmed:npz",
        classes=10,
        patterns=(("own/*.npz",),),
        sought="own/*.npz",
        layout="one .npz file with the arrays train_x, train_y, test_x and test_y",
    ),
    shape=(1, 28, 28),
)
