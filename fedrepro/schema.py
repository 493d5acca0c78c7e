"""The format of papers/<paper>/paper.toml; specfile.py reads it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from fedrepro.config import Stop, Strict, Value

When = dict[str, str | tuple[str, ...]]  # axis (or `metric`, `budget`) -> the value or values that are meant
Cells = tuple[dict[str, tuple[str, ...]], ...]  # blocks of axes, each the product of its values (first axis slowest)
Point = dict[str, str]  # axis -> value: where a cell stands
Said = TypeVar("Said", "Remark", "Read")  # what is about the cells that its `when` selects
FIXED = ("dataset", "method")  # axes of every table; the others make up the column `variant`


class Rule(Strict):
    """Settings for the cells that `when` selects; an empty `when` selects all."""

    when: When = {}
    settings: dict[str, Any]


class Label(Strict):
    """What a reader is told of a budget. `compare` false: its numbers are never compared with published ones."""

    label: str
    compare: bool = True


class Budget(Label):
    """What a setting costs: rules on top of the paper's own. `own`: what some tables, figures or `claims` say of it."""

    own: dict[str, Label] = {}
    rules: tuple[Rule, ...] = ()

    def of(self, name: str) -> Label:
        """What the table or figure of that name, or `claims`, says of it."""
        return self.own.get(name, self)


class Tolerance(Strict):
    """How far a number may be from the published one, set with its reason before the result is known."""

    spreads: float = Field(ge=0)
    points: float = Field(ge=0)
    share: float = Field(default=0, ge=0)
    reason: str = Field(min_length=1)

    def limit(self, number: float, spread: float) -> float:
        """The largest difference from `number` allowed, in its unit: of `spreads` spreads, `points`, `share` of it."""
        return max(self.spreads * spread, self.points, self.share * abs(number))


class Remark(Strict):
    """A reason for the cells that `when` selects: how they are read, why they deviate, or why they were not run."""

    when: When = Field(min_length=1)
    reason: str = Field(min_length=1)


class Instead(Remark):
    """Cells that are compared with the number of the same dataset, method and metric in another `table`, and why."""

    table: str


class Read(Strict):
    """Which metric of the record the cells that `when` selects are, where it is not the one that they are named by.

    `metric` may have axes in braces, as in grad_norm_{domain}. `spread`: the metric that the printed standard deviation
    is, where it is none over seeds.
    """

    when: When = {}
    metric: str = Field(min_length=1)
    spread: str = ""


class Table(Strict):
    """One table: its cells, once for every metric.

    `implied`: axes of the cells' runs that the published keys do not have. `reads`: the first that matches counts.
    `reduction`: what a seed reports, `final` (the end of training) or `last<N>` (the mean over its last N rounds).
    `readings` say how we read the paper where it is ambiguous: footnotes of the rows that they are about. `tolerance`
    is the paper's where a table has none of its own.
    """

    title: str
    metrics: tuple[str, ...] = Field(min_length=1)
    reduction: str
    tolerance: Tolerance
    cells: Cells
    implied: Point = {}
    reads: tuple[Read, ...] = ()
    readings: tuple[Remark, ...] = ()
    instead: tuple[Instead, ...] = ()
    deviations: tuple[Remark, ...] = ()
    not_run: tuple[Remark, ...] = ()

    @property
    def last(self) -> int | None:
        """N where the reduction is `last<N>`; None where it is `final`. Raises ValueError for any other."""
        if self.reduction == "final":
            return None
        found = re.fullmatch(r"last([1-9][0-9]*)", self.reduction)
        if not found:
            raise ValueError(self.reduction)
        return int(found[1])


class Final(Strict):
    """A metric of the record, so at the end of training."""

    kind: Literal["final"]
    metric: str


class Gap(Strict):
    """A metric of the record less another of the same seed, `less`: both at the end of training."""

    kind: Literal["gap"]
    metric: str
    less: str


class Last(Strict):
    """The mean of a metric over the last `rounds` rounds, each of which must have been watched."""

    kind: Literal["last"]
    metric: str
    rounds: int = Field(ge=1)


