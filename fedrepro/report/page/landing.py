"""The page about all papers: in which order they stand, and the picture of published against reproduced numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedrepro.papers.paper import Paper
from fedrepro.report import reasons
from fedrepro.results.cells import SCALE
from fedrepro.results.evaluate import compared
from fedrepro.results.frames import COMPARED, Reproduction


class Spot(NamedTuple):
    """A number in the picture: published and reproduced, whether within tolerance, and what it is."""

    x: float
    y: float
    within: bool
    said: str


def spots(paper: Paper, found: Reproduction) -> list[Spot]:
    """The compared numbers of a paper that are in percent."""
    told, own = [], compared(found)
    for row in own[own.unit.isin(SCALE)].itertuples():
        place = ", ".join(filter(None, (reasons.short(paper, row.table), row.dataset, row.variant, row.method)))
        said = f"{place}, {row.metric}: published {row.published}, reproduced {row.reproduced}".replace("_", " ")
        told.append(Spot(float(row.published), float(row.reproduced), row.status == "within", said))
    return told


def ordered(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The papers of which most can be compared first: the share of their numbers, then of their claims."""

    def share(part: dict[str, Any]) -> tuple[float, float]:
        numbers, claims = part["counts"], part["verdicts"]
        told = sum(numbers[status] for status in COMPARED) / max(sum(numbers.values()), 1)
        return -told, claims["undecided"] / max(claims.total(), 1)

    return sorted(parts, key=share)
