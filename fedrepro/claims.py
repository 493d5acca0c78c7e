"""What a paper claims of its cells, judged by a bootstrap over the seeds, as reports/claims/<paper>.{csv,md}."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.text import Text

from fedrepro import layout, quantities
from fedrepro.comparisons import Comparison, Pair, Side
from fedrepro.curves import digits
from fedrepro.files import csv_text, write_text
from fedrepro.layout import Column, Entry, Sheet
from fedrepro.quantities import Reading
from fedrepro.schema import Claim
from fedrepro.spec import Paper, load_paper, load_papers
from fedrepro.wording import COUNTED, GAINED, JUDGED, LEVELLED, POOLED, RESAMPLES, substitutes, words

PLACES = {"holds": "above", "fails": "below", "undecided": "neither"}  # of a pair that is counted


@dataclass(frozen=True)
class Evidence:
    """One row of a claim: the mean over `n` seeds of high less low, its interval [lo, hi], and the verdict.

    `pair`: what is compared. `high`, `low`: the runs, as picked where a side picks; empty where the budget does not run
    the cell, and in rows about several pairs. The seeds are those with a value in all cells; with none there are no
    numbers. Of pooled pairs, the mean is over `n` pairs. `censored_high`, `censored_low`: how many of the seeds or
    pairs were cut off so that the true difference may be larger, and smaller. In the last row of a count: `difference`
    is the number of pairs with a mean difference above the margin, `lo` those whose interval is above it, `hi` those
    whose interval is not below it, `n` the fewest seeds.
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


Seeds = dict[str, dict[int, Reading]]  # run -> seed -> its reading, if it has a value


def weigh(paper: Paper, readings: list[Reading]) -> list[Evidence]:
    """The evidence for every comparison of every claim, in their order; behind those of a count, the count."""
    seeds: dict[str, Seeds] = {claim: {} for claim in paper.spec.claims}
    for reading in readings:
        if reading.value is not None:
            seeds.setdefault(reading.claim, {}).setdefault(reading.run, {})[reading.seed] = reading
    evidence = []
    for name, claim in paper.spec.claims.items():
        rows = [_evidence(name, each, seeds[name], claim.margin) for each in paper.comparisons(name)]
        evidence += rows if claim.published is None else _counted(name, claim, rows)
    return evidence


def pick(side: Side, seeds: Seeds) -> str:
    """The run of a side: of several that with the largest or smallest mean, among those with the most seeds.

    The first of equals; empty where none is run.
    """
    means = {run: statistics.fmean(r.value for r in seeds[run].values()) for run in side.runs if seeds.get(run)}
    if len(side.runs) < 2 or not means:
        return side.runs[0] if side.runs else ""
    most = max(len(seeds[run]) for run in means)
    choose = max if side.pick == "largest" else min
    return choose((run for run in means if len(seeds[run]) == most), key=means.get)


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


def render(papers: list[Paper]) -> list[Path]:
    """Write the evidence of papers with claims as .csv and .md, from the readings in reports/metrics.

    Equal inputs give equal bytes. Raises FedreproError where a paper has no readings yet.
    """
    files: dict[Path, str] = {}
    for paper in papers:
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
    found = verdicts(evidence)
    replaced = substitutes(paper)
    legend = [f"{name}: {found[name]}. {words(claim, replaced)}" for name, claim in paper.spec.claims.items()]
    legend += judged(paper, readings)
    columns = [*(Column(head, "key") for head in ("claim", "pair")), Column("difference", "fact")]
    columns += [Column("95% interval", "fact"), Column("seeds", "fact"), Column("verdict", "key")]
    drawn = Sheet(f"Claims of {paper.spec.title}", legend, columns)
    for name in paper.spec.claims:
        rows = [each for each in evidence if each.claim == name]
        for row, comparison in zip_longest(rows, paper.comparisons(name)):
            verdict = Entry(row.verdict, row.verdict, drawn.note(*_remarks(row, comparison)))
            numbers = _numbers(row, comparison, rows)
            number = f"{row.n} pairs" if comparison is not None and comparison.pooled else str(row.n)
            drawn.rows.append([*map(Entry, (row.claim, row.pair, *numbers, number)), verdict])
    return drawn


def judged(paper: Paper, readings: list[Reading]) -> list[str]:
    """How the verdicts on a paper's claims come about, and what they are about: one line for each thing to know."""
    budget = paper.spec.budgets[paper.budget].of("claims")
    legend = [JUDGED]
    legend += [COUNTED] if any(claim.published is not None for claim in paper.spec.claims.values()) else []
    alone = any(not block.low for claim in paper.spec.claims.values() for block in claim.blocks)
    legend += [LEVELLED] if alone else []
    legend += [POOLED] if any(claim.pooled for claim in paper.spec.claims.values()) else []
    legend += [GAINED] if any(claim.gains for claim in paper.spec.claims.values()) else []
    legend += [f"{metric}: {said}." for metric, said in substitutes(paper).items()]
    legend.append(f"Budget: {budget.label}.")
    if not budget.compare:
        legend.append("The numbers of this budget are never compared with the paper's: they say nothing about it.")
    others = sorted({reading.substitute for reading in readings} - {""})
    legend += [f"Data: {other}, in place of the paper's own." for other in others]
    return legend


