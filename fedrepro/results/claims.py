"""Claims: what a paper says of its cells, judged by an interval of the differences over seeds, or groups of pairs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd

from fedrepro.errors import FedreproError
from fedrepro.papers.comparisons import Comparison, Pair, Side
from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.claims import Claim
from fedrepro.records.curves import digits
from fedrepro.results import quantities
from fedrepro.results.runs import Run

LEVEL = 0.95  # of every interval
PLACES = {"holds": "above", "fails": "below", "undecided": "neither"}  # of a pair that is counted

Runs = list[str]  # of a pair: high, and low where it has one


class Measured(NamedTuple):
    """A claim's quantity, run -> seed -> value, and run -> the seeds at which it was cut off: true values are larger.

    The run "" stands for one that is not run, and has no value.
    """

    values: dict[str, dict[int, float]]
    censored: dict[str, set[int]]


def rows(paper: Paper, runs: dict[str, Run], faults: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of `claims`, in the order of the claims and their comparisons, and in `faults` what else is wrong.

    Raises UsageError where a claim names a metric that a run does not have.
    """
    found, ended = [], [runs, *_moved(runs)]
    for name, claim in paper.claims.items():
        comparisons = paper.comparisons(name)
        read = [measured(paper, name, each, faults) for each in ended]
        own = [_settled([_evidence(each, values, claim.margin) for values in read]) for each in comparisons]
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
    values, censored = {"": {}}, {"": set()}
    references = paper.references(name)
    for run in dict.fromkeys(run for comparison in paper.comparisons(name) for run in comparison.runs):
        values[run], censored[run] = {}, set()
        if run not in runs:
            continue
        quantity = quantities.of_record(paper.claims[name].quantity, paper, run)
        quantities.check_metric(quantity, runs[run], f"{paper.folder / 'paper.toml'}: claims.{name}: run {run}")
        try:
            found, censored[run] = quantities.read(quantity, runs[run], runs.get(references.get(run) or ""))
        except FedreproError as error:
            faults.setdefault(run, str(error))
            continue
        values[run] = {seed: digits(value) for seed, value in found.items() if not math.isnan(value)}
    return Measured(values, censored)


def verdicts(claims: pd.DataFrame) -> dict[str, str]:
    """Claim -> verdict: it holds if all of its pairs do, and fails if one does. A count decides where pairs are."""
    decided = {claim: set(own.verdict) for claim, own in claims.groupby("claim", sort=False)}
    order = ("fails", "undecided", "holds")
    return {claim: next(verdict for verdict in order if verdict in given) for claim, given in decided.items()}


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """The 95% t interval of the mean of independent differences; NaN for a single one."""
    if len(differences) < 2:
        return math.nan, math.nan
    from scipy import stats  # slow to import

    half = stats.t.ppf((1 + LEVEL) / 2, len(differences) - 1) * stats.sem(differences)
    middle = statistics.fmean(differences)
    return digits(middle - half), digits(middle + half)


def judge(lo: float, hi: float, margin: float, censored_high: int, censored_low: int) -> str:
    """The verdict of a pair: whether [lo, hi] lies above the margin, or below it; without an interval it is undecided.

    A censored value is larger than it says. So no pair holds with a censored low, and none fails with a censored high.
    """
    if lo > margin and not censored_low:
        return "holds"
    return "fails" if hi < margin and not censored_high else "undecided"


def pick(side: Side, values: dict[str, dict[int, float]]) -> str:
    """The run of a side: of several that with the largest or smallest mean, among those with the most seeds.

    The first of equals; empty where none is run.
    """
    own = {run: values[run] for run in side.runs if values[run]}
    if len(side.runs) < 2 or not own:
        return side.runs[0] if side.runs else ""
    most = max(map(len, own.values()))
    means = {run: statistics.fmean(each.values()) for run, each in own.items() if len(each) == most}
    return (max if side.pick == "largest" else min)(means, key=means.get)


