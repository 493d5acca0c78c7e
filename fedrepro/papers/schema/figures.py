"""Figures and sample sheets: what is shown where."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple, Self

from pydantic import Field, model_validator

from fedrepro.papers.schema.cells import (
    FIXED,
    Axes,
    Block,
    Cells,
    Kinded,
    Point,
    Remark,
    needs,
    once,
    place,
    points,
    values,
    words,
)
from fedrepro.papers.schema.quantities import Quantity
from fedrepro.records.config import Count, Name, Strict

LEVELS = ("rounds", "final", "last", "median")  # the quantities of a figure


class Spot(NamedTuple):
    """Where a figure shows a cell: the name of its line and, where a cell is one point of it, its place `x`."""

    line: str
    x: str
    cell: Point


class Figure(Kinded):
    """A figure by its kind; `not_run`: why some of its cells, or all, are not run at a budget or at any.

    curves: metrics over rounds, a panel for each of `metrics` (of curves.csv), a line for each cell, to round `until`.
    levels: a quantity over the values of `x` in their order, a line for each value of `lines`; `x` may be several axes,
    whose values make up one place. `panels`: further metrics, reduced likewise, each in a panel of its own. `grid`:
    axes of the runs behind one point, which is of all of them. `log`: on a logarithmic axis.
    thresholds: test accuracy against training accuracy at each threshold that stops all seeds, a line for each cell, a
    panel for each method, the printed pairs marked; of runs that test at `watch.crossings`.
    samples, mixtures: what runs ended with, a panel for each cell, the values of `lines` beside, of `x` below another:
    grids of generated images, or generated points over those of the clients, with a quantity below each panel.

    `budgets`: those at which it is drawn; all, where none is named.
    """

    KEYS: ClassVar[dict[str, str]] = {
        **{"curves": "metrics [until]", "levels": "x lines [quantity] [panels] [grid] [log]", "thresholds": ""},
        **{"samples": "x lines", "mixtures": "x lines [quantity]"},
    }
    title: str
    cells: Cells = Field(min_length=1)
    not_run: tuple[Remark, ...] = ()
    metrics: tuple[str, ...] = Field(default=(), min_length=1)
    until: Count | None = None
    x: Axes = ()
    lines: Axes = ()
    quantity: Quantity = Quantity(kind="rounds")
    panels: tuple[str, ...] = ()
    grid: Block = {}
    log: bool = False
    budgets: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.quantity.kind not in LEVELS:
            raise ValueError(f"its quantity cannot be {self.quantity.kind!r}: take {', '.join(LEVELS)}")
        if self.panels and not self.quantity.metric:
            raise ValueError("`panels` are metrics, and its quantity is none: give the figure a `quantity`")
        once(self.cells, self.grid, "`grid`")
        needs(self.cells, (*FIXED, *values(self.x), *values(self.lines)))
        spots = [(spot.line, spot.x, *(spot.cell[axis] for axis in self.grid)) for spot in self.spots()]
        if len(set(spots)) < len(spots):
            twice = next(spot for spot in spots if spots.count(spot) > 1)
            raise ValueError(f"two cells are at {', '.join(filter(None, twice[:2]))!r}: leave one out")
        return self

    @property
    def gallery(self) -> str:
        """The file of a run's samples that it shows; empty where it draws lines."""
        return {"samples": "samples.png", "mixtures": "samples.csv"}.get(self.kind, "")

    @property
    def quantities(self) -> list[Quantity]:
        """What levels are of, panel by panel."""
        return [self.quantity, *(self.quantity.model_copy(update={"metric": metric}) for metric in self.panels)]

    def spots(self) -> list[Spot]:
        """Its cells, of levels line after line; others of lines by their method and what else tells them apart."""
        cells = points(self.cells, self.grid)
        if self.kind in ("curves", "thresholds"):
            axes = dict.fromkeys(axis for cell in cells for axis in cell)
            telling = ["method", *(a for a in axes if a != "method" and len({cell.get(a) for cell in cells}) > 1)]
            return [Spot(words({axis: cell[axis] for axis in telling if axis in cell}), "", cell) for cell in cells]
        found = [Spot(place(cell, self.lines), place(cell, self.x), cell) for cell in cells]
        order = list(dict.fromkeys(spot.line for spot in found))
        return found if self.gallery else sorted(found, key=lambda spot: order.index(spot.line))


class Sheet(Strict):
    """A sample sheet: what the data of `cell` (any axes, the dataset among them) look like to each client.

    `budgets`: those at which it is drawn; all, where none is named.
    """

    title: str
    cell: Point
    budgets: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "dataset" not in self.cell:
            raise ValueError("its cell has no axis 'dataset'")
        return self


class Well(Strict):
    """A minimum of a fictional client's loss: where it is, how deep, and the standard deviation of its Gaussian."""

    at: tuple[float, float]
    depth: float = Field(gt=0)
    width: float = Field(gt=0)


class Surfaces(Strict):
    """An illustration, drawn by `report.surfaces` from no run: the losses of clients over two parameters in -1..1.

    `about` is what a reader is told below it.
    """

    title: str
    about: str = Field(min_length=1)
    clients: dict[Name, Annotated[tuple[Well, ...], Field(min_length=1)]] = Field(min_length=1)
