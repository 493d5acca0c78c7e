"""Short tables for a terminal: a line a row, our number with the published one behind it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pandas as pd
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.cells import facts
from fedrepro.report.layout import MARKS, NONE, STYLES, Sheet, named
from fedrepro.results.cells import reproduced
from fedrepro.results.claims import verdicts

MEANING = {
    "within": "within the tolerance",
    "outside": "outside it",
    "deviation": "outside it, with a declared reason",
    "calibrated": "fitted to the paper, not compared",
    "not-compared": "not compared",
    "not-run": "not run",
    "missing": "missing",
}
GAP = "  "


@dataclass(frozen=True)
class Column:
    """Texts of one width, the head first, and the styles of those below it."""

    texts: list[str]
    styles: list[str]


def table(sheet: Sheet, width: int) -> Text:
    """A sheet in lines of at most `width` characters, as far as the last key and the numbers of a row fit into it.

    Keys that are the same in all rows are named above. Where the others take too much room, the first become headings.
    A reading stands in the last key's column, indented below the row that it reads.
    """
    reading = next((place for place, column in enumerate(sheet.columns) if column.head == "reading"), None)
    places = [place for place, each in enumerate(sheet.columns) if each.kind == "key" and place != reading]
    same = [place for place in places if len({row[place].text for row in sheet.rows}) == 1]
    keys = [place for place in places if place not in same] or places[-1:]
    columns = [_key(sheet, place, reading if place == keys[-1] else None) for place in keys]
    columns += [_numbers(sheet, place) for place, each in enumerate(sheet.columns) if each.kind == "reproduced"]
    heading: list[int] = []
    while len(keys) > 1 and len(GAP.join(column.texts[0] for column in columns)) > width:
        heading.append(keys.pop(0))
        del columns[0]
    drawn = Text.assemble((sheet.title, "bold"), "\n")
    if above := named(sheet.columns, sheet.rows[0], [place for place in same if place not in keys]):
        drawn.append(f"all rows: {above}\n")
    drawn.append(GAP.join(column.texts[0] for column in columns) + "\n", "bold")
    before = ""
    for row in range(len(sheet.rows)):
        if (now := named(sheet.columns, sheet.rows[row], heading)) != before:
            drawn.append(f"{now}\n", "italic")
            before = now
        parts = [(column.texts[row + 1], column.styles[row]) for column in columns]
        drawn += Text(GAP).join([Text(text, style) for text, style in parts])
        drawn.append("\n")
    return drawn.append("\n".join(_below(sheet)), "dim")


def claims(paper: Paper, frame: pd.DataFrame) -> Group:
    """The claims of a paper: verdict, name, how many comparisons went which way, and what the paper says."""
    found, parts = verdicts(frame), [Text(f"{paper.name}: {paper.spec.title}", style="bold")]
    longest = max(map(len, paper.claims))
    for name, claim in paper.claims.items():
        own = frame[(frame.claim == name) & (frame.kind != "count")]
        counts = ", ".join(f"{count} {each}" for each, count in Counter(own.verdict).items())
        parts.append(Text.assemble((f"{found[name]:<9}", STYLES[found[name]]), f"  {name:<{longest}}  {counts}"))
        parts.append(Padding(Text(f"“{claim.statement}” ({claim.place})", style="dim"), (0, 0, 0, 11)))
    return Group(*parts)


def _key(sheet: Sheet, place: int, reading: int | None) -> Column:
    """A key. With `reading`, where the readings are, a row that has one shows it indented in place of its own."""
    texts = [sheet.columns[place].head.replace("_", " ")]
    for row in sheet.rows:
        read = NONE if reading is None else row[reading].text
        texts.append(row[place].text if read == NONE else f"  {read}")
    width = max(map(len, texts))
    return Column([f"{text:<{width}}" for text in texts], [""] * len(sheet.rows))


def _numbers(sheet: Sheet, place: int) -> Column:
    """A metric: our number, the published one in brackets, the mark of the status."""
    cells = [row[place].cell for row in sheet.rows]
    ours = [cell.reproduced or reproduced(cell) for cell in cells]
    theirs = [f"({cell.published})" for cell in cells]
    marks = [MARKS.get(cell.status, " ") for cell in cells]
    a, b = max(map(len, ours)), max(map(len, theirs))
    texts = [f"{own:>{a}} {their:<{b}} {mark}" for own, their, mark in zip(ours, theirs, marks, strict=True)]
    head = (sheet.columns[place].group or sheet.columns[place].head).replace("_", " ")
    width = max(len(head), len(texts[0]))
    return Column([f"{text:<{width}}" for text in (head, *texts)], [STYLES[cell.status] for cell in cells])


def _below(sheet: Sheet) -> list[str]:
    """The meaning of numbers and marks with their counts, the budget, and the orders that the numbers make."""
    shown = [entry.cell for row in sheet.rows for entry in row if entry.cell is not None]
    cells = [cell for cell in shown if "reading" not in facts(cell)]
    counts = Counter(cell.status for cell in cells)
    told = [f"{MARKS.get(each, '')} {counts[each]} {meant}".strip() for each, meant in MEANING.items() if counts[each]]
    labels = ", ".join(sorted({cell.label for cell in cells if cell.label}))
    budget = f" Budget: {labels}." if labels else ""
    others = " Indented rows are other readings, marked alike and not counted." if len(cells) < len(shown) else ""
    return [f"Ours (the paper's): {'; '.join(told)}.{others}{budget}", *map(str, sheet.rankings)]