def _evidence(claim: str, comparison: Comparison, seeds: Seeds, margin: float) -> Evidence:
    """The evidence of a comparison from the readings of its runs."""
    chosen = {pair: tuple(pick(side, seeds) for side in pair.sides) for pair in comparison.pairs}
    runs = (*chosen[comparison.larger[0]], "")[:2] if len(comparison.pairs) == 1 else ("", "")
    place = (claim, comparison.name, *runs)
    differences, *censored = _differences(comparison, chosen, seeds)
    if not differences:
        return Evidence(*place, None, None, None, 0, 0, 0, "undecided")
    lo, hi = interval(differences)
    counts = (len(differences), *censored)
    return Evidence(*place, digits(statistics.fmean(differences)), lo, hi, *counts, judge(lo, hi, margin, *counts))


def _differences(
    comparison: Comparison, chosen: dict[Pair, tuple[str, ...]], seeds: Seeds
) -> tuple[list[float], int, int]:
    """What is resampled: the difference of each seed, or of each of the pooled pairs; and how many are cut off so that
    the true one may be larger, and so that it may be smaller."""
    if comparison.pooled:
        alone = [_differences(Comparison(pair.name, (pair,)), chosen, seeds) for pair in comparison.larger]
        there = [each for each in alone if each[0]]
        up, down = (sum(each[side] > 0 for each in there) for side in (1, 2))
        return [statistics.fmean(each) for each, *_ in there], up, down
    read = [seeds.get(run, {}) for pair in comparison.pairs for run in chosen[pair]]
    both = [seed for seed in read[0] if all(seed in each for each in read)]

    def gain(pairs: tuple[Pair, ...], seed: int) -> float:
        values = [[seeds[run][seed].value for run in chosen[pair]] for pair in pairs]
        return statistics.fmean(high - sum(low) for high, *low in values)

    less = [gain(comparison.smaller, seed) if comparison.smaller else 0 for seed in both]
    differences = [gain(comparison.larger, seed) - other for seed, other in zip(both, less, strict=True)]
    return differences, *_censored(comparison, chosen, seeds, both)


def _censored(
    comparison: Comparison, chosen: dict[Pair, tuple[str, ...]], seeds: Seeds, both: list[int]
) -> tuple[int, int]:
    """How many seeds were cut off so that the true difference may be larger, and so that it may be smaller."""
    larger, smaller = ([chosen[pair] for pair in pairs] for pairs in (comparison.larger, comparison.smaller))
    up = [*(high for high, *_ in larger), *(run for _, *low in smaller for run in low)]
    down = [*(run for _, *low in larger for run in low), *(high for high, *_ in smaller)]
    return tuple(sum(any(seeds[run][seed].censored for run in runs) for seed in both) for runs in (up, down))


def _counted(name: str, claim: Claim, rows: list[Evidence]) -> list[Evidence]:
    """The evidence of pairs that are counted, and the count."""
    rows = [replace(row, verdict=PLACES[row.verdict]) for row in rows]
    placed = [row.verdict for row in rows]
    above, within = placed.count("above"), len(rows) - placed.count("below")
    positive = sum(row.difference is not None and row.difference > claim.margin for row in rows)
    verdict = "holds" if above >= claim.published else "fails" if within < claim.published else "undecided"
    pair = f"pairs above the margin; the paper: {claim.published} of {len(rows)}"
    seeds = min(row.n for row in rows)
    return [*rows, Evidence(name, pair, "", "", positive, above, within, seeds, 0, 0, verdict)]


def _numbers(row: Evidence, comparison: Comparison | None, rows: list[Evidence]) -> tuple[str, str]:
    """Difference and interval for a reader; one seed has no interval, and a count has where the pairs lie."""
    if comparison is None:
        placed = [each.verdict for each in rows]
        lie = ", ".join(f"{placed.count(place)} {place}" for place in PLACES.values())
        return f"{row.difference:.0f} of {len(rows) - 1}", lie
    between = f"{row.lo:+.2f} to {row.hi:+.2f}" if row.n > 1 else "–"
    return f"{row.difference:+.2f}" if row.n else "–", between


def _remarks(evidence: Evidence, comparison: Comparison | None) -> list[str]:
    """Footnotes on a row: cells that are not run, seeds that were cut off, and cells that were picked."""
    if comparison is None:
        return []
    alone = len(comparison.pairs) == 1
    whole = all(side.runs for pair in comparison.pairs for side in pair.sides)
    notes = [] if whole else ["Not run: this budget leaves out one of the cells."]
    sides = (("first", "high", evidence.censored_high), ("second", "low", evidence.censored_low))
    for nth, name, number in sides:
        cut = f"{number} of {evidence.n} {'pairs' if comparison.pooled else 'seeds'}"
        if number and alone:
            notes.append(f"{cut} of the {nth} cell never get there: they count as cut off.")
        elif number:
            notes.append(f"{cut} are cut off: the true difference may be {'larger' if name == 'high' else 'smaller'}.")
        named = (getattr(pair, name) for pair in comparison.pairs)
        picked = [side for side in named if side is not None and side.pick]
        notes += [_picked(nth, side, getattr(evidence, name)) for side in picked]
    return list(dict.fromkeys(notes))  # pairs of a comparison may say the same


def _picked(nth: str, side: Side, run: str) -> str:
    """How a side was picked, and that this is optimistic."""
    chosen = f"{run}, the" if run else "the"
    left_out = f" ({side.left_out} more are not run)" if side.left_out else ""
    return (
        f"The {nth} cell is {chosen} {side.pick} of {len(side.runs)}{left_out} by the mean over the same seeds that "
        "are then compared, which is optimistic."
    )
