"""Pilots and searches: how what is left open in a spec is found, and what has been found."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, model_validator

from fedrepro.config import Stop, Strict, Value


class Pilot(Strict):
    """How a run's stopping threshold is found (docs/protocol-flgames-2022.md), and the rest of its stopping rule.

    `rounds` without stopping on `seed`, which no table reports; lo and hi are the `quantiles` of the training accuracy
    after the warm start, looked at every `every` rounds; the threshold is lo + fraction (hi - lo).
    `rule` is the stopping rule with its threshold still open, and with the largest margin.
    """

    seed: int
    rounds: int = Field(ge=1)
    every: int = Field(default=1, ge=1)
    quantiles: tuple[float, float]
    fraction: float = Field(ge=0, le=1)
    rule: Stop

    @model_validator(mode="after")
    def _long_enough(self) -> Self:
        if self.rounds <= self.rule.warm_start:
            raise ValueError(f"rounds must be more than the {self.rule.warm_start} of warm_start, which it leaves out")
        return self

    def stop(self, found: Found) -> Stop:
        """The rule with the threshold that the pilot found.

        Its margin is at most half of the way to hi, so that it can be armed where the accuracies lie close together.
        """
        margin = min(self.rule.margin, round((found.hi - found.threshold) / 2, 4))
        return self.rule.model_copy(update={"threshold": found.threshold, "margin": margin})


class Search(Strict):
    """How the hyper-parameters that say "search" are found: the best point of their `grid`, on data of its own.

    A point trains for `rounds` rounds on `seed`, which no table reports, with `data` over the run's own parameters. It
    is scored by the mean of `metric` over its `last` watched rounds.
    """

    seed: int
    rounds: int = Field(ge=1)
    metric: str
    last: int = Field(ge=1)
    data: dict[str, Value] = {}
    grid: dict[str, tuple[int | float, ...]]


class Found(BaseModel):
    """What expand.py needs of a pilot's entry in pilots.json; the rest of the entry is there for the reader."""

    threshold: float = Field(ge=0, le=1)
    hi: float = Field(ge=0, le=1)
    config_digest: str


class Chosen(BaseModel):
    """What expand.py needs of a search's entry in searches.json; the rest of the entry is there for the reader."""

    chosen: dict[str, int | float]
    config_digest: str
