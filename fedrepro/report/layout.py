"""How a table looks: one sheet of entries, drawn as Markdown or in the terminal; latex.py draws it, too."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.cells import FIXED, facts, matches, words
from fedrepro.papers.schema.tables import Table
from fedrepro.report.wording import lines
from fedrepro.results.cells import reproduced, spread_out, with_readings
from fedrepro.results.check import tolerated
from fedrepro.results.frames import COMPARED
from fedrepro.results.rankings import JUDGED, Ranking, rankings

MARKS = {"within": "✓", "outside": "✗", "deviation": "†", "calibrated": "="}
STYLES = {  # of statuses and verdicts, in the order in which they are counted
    "within": "green", "outside": "bold red", "deviation": "yellow", "missing": "bold red", "not-run": "dim",
    "not-compared": "", "calibrated": "cyan",
    "holds": "green", "fails": "bold red", "undecided": "yellow", "above": "green", "below": "bold red",
}  # fmt: skip
NONE = "–"  # in place of a key that a row does not have
REMARKS = {"not-run": "Not run", "missing": "Missing", "deviation": "Declared deviation", "calibrated": "Calibrated"}


@dataclass(frozen=True)
class Column:
    """`group` stands above the heads of neighbouring columns; `kind`: key, published, reproduced or fact."""

    head: str
    kind: str
    group: str = ""

    @property
    def flush(self) -> bool:
        """Whether its entries stand to the left."""
        return self.kind in ("key", "reproduced")


@dataclass(frozen=True)
class Entry:
    """The content of one place: text, the status that it shows, the numbers of its notes.

    `cell`: the row of the frame `cells` behind a reproduced number, else None.
    """

    text: str
    status: str = ""
    notes: tuple[int, ...] = ()
    cell: Any = None

    @property
    def marked(self) -> str:
        """The text with the mark of its status."""
        return f"{self.text} {MARKS[self.status]}" if self.status in MARKS else self.text

    def __str__(self) -> str:
        return self.marked + "".join(f" [{number}]" for number in self.notes)


@dataclass
class Sheet:
    """A table ready to be drawn. `notes`: footnotes, numbered from 1 in the order in which `note` first saw them."""

    title: str
    legend: list[str]
    columns: list[Column]
    rows: list[list[Entry]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rankings: list[Ranking] = field(default_factory=list)

    @property
    def told(self) -> list[str]:
        """The lines below the table: its legend, then the rankings."""
        return [*self.legend, *map(str, self.rankings)]

    def note(self, *texts: str) -> tuple[int, ...]:
        """The numbers of these footnotes; equal texts share one, empty texts have none."""
        self.notes += [text for text in dict.fromkeys(texts) if text and text not in self.notes]
        return tuple(self.notes.index(text) + 1 for text in texts if text)


def sheet(paper: Paper, table: str, cells: pd.DataFrame) -> Sheet:
    """A table of a paper from its rows of the frame `cells`: rows are methods, columns the metrics, published beside
    reproduced, then seeds, threshold and rounds."""
    rows = with_readings(cells)
    axes = dict.fromkeys(axis for row in rows for axis in facts(row) if axis not in (*FIXED, "metric"))
    keys = [*(["dataset"] if cells.dataset.nunique() > 1 else []), *axes, "method"]
    stops = any(row.thresholds for row in rows)
    moved = {row.metric for row in rows if row.metric.startswith("test") and row.raised + row.lowered}
    columns = [Column(key, "key") for key in keys]
    for metric in paper.table(table).metrics:
        columns += _compared(paper, table, metric)
        columns += [Column("T+, T-", "fact", metric.replace("_", " "))] if metric in moved else []
    columns += [Column(head, "fact") for head in ("seeds", *(["T"] if stops else []), "rounds")]
    drawn = Sheet(_title(paper.table(table), cells), [], columns, rankings=rankings(paper, table, cells))
    drawn.legend.extend(_legend(paper, table, cells, bool(moved), bool(drawn.rankings)))
    for _, row in itertools.groupby(rows, lambda row: (row.dataset, row.variant, row.method)):
        drawn.rows.append(_row(drawn, paper.table(table), list(row), keys, stops, moved))
    return drawn


def named(columns: Sequence[Column], row: Sequence[Entry], places: list[int]) -> str:
    """Some keys of a row for a reader, but for those that it does not have."""
    return words({columns[n].head: row[n].text.replace("_", " ") for n in places if row[n].text != NONE})


def markdown(sheet: Sheet) -> str:
    """A Markdown document that is as readable raw as rendered."""
    heads = [f"{column.group}, {column.head}" if column.group else column.head for column in sheet.columns]
    body = [[str(entry).replace("|", "\\|") for entry in row] for row in sheet.rows]
    notes = [f"{number}. {note}" for number, note in enumerate(sheet.notes, 1)]
    drawn = grid(heads, body, [column.flush for column in sheet.columns])
    parts = [f"# {sheet.title}", drawn, "\n".join(f"- {line}" for line in sheet.told), "\n".join(notes)]
    return "\n\n".join(filter(None, parts)) + "\n"


def grid(heads: list[str], rows: list[list[str]], flush: list[bool]) -> str:
    """Heads and rows as a table of Markdown whose columns line up, to the left where they are `flush`."""
    widths = [max(map(len, place)) for place in zip(heads, *rows, strict=True)]
    rule = [":" + "-" * (w - 1) if left else "-" * (w - 1) + ":" for w, left in zip(widths, flush, strict=True)]
    lines = []
    for row in (heads, rule, *rows):
        padded = (f"{t:<{w}}" if left else f"{t:>{w}}" for t, w, left in zip(row, widths, flush, strict=True))
        lines.append(f"| {' | '.join(padded)} |")
    return "\n".join(lines)


def terminal(sheet: Sheet) -> Group:
    """The table for a rich console: published dim, verdicts in colour, notes below."""
    drawn = RichTable(title=Text(sheet.title, style="bold"), title_justify="left")
    for column in sheet.columns:
        head, style = f"{column.group}\n{column.head}".lstrip("\n"), "dim" if column.kind == "published" else ""
        justify = "left" if column.flush else "right"
        drawn.add_column(head, justify=justify, style=style, vertical="bottom", overflow="fold")
    for row in sheet.rows:
        drawn.add_row(*(Text(str(entry), style=STYLES.get(entry.status, "")) for entry in row))
    notes = [f"[{number}] {note}" for number, note in enumerate(sheet.notes, 1)]
    return Group(drawn, Text("\n".join([*sheet.told, *notes]), style="dim"))


def _compared(paper: Paper, table: str, metric: str) -> list[Column]:
    """The columns of a metric: published and reproduced, or the paper's own and what stands in for it."""
    group = metric.replace("_", " ")
    reads = [cell.read for cell in paper.cells(table) if cell.metric == metric and cell.read.substitute]
    if not reads:
        return [Column("published", "published", group), Column("reproduced", "reproduced", group)]
    printed, names = ({read.printed or group for read in reads}, {read.metric for read in reads})
    head = f"paper ({' or '.join(sorted(printed))}, not comparable)"
    return [Column(head, "published"), Column(" or ".join(sorted(names)), "reproduced")]


