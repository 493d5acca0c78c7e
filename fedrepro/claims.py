"""The orderings that a paper states, each judged by a bootstrap over the seeds, as reports/claims/<paper>.{csv,md}."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.text import Text

from fedrepro import layout, quantities
from fedrepro.curves import digits, percent
from fedrepro.files import csv_text, write_text
from fedrepro.layout import Column, Entry, Sheet
from fedrepro.quantities import Reading
from fedrepro.schema import Claim, Final, FirstRound, Oscillation, Rounds
from fedrepro.spec import Pair, Paper, load_paper, load_papers

RESAMPLES = 10_000
JUDGED = (
    "Difference: mean over the seeds of the first cell less the second, seed by seed; interval: 95% of "
    f"{RESAMPLES:,} bootstrap resamples of the seeds. A pair holds if the interval is above the margin, fails if it is "
    "below, and is undecided otherwise, or with fewer than two seeds. A seed that is cut off counts with its last "
    "round, which is less than the truth: so no pair holds by such a seed of its second cell, or fails by one of its "
    "first. A claim holds if all its pairs do, and fails if one does."
)


@dataclass(frozen=True)
class Evidence:
    """One pair of a claim: the mean over `n` seeds of high less low, its interval [lo, hi], and the verdict.

    `high`, `low`: the runs, empty where the budget does not run the cell. The seeds are those with a value in both;
    with none there are no numbers. `censored_high`, `censored_low`: how many of the seeds were cut off.
    """

    claim: str
    pair: str
    high: str
    low: str
    difference: float | None
    lo: float | None
    hi: float | None
    n: int
    censored_high: int
    censored_low: int
    verdict: str


def weigh(paper: Paper, readings: list[Reading]) -> list[Evidence]:
    """The evidence for every pair of every claim, in their order."""
    seeds: dict[tuple[str, str | None], dict[int, Reading]] = {}
    for reading in readings:
        if reading.value is not None:
            seeds.setdefault((reading.claim, reading.run), {})[reading.seed] = reading
    evidence = []
    for name, claim in paper.spec.claims.items():
        for pair in paper.pairs(name):
            high, low = seeds.get((name, pair.high), {}), seeds.get((name, pair.low), {})
            both = [(high[seed], low[seed]) for seed in high if seed in low]
            evidence.append(_evidence(name, pair, both, claim.margin))
    return evidence


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """The 95% percentile interval of the mean over bootstrap resamples of the seeds (Efron and Tibshirani 1993, 13.3).

    Every pair has the same resamples, so that a new one moves no other.
    """
    resamples = np.random.default_rng(0).integers(len(differences), size=(RESAMPLES, len(differences)))
    lo, hi = np.quantile(np.asarray(differences, float)[resamples].mean(axis=1), (0.025, 0.975))
    return digits(lo), digits(hi)


def judge(lo: float, hi: float, margin: float, n: int, censored_high: int, censored_low: int) -> str:
    """The verdict of a pair: whether [lo, hi] lies above the margin, or below it.

    A censored value is larger than it says. So no pair holds with a censored low, and none fails with a censored high.
    """
    if n > 1 and lo > margin and not censored_low:
        return "holds"
    if n > 1 and hi < margin and not censored_high:
        return "fails"
    return "undecided"


def verdicts(evidence: list[Evidence]) -> dict[str, str]:
    """Claim -> verdict: it holds if all of its pairs do, and fails if one does."""
    found: dict[str, set[str]] = {}
    for each in evidence:
        found.setdefault(each.claim, set()).add(each.verdict)
    return {claim: next(v for v in ("fails", "undecided", "holds") if v in given) for claim, given in found.items()}


def render(root: str | Path = ".") -> list[Path]:
    """Write the evidence of every paper with claims as .csv and .md, from the readings in reports/metrics.

    Equal inputs give equal bytes. Raises FedreproError where a paper has no readings yet.
    """
    files: dict[Path, str] = {}
    for paper in load_papers(root):
        if paper.spec.claims:
            readings = quantities.stored(paper)
            files |= texts(paper, readings, weigh(paper, readings))
    return [write_text(path, text) for path, text in files.items()]


def show(paper: str | None = None, root: str | Path = ".") -> Group:
    """The claims of one paper or of all for a rich console, straight from the records, and what is wrong with these."""
    parts = []
    for each in [load_paper(paper, root)] if paper is not None else load_papers(root):
        if each.spec.claims:
            found = quantities.collect(each)
            parts.append(layout.terminal(sheet(each, found.readings, weigh(each, found.readings))))
            parts += [Text(fault, style="bold red") for fault in found.faults.values()]
    return Group(*(parts or [Text("there are no claims")]))


def paths(paper: str, root: str | Path = ".") -> list[Path]:
    """Where the evidence of a paper's claims is."""
    return [Path(root) / "reports" / "claims" / f"{paper}.{kind}" for kind in ("csv", "md")]


