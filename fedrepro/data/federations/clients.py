"""Clients: the rows that a partition deals to each, treated in the client's own way, some held out for validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedrepro.core.parameters import completed_by
from fedrepro.core.streams import stream
from fedrepro.data.federations.federation import TEST, Clients, Federation, Fraction, Treated, assembled, counted
from fedrepro.data.federations.partition import Deal, Partition, deal
from fedrepro.data.sources import Raw
from fedrepro.errors import UsageError

# (images [M, ...], labels [M], client or TEST) -> Treated, row by row
Treatment = Callable[[Tensor, Tensor, int], Treated]


class Plan(NamedTuple):
    """The data that are dealt and the treatment by clients; `facts()`: what else is recorded, after all treatments."""

    raw: Raw
    treat: Treatment
    classes: int
    facts: Callable[[], dict] = dict


def partitioned(**other: object) -> Callable[[Callable[..., Plan]], Callable[..., Federation]]:
    """A decorator that makes a builder of one of plans: it adds the parameters of `federation`.

    Some with `other` defaults; a plan may name `n` to have it, too.
    """
    return completed_by(federation, **other)


def federation(
    raw: Raw,
    seed: int,
    plan: Plan,
    *,
    n: Clients = 10,
    partition: Partition = "label-count",
    labels_per_client: Annotated[int, Field(ge=1)] = 2,
    alpha: Annotated[float, Field(ge=1e-3, le=1e6)] = 0.5,
    validation: Fraction = 0.0,
) -> Federation:
    """The training rows of the plan dealt by their labels (or writers), and the test client with all test rows.

    `validation`: that part of each client's treated rows, at random, is in tests["validation"] and not in training.
    Facts of a client: rows and labels trained on, rows held out, its writers, and what its treatment measured in all
    of its rows.
    """
    raw, treat, classes, more = plan
    groups = None if raw.train_groups is None else raw.train_groups.numpy()
    clients, held = [], []
    how = Deal(partition, n, labels_per_client, alpha)
    for k, rows in enumerate(deal(how, raw.train_y.numpy(), groups, seed)):
        x, y, measured = treat(raw.train_x[rows], raw.train_y[rows], k)
        facts = {} if groups is None else {"writers": len(np.unique(groups[rows]))}
        if validation:
            out = torch.from_numpy(held_out(len(rows), validation, seed, k))
            held.append((x[out], y[out]))
            x, y, facts["held_out"] = x[~out], y[~out], int(out.sum())
        clients.append(Treated(x, y, counted(y) | facts | measured))
    x, y, measured = treat(raw.test_x, raw.test_y, TEST)
    facts = {} if raw.test_groups is None else {"writers": len(raw.test_groups.unique())}
    tests = {"test": Treated(x, y, counted(y) | measured | facts)}
    if validation:
        x, y = map(torch.cat, zip(*held, strict=True))
        tests["validation"] = Treated(x, y, counted(y))
    return assembled(clients, tests, classes, more())


def held_out(rows: int, part: float, seed: int, client: int) -> np.ndarray:
    """bool [rows], which of a client's rows are held out: that part, at least one and never all."""
    chosen = np.zeros(rows, bool)
    if part:
        count = max(1, round(part * rows))
        if count >= rows:
            raise UsageError(
                f"validation={part:g} leaves client {client + 1}, which has {rows:,} rows, none to train on: "
                "set validation or n lower."
            )
        chosen[stream(seed, 0, client, "validation").choice(rows, count, replace=False)] = True
    return chosen