class Rounds(Strict):
    """The number of rounds trained: until the run stopped, or its cap."""

    kind: Literal["rounds"]


class Oscillation(Strict):
    """How much a metric swings from the warm start to round `until`, within `window` rounds: see claims.oscillation."""

    kind: Literal["oscillation"]
    metric: str
    window: int = Field(ge=2)
    until: int | None = Field(default=None, ge=1)


class Share(Strict):
    """A level: `share` of the mean over the last `rounds` rounds of another cell, of the same seed.

    That cell is the measured one with the values of `of` on these axes.
    """

    share: float = Field(gt=0)
    rounds: int = Field(ge=1)
    of: Point


class FirstRound(Strict):
    """The first watched round with a metric of at least `level`, in percent if it is an accuracy."""

    kind: Literal["first_round"]
    metric: str
    level: float | Share


Quantity = Annotated[Final | Gap | Last | Rounds | Oscillation | FirstRound, Field(discriminator="kind")]


class Spot(NamedTuple):
    """Where a figure shows a cell: the name of its line and, where a cell is one point of it, its place `x`."""

    line: str
    x: str
    cell: Point


class Curves(Strict):
    """Curves over rounds: a panel for each of `metrics` (of curves.csv), a line for each cell, up to round `until`.

    `not_run` says why there is no such figure yet; `left_out` why a budget (or any) does not run some of its cells.
    """

    kind: Literal["curves"]
    title: str
    metrics: tuple[str, ...] = Field(min_length=1)
    until: int | None = Field(default=None, ge=1)
    cells: Cells = Field(min_length=1)
    not_run: str = ""
    left_out: tuple[Remark, ...] = ()

    def spots(self) -> list[Spot]:
        """A line is named by its method and by whatever else distinguishes it from another line."""
        cells = points(self.cells)
        axes = dict.fromkeys(axis for cell in cells for axis in cell)
        telling = ["method", *(a for a in axes if a != "method" and len({cell.get(a) for cell in cells}) > 1)]
        return [Spot(words({axis: cell[axis] for axis in telling if axis in cell}), "", cell) for cell in cells]


class Levels(Strict):
    """A quantity over the values of axis `x` in their order; a line for each value of `lines`.

    `x` may be several axes, whose values make up one place. `quantity`: the number of rounds trained, or a metric at
    the end or over the last rounds; `panels`: further metrics, reduced likewise, each in a panel of its own.
    `not_run` says why there is no such figure yet; `left_out` why a budget (or any) does not run some of its cells.
    """

    kind: Literal["levels"]
    title: str
    x: str | tuple[str, ...]
    lines: str
    quantity: Annotated[Final | Last | Rounds, Field(discriminator="kind")] = Rounds(kind="rounds")
    panels: tuple[str, ...] = ()
    cells: Cells = Field(min_length=1)
    not_run: str = ""
    left_out: tuple[Remark, ...] = ()

    @property
    def quantities(self) -> list[Final | Last | Rounds]:
        """What is shown, panel by panel."""
        return [self.quantity, *(self.quantity.model_copy(update={"metric": metric}) for metric in self.panels)]

    def spots(self) -> list[Spot]:
        """Line after line, each in the order of its cells."""
        cells = points(self.cells)
        lines = dict.fromkeys(cell[self.lines] for cell in cells)
        return [Spot(line, self.place(cell), cell) for line in lines for cell in cells if cell[self.lines] == line]

    def place(self, cell: Point) -> str:
        """Where a cell stands on the axis of the figure."""
        return " × ".join(cell[axis] for axis in values(self.x))


Figure = Annotated[Curves | Levels, Field(discriminator="kind")]


class Sheet(Strict):
    """A sample sheet: what the data of `cell` (any axes, the dataset among them) look like to each client."""

    title: str
    cell: Point


