"""Claims: the cells that they compare, and by what."""

from __future__ import annotations

import itertools
import math
from typing import Literal, Self

from pydantic import Field, model_validator

from fedrepro.papers.schema.cells import Choice, Point, few, once, product, values
from fedrepro.papers.schema.quantities import Quantity, Share
from fedrepro.records.config import Strict


class Pairs(Strict):
    """Pairs of cells: each of `high` with each of `low`, for every value of the axes that `both` have in common.

    A side with a `pick` is one cell, that with the largest or the smallest mean over the seeds among all of the side's.
    Without `low`, each cell of `high` is compared with zero, so that the claim's margin is a level.
    """

    both: Choice = {}
    high: Choice = Field(min_length=1)
    low: Choice = {}
    pick: dict[Literal["high", "low"], Literal["largest", "smallest"]] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "low" in self.pick and not self.low:
            raise ValueError("`pick` chooses a low, and there is none")
        sides = (*self.both.values(), *self.high.values(), *self.low.values())
        few(math.prod(len(values(each)) for each in sides), "pairs of cells")
        once((self.high, self.low), self.both, "`both`", "`high` or `low`")
        return self

    def cells(self) -> list[tuple[list[Point], list[Point]]]:
        """(high, low) of each pair: a cell alone, or those among which `pick` chooses; none for a low that is zero."""
        blocks = ({axis: values(v) for axis, v in side.items()} for side in (self.both, self.high, self.low))
        both, highs, lows = map(product, blocks)
        below = self._choices("low", lows) if self.low else [[]]
        every = itertools.product(both, self._choices("high", highs), below)
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

    With `published` it is claimed of that many of the pairs; if `pooled`, of those of each block on average, which one
    seed can show. With `gains` in place of pairs, the mean gain of one group of pairs exceeds that of another by
    `margin`. `margin` has the unit of the quantity: points of percent for accuracies, rounds for rounds.
    `budgets`: those at which it is judged; all, where none is named.
    """

    statement: str = Field(min_length=1)
    place: str = Field(min_length=1)
    quantity: Quantity
    margin: float
    pairs: tuple[Pairs, ...] = ()
    published: int | None = Field(default=None, ge=1)
    pooled: bool = False
    gains: tuple[Gain, ...] = ()
    budgets: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.pairs) == bool(self.gains):
            raise ValueError("a claim has either `pairs` or `gains`")
        if self.published is not None and self.gains:
            raise ValueError("`published` is a number of `pairs`, and there are none")
        if self.pooled and (self.gains or self.published is not None):
            raise ValueError("`pooled` pairs can neither be counted, as `published` asks, nor be gains")
        if self.published is not None and self.published > (there := sum(len(block.cells()) for block in self.pairs)):
            raise ValueError(f"{self.published} pairs are published, and there are {there}")
        return self

    @property
    def blocks(self) -> list[Pairs]:
        """All blocks of pairs."""
        return [*self.pairs, *(block for gain in self.gains for block in (*gain.larger, *gain.smaller))]

    @property
    def reference(self) -> Point | None:
        """Where the level is a share of another cell's accuracy: what that cell has in place of the measured one's."""
        return self.quantity.level.of if isinstance(self.quantity.level, Share) else None

    def cells(self) -> list[Point]:
        """The cells that it compares, pair by pair."""
        return [cell for block in self.blocks for pair in block.cells() for side in pair for cell in side]
