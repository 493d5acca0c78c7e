"""What `fedrepro check` found: as JSON, as metrics and points for DVC, and for the terminal."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedrepro.errors import OutsideTolerance
from fedrepro.files import csv_text, json_text

FORMAT = 2
STYLES = {
    "within": "green", "outside": "bold red", "deviation": "yellow", "missing": "bold red", "not-run": "dim",
    "holds": "green", "fails": "bold red", "undecided": "yellow", "above": "green", "below": "bold red",
}  # fmt: skip
HEADS = ("table", "cell", "published", "reproduced", "difference", "allowed", "status", "reason")
FOUND = ("holds", "fails", "undecided")  # of a claim
DECIMALS = 4  # of a mean difference


@dataclass(frozen=True)
class Verdict:
    """One cell: the printed number, ours, and how the two compare.

    `published`, `compared_with` (the same, but where the printed number is mislabelled) and `reproduced` are for a
    reader, with their spreads. `expected` (that of `compared_with`), `value` and `difference` are numbers in `unit`;
    there is no value without a run, and no difference where the two are not compared. `allowed`: the largest difference
    within tolerance, or the range of values that are. `reason`: why the cell is not simply within tolerance; empty
    where it is, or is not compared.
    """

    paper: str
    table: str
    dataset: str
    variant: str
    method: str
    metric: str
    unit: str
    published: str
    compared_with: str
    reproduced: str
    expected: float
    value: float | None
    difference: float | None
    allowed: float | list[float] | None
    status: str
    reason: str

    @property
    def place(self) -> str:
        """The cell in its table."""
        return ", ".join(filter(None, (self.dataset, self.variant, self.method, self.metric)))

    @property
    def compared(self) -> bool:
        """Whether there is a number that is compared with the published one."""
        return self.difference is not None


@dataclass(frozen=True)
class Point:
    """A compared cell as a row of reports/agreement/<paper>.csv."""

    table: str
    cell: str
    unit: str
    status: str
    published: float
    reproduced: float


@dataclass(frozen=True)
class Report:
    """The verdict on every cell, and one sentence for each thing that must be mended or declared.

    `counts`: paper -> table -> status -> cells. `tolerances`: paper -> table -> what it is and why. `claims`: paper ->
    claim -> verdict; one that fails is a finding about the paper and no problem.
    """

    counts: dict[str, dict[str, dict[str, int]]]
    tolerances: dict[str, dict[str, str]]
    claims: dict[str, dict[str, str]]
    cells: list[Verdict]
    problems: list[str]

    def enforce(self) -> None:
        """Raise OutsideTolerance with the first problem and their number, if there is any."""
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            raise OutsideTolerance(f"{self.problems[0]}{more}")

    def text(self) -> str:
        """reports/check.json."""
        return json_text({"format": FORMAT, **asdict(self)})

    def files(self, root: Path) -> dict[Path, str]:
        """What is written of it: reports/check.json, and for each paper the metrics and points in reports/agreement."""
        found = {path(root): self.text()}
        for paper in self.counts:
            points = [_point(cell) for cell in self.cells if cell.paper == paper and cell.compared]
            metrics, plotted = agreement(paper, root)
            found |= {metrics: json_text(self._metrics(paper)), plotted: csv_text(Point, points)}
        return found

    def statuses(self, paper: str) -> dict[str, int]:
        """How many cells of a paper have each status."""
        total: Counter[str] = Counter()
        for counts in self.counts[paper].values():
            total.update(counts)
        return dict(total)

    def _metrics(self, paper: str) -> dict[str, object]:
        """Cells by status, claims by verdict, and the mean absolute difference in each unit."""
        counts = self.statuses(paper)
        gaps: dict[str, list[float]] = {}
        for cell in self.cells:
            if cell.paper == paper and cell.compared:
                gaps.setdefault(cell.unit, []).append(abs(cell.difference))
        means = {unit: round(statistics.fmean(values), DECIMALS) for unit, values in gaps.items()}
        return {
            "cells": {"all": sum(counts.values()), **counts},
            "claims": {verdict: list(self.claims.get(paper, {}).values()).count(verdict) for verdict in FOUND},
            "mean_difference": means,
        }


def parse(text: str) -> Report:
    """The inverse of `Report.text`. Raises ValueError, KeyError or TypeError where the text is something else."""
    content = json.loads(text)
    cells = [Verdict(**cell) for cell in content["cells"]]
    return Report(**{field.name: content[field.name] for field in fields(Report)} | {"cells": cells})


def path(root: str | Path = ".") -> Path:
    """Where the whole verdict is."""
    return Path(root) / "reports" / "check.json"


def agreement(paper: str, root: str | Path = ".") -> list[Path]:
    """Where a paper's metrics and points are."""
    return [Path(root) / "reports" / "agreement" / f"{paper}.{kind}" for kind in ("json", "csv")]


