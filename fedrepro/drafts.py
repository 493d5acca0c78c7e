"""A run before what must be found for it: its stopping threshold, by a pilot, or some hyper-parameters, by a search."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from fedrepro import schema
from fedrepro.config import RunConfig
from fedrepro.errors import UsageError
from fedrepro.schema import Pilot, first_fault

OPEN = "search"  # in place of a hyper-parameter that a search has still to find


@dataclass(frozen=True)
class Search:
    """A search: `run` is the run that it is named after, whose hyper-parameters its points vary.

    `points`: name of a point -> the hyper-parameters that it tries, in the order in which ties are broken.
    """

    run: str
    rule: schema.Search
    points: dict[str, dict[str, int | float]]
    config: RunConfig

    def configs(self) -> dict[str, RunConfig]:
        """The points of the grid as runs: without stopping, with the seed, rounds, data and values of the search."""
        data = self.config.data | self.rule.data
        whole = {"seeds": (self.rule.seed,), "rounds": self.rule.rounds, "data": data, "stop": None}
        hyper = self.config.hyper
        return {
            name: self.config.model_copy(update=whole | {"hyper": hyper | tried}) for name, tried in self.points.items()
        }

    def digest(self) -> str:
        """sha256 of all that the choice depends on: the points in their order, and how they are scored."""
        scored = [self.rule.metric, self.rule.last, self.rule.seed]
        points = [[name, config.digest()] for name, config in self.configs().items()]
        return hashlib.sha256(json.dumps([scored, points]).encode()).hexdigest()


@dataclass(frozen=True)
class Draft:
    """A run before its pilot or search: `config.stop` is None as long as `pilot` has still to find the threshold.

    With a `search`, hyper-parameters of `config` that are still to be found say OPEN. `group`: of the pipeline's files,
    the one that has the run's stage; named by its dataset.
    """

    group: str
    config: RunConfig
    pilot: Pilot | None = None
    search: Search | None = None

    @property
    def open(self) -> list[str]:
        """The hyper-parameters that are still to be found."""
        return [key for key, value in self.config.hyper.items() if value == OPEN]

    def pilot_config(self) -> RunConfig:
        """The pilot's own configuration: the same but for seed, rounds and watch, and without stopping."""
        rounds = self.pilot.rounds
        watch = self.config.watch.model_copy(update={"train_every": self.pilot.every, "test_every": rounds})
        return self.config.model_copy(update={"seeds": (self.pilot.seed,), "rounds": rounds, "watch": watch})


def draft(group: str, settings: dict[str, Any], where: str) -> Draft:
    """Merged settings as a configuration, with the pilot where the stopping rule asks for one."""
    fields = {key: value for key, value in settings.items() if key not in ("group", "pilot", "run", "search")}
    stop = settings.get("stop", {})
    try:
        if stop.get("threshold") != "pilot":
            return Draft(group, RunConfig.model_validate(fields))
        pilot = Pilot.model_validate(settings.get("pilot", {}) | {"rule": stop | {"threshold": 0}})
        return Draft(group, RunConfig.model_validate(fields | {"stop": None}), pilot)
    except ValidationError as error:
        raise UsageError(f"{where}: {first_fault(error)}") from error


def search(run: str, base: Draft, settings: dict[str, Any], where: str) -> Search:
    """The search of `run`, whose draft and merged settings these are.

    Raises UsageError where its settings are wrong, or where it cannot be made at all.
    """
    if base.pilot:
        raise UsageError(
            f"{where}: a run cannot have both a pilot and a search: give its threshold or what it searches."
        )
    try:
        rule = schema.Search.model_validate(settings.get("search", {}))
    except ValidationError as error:
        raise UsageError(f"{where}: search.{first_fault(error)}") from error
    if empty := [key for key in base.open if not rule.grid.get(key)]:
        raise UsageError(f"{where}: search.grid has no values for {empty[0]!r}.")
    grid = itertools.product(*(rule.grid[key] for key in base.open))
    tried = [dict(zip(base.open, values, strict=True)) for values in grid]
    points = {"-".join(f"{key}-{value}" for key, value in point.items()): point for point in tried}
    return Search(run, rule, points, base.config)
