"""Tables: their cells, how a cell is read off the records, and how far it may be from the published number."""

from __future__ import annotations

import re
import string
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedrepro.errors import unknown
from fedrepro.papers.schema.cells import (
    FIXED,
    Block,
    Cells,
    Point,
    Remark,
    When,
    known,
    needs,
    once,
    points,
    remember,
    repeated,
    words,
)
from fedrepro.records.config import Distinct, Name, Strict


class Tolerance(Strict):
    """How far a number may be from the published one, set with its reason before the result is known.

    `widened`: where a range is published, a number may be in it, each end moved outwards by that share of itself.
    """

    spreads: float = Field(ge=0)
    points: float = Field(ge=0)
    share: float = Field(default=0, ge=0)
    widened: float | None = Field(default=None, ge=0)
    reason: str = Field(min_length=1)

    def limit(self, number: float, spread: float) -> float:
        """The largest difference from `number` allowed, in its unit: of `spreads` spreads, `points`, `share` of it."""
        return max(self.spreads * spread, self.points, self.share * abs(number))


class Instead(Remark):
    """Cells that are compared with the number of the same dataset, method and metric in another `table`, and why."""

    table: str


class Reading(Remark):
    """How we read the paper where it is ambiguous. With a `reading` also how else it can be read.

    The cells that it is about then have further runs, shown below their own: with the settings of that value of the
    axis `reading`, or those that the table would have had it `implied` these values.
    """

    reading: str = ""
    implied: Point = {}

    def other(self, cell: Point) -> Point:
        """Where the other runs of a cell stand."""
        return cell | (self.implied or {"reading": self.reading})


class Calibrated(Remark):
    """Cells whose printed `metric` says what the paper does not: it is fitted, not compared; the reason is a footnote.

    `ends`: a training accuracy that says when their runs ended, those of other readings too (`results.thresholds`);
    otherwise a setting was chosen by it.
    """

    metric: Name = "train_accuracy"
    ends: bool = True


class Read(Strict):
    """Which metric of the record the cells that `when` selects are, where it is not the one that they are named by.

    `metric` may have axes in braces, as in grad_norm_{domain}, but for those of a whole paper. `spread`: the metric
    that the printed standard deviation is, where it is none over seeds. `substitute` says what the metric is where it
    only stands in for the published one, with which it is then never compared; `printed` is the published one's full
    name there. `floor`: the metric that a perfect result would be near.
    """

    when: When = {}
    metric: str = Field(min_length=1)
    spread: str = ""
    substitute: str = ""
    printed: str = ""
    floor: str = ""

    @field_validator("metric")
    @classmethod
    def _check(cls, metric: str) -> str:
        if any(width or kind for *_, width, kind in string.Formatter().parse(metric)):
            raise ValueError("braces take the name of an axis alone")
        return metric

    @property
    def axes(self) -> list[str]:
        """The axes in braces."""
        return [axis for _, axis, _, _ in string.Formatter().parse(self.metric) if axis is not None]


class Table(Strict):
    """One table: its cells, once for every metric.

    `implied`: axes of the cells' runs that the published keys do not have. `reads`: the first that matches counts.
    `reduction`: what a seed reports, `final` (the end of training) or `last<N>` (the mean over its last N rounds); with
    `median<N>` the cell is the median, with the least and the largest, of the values at the ends of N equal parts of
    training, over all seeds and all runs of its `grid`: axes that the published keys do not have either.
    `ranked`: axes whose values make up a column of the printed table, in each of which the cells are ranked.
    `readings` are footnotes of the rows that they are about. `tolerance` is the paper's where a table has none of its
    own.
    """

    title: str
    metrics: Annotated[tuple[Name, ...], Distinct] = Field(min_length=1)
    reduction: str
    tolerance: Tolerance = Field(default=None, validate_default=True)
    cells: Cells
    implied: Point = {}
    grid: Block = {}
    ranked: Annotated[tuple[str, ...], known()] = ()
    reads: tuple[Read, ...] = ()
    readings: tuple[Reading, ...] = ()
    calibrated: tuple[Calibrated, ...] = ()
    instead: tuple[Instead, ...] = ()
    deviations: tuple[Remark, ...] = ()
    not_run: tuple[Remark, ...] = ()

    @field_validator("metrics")
    @classmethod
    def _remember(cls, metrics: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        remember(info, metric=metrics)
        return metrics

    @field_validator("tolerance", mode="before")
    @classmethod
    def _share(cls, own: Any, info: ValidationInfo) -> Any:
        return own or (info.context or {}).get("tolerance") or {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not re.fullmatch(r"final|(last|median)[1-9][0-9]{0,3}", self.reduction):
            raise ValueError(str(unknown("reduction", self.reduction, ("final", "last<N>", "median<N>"))))
        if self.grid and self.checkpoints is None:
            raise ValueError("a `grid` has several runs behind a cell: reduce them by `median<N>`")
        needs(self.cells, FIXED)
        if twice := repeated(points(self.cells)):
            raise ValueError(f"the cell {words(twice)} is there twice: leave one out")
        once(self.cells, self.implied, "`implied`")
        once(self.cells, self.grid, "`grid`")
        _calibrated(self.calibrated, self.metrics)
        if any(each.reading for each in self.readings) and any("metric" in each.when for each in self.not_run):
            raise ValueError("`not_run` leaves out one metric of a row, which a table with other readings cannot do")
        for axis in (axis for read in self.reads for axis in read.axes):
            if absent := [block for block in self.cells if axis not in block]:
                raise ValueError(f"reads: {unknown('axis', axis, absent[0])}")
        return self

    @property
    def last(self) -> int | None:
        """N where the reduction is `last<N>`, else None."""
        return self._number("last")

    @property
    def checkpoints(self) -> int | None:
        """N where the reduction is `median<N>`, else None."""
        return self._number("median")

    def points(self) -> list[Point]:
        """Where the runs of its cells stand, but for what is implied."""
        return points(self.cells, self.grid)

    def _number(self, kind: str) -> int | None:
        return int(self.reduction.removeprefix(kind)) if self.reduction.startswith(kind) else None


def _calibrated(remarks: tuple[Calibrated, ...], metrics: tuple[str, ...]) -> None:
    """Raise ValueError where cells are calibrated by a metric that their table does not print."""
    if absent := [each.metric for each in remarks if each.metric not in metrics]:
        raise ValueError(f"calibrated: {unknown('metric', absent[0], metrics)}")
