"""The format of papers/<paper>/paper.toml, and reading it."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError, model_validator

from fedrepro.config import Stop, Strict
from fedrepro.errors import UsageError, unknown

When = dict[str, str | tuple[str, ...]]  # axis (or `metric`, `budget`) -> the value or values that are meant
Cells = tuple[dict[str, tuple[str, ...]], ...]  # blocks of axes, each the product of its values (first axis slowest)
Point = dict[str, str]  # axis -> value: where a cell stands
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


class Instead(Remark):
    """Cells that are compared with the number of the same dataset, method and metric in another `table`, and why."""

    table: str


class Table(Strict):
    """One table: its cells, once for every metric.

    `readings` say how we read the paper where it is ambiguous: footnotes of the rows that they are about. `tolerance`
    is the paper's where a table has none of its own.
    """

    title: str
    metrics: tuple[str, ...] = Field(min_length=1)
    reduction: str
    tolerance: Tolerance
    cells: Cells
    readings: tuple[Remark, ...] = ()
    instead: tuple[Instead, ...] = ()
    deviations: tuple[Remark, ...] = ()
    not_run: tuple[Remark, ...] = ()


class Spot(NamedTuple):
    """Where a figure shows a cell: the name of its line and, where a cell is one point of it, its place `x`."""

    line: str
    x: str
    cell: Point


class Curves(Strict):
    """Curves over rounds: a panel for each of `metrics` (of curves.csv), a line for each cell, up to round `until`.

    `not_run` says why there is no such figure yet.
    """

    kind: Literal["curves"]
    title: str
    metrics: tuple[str, ...] = Field(min_length=1)
    until: int | None = Field(default=None, ge=1)
    cells: Cells = Field(min_length=1)
    not_run: str = ""

    def spots(self) -> list[Spot]:
        """A line is named by its method and by whatever else distinguishes it from another line."""
        cells = points(self.cells)
        axes = dict.fromkeys(axis for cell in cells for axis in cell)
        telling = ["method", *(a for a in axes if a != "method" and len({cell.get(a) for cell in cells}) > 1)]
        return [Spot(words({axis: cell[axis] for axis in telling if axis in cell}), "", cell) for cell in cells]


class Levels(Strict):
    """The number of rounds trained, over the values of axis `x` in their order; a line for each value of `lines`.

    `not_run` says why there is no such figure yet.
    """

    kind: Literal["levels"]
    title: str
    x: str
    lines: str
    cells: Cells = Field(min_length=1)
    not_run: str = ""

    def spots(self) -> list[Spot]:
        """Line after line, each in the order of its cells."""
        cells = points(self.cells)
        lines = dict.fromkeys(cell[self.lines] for cell in cells)
        return [Spot(line, cell[self.x], cell) for line in lines for cell in cells if cell[self.lines] == line]


Figure = Annotated[Curves | Levels, Field(discriminator="kind")]


class Sheet(Strict):
    """A sample sheet: what the data of `cell` (any axes, the dataset among them) look like to each client."""

    title: str
    cell: Point


class Final(Strict):
    """A metric of the record, so at the end of training."""

    kind: Literal["final"]
    metric: str


class Rounds(Strict):
    """The number of rounds trained: until the run stopped, or its cap."""

    kind: Literal["rounds"]


class Oscillation(Strict):
    """How much a metric swings from the warm start to round `until`, within `window` rounds: see claims.oscillation."""

    kind: Literal["oscillation"]
    metric: str
    window: int = Field(ge=2)
    until: int | None = Field(default=None, ge=1)


class FirstRound(Strict):
    """The first watched round with a metric of at least `level`, in percent if it is an accuracy."""

    kind: Literal["first_round"]
    metric: str
    level: float


Quantity = Annotated[Final | Rounds | Oscillation | FirstRound, Field(discriminator="kind")]


class Pairs(Strict):
    """Pairs of cells: each of `high` with each of `low`, for every value of the axes that `both` have in common."""

    both: When = {}
    high: When = Field(min_length=1)
    low: When = Field(min_length=1)

    def cells(self) -> list[tuple[Point, Point]]:
        """(high, low) of each pair."""
        sides = (_product({axis: _values(v) for axis, v in side.items()}) for side in (self.both, self.high, self.low))
        return [(both | high, both | low) for both, high, low in itertools.product(*sides)]


class Claim(Strict):
    """An ordering that the paper states, and where: in each pair `quantity` of high exceeds that of low by `margin`.

    `margin` has the unit of the quantity: points of percent for accuracies, rounds for rounds.
    """

    statement: str = Field(min_length=1)
    place: str = Field(min_length=1)
    quantity: Quantity
    margin: float
    pairs: tuple[Pairs, ...] = Field(min_length=1)


class Spec(Strict):
    """paper.toml. `axes`: axis -> value -> settings; the key `run` of a value is its part of the run's name."""

    title: str
    defaults: dict[str, Any] = {}
    axes: dict[str, dict[str, dict[str, Any]]]
    budgets: dict[str, Budget]
    tolerance: Tolerance | None = None
    tables: dict[str, Table]
    figures: dict[str, Figure] = {}
    sheets: dict[str, Sheet] = {}
    claims: dict[str, Claim] = {}

    @model_validator(mode="before")
    @classmethod
    def _share_tolerance(cls, data: Any) -> Any:
        shared = {"tolerance": data["tolerance"]} if "tolerance" in data else {}
        return data | {"tables": {name: shared | table for name, table in data.get("tables", {}).items()}}


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
    _check_figures(spec, path)
    _check_sheets(spec, path)
    _check_claims(spec, path)
    if "paper" not in spec.budgets:
        raise UsageError(f"{path}: there is no budget 'paper', on which the others build.")
    for name, budget in spec.budgets.items():
        for rule in budget.rules:
            _check_when(rule.when, spec.axes, f"{path}: budgets.{name}")
    return spec


