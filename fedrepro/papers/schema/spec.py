"""A whole paper.toml, and the check that whatever it mentions exists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from pydantic import ConfigDict, ValidationInfo, field_validator, model_validator
from typing_extensions import TypedDict

from fedrepro.errors import unknown
from fedrepro.papers.schema.cells import AxisValue, Choice, Point, matches, remember
from fedrepro.papers.schema.claims import Claim
from fedrepro.papers.schema.figures import Figure, Sheet, Surfaces
from fedrepro.papers.schema.tables import Read, Table, Tolerance
from fedrepro.records.config import Name, Strict

PAPER = "paper"  # the budget on which all others build


class Settings(TypedDict, total=False):
    """Merged over the axes of a cell, then read as a run's configuration, which has further keys."""

    __pydantic_config__ = ConfigDict(extra="allow")
    run: str
    stop: dict[str, Any]
    search: dict[str, Any]
    hyper: dict[str, Any]
    data: dict[str, Any]


class Rule(Strict):
    """Settings for the cells that `when` selects; an empty `when` selects all."""

    when: Choice = {}
    settings: Settings


class Label(Strict):
    """What a reader is told of a budget. `compare` false: its numbers are never compared with published ones."""

    label: str
    compare: bool = True


class Budget(Label):
    """The cost of a setting: rules on top of those of the budget `on`, which is the paper's own where none is named.

    `own`: what some tables, figures or `claims` say of it. `prepared`: it is still to be trained, beside the budget in
    use: its records are kept in studies/<paper>/<budget>/.
    """

    on: Name = PAPER
    prepared: bool = False
    own: dict[str, Label] = {}
    rules: tuple[Rule, ...] = ()

    def of(self, name: str) -> Label:
        """What the table or figure of that name, or `claims`, says of it."""
        return self.own.get(name, self)


class Base(Strict):
    """Whose search the cells that `when` selects use: that of the same cell with the values of `base` on its axes.

    With `hyper` it finds these hyper-parameters alone, after `search.base` has found the others.
    """

    when: Choice = {}
    base: Point = {}
    hyper: tuple[str, ...] = ()


class Shared(Strict):
    """Whose search runs use: of the first of `others` that is about a cell, else as `base` says."""

    base: Point = {}
    others: tuple[Base, ...] = ()

    def of(self, point: Point) -> Base:
        """The base of a cell."""
        return next((each for each in self.others if matches(each.when, point)), Base(base=self.base))


class Spec(Strict):
    """paper.toml. `axes`: axis -> value -> settings; the key `run` of a value is its part of the run's name.

    `reads`: of all tables (behind their own), figures and claims, for the metrics that they name. The order of the
    fields is that of validation: what a part mentions is checked against the parts above it.
    """

    title: str
    axes: dict[Name, dict[AxisValue, Settings]]
    defaults: Settings = {}
    budgets: dict[Name, Budget]
    tolerance: Tolerance | None = None
    search: Shared = Shared()
    figures: dict[Name, Figure] = {}
    sheets: dict[Name, Sheet] = {}
    surfaces: dict[Name, Surfaces] = {}
    claims: dict[Name, Claim] = {}
    tables: dict[Name, Table] = {}
    reads: tuple[Read, ...] = ()

    @field_validator("axes", "budgets", "tolerance", "tables")
    @classmethod
    def _remember(cls, part: Any, info: ValidationInfo) -> Any:
        name = {"budgets": "budget", "tables": "metric"}.get(info.field_name, info.field_name)
        remember(info, **{name: {m for table in part.values() for m in table.metrics} if name == "metric" else part})
        return part

    @model_validator(mode="after")
    def _check(self) -> Self:
        if PAPER not in self.budgets:
            raise ValueError("there is no budget 'paper', on which the others build")
        for name, budget in self.budgets.items():
            _exist(f"budgets.{name}.on", "budget", [budget.on], self.budgets)
            self.chain(name)
        names = [*self.tables, *self.figures, *self.surfaces, "claims"]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"the name {twice[0]!r} is taken twice: rename a table or a figure")
        if braces := [read.metric for read in self.reads if read.axes]:
            raise ValueError(f"reads: {braces[0]!r} has an axis in braces, which only a table's own may")
        for name, budget in self.budgets.items():
            _exist(f"budgets.{name}.own", "table or figure", budget.own, names)
        for name, table in self.tables.items():
            _exist(f"tables.{name}.instead", "table", (each.table for each in table.instead), self.tables)
        for kind in ("sheets", "figures", "claims"):
            for name, part in getattr(self, kind).items():
                _exist(f"{kind}.{name}", "budget", part.budgets, self.budgets)
        return self

    def chain(self, budget: str) -> list[str]:
        """The budgets whose rules make up one, the paper's own first; ValueError where they go round in a circle."""
        names = [budget]
        while names[-1] != PAPER:
            names.append(self.budgets[names[-1]].on)
            if names.count(names[-1]) > 1:
                raise ValueError(f"budgets.{budget}.on: {names[-1]!r} builds on itself: let one build on 'paper'")
        return names[::-1]


def _exist(place: str, kind: str, mentioned: Iterable[str], there: Iterable[str]) -> None:
    """Raise ValueError where a name is mentioned that there is not."""
    if absent := [name for name in mentioned if name not in there]:
        raise ValueError(f"{place}: {unknown(kind, absent[0], there)}")
