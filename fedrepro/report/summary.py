"""Summaries: the counts, verdicts and reasons, of each paper and of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import pandas as pd

from fedrepro.papers.paper import Paper
from fedrepro.report.layout import grid
from fedrepro.report.reasons import Found, collected, of_figures, of_tables
from fedrepro.results.check import by_table
from fedrepro.results.claims import verdicts
from fedrepro.results.frames import STATUSES, VERDICTS, Reproduction, counts

HEADS = {"within": "within tolerance", "deviation": "outside, declared", "outside": "outside, undeclared"}
HEADS |= {"not-run": "not run", "not-compared": "not compared", "calibrated": "fitted, not compared"}

Row = tuple[list[str], Mapping[str, int], list[str]]  # what it is of; status -> numbers; what else is counted


def overview(found: Iterable[tuple[Paper, Reproduction]]) -> str:
    """A row for each paper: its numbers by status, and its claims by verdict."""
    rows = []
    for paper, own in found:
        claims = Counter(verdicts(own.claims).values())
        label = paper.spec.budgets[paper.budget].label
        rows.append(([paper.name, label], counts(own.cells), [str(claims[verdict]) for verdict in VERDICTS]))
    return _counted(["paper", "budget"], rows, [f"claims: {verdict}" for verdict in VERDICTS]) + "\n"


def text(paper: Paper, found: Reproduction) -> str:
    """A paper's tables with their counts, its claims with their verdicts, and why numbers deviate or are not there."""
    deviating = _listed(of_tables(paper, found.cells, "deviation"))
    absent = _listed(of_tables(paper, found.cells, "not-run") + of_figures(paper))
    parts = [
        _tables(paper, found.cells) if len(found.cells) else "The paper prints no numbers that could be compared.",
        _claims(paper, verdicts(found.claims)) if paper.claims else "",
        f"Outside tolerance, declared, and why:\n\n{deviating}" if deviating else "",
        f"Not run, and why:\n\n{absent}" if absent else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _tables(paper: Paper, cells: pd.DataFrame) -> str:
    named = [(paper.table(name).title, own) for name, own in by_table(paper, cells).items()]
    return _counted(["table"], [([name], counts(own), []) for name, own in [*named, ("all", cells)]], [])


def _counted(first: list[str], rows: list[Row], last: list[str]) -> str:
    """Rows with the statuses that occur, in their order."""
    there = [status for status in STATUSES if any(own[status] for _, own, _ in rows)]
    heads = [*first, "numbers", *(HEADS.get(status, status) for status in there), *last]
    body = [[*of, str(sum(own.values())), *(str(own[s]) for s in there), *more] for of, own, more in rows]
    return grid(heads, body, [True] * len(first) + [False] * (len(heads) - len(first)))


def _claims(paper: Paper, found: Mapping[str, str]) -> str:
    rows = [
        [name, found[name], f"“{' '.join(claim.statement.split())}” ({claim.place})".replace("|", "\\|")]
        for name, claim in paper.claims.items()
    ]
    return grid(["claim", "verdict", "what the paper says"], rows, [True, True, True])


def _listed(found: list[Found]) -> str:
    """Reasons with the places that they are about."""
    said = []
    for text, _, places in collected(found):
        said.append(f"- {'; '.join(place.replace(': ', ', ', 1) for place, _ in places)}: {text}")
    return "\n".join(said)
