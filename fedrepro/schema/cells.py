"""Cells: where a table or a figure has a number, and what is said about some of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from pydantic import Field, ValidationError

from fedrepro.config import Strict

When = dict[str, str | tuple[str, ...]]  # axis (or `metric`, `budget`) -> the value or values that are meant
Block = dict[str, tuple[str, ...]]  # axes, whose product is meant (first axis slowest)
Cells = tuple[Block, ...]
Point = dict[str, str]  # axis -> value: where a cell stands
FIXED = ("dataset", "method")  # axes of every table; the others make up the column `variant`


class About(Protocol):
    """What is about the cells that its `when` selects."""

    when: When


Said = TypeVar("Said", bound=About)


class Remark(Strict):
    """A reason for the cells that `when` selects: how they are read, why they deviate, or why they were not run."""

    when: When = Field(min_length=1)
    reason: str = Field(min_length=1)


def points(cells: Cells) -> list[Point]:
    """Where the cells stand, block after block."""
    return [point for block in cells for point in product(block)]


def words(cell: Point) -> str:
    """A cell, or some of its axes, for a reader: dataset and method by their names alone."""
    return ", ".join(value if axis in FIXED else f"{axis.replace('_', ' ')} {value}" for axis, value in cell.items())


def matches(when: When, facts: Mapping[str, str]) -> bool:
    """Whether each key of `when` has in `facts` the value, or one of the values, that it asks for."""
    return all(facts.get(key) in values(wanted) for key, wanted in when.items())


def remark_on(remarks: Iterable[Said], facts: Mapping[str, str]) -> Said | None:
    """The first of some remarks, or readings, that is about the cell described by `facts`, if any."""
    return next((remark for remark in remarks if matches(remark.when, facts)), None)


def first_fault(error: ValidationError) -> str:
    """The first fault of a validation as one sentence, with its place; a key that does not exist goes before all."""
    fault = min(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    place = ".".join(map(str, fault["loc"]))
    said = (
        "there is no such key"
        if fault["type"] == "extra_forbidden"
        else fault["msg"].lower().removeprefix("value error, ")
    )
    return f"{place}: {said}." if place else f"{said}."


def values(wanted: str | tuple[str, ...]) -> tuple[str, ...]:
    """The value or values of an axis that are meant."""
    return (wanted,) if isinstance(wanted, str) else wanted


def product(block: Mapping[str, Iterable[str]]) -> list[Point]:
    """The points of a block, the first axis slowest."""
    return [dict(zip(block, values, strict=True)) for values in itertools.product(*block.values())]
