"""A cell as a run: its name, the settings that its axes and a budget add up to, and what pilots and searches found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

from fedrepro import drafts
from fedrepro.config import RunConfig
from fedrepro.drafts import Draft
from fedrepro.errors import UsageError
from fedrepro.schema import FIXED, Chosen, Found, Point, Spec, matches


def run_name(spec: Spec, point: Point) -> str:
    """The name of the run of a cell: what the values of its axes add to it, dataset and method first."""
    return "-".join(filter(None, (_part(spec, axis, point) for axis in _ordered(point))))


def settings(spec: Spec, point: Point, budget: str) -> dict[str, Any]:
    """Merge defaults, the values of the axes, the rules of the budget `paper` and those of the budget in use."""
    values = [spec.axes[axis][point[axis]] for axis in _ordered(point)]
    budgets = [spec.budgets[name] for name in dict.fromkeys(("paper", budget))]
    rules = [rule.settings for each in budgets for rule in each.rules if matches(rule.when, point)]
    return reduce(_merge, [*values, *rules], spec.defaults)


def draft(spec: Spec, point: Point, budget: str, file: Path) -> Draft:
    """The run of a cell before its pilot or search. Raises UsageError, naming `file`, where its settings are wrong."""
    drawn, _ = _bare(spec, point, budget, file)
    if not drawn.open:
        return drawn
    base = point | {axis: value for axis, value in spec.search.base.items() if axis in point}
    run, (first, merged) = run_name(spec, base), _bare(spec, base, budget, file)
    if strange := [key for key in drawn.open if key not in first.open]:
        where = _where(spec, point, file)
        raise UsageError(f"{where}: its search is that of {run}, which does not search {strange[0]!r}.")
    return replace(drawn, search=drafts.search(run, first, merged, _where(spec, base, file)))


def searched(paper: str, run: str, draft: Draft, searches: Mapping[str, Chosen]) -> RunConfig:
    """The run with what its search chose. Raises UsageError where that is missing, or had other settings."""
    search, keys = draft.search, " and ".join(draft.open)
    command = f"`fedrepro search --paper {paper} --run {search.run}`"
    if search.run not in searches:
        raise UsageError(f"run {run!r} of {paper} has no {keys} yet: find it with {command}.")
    if searches[search.run].config_digest != search.digest():
        raise UsageError(f"the search of run {run!r} of {paper} had other settings: repeat it with {command}.")
    return draft.config.model_copy(update={"hyper": draft.config.hyper | chosen(draft, searches)})


def chosen(draft: Draft, searches: Mapping[str, Chosen]) -> dict[str, int | float]:
    """What a search chose for a run; empty where there was none to make, or it is still to be made."""
    found = searches.get(draft.search.run) if draft.search else None
    return {key: value for key, value in found.chosen.items() if key in draft.open} if found else {}


def piloted(paper: str, run: str, draft: Draft, pilots: Mapping[str, Found]) -> RunConfig:
    """The run with the threshold that its pilot found. Raises UsageError where that is missing or stale."""
    command = f"`fedrepro pilot --paper {paper} --run {run}`"
    if run not in pilots:
        raise UsageError(f"run {run!r} of {paper} has no stopping threshold yet: find it with {command}.")
    found = pilots[run]
    if found.config_digest != draft.pilot_config().digest():
        raise UsageError(f"the pilot of run {run!r} of {paper} had other settings: repeat it with {command}.")
    return draft.config.model_copy(update={"stop": draft.pilot.stop(found)})


def _part(spec: Spec, axis: str, point: Point) -> str:
    """What a value of an axis adds to the names of runs."""
    return _slug(spec.axes[axis][point[axis]].get("run", point[axis]))


def _bare(spec: Spec, point: Point, budget: str, file: Path) -> tuple[Draft, dict[str, Any]]:
    """A cell's draft without its search, and the settings behind it."""
    merged = settings(spec, point, budget)
    parts = (_part(spec, "dataset", point), _slug(merged.get("group", "")))
    return drafts.draft("-".join(filter(None, parts)), merged, _where(spec, point, file)), merged


def _where(spec: Spec, point: Point, file: Path) -> str:
    return f"{file}: {run_name(spec, point)}"


def _ordered(point: Point) -> list[str]:
    """The axes in the order in which they merge and make up the run's name."""
    return [axis for axis in dict.fromkeys((*FIXED, *point)) if axis in point]


@cache
def _slug(value: str) -> str:
    """A value as part of a run's name: the name of a DVC stage takes letters, digits and dashes."""
    return "-".join(re.findall(r"[a-z0-9]+", value.lower()))


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables merge key by key, everything else is replaced."""
    nested = {key for key, value in above.items() if isinstance(value, dict) and isinstance(below.get(key), dict)}
    return {**below, **above, **{key: _merge(below[key], above[key]) for key in nested}}
