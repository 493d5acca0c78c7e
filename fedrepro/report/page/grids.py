"""Tables for the page: the sheets of layout.py, with a difference and a verdict beside each reproduced number."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fedrepro.papers.schema.cells import facts
from fedrepro.papers.schema.tables import Table
from fedrepro.report.layout import Column, Entry, Sheet, named
from fedrepro.report.page.align import DIGIT, MINUS, NUMBER, aligned, difference
from fedrepro.report.page.links import anchor
from fedrepro.results.cells import decimals, limits, reproduced, spread_out

MARKS = {
    "within": "✓", "deviation": "†", "outside": "✗", "not-compared": "≈", "not-run": "○", "missing": "!",
    "calibrated": "=",
    "holds": "✓", "fails": "✗", "undecided": "?", "above": "✓", "below": "✗", "neither": "?",
    "agrees": "✓", "reversed": "✗",
}  # fmt: skip
WORDS = {"deviation": "outside", "outside": "outside, no reason", "not-compared": "not compared", "not-run": "not run"}
FACTS = {
    "T": "T, the training accuracy in percent below which a run stops",
    "T+, T-": "with T three points higher, lower",
}

Row = Sequence[Entry]
Fact = tuple[str, str]  # what it is, and what it is here


class Grid(NamedTuple):
    """A table for the page. `columns`: first `keys` that tell its rows apart; verdicts are a kind of their own.

    `groups`: rows below what they share, which may be nothing. `always`: what all rows share; `noted`: the numbers of
    the footnotes that a column has in all rows.
    """

    columns: list[Column]
    keys: int
    groups: list[tuple[str, list[Row]]]
    always: str
    noted: list[int]

    @property
    def above(self) -> list[tuple[str, int]]:
        """The head above those of neighbouring columns, which may be empty, and how many they are."""
        return [(name, len(list(own))) for name, own in itertools.groupby(column.group for column in self.columns)]


def word(status: str) -> str:
    """A status for a reader."""
    return WORDS.get(status, status)


def value(entry: Entry, kind: str) -> str:
    """The key of sorting by a column: the number that a text begins with, of a verdict the distance from the print."""
    number = NUMBER.match(entry.text.strip(DIGIT))
    if number is None:
        return entry.text if kind == "key" else ""
    return number[0].replace(MINUS, "" if kind == "verdict" else "-").replace("+", "")


def grid(sheet: Sheet, run: bool) -> Grid:
    """A sheet below headings of as many keys as neighbours share; where nothing is `run`, its published numbers."""
    every = zip(sheet.columns, zip(*sheet.rows, strict=True), strict=True)
    wanted = [each for each in every if run or each[0].kind in ("key", "published")]
    columns, entries = zip(*itertools.chain.from_iterable(itertools.starmap(_columns, wanted)), strict=True)
    entries, noted = _common(entries)
    rows, keys = list(zip(*entries, strict=True)), [n for n, column in enumerate(columns) if column.kind == "key"]
    telling = [n for n in keys if len({entry.text for entry in entries[n]}) > 1] or keys[-1:]
    for cut in reversed(range(len(telling))):
        headed = itertools.groupby(rows, lambda row, n=telling[:cut]: named(columns, row, n))
        groups = [(heading, list(own)) for heading, own in headed]
        if 2 * len(groups) <= len(rows):
            break
    naming, others = telling[cut:], range(len(keys), len(columns))
    shown = [(heading, [_shown(row, keys, [*naming, *others]) for row in own]) for heading, own in groups]
    always = named(columns, rows[0], [n for n in keys if n not in telling])
    return Grid([columns[n] for n in (*naming, *others)], len(naming), shown, always, noted)


def traced(table: Table, sheet: Sheet) -> dict[str, dict[str, Any]]:
    """The id of a number that is run -> where it stands in its table, how it compares, and what is noted, for JSON."""
    found = {}
    facts = [(n, column) for n, column in enumerate(sheet.columns) if column.kind == "fact"]
    keys = [n for n, column in enumerate(sheet.columns) if column.kind == "key"]
    for row in sheet.rows:
        beside = [row[n] for n in (*keys, *(n for n, _ in facts))]
        for printed, entry in zip(row, row[1:], strict=False):  # a number stands behind the published one
            if entry.cell is not None and entry.cell.runs:
                noted = sorted({number for each in (*beside, printed, entry) for number in each.notes})
                metric = entry.cell.metric.replace("_", " ")
                own = [(FACTS.get(c.head, c.head), row[n].text) for n, c in facts if c.group in ("", metric)]
                told = [*_facts(table, entry.cell), *(fact for fact in own if fact[1].strip("–, "))]
                found[anchor(entry.cell)] = {"facts": told, "notes": [sheet.notes[n - 1] for n in noted]}
    return found


def _columns(column: Column, entries: Row) -> Iterator[tuple[Column, Row]]:
    """A column with its numbers under one another, and of reproduced numbers another one for the verdicts on them."""
    if column.kind == "key":
        yield column, entries
        return
    texts = ["–" if entry.cell is not None and not entry.cell.runs else entry.text for entry in entries]
    texts = texts if column.kind == "fact" and column.group else aligned(texts)  # T+ and T- have seeds between them
    yield column, [replace(entry, text=text) for entry, text in zip(entries, texts, strict=True)]
    if column.kind == "reproduced":
        gaps = aligned([difference(entry.cell) for entry in entries])
        head = "difference" if column.group else "verdict"
        verdicts = [Entry(gap, entry.status, cell=entry.cell) for entry, gap in zip(entries, gaps, strict=True)]
        yield Column(head, "verdict", column.group), verdicts


def _common(entries: Sequence[Row]) -> tuple[list[Row], list[int]]:
    """Columns without the footnotes that all of their rows have, where there are several; and these footnotes."""
    shown, noted = [], set()
    for column in entries:
        same = set.intersection(*(set(entry.notes) for entry in column)) if len(column) > 1 else set()
        noted |= same
        shown.append([replace(entry, notes=tuple(n for n in entry.notes if n not in same)) for entry in column])
    return shown, sorted(noted)


def _shown(row: Row, keys: list[int], places: list[int]) -> Row:
    """The cells of a row; the last of its keys has the notes of all."""
    noted = tuple(sorted({note for n in keys for note in row[n].notes}))
    last = max(n for n in places if n in keys)
    return [replace(row[n], notes=noted if n == last else ()) if n in keys else row[n] for n in places]


def _facts(table: Table, cell: Any) -> Iterator[Fact]:
    """The facts about a number, beside its runs."""
    yield from ((axis.replace("_", " "), value.replace("_", " ")) for axis, value in facts(cell).items())
    published = f"{spread_out(cell.published, cell.published_spread)} {cell.unit.replace('_', ' ')}"
    yield "published", published.strip()
    if cell.compared_because:
        yield "compared with", spread_out(cell.compared_with, cell.compared_with_spread)
    yield "reproduced", reproduced(cell)
    if cell.measured and (table.last or table.checkpoints):
        yield _made_of(table, cell)
    if gap := difference(cell):
        yield from (("difference", gap), ("allowed", limits(cell)))
    yield from (("verdict", f"{MARKS[cell.status]} {word(cell.status)}"), ("budget", cell.label))


def _made_of(table: Table, cell: Any) -> Fact:
    """The values that a number comes from, where the record, which has the ends of the runs, does not have it."""
    values, digits = [], decimals(cell.reproduced)
    for run, seed, round, value in cell.measured:
        place = [run] * (len(cell.runs) > 1) + [f"seed {seed}"] + [f"round {round:,}"] * bool(table.checkpoints)
        values.append(f"{value:.{digits}f} ({', '.join(place)})")
    of = f"{', '.join(values)}: {cell.read.replace('_', ' ')} in curves.csv"
    return ("median of", of) if table.checkpoints else ("mean of", f"{of}, over the last {table.last} rounds")
