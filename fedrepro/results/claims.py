"""Claims: what a paper says of its cells, judged by an interval of the differences over the seeds, or over pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedrepro.errors import FedreproError
from fedrepro.papers.comparisons import Comparison, Pair, Side
from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.claims import Claim
from fedrepro.records.curves import digits
from fedrepro.results import quantities
from fedrepro.results.runs import Run

RESAMPLES = 10_000  # of pooled pairs
LEVEL = 0.95  # of every interval
PLACES = {"holds": "above", "fails": "below", "undecided": "neither"}  # of a pair that is counted


class Measured(NamedTuple):
    """A claim's quantity, seed by run (NaN where a seed has none), and where it was cut off: true values are larger."""

    values: pd.DataFrame
    censored: pd.DataFrame


def rows(paper: Paper, runs: dict[str, Run], faults: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of `claims`, in the order of the claims and their comparisons, and in `faults` what else is wrong.

    Raises UsageError where a claim names a metric that a run does not have.
    """
    found = []
    for name, claim in paper.claims.items():
        read, comparisons = measured(paper, name, runs, faults), paper.comparisons(name)
        own = [_evidence(each, read, claim.margin) for each in comparisons]
        own += [] if claim.published is None else [_counted(claim, own)]
        used = [each.runs for each in comparisons]
        used.append([run for each in used for run in each])  # behind a count
        for row, compared in zip(own, used, strict=False):
            replaced = sorted({runs[run].substitute for run in compared if run in runs} - {""})
            about = {"runs": list(dict.fromkeys(compared)), "budget": paper.budget, "substitute_data": replaced}
            found.append({"claim": name, **row, **about})
    return found


def measured(paper: Paper, name: str, runs: dict[str, Run], faults: dict[str, str]) -> Measured:
    """The values behind a claim's comparisons, to six digits; a run without a usable record has no value."""
    values, censored = {"": {}}, {"": {}}
    references = paper.references(name)
    for run in dict.fromkeys(run for comparison in paper.comparisons(name) for run in comparison.runs):
        values[run], censored[run] = {}, {}
        if run not in runs:
            continue
        quantity = quantities.of_record(paper.claims[name].quantity, paper, run)
        quantities.check_metric(quantity, runs[run], f"{paper.folder / 'paper.toml'}: claims.{name}: run {run}")
        try:
            found, cut = quantities.read(quantity, runs[run], runs.get(references.get(run) or ""))
        except FedreproError as error:
            faults.setdefault(run, str(error))
            continue
        values[run] = {seed: digits(value) for seed, value in found.items()}
        censored[run] = {seed: seed in cut for seed in found}
    seeds = sorted({seed for each in values.values() for seed in each})
    whole = pd.DataFrame(censored, index=seeds, dtype=object)
    return Measured(pd.DataFrame(values, index=seeds, dtype=float), whole.eq(True))


def verdicts(claims: pd.DataFrame) -> dict[str, str]:
    """Claim -> verdict: it holds if all of its pairs do, and fails if one does. A count decides where pairs are."""
    decided = {claim: set(own.verdict) for claim, own in claims.groupby("claim", sort=False)}
    order = ("fails", "undecided", "holds")
    return {claim: next(verdict for verdict in order if verdict in given) for claim, given in decided.items()}


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """The 95% t interval of the mean of paired differences, one of each seed; NaN for a single one."""
    if len(differences) < 2:
        return math.nan, math.nan
    from scipy import stats  # slow to import

    half = stats.t.ppf((1 + LEVEL) / 2, len(differences) - 1) * stats.sem(differences)
    middle = statistics.fmean(differences)
    return digits(middle - half), digits(middle + half)


def resampled(differences: Sequence[float]) -> tuple[float, float]:
    """The 95% percentile interval of the mean over bootstrap resamples of pairs (Efron and Tibshirani 1993, 13.3)."""
    if len(differences) < 2:
        return math.nan, math.nan
    from scipy import stats  # slow to import

    found = stats.bootstrap(
        (np.asarray(differences, float),),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return digits(found.low), digits(found.high)


def judge(lo: float, hi: float, margin: float, censored_high: int, censored_low: int) -> str:
    """The verdict of a pair: whether [lo, hi] lies above the margin, or below it; without an interval it is undecided.

    A censored value is larger than it says. So no pair holds with a censored low, and none fails with a censored high.
    """
    if lo > margin and not censored_low:
        return "holds"
    return "fails" if hi < margin and not censored_high else "undecided"


def pick(side: Side, values: pd.DataFrame) -> str:
    """The run of a side: of several that with the largest or smallest mean, among those with the most seeds.

    The first of equals; empty where none is run.
    """
    own = {run: values[run].dropna() for run in side.runs if values[run].count()}
    if len(side.runs) < 2 or not own:
        return side.runs[0] if side.runs else ""
    most = max(map(len, own.values()))
    means = {run: statistics.fmean(each) for run, each in own.items() if len(each) == most}
    return (max if side.pick == "largest" else min)(means, key=means.get)


def _evidence(comparison: Comparison, read: Measured, margin: float) -> dict[str, Any]:
    """The row of a comparison."""
    picked = {pair: [pick(side, read.values) for side in pair.sides] for pair in comparison.pairs}
    kind = "pooled" if comparison.pooled else "gain" if comparison.smaller else "pair"
    alone = len(comparison.pairs) == 1
    high, low = (*picked[comparison.larger[0]], "")[:2] if alone else ("", "")
    differences, up, down = _differences(comparison, picked, read)
    lo, hi = resampled(differences) if comparison.pooled else interval(differences)
    return {
        **{"kind": kind, "pair": comparison.name, "high": high, "low": low},
        "difference": digits(statistics.fmean(differences)) if differences else math.nan,
        **{"lo": lo, "hi": hi, "n": len(differences), "censored_high": up, "censored_low": down},
        "verdict": judge(lo, hi, margin, up, down),
    }


def _differences(comparison: Comparison, picked: dict[Pair, list[str]], read: Measured) -> tuple[list[float], int, int]:
    """The difference of each seed that all cells have, or of each of the pooled pairs; and how many are cut off so that
    the true one may be larger, and so that it may be smaller."""
    if comparison.pooled:
        each = [_differences(Comparison(pair.name, (pair,)), picked, read) for pair in comparison.larger]
        there = [found for found in each if found[0]]
        up, down = (sum(found[side] > 0 for found in there) for side in (1, 2))
        return [statistics.fmean(found) for found, *_ in there], up, down
    values = read.values[list(dict.fromkeys(run for pair in comparison.pairs for run in picked[pair]))].dropna()

    def gain(pairs: tuple[Pair, ...]) -> pd.Series:
        parts = [values[high] - sum(values[run] for run in low) for high, *low in map(picked.get, pairs)]
        return sum(parts) / len(parts) if parts else pd.Series(0.0, values.index)

    larger, smaller = ([picked[pair] for pair in pairs] for pairs in (comparison.larger, comparison.smaller))
    up = [*(high for high, *_ in larger), *(run for _, *low in smaller for run in low)]
    down = [*(run for _, *low in larger for run in low), *(high for high, *_ in smaller)]
    cut = (int(read.censored.loc[values.index, runs].any(axis=1).sum()) for runs in (up, down))
    return (gain(comparison.larger) - gain(comparison.smaller)).tolist(), *cut


def _counted(claim: Claim, pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Place the pairs of a claim above or below the margin, or neither, and count them: the last row."""
    for row in pairs:
        row["verdict"] = PLACES[row["verdict"]]
    placed = [row["verdict"] for row in pairs]
    above, within = placed.count("above"), len(pairs) - placed.count("below")
    name = f"pairs above the margin; the paper: {claim.published} of {len(pairs)}"
    return {
        **{"kind": "count", "pair": name, "high": "", "low": ""},
        "difference": sum(row["difference"] > claim.margin for row in pairs),
        **{"lo": above, "hi": within, "n": min(row["n"] for row in pairs), "censored_high": 0, "censored_low": 0},
        "verdict": "holds" if above >= claim.published else "fails" if within < claim.published else "undecided",
    }