def _row(drawn: Sheet, table: Table, cells: list[Any], keys: list[str], stops: bool, moved: set[str]) -> list[Entry]:
    """One method under one setting; all its metrics come from the same run."""
    axes = facts(cells[0]) | {"budget": cells[0].budget}
    *settings, method = (axes.get(key, NONE) for key in keys)
    meant = (each for each in table.readings if each.reading in ("", axes.get("reading", "")))
    readings = drawn.note(*(f"{remark.reason}." for remark in meant if matches(remark.when, axes)))
    row = [*map(Entry, settings), Entry(method, notes=readings + drawn.note(max(cell.chosen for cell in cells)))]
    for cell in cells:
        row.append(Entry(spread_out(cell.published, cell.published_spread), notes=drawn.note(*_on_print(cell))))
        row.append(Entry(reproduced(cell), cell.status, drawn.note(*_remarks(cell)), cell))
        if cell.metric in moved:
            ends = (cell.raised, cell.n_raised), (cell.lowered, cell.n_lowered)
            some = (f"{mean or '–'}{f' ({n})' if 0 < n < _seeds(cell) else ''}" for mean, n in ends)
            row.append(Entry(", ".join(some)))
    ran = max(cells, key=_seeds)  # a metric may have been left out with a reason
    data = (f"Data: {substitute}, in place of the paper's own." for substitute in ran.substitute_data)
    row.append(Entry(str(ran.n_seeds), notes=drawn.note(*data)))
    if stops:
        row.append(Entry(", ".join(f"{100 * threshold:.2f}" for threshold in ran.thresholds) or "–"))
    row.append(Entry(_rounds(table, ran.rounds), notes=drawn.note(*_endings(ran))))
    return row


