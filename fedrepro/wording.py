"""What a reader is told of claims: what each says, how it is measured, and how a verdict comes about."""

from __future__ import annotations

from collections.abc import Collection

from fedrepro.curves import percent
from fedrepro.schema import Claim, Final, FirstRound, Gap, Growth, Last, Median, Oscillation, Rounds, Share
from fedrepro.schema import words as cell_words
from fedrepro.spec import Paper

RESAMPLES = 10_000  # of the seeds, behind every interval
JUDGED = (
    "Difference: mean over the seeds of the first cell less the second, seed by seed; interval: 95% of "
    f"{RESAMPLES:,} bootstrap resamples of the seeds. A pair holds if the interval is above the margin, fails if it is "
    "below, and is undecided otherwise, or with fewer than two seeds. A seed that is cut off counts with its last "
    "round, which is less than the truth: so no pair holds by such a seed of its second cell, or fails by one of its "
    "first. A claim holds if all its pairs do, and fails if one does."
)
COUNTED = (
    "Where a number of pairs is claimed, each pair is above the margin or below it by its interval, or neither; the "
    "last row has the number of pairs with a mean difference above it. The claim holds if at least as many intervals "
    "as the paper has pairs lie above, and fails if so many lie below that this number is out of reach."
)
POOLED = (
    "Pairs that are judged together have one row: the difference is the mean over them, each with the mean over its "
    "seeds, and the resamples are of the pairs, so that one seed of each will do."
)
GAINED = (
    "A comparison of gains: the mean over one group of pairs of the first cell less the second, less that mean over "
    "another group, over the seeds that all of these cells have."
)
LEVELLED = "Where there is no second cell, the difference is the number of the first, and the margin is a level."


def words(claim: Claim, replaced: Collection[str]) -> str:
    """What is claimed, where, and how it is measured."""
    return f"“{claim.statement}” ({claim.place}). {measured(claim, replaced)}"


def measured(claim: Claim, replaced: Collection[str]) -> str:
    """How a claim is measured; `replaced`: the metrics in whose place the records have others."""
    quantity = claim.quantity
    metric = getattr(quantity, "metric", "")
    name = f"{'stand-in for the ' * (metric in replaced)}{metric.replace('_', ' ')}"
    unit = " rounds" if isinstance(quantity, Rounds | FirstRound) else " points" if percent(metric) else ""
    how = "rounds trained"
    if isinstance(quantity, Final):
        how = f"final {name}"
    elif isinstance(quantity, Gap):
        how = f"final {name} less the {quantity.less.replace('_', ' ')}"
    elif isinstance(quantity, Median):
        how = f"median of the {name} at the ends of {quantity.checkpoints} equal parts of training"
    elif isinstance(quantity, Growth):
        part = f", the part of it by {100 * quantity.by:g}% of training" if quantity.by is not None else ""
        how = f"growth of the {name} from its first to its last watched value{part}"
    elif isinstance(quantity, Last):
        how = f"mean {name} of the last {quantity.rounds} rounds"
    elif isinstance(quantity, FirstRound):
        how = f"first watched round with a {name} of at least {_level(quantity)}"
    elif isinstance(quantity, Oscillation):
        until = f" to round {quantity.until}" if quantity.until else " on"
        how = f"standard deviation of the {name} within {quantity.window} watched rounds, from the warm start{until}"
    how += f"; {claim.published} pairs in the paper" if claim.published is not None else ""
    how += "; pairs judged together" if claim.pooled else ""
    return f"Measured: {how}; margin: {claim.margin:g}{unit}."


def _level(quantity: FirstRound) -> str:
    """The level for a reader."""
    level = quantity.level
    if isinstance(level, Share):
        return f"{100 * level.share:g}% of the mean over the last {level.rounds} rounds of {cell_words(level.of)}"
    return f"{level:g}{'%' if percent(quantity.metric) else ''}"


def substitutes(paper: Paper) -> dict[str, str]:
    """The metrics that the claims are about -> what stands in for them in the records."""
    found: dict[str, dict[str, None]] = {}
    for name, claim in paper.spec.claims.items():
        runs = [run for comparison in paper.comparisons(name) for run in comparison.runs] if paper.spec.reads else []
        metric = getattr(claim.quantity, "metric", "")
        reads = (paper.read(metric, run) for run in dict.fromkeys(runs))
        found.setdefault(metric, {}).update(dict.fromkeys(read.substitute for read in reads if read.substitute))
    return {metric: "; ".join(said) for metric, said in found.items() if said}
