"""Tables for the page: the sheets of layout.py, with a difference and a verdict beside each reproduced number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from fedrepro.layout import Column, Entry, Sheet
from fedrepro.page.align import DIGIT, aligned, signed
from fedrepro.page.links import Link, anchor, cell_link, run_name
from fedrepro.results import COMPARED, Result
from fedrepro.schema import Table, words
from fedrepro.spec import Paper

MARKS = {
    "within": "✓", "deviation": "†", "outside": "✗", "not-compared": "≈", "not-run": "○", "missing": "!",
    "holds": "✓", "fails": "✗", "undecided": "?", "above": "✓", "below": "✗", "neither": "?",
    "agrees": "✓", "reversed": "✗",
}  # fmt: skip
WORDS = {"deviation": "declared", "not-compared": "not compared", "not-run": "not run"}  # else the status itself


@dataclass(frozen=True)
class Head:
    """The head of `span` columns, or, with a span of 1, perhaps of one over two lines."""

    text: str
    span: int = 1
    rows: int = 1


@dataclass(frozen=True)
class Box:
    """What stands in one place: text, what kind of column it is in, and the numbers of its notes.

    `status`: shown as a badge. `id`: by which the place is linked to. `link`: to the runs that the number comes from.
    """

    text: str
    kind: str
    notes: tuple[int, ...] = ()
    status: str = ""
    id: str = ""
    link: Link | None = None


@dataclass(frozen=True)
class Group:
    """Rows that share a heading; without one they are all rows of the table."""

    heading: str
    rows: list[list[Box]]


@dataclass(frozen=True)
class Grid:
    """A table for the page. `always`: what holds for all of its rows and is no column therefore.

    The last of the boxes with keys names its row. `cells`: id -> what is shown of a number beside its runs, for JSON.
    """

    heads: list[list[Head]]
    groups: list[Group]
    always: str
    cells: dict[str, dict[str, Any]]


def word(status: str) -> str:
    """A status for a reader."""
    return WORDS.get(status, status)


def grid(paper: Paper, sheet: Sheet) -> Grid:
    """The sheet of a table, each reproduced number with its difference and verdict, and with the runs behind it."""
    cells: dict[str, dict[str, Any]] = {}
    columns = [column for each in sheet.columns for column in _columns(each)]
    rows = []
    for row in sheet.rows:
        places = list(zip(sheet.columns, row, strict=True))
        rows.append([box for column, entry in places for box in _boxes(paper, column, entry)])
        for entry in row:
            if entry.result is not None and entry.result.cell.runs:
                cells[anchor(entry.result.cell)] = _cell(paper, sheet.notes, entry.result, places)
    return _grouped(columns, rows, cells)


def published(sheet: Sheet) -> Grid:
    """What a paper has printed of a sheet, for a table of which nothing is run."""
    kept = [number for number, column in enumerate(sheet.columns) if column.kind in ("key", "published")]
    columns = [sheet.columns[number] for number in kept]
    rows = [[Box(row[n].text, sheet.columns[n].kind, row[n].notes) for n in kept] for row in sheet.rows]
    return _grouped(columns, rows, {})


def _columns(column: Column) -> list[Column]:
    """A column of a sheet, and where it is of reproduced numbers another one for the verdict on them."""
    if column.kind != "reproduced":
        return [column]
    return [column, Column("difference" if column.group else "verdict", "verdict", column.group)]


def _boxes(paper: Paper, column: Column, entry: Entry) -> list[Box]:
    result = entry.result
    if result is None:
        return [Box(entry.text, column.kind, entry.notes)]
    text = entry.text if result.cell.runs else "–"
    number = Box(text, column.kind, entry.notes, id=anchor(result.cell), link=cell_link(paper, result.cell.runs, text))
    return [number, Box(_difference(result), "verdict", status=result.status)]


def _difference(result: Result) -> str:
    """Reproduced less published, where the two are compared."""
    compared = result.status in COMPARED and result.difference is not None
    return signed(result.difference, result.decimals) if compared else ""


def _cell(paper: Paper, notes: list[str], result: Result, row: list[tuple[Column, Entry]]) -> dict[str, Any]:
    """What is shown of a number: where it stands in its table, how it compares, and what is noted."""
    cell = result.cell
    facts = [(_named(axis), value.replace("_", " ")) for axis, value in cell.facts.items()]
    facts += [("published", f"{result.published} {result.published.unit.replace('_', ' ')}".strip())]
    facts += [("compared with", str(result.reference))] if result.instead else []
    facts += [("reproduced", str(result)), *_made_of(paper.table(cell.table), result)]
    if difference := _difference(result):
        facts += [("difference", difference), ("allowed", result.allowed)]
    facts += [("verdict", f"{MARKS[result.status]} {word(result.status)}"), ("budget", result.budget.label)]
    at = next(n for n, (_, entry) in enumerate(row) if entry.result is result)
    told = [*(each for each in row if each[0].kind in ("key", "fact")), *row[at - 1 : at + 1]]  # it stands behind print
    noted = sorted({number for _, entry in told for number in entry.notes})
    return {
        "facts": facts,
        "notes": [notes[number - 1] for number in noted],
        "runs": [run_name(paper.name, run) for run in cell.runs],
    }


def _made_of(table: Table, result: Result) -> list[tuple[str, str]]:
    """What a number is of that is not in the record, which has the ends of the runs: the values that it comes from."""
    if not result.values or (table.last is None and not result.ranges):
        return []
    read, alone = result.cell.read.metric.replace("_", " "), len(result.cell.runs) == 1
    values = []
    there = (measure for measure in result.measures if measure.value is not None)
    for measure, value in zip(there, result.values, strict=True):
        place = [] if alone else [measure.run]
        place += [f"seed {measure.seed}", *([f"round {measure.rounds:,}"] if result.ranges else [])]
        values.append(f"{value:.{result.decimals}f} ({', '.join(place)})")
    if result.ranges:
        return [("median of", f"{', '.join(values)}: {read} in curves.csv")]
    return [("mean of", f"{', '.join(values)}: {read} in curves.csv, over the last {table.last} rounds")]


def _grouped(columns: list[Column], rows: list[list[Box]], cells: dict[str, dict[str, Any]]) -> Grid:
    """The rows below headings of as many keys as neighbours share; the other keys that differ are columns."""
    rows, keys = _lined_up(rows), [n for n, column in enumerate(columns) if column.kind == "key"]
    telling = [n for n in keys if len({row[n].text for row in rows}) > 1] or keys[-1:]
    for cut in reversed(range(len(telling))):
        shared, naming = telling[:cut], telling[cut:]
        groups = [(title, list(own)) for title, own in groupby(rows, lambda row, n=shared: _said(columns, row, n))]
        if 2 * len(groups) <= len(rows):
            break
    shown = [*naming, *(n for n in range(len(columns)) if n not in keys)]
    always = _said(columns, rows[0], [n for n in keys if n not in telling])
    drawn = [Group(title, [_without(row, keys, shown) for row in own]) for title, own in groups]
    return Grid(_heads([columns[n] for n in shown]), drawn, always, cells)


def _said(columns: list[Column], row: list[Box], places: list[int]) -> str:
    """Some keys of a row for a reader, but for those that it does not have."""
    return words({columns[n].head: row[n].text.replace("_", " ") for n in places if row[n].text != "–"})


def _without(row: list[Box], keys: list[int], shown: list[int]) -> list[Box]:
    """A row with the columns that are shown; the last key that is has the notes of all keys."""
    noted = tuple(sorted({note for n in keys for note in row[n].notes}))
    last = max(n for n in shown if n in keys)
    return [replace(row[n], notes=noted if n == last else () if n in keys else row[n].notes) for n in shown]


def _heads(columns: list[Column]) -> list[list[Head]]:
    """One line of heads, or two where columns have groups."""
    if not any(column.group for column in columns):
        return [[Head(_named(column.head)) for column in columns]]
    above: list[Head] = []
    for group, members in groupby(columns, key=lambda column: column.group):
        own = list(members)
        above += [Head(group, span=len(own))] if group else [Head(_named(column.head), rows=2) for column in own]
    return [above, [Head(_named(column.head)) for column in columns if column.group]]


def _named(head: str) -> str:
    return head.replace("_", " ")


def _lined_up(rows: list[list[Box]]) -> list[list[Box]]:
    """With the numbers of each column under one another."""
    columns = []
    for column in zip(*rows, strict=True):
        texts = [box.text for box in column]
        columns.append(texts if column[0].kind == "key" else aligned(texts))
    lined = zip(*columns, strict=True)
    return [[_moved(b, t) for b, t in zip(row, texts, strict=True)] for row, texts in zip(rows, lined, strict=True)]


def _moved(box: Box, text: str) -> Box:
    """A box with its text lined up; what links is the text without the spaces before it, which would be underlined."""
    return replace(box, text=text, link=box.link and replace(box.link, text=text.lstrip(DIGIT)))
