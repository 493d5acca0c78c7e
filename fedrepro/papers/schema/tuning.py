"""Pilots and searches: how a value that the spec leaves open is found, and what has been found."""

from __future__ import annotations

import itertools
import json
import math
from typing import Annotated, ClassVar, Self

from pydantic import ConfigDict, Field, model_validator

from fedrepro.files import sha256
from fedrepro.papers.schema.cells import Kinded, few
from fedrepro.records.config import Count, Name, RunConfig, SeedNumber, Stop, Strict, Value

Fraction = Annotated[float, Field(ge=0, le=1)]
OPEN = "search"  # in place of a hyper-parameter that a search has still to find


class Tuned(Kinded):
    """An entry of tuned.json: what a pilot or a search found; its other keys are for the reader."""

    model_config = ConfigDict(extra="ignore")
    KEYS: ClassVar[dict[str, str]] = {"pilot": "threshold hi", "search": "chosen"}
    threshold: Fraction = 0
    hi: Fraction = 1
    chosen: dict[str, int | float] = {}
    config_digest: str = Field(pattern="^[0-9a-f]{64}$")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.hi < self.threshold:
            raise ValueError(f"hi {self.hi} is below threshold {self.threshold}")
        return self


class Pilot(Strict):
    """How a run's stopping threshold is found (papers/flgames-2022/PROTOCOL.md), and the rest of its stopping rule.

    `rounds` without stopping on `seed`, which no table reports; lo and hi are the `quantiles` of the training accuracy
    after the warm start, looked at every `every` rounds; the threshold is lo + fraction (hi - lo).
    `rule` is the stopping rule with its threshold still open, and with the largest margin.
    """

    kind: ClassVar[str] = "pilot"
    seed: SeedNumber
    rounds: Count
    every: Count = 1
    quantiles: tuple[Fraction, Fraction]
    fraction: Fraction
    rule: Stop
    name: ClassVar[None] = None  # a run has one pilot

    @model_validator(mode="after")
    def _long_enough(self) -> Self:
        if self.rounds <= self.rule.warm_start:
            raise ValueError(f"rounds must be more than the {self.rule.warm_start} of warm_start, which it leaves out")
        return self

    def open(self, config: RunConfig) -> list[str]:
        """What is still to be found for a run, in words."""
        return ["stopping threshold"]

    def points(self, config: RunConfig) -> dict[str, RunConfig]:
        """The pilot of a run, under the name "": the run with other seed, rounds and watch, and without stopping."""
        watch = config.watch.model_copy(update={"train_every": self.every, "test_every": self.rounds})
        return {"": config.model_copy(update={"seeds": (self.seed,), "rounds": self.rounds, "watch": watch})}

    def digest(self, config: RunConfig) -> str:
        """sha256 of the pilot's settings."""
        return self.points(config)[""].digest()

    def settled(self, config: RunConfig, found: Tuned) -> RunConfig:
        """A run with the stopping rule and the threshold found.

        The margin is at most half of the way to hi, so that it can be armed where the accuracies lie close together.
        """
        margin = min(self.rule.margin, round((found.hi - found.threshold) / 2, 4))
        stop = self.rule.model_copy(update={"threshold": found.threshold, "margin": margin})
        return config.model_copy(update={"stop": stop})


class Search(Strict):
    """How the hyper-parameters that say "search" are found: the best point of their `grid`, on data of its own.

    A point trains for `rounds` rounds on `seed`, which no table reports, with `data` over the run's own parameters. It
    is scored by the mean of `metric` over its `last` watched rounds. With `halvings` all points train for a part of the
    rounds first, a half with each of them less, and every time the better half goes on, from the start. With `fall` a
    point is out that had a client's update rejected, or whose metric falls by more than that below its best.
    `name`: what tells it from other searches of the same run.
    """

    kind: ClassVar[str] = "search"
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

    def open(self, config: RunConfig) -> list[str]:
        """The hyper-parameters of a run that are still to be found."""
        return unset(config)

    def stages(self, config: RunConfig) -> list[dict[str, RunConfig]]:
        """The points of the grid as runs, for the rounds of each stage, in the order in which ties are broken.

        They do not stop, and have data of their own. Those of the last stage are named by their values alone.
        """
        keys, found = unset(config), []
        whole = {"seeds": (self.seed,), "data": config.data | self.data, "stop": None}
        tried = [dict(zip(keys, values, strict=True)) for values in itertools.product(*(self.grid[k] for k in keys))]
        for halved in reversed(range(self.halvings + 1)):
            rounds = self.rounds >> halved
            named = {"-".join(f"{key}-{value}" for key, value in point.items()): point for point in tried}
            settings = {name: {"rounds": rounds, "hyper": config.hyper | point} for name, point in named.items()}
            end = f"-rounds-{rounds}" * bool(halved)
            found.append({name + end: config.model_copy(update=whole | own) for name, own in settings.items()})
        return found

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


def unset(config: RunConfig) -> list[str]:
    """The hyper-parameters that a search has still to find."""
    return [key for key, value in config.hyper.items() if value == OPEN]