def _seeds(cell: Any) -> int:
    """How many values there are of a cell, or would be had none diverged."""
    return len(cell.measured) + len(cell.diverged)


def _title(table: Table, cells: pd.DataFrame) -> str:
    """With what stands in for the paper's metric, if anything does."""
    substitutes = "; ".join(sorted({*cells.substitute_metric} - {""}))
    return f"{table.title} – here: {substitutes}" if substitutes else table.title


def _legend(paper: Paper, name: str, cells: pd.DataFrame, moved: bool, ranked: bool) -> list[str]:
    """The meaning of the numbers and of the heads of columns, and how numbers are compared."""
    table, first = paper.table(name), cells.iloc[0]
    unit = first["read"] if first.substitute_metric else first.unit.replace("_", " ")
    ran = {place for cell in paper.cells(name) for place in cell.grid}
    return lines(
        "table",
        table=table,
        label=paper.spec.budgets[paper.budget].of(name),
        grid={axis: [v for v in every if not ran or (axis, v) in ran] for axis, every in table.grid.items()},
        unit=f", in {unit}" if unit else "",
        substitute=first.substitute_metric,
        spread=any(cells.spread_of),
        tolerance=tolerated(table.tolerance),
        stops=any(cells.thresholds),
        moved=moved,
        calibrated=(cells.status == "calibrated").any(),
        compared=cells.status.isin(COMPARED).any(),
        floors=sorted({*itertools.chain.from_iterable(cells.floor)}),
        ranked=JUDGED if ranked else "",
    )


def _on_print(cell: Any) -> Iterator[str]:
    """Footnotes on a published number."""
    if cell.note:
        yield f"Published: {cell.note.rstrip('.')}."
    if cell.compared_because:
        yield f"Compared with {spread_out(cell.compared_with, cell.compared_with_spread)}: {cell.compared_because}."


def _remarks(cell: Any) -> Iterator[str]:
    """Footnotes on a reproduced number."""
    if cell.status in REMARKS:
        yield f"{REMARKS[cell.status]}: {cell.reason}"
    yield from (f"A part of its grid is left out: {reason}." for reason in cell.lacks)


def _rounds(table: Table, rounds: list[int]) -> str:
    if table.checkpoints or len(set(rounds)) < 2:
        return ", ".join(map(str, dict.fromkeys(rounds))) or "–"
    return f"{statistics.fmean(rounds):.0f} ({min(rounds)}–{max(rounds)})"


def _endings(cell: Any) -> Iterator[str]:
    """Footnotes on the seeds whose training did not end as intended."""
    if cell.capped:
        yield f"Not stopped by the end of training: {_seeds_named(cell.capped)}."
    if cell.collapsed:
        yield f"Collapsed to chance, having been above it: {_seeds_named(cell.collapsed)}."
    for seed, round in cell.diverged:
        yield f"Seed {seed} diverged in round {round} and is left out of mean and spread."


def _seeds_named(seeds: list[int]) -> str:
    """Seeds in words, one or several."""
    *others, last = map(str, seeds)
    return f"seeds {', '.join(others)} and {last}" if others else f"seed {last}"
