"""Searches: how a value that the spec leaves open is found, and what has been found."""

from __future__ import annotations

import itertools
import json
import math
from typing import Self

from pydantic import ConfigDict, Field, model_validator

from fedrepro.files import sha256
from fedrepro.papers.schema.cells import few
from fedrepro.records.config import Count, Name, RunConfig, SeedNumber, Strict, Value

OPEN = "search"  # in place of a hyper-parameter that a search has still to find


class Tuned(Strict):
    """An entry of tuned.json: what a search found; its other keys are for the reader."""

    model_config = ConfigDict(extra="ignore")
    chosen: dict[str, int | float]
    config_digest: str = Field(pattern="^[0-9a-f]{64}$")


class Search(Strict):
    """How the hyper-parameters that say "search" are found: the best point of their `grid`, on data of its own.

    A point trains for `rounds` rounds on `seed`, which no table reports, with `data` over the run's own parameters. It
    is scored by the mean of `metric` over its `last` watched rounds. With `halvings` all points train for a part of the
    rounds first, a half with each of them less, and every time the better half goes on. With `fall` a point is out that
    had a client's update rejected, or whose metric, as a mean of three watched rounds, falls by more than that below
    its best.
    `name`: what tells it from other searches of the same run.
    """

    seed: SeedNumber
    rounds: Count
    metric: str
    last: Count
    name: Name | None = None
    halvings: int = Field(default=0, ge=0, le=9)
    fall: float | None = Field(default=None, gt=0)
    data: dict[str, Value] = {}
    grid: dict[str, tuple[int | float, ...]]

    @model_validator(mode="after")
    def _few(self) -> Self:
        few(math.prod(map(len, self.grid.values())), "points of a grid")
        if self.rounds >> self.halvings < 1:
            raise ValueError(f"{self.rounds} rounds cannot be halved {self.halvings} times")
        return self

    def stages(self, config: RunConfig) -> list[dict[str, RunConfig]]:
        """The points of the grid as runs, for the rounds of each stage, in the order in which ties are broken.

        They do not stop, and have data of their own. Those of the last stage are named by their values alone.
        """
        keys, found = unset(config), []
        whole = {"seeds": (self.seed,), "data": config.data | self.data, "stop": None}
        tried = [dict(zip(keys, values, strict=True)) for values in itertools.product(*(self.grid[k] for k in keys))]
        for halved in reversed(range(self.halvings + 1)):
            rounds = self.rounds >> halved
            named = {point_name(point): point for point in tried}
            settings = {name: {"rounds": rounds, "hyper": config.hyper | point} for name, point in named.items()}
            end = f"-rounds-{rounds}" * bool(halved)
            found.append({name + end: config.model_copy(update=whole | own) for name, own in settings.items()})
        return found

    def counts(self, config: RunConfig) -> list[int]:
        """How many points train in each stage where none is out: all in the first, then half as many every time."""
        points = math.prod(len(self.grid[key]) for key in unset(config))
        return [math.ceil(points / 2**at) for at in range(self.halvings + 1)]

    def points(self, config: RunConfig) -> dict[str, RunConfig]:
        """The points of all stages."""
        return {name: point for stage in self.stages(config) for name, point in stage.items()}

    def digest(self, config: RunConfig) -> str:
        """sha256 of all that the choice depends on: the points in their order, and how they are scored."""
        points = [[name, point.digest()] for name, point in self.points(config).items()]
        rule = [self.metric, self.last, self.seed, *([self.fall] if self.fall else [])]
        return sha256(json.dumps([rule, points]))

    def settled(self, config: RunConfig, found: Tuned) -> RunConfig:
        """A run with the hyper-parameters chosen; those that it does not leave open stay as they are."""
        chosen = {key: value for key, value in found.chosen.items() if key in unset(config)}
        return config.model_copy(update={"hyper": config.hyper | chosen})


def point_name(chosen: dict[str, int | float]) -> str:
    """The name of a point of a search, in its last stage."""
    return "-".join(f"{key}-{value}" for key, value in chosen.items())


def unset(config: RunConfig) -> list[str]:
    """The hyper-parameters that a search has still to find."""
    return [key for key, value in config.hyper.items() if value == OPEN]
