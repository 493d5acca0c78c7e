"""The format of papers/<paper>/paper.toml, and reading it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from fedrepro.config import Stop, Strict
from fedrepro.errors import UsageError, unknown

When = dict[str, str | tuple[str, ...]]  # axis (or `metric`, `budget`) -> the value or values that are meant
FIXED = ("dataset", "method")  # axes of every table; the others make up the column `variant`


class Rule(Strict):
    """Settings for the cells that `when` selects; an empty `when` selects all."""

    when: When = {}
    settings: dict[str, Any]


class Budget(Strict):
    """What a setting costs: rules on top of the paper's own. `compare` false: never compared with published numbers."""

    label: str
    compare: bool = True
    rules: tuple[Rule, ...] = ()


class Tolerance(Strict):
    """How far a number may be from the published one, set with its reason before the result is known."""

    spreads: float = Field(ge=0)
    points: float = Field(ge=0)
    reason: str = Field(min_length=1)

    def limit(self, spread: float) -> float:
        """The largest difference allowed, in the published unit: the larger of `spreads` spreads and `points`."""
        return max(self.spreads * spread, self.points)


class Remark(Strict):
    """A reason for the cells that `when` selects: how they are read, why they deviate, or why they were not run."""

    when: When = Field(min_length=1)
    reason: str = Field(min_length=1)


class Table(Strict):
    """One table: blocks of cells, each the product of its axes (first axis slowest), once for every metric.

    `readings` say how we read the paper where it is ambiguous: footnotes of the rows that they are about.
    """

    title: str
    metrics: tuple[str, ...] = Field(min_length=1)
    reduction: str
    tolerance: Tolerance
    cells: tuple[dict[str, tuple[str, ...]], ...]
    readings: tuple[Remark, ...] = ()
    deviations: tuple[Remark, ...] = ()
    not_run: tuple[Remark, ...] = ()


class Spec(Strict):
    """paper.toml. `axes`: axis -> value -> settings; the key `run` of a value is its part of the run's name."""

    title: str
    defaults: dict[str, Any] = {}
    axes: dict[str, dict[str, dict[str, Any]]]
    budgets: dict[str, Budget]
    tables: dict[str, Table]


class Pilot(Strict):
    """How a run's stopping threshold is found (protocols-1, 1.5), and the rest of its stopping rule.

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

    def stop(self, found: Found) -> Stop:
        """The rule with the threshold that the pilot found.

        Its margin is at most half of the way to hi, so that it can be armed where the accuracies lie close together.
        """
        margin = min(self.rule.margin, round((found.hi - found.threshold) / 2, 4))
        return self.rule.model_copy(update={"threshold": found.threshold, "margin": margin})


class Found(BaseModel):
    """What spec.py needs of a pilot's entry in pilots.json; the rest of the entry is there for the reader."""

    threshold: float = Field(ge=0, le=1)
    hi: float = Field(ge=0, le=1)
    config_digest: str


def read(path: Path) -> Spec:
    """A spec, checked: every axis, value, metric and budget that it mentions exists.

    Raises UsageError with file and place for anything that is not as `Spec` says.
    """
    try:
        spec = Spec.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}.") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {first_fault(error)}") from error
    _check_tables(spec, path)
    if "paper" not in spec.budgets:
        raise UsageError(f"{path}: there is no budget 'paper', on which the others build.")
    for name, budget in spec.budgets.items():
        for rule in budget.rules:
            _check_when(rule.when, spec.axes, f"{path}: budgets.{name}")
    return spec


def matches(when: When, facts: Mapping[str, str]) -> bool:
    """Whether each key of `when` has in `facts` the value, or one of the values, that it asks for."""
    return all(facts.get(key) in _values(wanted) for key, wanted in when.items())


def remark_on(remarks: Iterable[Remark], facts: Mapping[str, str]) -> Remark | None:
    """The first remark that is about the cell described by `facts`, if any."""
    return next((remark for remark in remarks if matches(remark.when, facts)), None)


def first_fault(error: ValidationError) -> str:
    """The first fault of a validation as one sentence, with its place; a key that does not exist goes before all."""
    fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        return f"{place}: there is no such key."
    return f"{place}: {fault['msg'].lower()}."


def _check_tables(spec: Spec, path: Path) -> None:
    for name, table in spec.tables.items():
        where = f"{path}: tables.{name}"
        for block in table.cells:
            _check_when(block, spec.axes, where)
            if absent := [axis for axis in FIXED if axis not in block]:
                raise UsageError(f"{where}: a block of cells has no axis {absent[0]!r}.")
        facts = {**spec.axes, "metric": table.metrics, "budget": spec.budgets}
        for remark in (*table.readings, *table.deviations, *table.not_run):
            _check_when(remark.when, facts, where)


def _check_when(when: When, axes: Mapping[str, Iterable[str]], where: str) -> None:
    for axis, wanted in when.items():
        if axis not in axes:
            raise UsageError(f"{where}: {unknown('axis', axis, axes)}")
        for value in _values(wanted):
            if value not in axes[axis]:
                raise UsageError(f"{where}: {unknown(axis, value, axes[axis])}")


def _values(wanted: str | tuple[str, ...]) -> tuple[str, ...]:
    return (wanted,) if isinstance(wanted, str) else wanted