def texts(paper: Paper, readings: list[Reading], evidence: list[Evidence]) -> dict[Path, str]:
    """What the files on a paper's claims say; `evidence` is that of the readings."""
    drawn = (csv_text(Evidence, evidence), layout.markdown(sheet(paper, readings, evidence)))
    return dict(zip(paths(paper.name, paper.root), drawn, strict=True))


def sheet(paper: Paper, readings: list[Reading], evidence: list[Evidence]) -> Sheet:
    """A row for each pair; below, the claims with their verdicts, and how these come about."""
    budget = paper.spec.budgets[paper.budget]
    found = verdicts(evidence)
    legend = [f"{name}: {found[name]}. {words(claim)}" for name, claim in paper.spec.claims.items()]
    legend += [JUDGED, f"Budget: {budget.label}."]
    if not budget.compare:
        legend.append("The numbers of this budget are never compared with the paper's: they say nothing about it.")
    substitutes = sorted({reading.substitute for reading in readings} - {""})
    legend += [f"Data: {substitute}, in place of the paper's own." for substitute in substitutes]
    columns = [*(Column(head, "key") for head in ("claim", "pair")), Column("difference", "fact")]
    columns += [Column("95% interval", "fact"), Column("seeds", "fact"), Column("verdict", "key")]
    drawn = Sheet(f"Claims of {paper.spec.title}", legend, columns)
    for each in evidence:
        numbers = (f"{each.difference:+.2f}", f"{each.lo:+.2f} to {each.hi:+.2f}") if each.n else ("–", "–")
        verdict = Entry(each.verdict, each.verdict, drawn.note(*_remarks(each)))
        drawn.rows.append([*map(Entry, (each.claim, each.pair, *numbers, str(each.n))), verdict])
    return drawn


def words(claim: Claim) -> str:
    """What is claimed, where, and how it is measured."""
    quantity = claim.quantity
    metric = getattr(quantity, "metric", "")
    name = metric.replace("_", " ")
    unit = " rounds" if isinstance(quantity, Rounds | FirstRound) else " points" if percent(metric) else ""
    how = "rounds trained"
    if isinstance(quantity, Final):
        how = f"final {name}"
    elif isinstance(quantity, FirstRound):
        how = f"first watched round with a {name} of at least {quantity.level:g}{'%' if percent(metric) else ''}"
    elif isinstance(quantity, Oscillation):
        until = f" to round {quantity.until}" if quantity.until else " on"
        how = f"standard deviation of the {name} within {quantity.window} watched rounds, from the warm start{until}"
    return f"“{claim.statement}” ({claim.place}). Measured: {how}; margin: {claim.margin:g}{unit}."


def _evidence(claim: str, pair: Pair, both: list[tuple[Reading, Reading]], margin: float) -> Evidence:
    """The evidence of a pair from the readings (high, low) of its seeds."""
    place = (claim, pair.name, pair.high or "", pair.low or "")
    if not both:
        return Evidence(*place, None, None, None, 0, 0, 0, "undecided")
    differences = [high.value - low.value for high, low in both]
    lo, hi = interval(differences)
    counts = (len(both), sum(high.censored for high, _ in both), sum(low.censored for _, low in both))
    return Evidence(*place, digits(float(np.mean(differences))), lo, hi, *counts, judge(lo, hi, margin, *counts))


def _remarks(evidence: Evidence) -> list[str]:
    """Footnotes on a pair: a cell that is not run, and seeds that were cut off."""
    notes = [] if evidence.high and evidence.low else ["Not run: this budget leaves out one of the cells."]
    for side, number in (("first", evidence.censored_high), ("second", evidence.censored_low)):
        if number:
            notes.append(f"{number} of {evidence.n} seeds of the {side} cell never get there: they count as cut off.")
    return notes
