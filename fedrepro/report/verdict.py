"""The findings of `fedrepro check`, for the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

import pandas as pd
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedrepro.report.layout import STYLES
from fedrepro.results.cells import difference, limits, reproduced, spread_out
from fedrepro.results.check import Check
from fedrepro.results.frames import COMPARED, STATUSES

MOST = 20  # problems shown
HEADS = {"calibrated": "fitted"}  # as wide as 80 columns have room for


def show(found: Check, table: str | None = None, reasons: bool = False) -> Group:
    """The numbers of each table by status, or of one; the claims of each paper; the problems; the verdict.

    With `reasons`, below them, why numbers are not simply within tolerance: numbers of a table with the same status and
    reason share a paragraph, but for those outside.
    """
    cells = found.cells if table is None else found.cells[found.cells.table == table]
    told = [Text(f"claims of {paper}: {_tally(verdicts.values())}") for paper, verdicts in found.claims.items()]
    parts = [*([_counts(cells)] if len(cells) else []), *(told if table is None else [])]
    if reasons:
        parts += [part for paper in found.counts for part in _reasons(found, cells[cells.paper == paper])]
    problems = [Text(problem, style="bold red") for problem in found.problems[:MOST]]
    if (more := len(found.problems) - MOST) > 0:
        problems.append(Text(f"and {more} more problems: `fedrepro check --json` lists all.", style="bold red"))
    return Group(*parts, *problems, _verdict(found))


def _verdict(found: Check) -> Text:
    """The last line, about all papers that were checked."""
    counts = found.cells.status.value_counts()
    compared = sum(counts.get(status, 0) for status in COMPARED)
    said = f"{counts.get('within', 0)} of {compared} compared numbers are within tolerance"
    if not found.problems:
        rest = counts.get("deviation", 0)
        return Text(f"PASS: {said}{f', {rest} outside with a declared reason' if rest else ''}.", style="bold green")
    return Text(f"FAIL: {said}; problems: {len(found.problems)}.", style="bold red")


def _counts(cells: pd.DataFrame) -> Table:
    """A row for each table, a column for each status that occurs."""
    statuses = [status for status in STATUSES if (cells.status == status).any()]
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in ("paper", "table"):
        drawn.add_column(head, no_wrap=True, vertical="bottom")
    for head in ("numbers", *statuses):
        shown = HEADS.get(head, head.replace("-", " "))
        drawn.add_column(shown, justify="right", style=STYLES.get(head, ""), vertical="bottom")
    for (paper, table), own in cells.groupby(["paper", "table"], sort=False):
        counts = (int((own.status == status).sum()) for status in statuses)
        drawn.add_row(paper, table, str(len(own)), *(str(count or "–") for count in counts))
    return drawn


def _reasons(found: Check, cells: pd.DataFrame) -> Iterator[Text | Padding]:
    """For each group of cells of a paper what they are and how far off; indented below it the reason."""
    told = cells[cells.reason != ""]
    groups: dict[Any, list[Any]] = {}
    for cell in told.itertuples():
        groups.setdefault(
            cell.Index if cell.status == "outside" else (cell.table, cell.status, cell.reason), []
        ).append(cell)
    for own in groups.values():
        yield Text(_group(own), style=STYLES[own[0].status])
        yield Padding(Text(own[0].reason), (0, 0, 0, 2))
    if len(told):
        yield from _tolerances(found.tolerances[told.paper.iloc[0]], told)


def _group(cells: list[Any]) -> str:
    """The first cell of those that share a reason, with its numbers if it is alone; or their number and differences."""
    first, gaps = cells[0], sorted((cell for cell in cells if pd.notna(cell.difference)), key=attrgetter("difference"))
    start = f"{first.paper} {first.table}, {first.status.replace('-', ' ')}"
    if len(cells) > 1:
        span = f", {difference(gaps[0])} to {difference(gaps[-1])}" if gaps else ""
        return f"{start}: {len(cells)} numbers{span}"
    place = ", ".join(filter(None, (first.dataset, first.variant, first.method, first.metric)))
    ours = f"; reproduced {reproduced(first)}, published {spread_out(first.compared_with, first.compared_with_spread)}"
    return f"{start}: {place}{ours}, {difference(first)}, allowed {limits(first)}" if gaps else f"{start}: {place}"


def _tolerances(tolerances: dict[str, str], cells: pd.DataFrame) -> list[Text]:
    """The tolerance of each table with a compared cell, and its reason; tables with the same share a line."""
    tables: dict[str, list[str]] = {}
    for table in cells[cells.difference.notna()].table.unique():
        tables.setdefault(tolerances[table], []).append(table)
    return [Text(f"Tolerance of {', '.join(names)}: {said}.", style="dim") for said, names in tables.items()]


def _tally(found: Iterable[str]) -> str:
    counts = Counter(found)
    return ", ".join(f"{counts[name]} {name}" for name in STYLES if counts[name])
