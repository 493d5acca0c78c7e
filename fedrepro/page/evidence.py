"""The claims of a paper for the page: what each says, its verdict, and the pairs of cells that it rests on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest

from fedrepro import claims, quantities, wording
from fedrepro.claims import Evidence
from fedrepro.comparisons import Comparison
from fedrepro.layout import Entry
from fedrepro.page.align import aligned
from fedrepro.page.links import Link, cell_link, run_link
from fedrepro.spec import Paper


@dataclass(frozen=True)
class Row:
    """What has a verdict of its own, or the count of a claim's pairs; `runs`: to those behind it."""

    pair: str
    difference: str
    interval: str
    seeds: str
    verdict: str
    notes: list[str]
    runs: list[Link]


@dataclass(frozen=True)
class Claim:
    """A claim with its verdict and what this rests on. `tally`: verdict -> number of pairs."""

    id: str
    name: str
    statement: str
    place: str
    measured: str
    verdict: str
    tally: dict[str, int]
    rows: list[Row]


def found(paper: Paper) -> tuple[list[Claim], list[str]]:
    """The claims of a paper, and how their verdicts come about. Raises FedreproError where they have no readings."""
    if not paper.spec.claims:
        return [], []
    readings = quantities.stored(paper)
    evidence = claims.weigh(paper, readings)
    sheet, verdicts = claims.sheet(paper, readings, evidence), claims.verdicts(evidence)
    drawn, replaced = [], wording.substitutes(paper)
    for name, claim in paper.spec.claims.items():
        own = [(each, row) for each, row in zip(evidence, sheet.rows, strict=True) if each.claim == name]
        pairs = own if claim.published is None else own[:-1]  # behind them stands their count
        said = (claim.statement, claim.place, wording.measured(claim, replaced), verdicts[name])
        tally = dict(Counter(each.verdict for each, _ in pairs))
        runs = [_runs(paper, *each) for each in zip_longest((row for row, _ in own), paper.comparisons(name))]
        drawn.append(Claim(f"{paper.name}.claim.{name}", name, *said, tally, _rows(own, runs, sheet.notes)))
    return drawn, claims.judged(paper, readings)


def _rows(own: list[tuple[Evidence, list[Entry]]], runs: list[list[Link]], notes: list[str]) -> list[Row]:
    """The rows of a claim's sheet, with their footnotes spelt out."""
    columns = [aligned([row[n].text.replace("-", "\u2212") for _, row in own]) for n in (2, 3, 4)]
    return [
        Row(row[1].text, *numbers, row[-1].text, [notes[number - 1] for number in row[-1].notes], links)
        for (_, row), links, *numbers in zip(own, runs, *columns, strict=True)
    ]


def _runs(paper: Paper, evidence: Evidence, comparison: Comparison | None) -> list[Link]:
    """To the two runs of a pair, or to all of several pairs; none for a count."""
    if evidence.high or comparison is None:
        return [run_link(paper, run, text) for run, text in ((evidence.high, "first"), (evidence.low, "second")) if run]
    runs = tuple(dict.fromkeys(comparison.runs))
    return [cell_link(paper, runs, f"{len(runs)} run{'s' * (len(runs) != 1)}")] if runs else []
