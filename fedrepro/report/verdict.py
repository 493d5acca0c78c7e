"""The findings of `fedrepro check`, for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import pandas as pd
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedrepro.report.layout import STYLES
from fedrepro.results.cells import allowed, reproduced, spread_out
from fedrepro.results.check import Check

HEADS = ("table", "cell", "published", "reproduced", "difference", "allowed", "status", "reason")


def show(found: Check, every: bool = False) -> Group:
    """For each paper the counts and the cells that are not simply within tolerance; then the problems.

    Cells of a table with the same status and reason share a row, but for those outside; with `every` none do.
    """
    parts: list[Table | Text] = []
    for paper in found.counts:
        cells = found.cells[found.cells.paper == paper]
        said = f"{len(cells)} cells: {_tally(cells.status)}" if len(cells) else "no tables"
        verdicts = _tally(found.claims.get(paper, {}).values())
        parts.append(Text(f"{paper}: {said}{f'; claims: {verdicts}' if verdicts else ''}", style="bold"))
        told = cells[cells.reason != ""]
        if len(told):
            parts += [_drawn(told, every), *_tolerances(found.tolerances[paper], told)]
    return Group(*parts, *(Text(problem, style="bold red") for problem in found.problems))


def _drawn(cells: pd.DataFrame, every: bool) -> Table:
    """A row for each group of cells."""
    drawn = Table()
    for head in HEADS:
        justify = "right" if head in ("published", "difference", "allowed") else "left"
        drawn.add_column(head, justify=justify, overflow="fold")
    groups: dict[Any, list[Any]] = {}
    for cell in cells.itertuples():
        alone = every or cell.status == "outside"
        groups.setdefault(cell.Index if alone else (cell.table, cell.status, cell.reason), []).append(cell)
    for own in groups.values():
        first, gaps = own[0], sorted((cell for cell in own if pd.notna(cell.difference)), key=attrgetter("difference"))
        gap = " to ".join(map(_gap, (gaps[0], gaps[-1])[: len(own)])) if gaps else "–"
        told = (f"{len(own)} cells", "", "", gap, "") if len(own) > 1 else (*_numbers(first), gap, _room(first))
        drawn.add_row(first.table, *map(Text, told), Text(first.status, style=STYLES[first.status]), Text(first.reason))
    return drawn


def _numbers(cell: Any) -> tuple[str, str, str]:
    place = ", ".join(filter(None, (cell.dataset, cell.variant, cell.method, cell.metric)))
    return place, spread_out(cell.compared_with, cell.compared_with_spread), reproduced(cell)


def _room(cell: Any) -> str:
    return allowed(cell) if pd.notna(cell.limit) or pd.notna(cell.least) else "–"


def _gap(cell: Any) -> str:
    """The difference with as many decimals as our number."""
    return f"{cell.difference:+.{len(cell.reproduced.partition('.')[2])}f}"


def _tolerances(tolerances: dict[str, str], cells: pd.DataFrame) -> list[Text]:
    """The tolerance of each table with a compared cell, and its reason; tables with the same share a line."""
    tables: dict[str, list[str]] = {}
    for table in cells[cells.difference.notna()].table.unique():
        tables.setdefault(tolerances[table], []).append(table)
    return [Text(f"Tolerance of {', '.join(names)}: {said}.", style="dim") for said, names in tables.items()]


def _tally(found: Iterable[str]) -> str:
    counts = Counter(found)
    return ", ".join(f"{counts[name]} {name}" for name in STYLES if counts[name])
