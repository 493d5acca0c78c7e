"""Tables: their cells, how a cell is read off the records, and how far it may be from the published number."""

from __future__ import annotations

import re

from pydantic import Field

from fedrepro.config import Strict
from fedrepro.schema.cells import Block, Cells, Point, Remark, When


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


class Read(Strict):
    """Which metric of the record the cells that `when` selects are, where it is not the one that they are named by.

    `metric` may have axes in braces, as in grad_norm_{domain}. `spread`: the metric that the printed standard deviation
    is, where it is none over seeds. `substitute` says what the metric is where it only stands in for the published one,
    with which it is then never compared; `printed` is the published one's full name there.
    `floor`: the metric that a perfect result would be near.
    """

    when: When = {}
    metric: str = Field(min_length=1)
    spread: str = ""
    substitute: str = ""
    printed: str = ""
    floor: str = ""


class Table(Strict):
    """One table: its cells, once for every metric.

    `implied`: axes of the cells' runs that the published keys do not have. `reads`: the first that matches counts.
    `reduction`: what a seed reports, `final` (the end of training) or `last<N>` (the mean over its last N rounds); with
    `median<N>` the cell is the median, with the least and the largest, of the values at the ends of N equal parts of
    training, over all seeds and all runs of its `grid`: axes that the published keys do not have either.
    `ranked`: axes whose values make up a column of the printed table, in each of which the cells are ranked.
    `readings` say how we read the paper where it is ambiguous: footnotes of the rows that they are about. `tolerance`
    is the paper's where a table has none of its own.
    """

    title: str
    metrics: tuple[str, ...] = Field(min_length=1)
    reduction: str
    tolerance: Tolerance
    cells: Cells
    implied: Point = {}
    grid: Block = {}
    ranked: tuple[str, ...] = ()
    reads: tuple[Read, ...] = ()
    readings: tuple[Remark, ...] = ()
    instead: tuple[Instead, ...] = ()
    deviations: tuple[Remark, ...] = ()
    not_run: tuple[Remark, ...] = ()

    @property
    def last(self) -> int | None:
        """N where the reduction is `last<N>`, else None. Raises ValueError for a reduction that there is not."""
        return self._number("last")

    @property
    def checkpoints(self) -> int | None:
        """N where the reduction is `median<N>`, else None. Raises ValueError for a reduction that there is not."""
        return self._number("median")

    @property
    def over_curves(self) -> bool:
        """Whether the reduction reads curves."""
        return self.reduction != "final"

    def _number(self, kind: str) -> int | None:
        found = re.fullmatch(r"final|(last|median)([1-9][0-9]*)", self.reduction)
        if not found:
            raise ValueError(self.reduction)
        return int(found[2]) if found[1] == kind else None