def show(report: Report, every: bool = False) -> Group:
    """For a rich console: for each paper the counts and the cells that are not simply within tolerance; the problems.

    Cells of a table with the same status and reason share a row, but for those outside; with `every` none do.
    """
    parts: list[Table | Text] = []
    for paper in report.counts:
        counts = report.statuses(paper)
        said = f"{sum(counts.values())} cells: {_tally(counts)}" if any(counts.values()) else "no tables"
        verdicts = _tally(Counter(report.claims.get(paper, {}).values()))
        parts.append(Text(f"{paper}: {said}{f'; claims: {verdicts}' if verdicts else ''}", style="bold"))
        cells = [cell for cell in report.cells if cell.paper == paper and cell.reason]
        if cells:
            parts += [_drawn(cells, every), *_tolerances(report.tolerances[paper], cells)]
    return Group(*parts, *(Text(problem, style="bold red") for problem in report.problems))


def _drawn(cells: list[Verdict], every: bool) -> Table:
    """A row for each group of cells."""
    drawn = Table()
    for head in HEADS:
        justify = "right" if head in ("published", "difference", "allowed") else "left"
        drawn.add_column(head, justify=justify, overflow="fold")
    groups: dict[object, list[Verdict]] = {}
    for cell in cells:
        alone = every or cell.status == "outside"
        groups.setdefault(cell if alone else (cell.table, cell.status, cell.reason), []).append(cell)
    for group in groups.values():
        first = group[0]
        numbers = _several(group) if len(group) > 1 else _numbers(first)
        drawn.add_row(first.table, *numbers, Text(first.status, style=STYLES[first.status]), Text(first.reason))
    return drawn


def _numbers(cell: Verdict) -> tuple[Text | str, ...]:
    gap = _gap(cell) if cell.compared else "–"
    return Text(cell.place), cell.compared_with, cell.reproduced, gap, _allowed(cell)


def _several(cells: list[Verdict]) -> tuple[Text | str, ...]:
    """Of cells that share a row: their number, and from where to where their differences go."""
    gaps = sorted((cell for cell in cells if cell.compared), key=lambda cell: cell.difference)
    return f"{len(cells)} cells", "", "", f"{_gap(gaps[0])} to {_gap(gaps[-1])}" if gaps else "–", ""


def _gap(cell: Verdict) -> str:
    """The difference with as many decimals as our number."""
    mean, _, _ = cell.reproduced.partition(" ")
    return f"{cell.difference:+.{len(mean.partition('.')[2])}f}"


def _allowed(cell: Verdict) -> str:
    if isinstance(cell.allowed, list):
        return "{:g} to {:g}".format(*cell.allowed)
    return "–" if cell.allowed is None else f"±{cell.allowed:g}"


def _tolerances(tolerances: dict[str, str], cells: Iterable[Verdict]) -> list[Text]:
    """What the tolerance of each table with a compared cell is, and why; tables with the same share a line."""
    tables: dict[str, list[str]] = {}
    for table in dict.fromkeys(cell.table for cell in cells if cell.compared):
        tables.setdefault(tolerances[table], []).append(table)
    return [Text(f"Tolerance of {', '.join(names)}: {said}.", style="dim") for said, names in tables.items()]


def _point(cell: Verdict) -> Point:
    return Point(cell.table, cell.place, cell.unit, cell.status, cell.expected, cell.value)


def _tally(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)
