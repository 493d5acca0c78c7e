"""Cells: where a table or a figure has a number, and what is said about some of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from fedrepro.errors import short, unknown
from fedrepro.records.config import Distinct, Strict

MOST = 10_000  # points of any product
FIXED = ("dataset", "method")  # axes of every table; the others make up the column `variant`


def values(wanted: str | tuple[str, ...]) -> tuple[str, ...]:
    """The value or values of an axis that are meant."""
    return (wanted,) if isinstance(wanted, str) else wanted


def remember(info: ValidationInfo, **facts: Iterable[str]) -> None:
    """Keep what there is for the checks of the parts that are validated after it."""
    if info.context is not None:
        info.context.update(facts)


def known(*facts: str) -> AfterValidator:
    """A check that axes, or also some other facts, have the values that are mentioned: those that are remembered."""

    def check(named: Any, info: ValidationInfo) -> Any:
        there = info.context or {}
        known = there.get("axes", {}) | {fact: there[fact] for fact in facts if fact in there}
        wanted = named if isinstance(named, dict) else dict.fromkeys(values(named), ())
        for axis in wanted if known else ():
            if axis not in known:
                raise ValueError(str(unknown("axis", axis, known)))
            if absent := [value for value in values(wanted[axis]) if value not in known[axis]]:
                raise ValueError(str(unknown(axis, absent[0], known[axis])))
        return named

    return AfterValidator(check)


def _axis_value(text: str) -> str:
    if not text.isprintable() or not text.strip() or {*";="} & {*text}:
        raise ValueError(f"{short(repr(text))} is no value of an axis: take a word or more, without `;` and `=`")
    return text


AxisValue = Annotated[str, AfterValidator(_axis_value)]  # as published.csv has it in the column `variant`
Axes = Annotated[str | tuple[str, ...], known()]
Point = Annotated[dict[str, str], known()]  # axis -> value: where a cell stands
# Axes, whose product is meant (first axis slowest).
Block = Annotated[dict[str, Annotated[tuple[str, ...], Distinct]], known()]
Cells = tuple[Block, ...]
Choice = Annotated[dict[str, str | tuple[str, ...]], known()]  # axis -> the value or values that are meant
When = Annotated[dict[str, str | tuple[str, ...]], known("metric", "budget")]


class Remark(Strict):
    """A reason for the cells that `when` selects, or for all: how they are read, why they deviate or are not run."""

    when: When = {}
    reason: str = Field(min_length=1)


class Kinded(Strict):
    """A part whose `kind` says which of its keys it needs, and in brackets those that it may have: KEYS."""

    KEYS: ClassVar[dict[str, str]]
    kind: str

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.kind not in self.KEYS:
            raise ValueError(str(unknown("kind", self.kind, self.KEYS)))
        own, given = self.KEYS[self.kind].split(), self.model_fields_set
        others = {key.strip("[]") for keys in self.KEYS.values() for key in keys.split()} - {k.strip("[]") for k in own}
        if strange := sorted(others & given):
            raise ValueError(f"{self.kind} has no `{strange[0]}`: leave it out")
        if lacking := [key for key in own if key[0] != "[" and key not in given]:
            raise ValueError(f"{self.kind} needs `{lacking[0]}`")
        return self


def points(cells: Cells, grid: Block | None = None) -> list[Point]:
    """Where the cells stand, block after block, at each point of a grid."""
    extras = product(grid or {})
    return [point | extra for block in cells for point in product(block) for extra in extras]


def few(count: int, what: str) -> None:
    """Raise ValueError for a product that nobody would print or train."""
    if count > MOST:
        raise ValueError(f"there are {count:,} {what}, and may be {MOST:,}: leave values out")


def product(block: Mapping[str, Sequence[str]]) -> list[Point]:
    """The points of a block, the first axis slowest; ValueError where there are more than anybody would print."""
    few(math.prod(map(len, block.values())), "cells of a block")
    return [dict(zip(block, values, strict=True)) for values in itertools.product(*block.values())]


def repeated(cells: Iterable[Point]) -> Point | None:
    """A cell that is there again, if one is."""
    seen = set()
    return next((each for each in cells if (key := frozenset(each.items())) in seen or seen.add(key)), None)


def words(cell: Point) -> str:
    """A cell, or some of its axes, for a reader: dataset and method by their names alone."""
    return ", ".join(value if axis in FIXED else f"{axis.replace('_', ' ')} {value}" for axis, value in cell.items())


def place(cell: Point, axes: str | tuple[str, ...]) -> str:
    """Where a cell stands on some axes, for a reader."""
    return " × ".join(cell[axis] for axis in values(axes))


def facts(cell: Any) -> dict[str, str]:
    """The axes and the metric of a `Cell`, or of a row of the frame `cells` or of published.csv."""
    axes = dict(pair.split("=", 1) for pair in cell.variant.split(";") if pair)
    return axes | {"dataset": cell.dataset, "method": cell.method, "metric": cell.metric}


def matches(when: When, facts: Mapping[str, str]) -> bool:
    """Whether each key of `when` has in `facts` the value, or one of the values, that it asks for."""
    return all(facts.get(key) in values(wanted) for key, wanted in when.items())


def remark_on(remarks: Iterable[Any], facts: Mapping[str, str]) -> Any:
    """The first of some remarks, or readings, that is about the cell described by `facts`; None without one."""
    return next((remark for remark in remarks if matches(remark.when, facts)), None)


def needs(cells: Cells, axes: Iterable[str]) -> None:
    """Raise ValueError where a block of cells lacks one of these axes."""
    if absent := [axis for block in cells for axis in axes if axis not in block]:
        raise ValueError(f"a block of cells has no axis {absent[0]!r}")


def once(cells: Iterable[Choice], others: Choice, name: str, where: str = "`cells`") -> None:
    """Raise ValueError where an axis of `others`, which is called `name`, is one of the cells, too."""
    if twice := [axis for axis in others if any(axis in block for block in cells)]:
        raise ValueError(f"axis {twice[0]!r} is in {name} and again in {where}")
