"""Figures and sample sheets: what is shown where."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from fedrepro.config import Strict
from fedrepro.schema.cells import Block, Cells, Point, Remark, points, product, values, words
from fedrepro.schema.quantities import Final, Last, Median, Rounds


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
    With a `grid`, axes of the runs behind one point, the point is of all of them.
    `not_run` says why there is no such figure yet; `left_out` why a budget (or any) does not run some of its cells.
    """

    kind: Literal["levels"]
    title: str
    x: str | tuple[str, ...]
    lines: str
    quantity: Annotated[Final | Last | Median | Rounds, Field(discriminator="kind")] = Rounds(kind="rounds")
    panels: tuple[str, ...] = ()
    grid: Block = {}
    cells: Cells = Field(min_length=1)
    not_run: str = ""
    left_out: tuple[Remark, ...] = ()

    @property
    def quantities(self) -> list[Final | Last | Median | Rounds]:
        """What is shown, panel by panel."""
        return [self.quantity, *(self.quantity.model_copy(update={"metric": metric}) for metric in self.panels)]

    def spots(self) -> list[Spot]:
        """Line after line, each in the order of its cells."""
        cells = [cell | extra for cell in points(self.cells) for extra in product(self.grid)]
        lines = dict.fromkeys(cell[self.lines] for cell in cells)
        return [Spot(line, self.place(cell), cell) for line in lines for cell in cells if cell[self.lines] == line]

    def place(self, cell: Point) -> str:
        """Where a cell stands on the axis of the figure."""
        return " × ".join(cell[axis] for axis in values(self.x))


class Gallery(Strict):
    """The samples that runs ended with, a panel for each cell: the values of `columns` beside, of `rows` below another.

    `rows` may be several axes, whose values make up one row.
    `samples`: grids of generated images; `mixtures`: generated points over those of the clients.
    `not_run` says why there is no such figure yet; `left_out` why a budget (or any) does not run some of its cells.
    """

    kind: Literal["samples", "mixtures"]
    title: str
    columns: str
    rows: str | tuple[str, ...]
    cells: Cells = Field(min_length=1)
    not_run: str = ""
    left_out: tuple[Remark, ...] = ()

    @property
    def file(self) -> str:
        """The file of a run that has its samples."""
        return "samples.png" if self.kind == "samples" else "samples.csv"

    def spots(self) -> list[Spot]:
        """The column is the line of a spot, the row its x."""
        return [Spot(cell[self.columns], self.place(cell), cell) for cell in points(self.cells)]

    def place(self, cell: Point) -> str:
        """The row of a cell."""
        return " × ".join(cell[axis] for axis in values(self.rows))


Figure = Annotated[Curves | Levels | Gallery, Field(discriminator="kind")]


class Sheet(Strict):
    """A sample sheet: what the data of `cell` (any axes, the dataset among them) look like to each client.

    `budgets`: those at which it is drawn; all, where none is named.
    """

    title: str
    cell: Point
    budgets: list[str] = []
