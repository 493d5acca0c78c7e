"""Rankings: the order of the cells in each column of a printed table, in print and here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from fedrepro.results import Result
from fedrepro.schema import Point, Table, words

LEVEL = 0.05
EXACT = 8  # cells of a column up to which all orders are looked at; of more, as many orders as eight cells have
JUDGED = (
    "Rankings compare what has a number here. The orders agree if Kendall's tau is so large that at most "
    f"{100 * LEVEL:g}% of all orders have one as large, are reversed if it is as small, and undecided otherwise."
)
SAID = {"agrees": "the orders agree", "reversed": "the orders are reversed", "undecided": "undecided"}


@dataclass(frozen=True)
class Ranking:
    """One column: the names of its cells from the smallest number to the largest, as printed and as reproduced.

    Cells of the same number, to the digits that are shown, are one entry: `A = B`.
    `tau`: Kendall's tau-b; None with fewer than two cells, or where all are equal. `verdict`: a key of SAID.
    """

    column: str
    printed: tuple[str, ...]
    ours: tuple[str, ...]
    tau: float | None
    verdict: str

    def __str__(self) -> str:
        orders = f"paper {' < '.join(self.printed)}; here {' < '.join(self.ours)}"
        return f"{self.column}: {orders}; {self.measured}, {SAID[self.verdict]}."

    @property
    def measured(self) -> str:
        """Tau, for a reader."""
        return f"Kendall's tau {'–' if self.tau is None else f'{self.tau:.2f}'}"


def rankings(table: Table, results: list[Result]) -> list[Ranking]:
    """The columns of a table that have a number here, in their order; none where the table is not `ranked`."""
    ranked = [result for result in results if result.values and set(table.ranked) <= result.cell.facts.keys()]
    columns: dict[str, list[Result]] = {}
    for result in ranked if table.ranked else ():
        columns.setdefault(words({axis: result.cell.facts[axis] for axis in table.ranked}), []).append(result)
    return [_ranking(column, own, _telling(table, own)) for column, own in columns.items()]


def kendall(left: Sequence[float], right: Sequence[float]) -> tuple[float | None, float, float]:
    """Kendall's tau-b of two lists of numbers (Kendall 1945), and which shares of all orders of the second (of more
    than EXACT numbers, of orders drawn at random) have at least and at most as large a one; (None, 1, 1) where there is
    nothing to order.
    """
    i, j = np.triu_indices(len(left), 1)
    signs = [np.sign(np.take(each, i) - np.take(each, j)).astype(int) for each in (left, right)]
    untied = [np.count_nonzero(each) for each in signs]
    if not all(untied):
        return None, 1.0, 1.0
    found = signs[0] @ signs[1]
    orders = np.asarray(right)[_orders(len(right))]
    every = np.sign(orders[:, i] - orders[:, j]).astype(int) @ signs[0]
    tau = found / math.sqrt(untied[0] * untied[1])
    return float(tau), float((every >= found).mean()), float((every <= found).mean())


def _orders(count: int) -> np.ndarray:
    """Orders of `count` places [N, count]: all, or for many places a fixed random choice of them."""
    if count <= EXACT:
        return np.array(list(itertools.permutations(range(count))), dtype=int).reshape(-1, count)
    places = np.tile(np.arange(count), (math.factorial(EXACT), 1))
    return np.random.default_rng(0).permuted(places, axis=1)


def verdict(tau: float | None, above: float, below: float) -> str:
    """Whether two orders agree more, or less, than nearly all do by chance."""
    if tau is None:
        return "undecided"
    return "agrees" if above <= LEVEL else "reversed" if below <= LEVEL else "undecided"


def _ranking(column: str, results: list[Result], telling: list[str]) -> Ranking:
    names = [_name(result.cell.facts, telling) for result in results]
    printed = [float(result.published.mean) for result in results]
    ours = [float(result.mean) for result in results]
    found = kendall(printed, ours)
    return Ranking(column, _order(names, printed), _order(names, ours), found[0], verdict(*found))


def _order(names: list[str], numbers: list[float]) -> tuple[str, ...]:
    ordered = sorted(zip(numbers, names, strict=True), key=itemgetter(0))
    return tuple(" = ".join(name for _, name in same) for _, same in itertools.groupby(ordered, itemgetter(0)))


def _telling(table: Table, results: list[Result]) -> list[str]:
    """The axes that tell the cells of a column apart."""
    axes = dict.fromkeys(axis for result in results for axis in result.cell.facts if axis not in table.ranked)
    return [axis for axis in axes if len({result.cell.facts.get(axis) for result in results}) > 1]


def _name(facts: Point, telling: list[str]) -> str:
    return words({axis: facts[axis] for axis in telling if axis in facts}) or facts["method"]
