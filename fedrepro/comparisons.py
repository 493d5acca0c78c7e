"""What a claim compares: pairs of cells, and groups of pairs, by the names of their runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fedrepro.schema import Claim, FirstRound, Pairs, Point, Share, words

Run = Callable[[Point], str | None]  # a cell -> the name of its run; None where the budget in use does not run it


@dataclass(frozen=True)
class Side:
    """A cell of a pair by its run; with a `pick`, the runs among which it chooses, and how many cells are not run."""

    runs: tuple[str, ...]
    pick: str = ""
    left_out: int = 0


@dataclass(frozen=True)
class Pair:
    """Two cells that a claim compares, or one with zero: then there is no low."""

    name: str
    high: Side
    low: Side | None

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides that are cells."""
        return (self.high,) if self.low is None else (self.high, self.low)


@dataclass(frozen=True)
class Comparison:
    """What has one verdict: a pair, the mean over `pooled` pairs, or that of `larger` against that of `smaller`.

    Of pooled pairs each is one observation, as else each seed is.
    """

    name: str
    larger: tuple[Pair, ...]
    smaller: tuple[Pair, ...] = ()
    pooled: bool = False

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of both groups."""
        return (*self.larger, *self.smaller)

    @property
    def runs(self) -> list[str]:
        """The runs of all cells, in their order."""
        return [run for pair in self.pairs for side in pair.sides for run in side.runs]


def comparisons(claim: Claim, run: Run) -> list[Comparison]:
    """The comparisons of a claim, in their order."""
    if claim.gains:
        return [Comparison(g.name, _pairs(g.larger, run), _pairs(g.smaller, run)) for g in claim.gains]
    if claim.pooled:
        return [Comparison(_pool(block), _pairs((block,), run), pooled=True) for block in claim.pairs]
    return [Comparison(pair.name, (pair,)) for pair in _pairs(claim.pairs, run)]


def references(claim: Claim, run: Run) -> dict[str, str | None]:
    """Run -> the run whose accuracy its level is a share of; empty where the claim's quantity has no such level."""
    quantity = claim.quantity
    if not (isinstance(quantity, FirstRound) and isinstance(quantity.level, Share)):
        return {}
    cells = list(_cells(claim))
    found = {run(cell): run(cell | quantity.level.of) for cell in cells}
    return {name: reference for name, reference in found.items() if name is not None}


def _cells(claim: Claim) -> Iterator[Point]:
    for block in claim.blocks:
        for pair in block.cells():
            for side in pair:
                yield from side


def _pairs(blocks: tuple[Pairs, ...], run: Run) -> tuple[Pair, ...]:
    return tuple(
        Pair(
            _versus(block, high, low),
            _side(block, "high", high, run),
            _side(block, "low", low, run) if low else None,
        )
        for block in blocks
        for high, low in block.cells()
    )


def _side(block: Pairs, name: str, cells: list[Point], run: Run) -> Side:
    runs = [found for found in map(run, cells) if found is not None]
    return Side(tuple(dict.fromkeys(runs)), block.pick.get(name, ""), len(cells) - len(runs))


def _versus(block: Pairs, highs: list[Point], lows: list[Point]) -> str:
    """A pair for a reader: what its cells share, then what tells them apart."""
    if not lows:
        return words(_together(highs))
    high, low = _together(highs), _together(lows)
    shared = {axis: value for axis, value in high.items() if low.get(axis) == value}
    if shared == high == low:  # the largest and the smallest of the same cells
        shared = {axis: value for axis, value in shared.items() if axis in block.both}
    sides = []
    for name, cell in (("high", high), ("low", low)):
        own = words({axis: value for axis, value in cell.items() if axis not in shared}) or "–"
        sides.append(f"{block.pick[name]} of {own}" if name in block.pick else own)
    return f"{words(shared)}: {' against '.join(sides)}".removeprefix(": ")


def _pool(block: Pairs) -> str:
    """All pairs of a block for a reader."""
    highs, lows = ([cell for cells in side for cell in cells] for side in zip(*block.cells(), strict=True))
    return _versus(block, highs, lows)


def _together(cells: list[Point]) -> Point:
    """Cells as one: of each axis all values."""
    return {axis: " or ".join(dict.fromkeys(cell[axis] for cell in cells)) for axis in cells[0]}
