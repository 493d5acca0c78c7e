"""Clients: the rows that a partition deals to each, treated in the client's own way, some held out for validation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedrepro.data.partition import Deal, deal
from fedrepro.data.sources import Raw
from fedrepro.data.synth import TEST, Federation
from fedrepro.errors import UsageError
from fedrepro.streams import stream


class Treated(NamedTuple):
    """What became of a client's rows: x uint8 [M, *shape], y int64 [M], and what was measured in them."""

    x: Tensor
    y: Tensor
    facts: dict


# (images [M, ...], labels [M], client or TEST) -> Treated, row by row
Treatment = Callable[[Tensor, Tensor, int], Treated]


def federation(raw: Raw, seed: int, how: Deal, validation: float, treat: Treatment, classes: int) -> Federation:
    """The training rows dealt by their labels (or writers), and the test client with all test rows.

    `validation`: that part of each client's treated rows, at random, is in tests["validation"] and not in training.
    Facts of a client: rows and labels trained on, rows held out, its writers, and what its treatment measured in all
    of its rows.
    """
    if not (_is_number(validation) and 0 <= validation < 1):
        raise UsageError(f"validation is at least 0 and less than 1, and cannot be {validation!r}.")
    groups = None if raw.train_groups is None else raw.train_groups.numpy()
    kept, held, facts = [], [], []
    for k, rows in enumerate(deal(how, raw.train_y.numpy(), groups, seed)):
        x, y, measured = treat(raw.train_x[rows], raw.train_y[rows], k)
        out = torch.from_numpy(held_out(len(rows), validation, seed, k))
        written = {} if groups is None else {"writers": len(np.unique(groups[rows]))}
        if validation:
            held.append((x[out], y[out]))
            written |= {"held_out": len(held[-1][1])}
            x, y = x[~out], y[~out]
        kept.append((x, y))
        facts.append(counted(y) | written | measured)
    x, y, measured = treat(raw.test_x, raw.test_y, TEST)
    tests, described = {"test": (x, y)}, {"clients": facts, "test": counted(y) | measured}
    if raw.test_groups is not None:
        described["test"] |= {"writers": len(raw.test_groups.unique())}
    if validation:
        tests["validation"] = _joined(held)
        described["validation"] = counted(tests["validation"][1])
    return Federation(*_joined(kept), tuple(len(y) for _, y in kept), tests, classes, described)


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


def counted(y: Tensor) -> dict:
    """Rows and label counts, in one line each of a record: {"rows": 5, "labels": "3: 2, 7: 3"}."""
    counts = y.bincount().tolist()
    return {"rows": len(y), "labels": ", ".join(f"{label}: {count}" for label, count in enumerate(counts) if count)}


def numbers(name: str, values: object, many: int) -> list[float]:
    """A parameter that is a list of so many numbers; UsageError for anything else."""
    if not isinstance(values, list | tuple) or len(values) != many or not all(map(_is_number, values)):
        raise UsageError(f"{name} needs {many:,} numbers and cannot be {str(values)[:60]}.")
    return [float(value) for value in values]


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    x, y = zip(*parts, strict=True)
    return torch.cat(x), torch.cat(y)