class Pairs(Strict):
    """Pairs of cells: each of `high` with each of `low`, for every value of the axes that `both` have in common.

    A side with a `pick` is one cell, that with the largest or the smallest mean over the seeds among all of the side's.
    """

    both: When = {}
    high: When = Field(min_length=1)
    low: When = Field(min_length=1)
    pick: dict[Literal["high", "low"], Literal["largest", "smallest"]] = {}

    def cells(self) -> list[tuple[list[Point], list[Point]]]:
        """(high, low) of each pair: a cell alone, or those among which `pick` chooses."""
        blocks = ({axis: values(v) for axis, v in side.items()} for side in (self.both, self.high, self.low))
        both, highs, lows = map(product, blocks)
        every = itertools.product(both, self._choices("high", highs), self._choices("low", lows))
        return [([b | cell for cell in high], [b | cell for cell in low]) for b, high, low in every]

    def _choices(self, side: str, cells: list[Point]) -> list[list[Point]]:
        return [cells] if side in self.pick else [[cell] for cell in cells]


class Gain(Strict):
    """Two groups of pairs: the mean over the pairs of high less low is claimed to be `larger` in one of them."""

    name: str = Field(min_length=1)
    larger: tuple[Pairs, ...] = Field(min_length=1)
    smaller: tuple[Pairs, ...] = Field(min_length=1)


class Claim(Strict):
    """An ordering that the paper states, and where: in each pair `quantity` of high exceeds that of low by `margin`.

    With `published` it is claimed of that many of the pairs. With `gains` in place of pairs, the mean gain of one group
    of pairs exceeds that of another by `margin`. `margin` has the unit of the quantity: points of percent for
    accuracies, rounds for rounds.
    """

    statement: str = Field(min_length=1)
    place: str = Field(min_length=1)
    quantity: Quantity
    margin: float
    pairs: tuple[Pairs, ...] = ()
    published: int | None = Field(default=None, ge=1)
    gains: tuple[Gain, ...] = ()

    @property
    def blocks(self) -> list[Pairs]:
        """All blocks of pairs."""
        return [*self.pairs, *(block for gain in self.gains for block in (*gain.larger, *gain.smaller))]


class Base(Strict):
    """Whose search a run uses: that of the same cell with these values on the axes that it has."""

    base: Point = {}


class Spec(Strict):
    """paper.toml. `axes`: axis -> value -> settings; the key `run` of a value is its part of the run's name.

    A `group` among the settings parts a dataset's runs, of which one pipeline file cannot take many.
    """

    title: str
    defaults: dict[str, Any] = {}
    axes: dict[str, dict[str, dict[str, Any]]]
    budgets: dict[str, Budget]
    tolerance: Tolerance | None = None
    tables: dict[str, Table]
    figures: dict[str, Figure] = {}
    sheets: dict[str, Sheet] = {}
    claims: dict[str, Claim] = {}
    search: Base = Base()

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


class Search(Strict):
    """How the hyper-parameters that say "search" are found: the best point of their `grid`, on data of its own.

    A point trains for `rounds` rounds on `seed`, which no table reports, with `data` over the run's own parameters. It
    is scored by the mean of `metric` over its `last` watched rounds.
    """

    seed: int
    rounds: int = Field(ge=1)
    metric: str
    last: int = Field(ge=1)
    data: dict[str, Value] = {}
    grid: dict[str, tuple[int | float, ...]]


class Found(BaseModel):
    """What spec.py needs of a pilot's entry in pilots.json; the rest of the entry is there for the reader."""

    threshold: float = Field(ge=0, le=1)
    hi: float = Field(ge=0, le=1)
    config_digest: str


class Chosen(BaseModel):
    """What spec.py needs of a search's entry in searches.json; the rest of the entry is there for the reader."""

    chosen: dict[str, int | float]
    config_digest: str


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
    if fault["type"] == "extra_forbidden":
        return f"{place}: there is no such key."
    return f"{place}: {fault['msg'].lower()}."


def values(wanted: str | tuple[str, ...]) -> tuple[str, ...]:
    """The value or values of an axis that are meant."""
    return (wanted,) if isinstance(wanted, str) else wanted


def product(block: Mapping[str, Iterable[str]]) -> list[Point]:
    """The points of a block, the first axis slowest."""
    return [dict(zip(block, values, strict=True)) for values in itertools.product(*block.values())]
