"""Why numbers are not like the print, or not there: each reason once, with what it is said of."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from fedrepro.papers.paper import Paper
from fedrepro.papers.published import KEYS
from fedrepro.papers.schema.cells import facts, words

Found = tuple[str, int, str, str]  # a reason, of how many numbers, a place for a reader, and its id in the page


class Reason(NamedTuple):
    """One sentence, how many numbers it is about, and where: numbers, or tables and figures, each with its id."""

    text: str
    count: int
    places: list[tuple[str, str]]


def of_tables(paper: Paper, cells: pd.DataFrame, status: str) -> list[Found]:
    """The reasons of the cells of one status, table by table, with what their rows have in common."""
    axes = pd.DataFrame([facts(cell) for cell in cells[KEYS].itertuples()], cells.index)
    found = []
    for (name, why), own in cells[cells.status == status].groupby(["table", "reason"], sort=False):
        common = _common(axes.loc[own.index], axes[cells.table == name])
        place = ", ".join(filter(None, (short(paper, name), common)))
        found.append((why, len(own), f"{place} ({len(own)})", f"{paper.name}.{name}"))
    return found


def _common(here: pd.DataFrame, there: pd.DataFrame) -> str:
    """The values of axes that some cells of a table share and others of it do not have, for a reader."""
    shared = [axis for axis, values in here.items() if axis != "metric" and values.nunique(dropna=False) == 1]
    return words({axis: here[axis].iloc[0] for axis in shared if there[axis].nunique() > 1})


def of_figures(paper: Paper) -> list[Found]:
    """Why figures, or parts of them, are not shown; a figure that is not drawn has no id."""
    drawn, found = set(paper.figures), []
    for name, figure in paper.spec.figures.items():
        place = f"{paper.name}.{name}" if name in drawn else ""
        found += [(f"{reason}.", 0, figure.title, place) for reason in paper.left_out(name)]
    return found


def collected(found: list[Found]) -> list[Reason]:
    """Each reason once, in the order in which they were found."""
    reasons: dict[str, Reason] = {}
    for text, count, *place in found:
        other = reasons.get(text, Reason(text, 0, []))
        reasons[text] = Reason(text, other.count + count, [*other.places, tuple(place)])
    return list(reasons.values())


def short(paper: Paper, table: str) -> str:
    """The title of a table up to its colon, as "Table 1"."""
    return paper.table(table).title.partition(":")[0]
