"""Federations of images as they are: the ten-class datasets of gma-2022 (Table 1), and FEMNIST by writer."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedrepro.core.streams import stream
from fedrepro.data.federations.clients import Plan, Treated, partitioned
from fedrepro.data.federations.federation import Fraction
from fedrepro.data.sources import Raw
from fedrepro.errors import UsageError


@partitioned()
def plain(raw: Raw, seed: int) -> Plan:
    """All classes of a source, dealt to `n` clients; the test set is the source's own.

    gma-2022, section 5 (papers/gma-2022/PROTOCOL.md): two labels per client as in Li et al. 2102.02079.
    """
    return Plan(raw, _as_they_are, raw.classes)


@partitioned(partition="writers")
def femnist(
    raw: Raw,
    seed: int,
    *,
    writers_fraction: Annotated[float, Field(gt=0, le=1)] = 1.0,
    held_out: Fraction = 0.0,
) -> Plan:
    """Handwritten digits; a client has the images of as many writers as every other.

    gma-2022, Table 1 and Figure 1(a). `writers_fraction` of the writers, at random, take part,
    in the test set too. With `held_out`, that part of them is in no client, and all their images are the test set.
    """
    return Plan(_chosen(raw, seed, writers_fraction, held_out), _as_they_are, raw.classes)


def _as_they_are(x: Tensor, y: Tensor, client: int) -> Treated:
    return Treated(x[:, None] if x.dim() == 3 else x, y, {})


def _chosen(raw: Raw, seed: int, fraction: float, held_out: float) -> Raw:
    """The writers that take part; the test set is their test split, or all images of those that are held out."""
    every = np.union1d(raw.train_groups.numpy(), raw.test_groups.numpy())
    order = stream(seed, purpose="writers").permutation(every)[: max(1, round(fraction * len(every)))]
    strangers = order[: max(1, round(held_out * len(order)))] if held_out else order[:0]
    train = _by(raw.train_groups, np.setdiff1d(order, strangers))
    test = _by(raw.test_groups, strangers if held_out else order)
    more = _by(raw.train_groups, strangers)  # none unless some are held out
    split = Raw(
        train_x=raw.train_x[train],
        train_y=raw.train_y[train],
        test_x=torch.cat([raw.test_x[test], raw.train_x[more]]),
        test_y=torch.cat([raw.test_y[test], raw.train_y[more]]),
        classes=raw.classes,
        train_groups=raw.train_groups[train],
        test_groups=torch.cat([raw.test_groups[test], raw.train_groups[more]]),
    )
    if not (len(split.train_y) and len(split.test_y)):
        raise UsageError(
            f"of {len(every):,} writers, writers_fraction={fraction:g} and held_out={held_out:g} leave none "
            "to train or to test on: change one of them."
        )
    return split


def _by(groups: Tensor, writers: np.ndarray) -> Tensor:
    return torch.isin(groups, torch.from_numpy(writers))
