"""Quantities: what figures and claims read off a seed's record and curves."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedrepro.papers.schema.cells import Kinded, Point
from fedrepro.records.config import Count, Strict


class Share(Strict):
    """A level: `share` of the mean over the last `rounds` rounds of another cell, of the same seed.

    That cell is the measured one with the values of `of` on these axes.
    """

    share: float = Field(gt=0)
    rounds: Count
    of: Point


class Quantity(Kinded):
    """A number of a seed. Of `metric` by its kind, in percent or points of it for accuracies:

    final: at the end of training; gap: there, less the metric `less` of the same seed.
    last: the mean over the last `rounds` rounds, each of which must have been watched.
    median: over the ends of `checkpoints` equal parts of training.
    growth: the last watched value less the first; with `by`, a share of training, the growth up to there as a share of
    the whole: a steady growth has come by half of training to a half, one that has saturated nearly to the whole.
    oscillation: how much it swings from the warm start to round `until`, within `window` rounds.
    first_round: the first watched round in which it is at least `level`.
    rounds: the number of rounds trained, until the run stopped, or its cap.
    """

    KEYS: ClassVar[dict[str, str]] = {
        **{"rounds": "", "final": "metric", "gap": "metric less", "last": "metric rounds"},
        **{"median": "metric checkpoints", "growth": "metric [by]", "oscillation": "metric window [until]"},
        "first_round": "metric level",
    }
    metric: str = ""
    less: str = ""
    rounds: Count = 1
    checkpoints: int = Field(default=1, ge=1, le=10_000)
    by: float | None = Field(default=None, gt=0, lt=1)
    window: int = Field(default=2, ge=2, le=10_000)
    until: Count | None = None
    level: float | Share = 0
