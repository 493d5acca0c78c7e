"""The comparisons of a claim: pairs of cells, and groups of pairs, by the names of their runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fedrepro.papers.schema.cells import Point, words
from fedrepro.papers.schema.claims import Claim, Pairs

Run = Callable[[Point], str | None]  # a cell -> the name of its run; None where the budget in use does not run it


class Side(NamedTuple):
    """A cell of a pair by its run; with a `pick`, the runs among which it chooses, and how many cells are not run."""

    runs: tuple[str, ...]
    pick: str = ""
    left_out: int = 0


class Pair(NamedTuple):
    """Two cells that a claim compares, or one with zero: then there is no low."""

    name: str
    high: Side
    low: Side | None

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that are cells."""
        return (self.high,) if self.low is None else (self.high, self.low)


class Comparison(NamedTuple):
    """One verdict is about it: a pair, the mean over `pooled` pairs, or that of `larger` against that of `smaller`.

    Each seed is an observation; where pooled pairs have one, each group of those that share runs is.
    """

    name: str
    larger: tuple[Pair, ...]
    smaller: tuple[Pair, ...] = ()
    pooled: bool = False

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of both groups."""
        return self.larger + self.smaller

    @property
    def runs(self) -> list[str]:
        """The runs of all cells, in their order."""
        return [run for pair in self.pairs for side in pair.sides for run in side.runs]


def comparisons(claim: Claim, run: Run) -> list[Comparison]:
    """The comparisons of a claim, in their order."""
    if claim.gains:
        return [Comparison(gain.name, _pairs(gain.larger, run), _pairs(gain.smaller, run)) for gain in claim.gains]
    if claim.pooled:
        return [Comparison(_name(each, *each.cells()), _pairs((each,), run), pooled=True) for each in claim.pairs]
    return [Comparison(pair.name, (pair,)) for pair in _pairs(claim.pairs, run)]


def references(claim: Claim, run: Run) -> dict[str, str | None]:
    """Run -> the run whose accuracy its level is a share of; empty where the claim's quantity has no such level."""
    if claim.reference is None:
        return {}
    found = {run(cell): run(cell | claim.reference) for cell in claim.cells()}
    return {name: reference for name, reference in found.items() if name is not None}


def _pairs(blocks: tuple[Pairs, ...], run: Run) -> tuple[Pair, ...]:
    def side(block: Pairs, name: str, cells: list[Point]) -> Side | None:
        runs = [found for found in map(run, cells) if found is not None]
        return Side(tuple(dict.fromkeys(runs)), block.pick.get(name, ""), len(cells) - len(runs)) if cells else None

    every = [(block, *pair) for block in blocks for pair in block.cells()]
    return tuple(Pair(_name(b, (high, low)), side(b, "high", high), side(b, "low", low)) for b, high, low in every)


def _name(block: Pairs, *pairs: tuple[list[Point], list[Point]]) -> str:
    """Pairs of a block for a reader: what their cells share, then what tells high and low apart."""
    high, low = map(_together, zip(*pairs, strict=True))
    if not low:
        return words(high)
    shared = {axis: value for axis, value in high.items() if low.get(axis) == value}
    if shared == high == low:  # the largest and the smallest of the same cells
        shared = {axis: value for axis, value in shared.items() if axis in block.both}
    sides = []
    for name, cell in (("high", high), ("low", low)):
        own = words({axis: value for axis, value in cell.items() if axis not in shared}) or "–"
        sides.append(f"{block.pick[name]} of {own}" if name in block.pick else own)
    return f"{words(shared)}: {' against '.join(sides)}".removeprefix(": ")


def _together(side: tuple[list[Point], ...]) -> Point:
    """Cells as one: of each axis all values."""
    cells = [cell for each in side for cell in each]
    return {axis: " or ".join(dict.fromkeys(cell[axis] for cell in cells)) for axis in (cells or [{}])[0]}
