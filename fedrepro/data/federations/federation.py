"""A federation, and what several of them are made with: types of parameters, noise, colour, and checks of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from pydantic import Field

from fedrepro.errors import FedreproError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from fedrepro.data.augment import Augment

TEST = -1  # the test client's number in the addresses of its draws

# Types of parameters, as pydantic checks them.
Clients = Annotated[int, Field(ge=1, le=1_000_000)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]
Distance = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class Federation:
    """One seed's synthesised data.

    x: uint8 [N, *shape], or float32 [N, d] where rows are points, client after client; y: int64 [N]; sizes: rows per
    client, summing to N.
    tests: evaluation sets by name, uint8 [M, *shape] and int64 [M].
    facts: what was measured in the finished data (JSON), for the run's record.
    groups: names of tests whose unweighted means are reported too, by the name of the mean.
    augment: what training batches go through before they are trained on, and `tests` never; see `data.augment`.
    modes: float32 [M, d], the means of the Gaussians that points are drawn from, each of deviation `mode_sd`.
    """

    x: Tensor
    y: Tensor
    sizes: tuple[int, ...]
    tests: dict[str, tuple[Tensor, Tensor]]
    classes: int
    facts: dict
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    augment: Augment | None = None
    modes: Tensor | None = None
    mode_sd: float = 0.0


class Treated(NamedTuple):
    """A client's rows after its treatment: x uint8 [M, *shape], y int64 [M], and what was measured in them."""

    x: Tensor
    y: Tensor
    facts: dict


def assembled(clients: Sequence[Treated], tests: Mapping[str, Treated], classes: int, more: dict) -> Federation:
    """The federation of these clients and tests, with their facts and `more`."""
    import torch  # slow to import, as below, and not needed to know what a federation is

    x, y, facts = zip(*clients, strict=True)
    described = {"clients": list(facts), **{name: test.facts for name, test in tests.items()}} | more
    sets = {name: (test.x, test.y) for name, test in tests.items()}
    return Federation(torch.cat(x), torch.cat(y), tuple(map(len, y)), sets, classes, described)


def of_each(name: str, values: Sequence[float], n: int) -> list[float]:
    """The values of a parameter that has one for each of n clients; UsageError for another number of them."""
    if len(values) != n:
        raise UsageError(f"{name} needs {n:,} values, one for each client, and has {len(values):,}.")
    return [float(value) for value in values]


def bernoulli(p: float, rows: int, generator: np.random.Generator) -> Tensor:
    """int64 [rows], 1 with probability p."""
    import torch

    return torch.from_numpy((generator.random(rows) < p).astype(np.int64))


def colour(images: Tensor, channel: Tensor, channels: int) -> Tensor:
    """uint8 [M, H, W] to [M, channels, H, W]: each image in its channel [M], the others 0."""
    import torch

    x = torch.zeros(len(images), channels, *images.shape[1:], dtype=torch.uint8)
    x[torch.arange(len(images)), channel] = images
    return x


def check_binomial(what: str, hits: int, rows: int, p: float) -> None:
    """FedreproError unless a share is near enough to p.

    Within five standard deviations and, since the binomial of a small client has long tails, five rows more.
    """
    slack = 5 * math.sqrt(rows * p * (1 - p)) + 5 if 0 < p < 1 else 0
    if abs(hits - rows * p) > slack:
        raise FedreproError(
            f"the {what} of a client is {hits / rows:.4f} where {p:g} was asked for: "
            "this is a mistake in fedrepro, please report it."
        )


def counted(y: Tensor) -> dict:
    """Rows and label counts, in one line each of a record: {"rows": 5, "labels": "3: 2, 7: 3"}."""
    counts = y.bincount().tolist()
    return {"rows": len(y), "labels": ", ".join(f"{label}: {count}" for label, count in enumerate(counts) if count)}
