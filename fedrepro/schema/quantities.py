"""Quantities: what figures and claims read off a seed's record and curves."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedrepro.config import Strict
from fedrepro.schema.cells import Point


class Final(Strict):
    """A metric of the record, so at the end of training."""

    kind: Literal["final"]
    metric: str


class Gap(Strict):
    """A metric of the record less another of the same seed, `less`: both at the end of training."""

    kind: Literal["gap"]
    metric: str
    less: str


class Last(Strict):
    """The mean of a metric over the last `rounds` rounds, each of which must have been watched."""

    kind: Literal["last"]
    metric: str
    rounds: int = Field(ge=1)


class Median(Strict):
    """The median of a metric over the ends of `checkpoints` equal parts of training."""

    kind: Literal["median"]
    metric: str
    checkpoints: int = Field(ge=1)


class Growth(Strict):
    """How much a curve has grown: its last watched value less its first, or what part of that came early.

    With `by`, a share of training: the growth up to there as a share of the whole; a steady growth has come by half of
    training to a half, one that has saturated nearly to the whole.
    """

    kind: Literal["growth"]
    metric: str
    by: float | None = Field(default=None, gt=0, lt=1)


class Rounds(Strict):
    """The number of rounds trained: until the run stopped, or its cap."""

    kind: Literal["rounds"]


class Oscillation(Strict):
    """How much a metric swings from the warm start to round `until`, within `window` rounds (`oscillation`)."""

    kind: Literal["oscillation"]
    metric: str
    window: int = Field(ge=2)
    until: int | None = Field(default=None, ge=1)


class Share(Strict):
    """A level: `share` of the mean over the last `rounds` rounds of another cell, of the same seed.

    That cell is the measured one with the values of `of` on these axes.
    """

    share: float = Field(gt=0)
    rounds: int = Field(ge=1)
    of: Point


class FirstRound(Strict):
    """The first watched round with a metric of at least `level`, in percent if it is an accuracy."""

    kind: Literal["first_round"]
    metric: str
    level: float | Share


Quantity = Annotated[
    Final | Gap | Last | Median | Growth | Rounds | Oscillation | FirstRound, Field(discriminator="kind")
]