def _moved(runs: dict[str, Run]) -> Iterator[dict[str, Run]]:
    """The runs as with the thresholds that were found raised, and lowered; nothing where none was found."""
    found = [name for name, run in runs.items() if run.ended and run.ended.threshold]
    for way in ("raised", "lowered") if found else ():
        yield runs | {name: runs[name].moved(way) for name in found}


def _settled(ways: list[dict[str, Any]]) -> dict[str, Any]:
    """The first of a comparison's rows, undecided where the verdict hangs on the thresholds that were found."""
    given = [row["verdict"] for row in ways]
    verdict = given[0] if len(set(given)) == 1 else "undecided"
    return ways[0] | {"verdict": verdict, "by_threshold": given if len(given) > 1 else []}


def _evidence(comparison: Comparison, read: Measured, margin: float) -> dict[str, Any]:
    """The row of a comparison."""
    picked = {pair: [pick(side, read.values) for side in pair.sides] for pair in comparison.pairs}
    alone = len(comparison.pairs) == 1
    high, low = (*picked[comparison.larger[0]], "")[:2] if alone else ("", "")
    kind, differences, up, down = _observed(comparison, picked, read)
    lo, hi = interval(differences)
    return {
        **{"kind": kind, "pair": comparison.name, "high": high, "low": low},
        "difference": digits(statistics.fmean(differences)) if differences else math.nan,
        **{"lo": lo, "hi": hi, "n": len(differences), "censored_high": up, "censored_low": down},
        "verdict": judge(lo, hi, margin, up, down),
    }


def _observed(comparison: Comparison, picked: dict[Pair, Runs], read: Measured) -> tuple[str, list[float], int, int]:
    """The kind of a comparison, and what `_differences` gives of it.

    Of pooled pairs those that are run count. Without two seeds in common each group of them that shares no run with
    another one is an observation: the variation between groups stands in for that between seeds.
    """
    larger, smaller = ([picked[pair] for pair in pairs] for pairs in (comparison.larger, comparison.smaller))
    if not comparison.pooled:
        return "gain" if smaller else "pair", *_differences(larger, smaller, read)
    larger = [runs for runs in larger if all(read.values[run] for run in runs)]
    found = _differences(larger, [], read)
    if len(found[0]) > 1:
        return "pooled", *found
    each = [own for own in (_differences(group, [], read) for group in groups(larger)) if own[0]]
    up, down = (sum(own[side] > 0 for own in each) for side in (1, 2))
    return "groups", [statistics.fmean(own) for own, *_ in each], up, down


def groups(pairs: list[Runs]) -> list[list[Runs]]:
    """Pairs in groups: two that share a run are in the same one."""
    found: list[list[Runs]] = []
    for pair in pairs:
        same = [group for group in found if not set(pair).isdisjoint(chain(*group))]
        found = [group for group in found if group not in same] + [[*chain(*same), pair]]
    return found


def _differences(larger: list[Runs], smaller: list[Runs], read: Measured) -> tuple[list[float], int, int]:
    """For each seed that all runs have, the mean of high less low over some pairs, less that over others.

    And how many of these are cut off so that the true one may be larger, and so that it may be smaller.
    """
    every = [set(read.values[run]) for run in chain(*larger, *smaller)]
    seeds = sorted(set.intersection(*every)) if every else []

    def gain(pairs: list[Runs], seed: int) -> float:
        parts = [read.values[high][seed] - sum(read.values[run][seed] for run in low) for high, *low in pairs]
        return sum(parts) / len(parts) if parts else 0.0

    def cut(runs: list[str]) -> int:
        return sum(any(seed in read.censored[run] for run in runs) for seed in seeds)

    up = [*(high for high, *_ in larger), *(run for _, *low in smaller for run in low)]
    down = [*(run for _, *low in larger for run in low), *(high for high, *_ in smaller)]
    return [gain(larger, seed) - gain(smaller, seed) for seed in seeds], cut(up), cut(down)


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
        "by_threshold": [],
        "verdict": "holds" if above >= claim.published else "fails" if within < claim.published else "undecided",
    }