def points(cells: Cells) -> list[Point]:
    """Where the cells stand, block after block."""
    return [point for block in cells for point in _product(block)]


def words(cell: Point) -> str:
    """A cell, or some of its axes, for a reader: dataset and method by their names alone."""
    return ", ".join(value if axis in FIXED else f"{axis.replace('_', ' ')} {value}" for axis, value in cell.items())


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
        _check_cells(table.cells, FIXED, spec.axes, where)
        facts = {**spec.axes, "metric": table.metrics, "budget": spec.budgets}
        for remark in (*table.readings, *table.instead, *table.deviations, *table.not_run):
            _check_when(remark.when, facts, where)
        for remark in table.instead:
            if remark.table not in spec.tables:
                raise UsageError(f"{where}: {unknown('table', remark.table, spec.tables)}")


def _check_figures(spec: Spec, path: Path) -> None:
    names = [*spec.tables, *spec.figures, "claims"]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{path}: there would be two stages 'evaluate-{twice[0]}': rename a table or a figure.")
    for name, figure in spec.figures.items():
        where = f"{path}: figures.{name}"
        own = (figure.x, figure.lines) if isinstance(figure, Levels) else ()
        for axis in own:
            _check_when({axis: ()}, spec.axes, where)
        _check_cells(figure.cells, (*FIXED, *own), spec.axes, where)
        places = [(spot.line, spot.x) for spot in figure.spots()]
        if twice := [place for place in places if places.count(place) > 1]:
            raise UsageError(f"{where}: two cells are at {', '.join(filter(None, twice[0]))!r}: leave one out.")


def _check_sheets(spec: Spec, path: Path) -> None:
    for name, sheet in spec.sheets.items():
        where = f"{path}: sheets.{name}"
        _check_when(sheet.cell, spec.axes, where)
        if "dataset" not in sheet.cell:
            raise UsageError(f"{where}: its cell has no axis 'dataset'.")


def _check_claims(spec: Spec, path: Path) -> None:
    for name, claim in spec.claims.items():
        where = f"{path}: claims.{name}"
        for pairs in claim.pairs:
            for side in (pairs.both, pairs.high, pairs.low):
                _check_when(side, spec.axes, where)
            if twice := [axis for axis in pairs.both if axis in pairs.high or axis in pairs.low]:
                raise UsageError(f"{where}: axis {twice[0]!r} is in `both` and again in `high` or `low`.")


def _check_cells(cells: Cells, needed: Iterable[str], axes: Mapping[str, Iterable[str]], where: str) -> None:
    for block in cells:
        _check_when(block, axes, where)
        if absent := [axis for axis in needed if axis not in block]:
            raise UsageError(f"{where}: a block of cells has no axis {absent[0]!r}.")


def _check_when(when: When, axes: Mapping[str, Iterable[str]], where: str) -> None:
    for axis, wanted in when.items():
        if axis not in axes:
            raise UsageError(f"{where}: {unknown('axis', axis, axes)}")
        for value in _values(wanted):
            if value not in axes[axis]:
                raise UsageError(f"{where}: {unknown(axis, value, axes[axis])}")


def _values(wanted: str | tuple[str, ...]) -> tuple[str, ...]:
    return (wanted,) if isinstance(wanted, str) else wanted


def _product(block: Mapping[str, Iterable[str]]) -> list[Point]:
    return [dict(zip(block, values, strict=True)) for values in itertools.product(*block.values())]
