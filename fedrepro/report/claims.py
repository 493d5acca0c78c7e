"""Claims as a reader is told of them: the evidence pair by pair, how it is measured, and how a verdict comes about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain, zip_longest
from typing import Any

import pandas as pd

from fedrepro.papers.comparisons import Comparison, Side
from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.cells import words
from fedrepro.papers.schema.claims import Claim
from fedrepro.papers.schema.quantities import Quantity, Share
from fedrepro.records.curves import percent
from fedrepro.report.layout import Column, Entry, Sheet
from fedrepro.report.wording import lines
from fedrepro.results.claims import PLACES, verdicts

HOW = {  # kind of a quantity -> how it is measured
    "rounds": "rounds trained",
    "final": "final {name}",
    "gap": "final {name} less the {less}",
    "median": "median of the {name} at the ends of {checkpoints} equal parts of training",
    "growth": "growth of the {name} from its first to its last watched value{part}",
    "last": "mean {name} of the last {rounds} rounds",
    "first_round": "first watched round with a {name} of at least {level}",
    "oscillation": "standard deviation of the {name} within {window} watched rounds, from the warm start{until}",
}


def sheet(paper: Paper, claims: pd.DataFrame) -> Sheet:
    """The frame `claims` of a paper, row by row; below, the claims with their verdicts, and how these come about."""
    found, replaced, legend = verdicts(claims), substitutes(paper), []
    for name, claim in paper.claims.items():
        said = f"“{claim.statement}” ({claim.place}). {measured(claim, replaced)}"
        legend.append(f"{name}: {found[name]}. {said}")
    columns = [Column("claim", "key"), Column("pair", "key"), Column("difference", "fact")]
    columns += [Column("95% interval", "fact"), Column("seeds", "fact"), Column("verdict", "key")]
    drawn = Sheet(f"Claims of {paper.spec.title}", legend + judged(paper, claims), columns)
    for name, own in claims.groupby("claim", sort=False):
        for row, comparison in zip_longest(own.itertuples(), paper.comparisons(name)):
            notes = drawn.note(*dict.fromkeys(_remarks(row, comparison) if comparison else ()))  # some say the same
            number = f"{row.n} groups" if row.kind == "groups" else str(row.n)
            numbers = _numbers(row, own.verdict[own.kind != "count"])
            drawn.rows.append([*map(Entry, (name, row.pair, *numbers, number)), Entry(row.verdict, row.verdict, notes)])
    return drawn


def judged(paper: Paper, claims: pd.DataFrame) -> list[str]:
    """How the verdicts on a paper's claims come about, and what they are about: one line for each thing to know."""
    specs = paper.claims.values()
    return lines(
        "claims",
        counted=any(claim.published is not None for claim in specs),
        levelled=any(not block.low for claim in specs for block in claim.blocks),
        pooled=any(claim.pooled for claim in specs),
        gained=any(claim.gains for claim in specs),
        found=any(claims.by_threshold),
        replaced=substitutes(paper),
        budget=paper.spec.budgets[paper.budget].of("claims"),
        data=sorted({*chain.from_iterable(claims.substitute_data)}),
    )


def measured(claim: Claim, replaced: Collection[str]) -> str:
    """How a claim is measured; `replaced`: the metrics in whose place the records have others."""
    metric = claim.quantity.metric
    how = _how(claim.quantity, f"{'stand-in for the ' * (metric in replaced)}{metric.replace('_', ' ')}")
    how += f"; {claim.published} pairs in the paper" if claim.published is not None else ""
    how += "; pairs judged together" if claim.pooled else ""
    rounds = claim.quantity.kind in ("rounds", "first_round")
    return f"Measured: {how}; margin: {claim.margin:g}{' rounds' if rounds else ' points' if percent(metric) else ''}."


def substitutes(paper: Paper) -> dict[str, str]:
    """The metrics that the claims are about -> what stands in for them in the records."""
    found: dict[str, dict[str, None]] = {}
    for name, claim in paper.claims.items():
        if metric := claim.quantity.metric:
            runs = dict.fromkeys(run for comparison in paper.comparisons(name) for run in comparison.runs)
            found.setdefault(metric, {}).update(dict.fromkeys(paper.read(metric, run).substitute for run in runs))
    every = {metric: "; ".join(filter(None, said)) for metric, said in found.items()}
    return {metric: said for metric, said in every.items() if said}


def _how(quantity: Quantity, name: str) -> str:
    """A quantity for a reader; `name`: its metric for one."""
    by, until = quantity.by, quantity.until
    told = {
        "name": name,
        "less": quantity.less.replace("_", " "),
        "part": f", the part of it by {100 * by:g}% of training" if by is not None else "",
        "level": _level(quantity),
        "until": f" to round {until}, or the seed's end" if until else " on",
    }
    return HOW[quantity.kind].format_map(quantity.model_dump() | told)


def _level(quantity: Quantity) -> str:
    level = quantity.level
    if isinstance(level, Share):
        return f"{100 * level.share:g}% of the mean over the last {level.rounds} rounds of {words(level.of)}"
    return f"{level:g}{'%' if percent(quantity.metric) else ''}"


def _numbers(row: Any, placed: pd.Series) -> tuple[str, str]:
    """Difference and interval for a reader; one seed has no interval, and a count has where the pairs are `placed`."""
    if row.kind == "count":
        counts = Counter(placed)
        return f"{row.difference:.0f} of {len(placed)}", ", ".join(f"{counts[each]} {each}" for each in PLACES.values())
    between = f"{row.lo:+.2f} to {row.hi:+.2f}" if row.n > 1 else "–"
    return f"{row.difference:+.2f}" if row.n else "–", between


def _remarks(row: Any, comparison: Comparison) -> Iterator[str]:
    """Footnotes on a row: cells not run or picked, seeds cut off, and a verdict that hangs on the threshold."""
    if not all(side.runs for pair in comparison.pairs for side in pair.sides):
        yield "Not run: this budget leaves out one of the cells."
    for nth, side, moves in (("first", "high", "larger"), ("second", "low", "smaller")):
        cut = getattr(row, f"censored_{side}")
        said = f"{cut} of {row.n} {'groups' if row.kind == 'groups' else 'seeds'}"
        if cut and len(comparison.pairs) == 1:
            yield f"{said} of the {nth} cell never get there: they count as cut off."
        elif cut:
            yield f"{said} are cut off: the true difference may be {moves}."
        sides = (getattr(pair, side) for pair in comparison.pairs)
        yield from (_picked(nth, each, getattr(row, side)) for each in sides if each is not None and each.pick)
    if len(set(row.by_threshold)) > 1:
        yield "Hangs on T: {} where it was found, {} three points higher, {} three lower.".format(*row.by_threshold)


def _picked(nth: str, side: Side, run: str) -> str:
    """How a side was picked, and that this is optimistic."""
    chosen = f"{run}, the" if run else "the"
    left_out = f" ({side.left_out} more are not run)" if side.left_out else ""
    return (
        f"The {nth} cell is {chosen} {side.pick} of {len(side.runs)}{left_out} by the mean over the same seeds that "
        "are then compared, which is optimistic."
    )
