"""Rankings: the order of the cells in each column of a printed table, in print and here."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import pandas as pd

from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.cells import Point, facts, words

LEVEL = 0.05
JUDGED = (
    "Rankings compare what has a number here. The orders agree if Kendall's tau is so large that at most "
    f"{100 * LEVEL:g}% of all orders have one as large, are reversed if it is as small, and undecided otherwise."
)
SIDES = ("greater", "less")
SAID = {"agrees": "the orders agree", "reversed": "the orders are reversed", "undecided": "undecided"}


class Ranking(NamedTuple):
    """One column: the names of its cells from the smallest number to the largest, as printed and as reproduced.

    Cells of the same number, to the digits that are shown, are one entry: `A = B`. With a `reading` the numbers of the
    rows that have it take the place of their own.
    `tau`: Kendall's tau-b; None with fewer than two cells, or where all are equal. `verdict`: a key of SAID.
    """

    column: str
    printed: tuple[str, ...]
    ours: tuple[str, ...]
    tau: float | None
    verdict: str
    reading: str

    def __str__(self) -> str:
        orders = f"paper {' < '.join(self.printed)}; here {' < '.join(self.ours)}"
        return f"{self.title}: {orders}; {self.measured}, {SAID[self.verdict]}."

    @property
    def title(self) -> str:
        """The column and its reading, for a reader."""
        return ", ".join(filter(None, (self.column, self.reading and f"reading {self.reading}")))

    @property
    def measured(self) -> str:
        """Tau, for a reader."""
        return f"Kendall's tau {'–' if self.tau is None else f'{self.tau:.2f}'}"


def rankings(paper: Paper, table: str, cells: pd.DataFrame) -> list[Ranking]:
    """The columns of a table that have a number here, in their order, from the paper's `cells`, each with its readings.

    None where the table is not `ranked`, or the numbers of its budget are never compared.
    """
    ranked, columns = paper.table(table).ranked, {}
    if not ranked or not paper.spec.budgets[paper.budget].of(table).compare:
        return []
    for cell in cells[(cells.table == table) & (cells.reproduced != "")].itertuples():
        if set(ranked) <= (axes := facts(cell)).keys():
            own = columns.setdefault(words({axis: axes.pop(axis) for axis in ranked}), [])
            others = {other["reading"]: other["reproduced"] for other in cell.readings if other["reproduced"]}
            own.append((axes, float(cell.published), {"": cell.reproduced} | others))
    found = []
    for column, own in columns.items():
        points, printed, ours = zip(*own, strict=True)
        for reading in dict.fromkeys(itertools.chain(*ours)):
            numbers = [float(each.get(reading, each[""])) for each in ours]
            found.append(_ranking(column, points, printed, numbers, reading))
    return found


def kendall(left: Sequence[float], right: Sequence[float]) -> tuple[float | None, float, float]:
    """Kendall's tau-b of two lists of numbers (Kendall 1945), and which shares of all orders have at least and at most
    as large a one; (None, 1, 1) where there is nothing to order."""
    if min(len(set(left)), len(set(right))) < 2:
        return None, 1.0, 1.0
    from scipy import stats  # slow to import

    tau = float(stats.kendalltau(left, right).statistic)
    if len(left) == len(set(left)) == len(set(right)):
        return tau, *(float(stats.kendalltau(left, right, alternative=side).pvalue) for side in SIDES)

    def again(order: Sequence[float]) -> float:
        return stats.kendalltau(left, order).statistic

    how = {"permutation_type": "pairings", "vectorized": False, "rng": 0}  # with ties kendalltau has no exact shares
    shares = (stats.permutation_test((right,), again, alternative=side, **how).pvalue for side in SIDES)
    return tau, *map(float, shares)


def verdict(tau: float | None, above: float, below: float) -> str:
    """Whether two orders agree more, or less, than nearly all do by chance."""
    if tau is None:
        return "undecided"
    return "agrees" if above <= LEVEL else "reversed" if below <= LEVEL else "undecided"


def _ranking(
    column: str, cells: Sequence[Point], printed: Sequence[float], ours: Sequence[float], reading: str
) -> Ranking:
    """Cells are named by the axes that tell them apart."""
    telling = [axis for axis in dict.fromkeys(itertools.chain(*cells)) if len({cell.get(axis) for cell in cells}) > 1]
    names = [words({axis: cell[axis] for axis in telling if axis in cell}) or cell["method"] for cell in cells]
    found = kendall(printed, ours)
    return Ranking(column, _order(names, printed), _order(names, ours), found[0], verdict(*found), reading)


def _order(names: Sequence[str], numbers: Sequence[float]) -> tuple[str, ...]:
    ordered = sorted(zip(numbers, names, strict=True), key=itemgetter(0))
    return tuple(" = ".join(name for _, name in same) for _, same in itertools.groupby(ordered, itemgetter(0)))
