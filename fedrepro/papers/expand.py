"""A cell as a run: its name, its configuration, and the study that finds what the spec leaves open of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import pairwise
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fedrepro.errors import UsageError
from fedrepro.papers.schema.cells import FIXED, Point, matches, words
from fedrepro.papers.schema.spec import Spec
from fedrepro.papers.schema.tuning import Search, Tuned, unset
from fedrepro.records.config import RunConfig, first_fault, named, strictly

Read = TypeVar("Read", bound=BaseModel)


@dataclass(frozen=True)
class Study:
    """A search by the run that it is named after; `config` is that run before it. Several runs may share a search."""

    run: str
    rule: Search
    config: RunConfig

    @property
    def name(self) -> str:
        """Its name in tuned.json and studies/."""
        return "-".join(filter(None, (self.run, self.rule.name)))

    @property
    def points(self) -> dict[str, RunConfig]:
        """The points of the search, which are trained, by their names."""
        return self.rule.points(self.config)

    def longer(self, point: str) -> str | None:
        """The point of the next stage with the values of this one; None of one of the last stage."""
        stages = pairwise(map(list, self.rule.stages(self.config)))
        return next((after[before.index(point)] for before, after in stages if point in before), None)

    def digest(self) -> str:
        """sha256 of everything that the result depends on."""
        return self.rule.digest(self.config)


@dataclass(frozen=True)
class Draft:
    """A run before its study: with OPEN hyper-parameters where it needs one."""

    config: RunConfig
    study: Study | None = None


def run_name(spec: Spec, point: Point) -> str:
    """The name of the run of a cell: what the values of its axes add to it, dataset and method first."""
    names = (value.get("run", point[axis]) for axis, value in _values(spec, point))
    return "-".join(filter(None, map(_slug, names)))


def settings(spec: Spec, point: Point, budget: str) -> dict[str, Any]:
    """Merge defaults, the values of the axes, and the rules of the budgets that make up the one in use."""
    values = [value for _, value in _values(spec, point)]
    budgets = [spec.budgets[name] for name in spec.chain(budget)]
    rules = [rule.settings for each in budgets for rule in each.rules if matches(rule.when, point)]
    return reduce(_merge, [*values, *rules], spec.defaults)


def draft(spec: Spec, point: Point, budget: str, tuned: Mapping[str, Tuned]) -> Draft:
    """The run of a cell before its study, or before the second of two, where the first has been made.

    Raises UsageError, naming the run, where its settings are wrong.
    """
    run, config = run_name(spec, point), _config(spec, point, budget)
    if not unset(config):
        return Draft(config)
    said = spec.search.of(point)
    if said.hyper:
        return _second(spec, point, budget, tuned)
    study = _search(spec, _on(said.base, point), budget)
    if strange := [key for key in unset(config) if key not in unset(study.config)]:
        raise UsageError(f"{run}: its search is that of {study.run}, which does not search {strange[0]!r}.")
    return Draft(config, study)


def _second(spec: Spec, point: Point, budget: str, tuned: Mapping[str, Tuned]) -> Draft:
    """The run of a cell of which some hyper-parameters are searched once the usual search has found the others."""
    config, said = _config(spec, point, budget), spec.search.of(point)
    if strange := [key for key in said.hyper if key not in unset(config)]:
        raise UsageError(f"{run_name(spec, point)}: its second search is of {strange[0]!r}, which is not open.")
    first, own = _search(spec, _on(spec.search.base, point), budget), _search(spec, _on(said.base, point), budget)
    found = tuned.get(first.name)
    if found is None or found.config_digest != first.digest():
        return Draft(config, first)
    found = found.model_copy(update={"chosen": {k: v for k, v in found.chosen.items() if k not in said.hyper}})
    return Draft(own.rule.settled(config, found), replace(own, config=own.rule.settled(own.config, found)))


def _on(base: Point, point: Point) -> Point:
    """A cell with the values of `base` on the axes that it has."""
    return point | {axis: value for axis, value in base.items() if axis in point}


def settled(paper: str, run: str, draft: Draft, tuned: Mapping[str, Tuned], budget: str | None = None) -> RunConfig:
    """The run with what its study found. Raises UsageError where that is missing, or had other settings.

    `budget`: that which the remedy must name.
    """
    if draft.study is None:
        return draft.config
    study, rule = draft.study, draft.study.rule
    found, command = tuned.get(study.name), f"`{tuning(paper, study, budget)}`"
    if found is None:
        what = " and ".join(unset(draft.config))
        raise UsageError(f"run {run!r} of {paper} has no {what} yet: find it with {command}.")
    if found.config_digest != study.digest():
        raise UsageError(f"the search of run {run!r} of {paper} had other settings: repeat it with {command}.")
    config = rule.settled(draft.config, found)
    if lacking := unset(config):
        fault = f"tuned.json of {paper} has no {lacking[0]} for {study.name}, which run {run!r} needs"
        raise UsageError(f"{fault}: repeat the search with {command}.")
    return config


def tuning(paper: str, study: Study, budget: str | None) -> str:
    """The command that makes a study."""
    return f"fedrepro tune --paper {paper} --run {study.run}{at(budget)}"


def at(budget: str | None) -> str:
    """The option of a command for a budget that is not the one in use."""
    return f" --budget {budget}" if budget else ""


def _config(spec: Spec, point: Point, budget: str) -> RunConfig:
    """The settings of a cell as a configuration."""
    run, merged = run_name(spec, point), settings(spec, point, budget)
    try:
        named(run)
    except ValueError as error:
        raise UsageError(f"the run of the cell {words(point)}: {error}; `run` of an axis's values gives it.") from error
    return _model(RunConfig, {key: value for key, value in merged.items() if key not in ("run", "search")}, run)


def _search(spec: Spec, base: Point, budget: str) -> Study:
    """The search that is named after the run of a cell."""
    run, config = run_name(spec, base), _config(spec, base, budget)
    rule = _model(Search, settings(spec, base, budget).get("search", {}), run, "search.")
    if empty := [key for key in unset(config) if not rule.grid.get(key)]:
        raise UsageError(f"{run}: search.grid has no values for {empty[0]!r}.")
    return Study(run, rule, config)


def _model(kind: type[Read], fields: dict[str, Any], run: str, place: str = "") -> Read:
    try:
        return strictly(kind, fields)
    except ValidationError as error:
        raise UsageError(f"{run}: {place}{first_fault(error)}") from error


def _values(spec: Spec, point: Point) -> list[tuple[str, dict[str, Any]]]:
    """The settings of a cell's values, in the order in which they merge and make up the run's name."""
    return [(axis, spec.axes[axis][point[axis]]) for axis in dict.fromkeys((*FIXED, *point)) if axis in point]


@cache
def _slug(value: str) -> str:
    """A value as part of a run's name: the name of a folder takes letters, digits and dashes."""
    return "-".join(re.findall(r"[a-z0-9]+", value.lower()))


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables merge key by key, everything else is replaced."""
    nested = {key for key, value in above.items() if isinstance(value, dict) and isinstance(below.get(key), dict)}
    return {**below, **above, **{key: _merge(below[key], above[key]) for key in nested}}
