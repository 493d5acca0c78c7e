"""The reproduction of a paper: three frames with documented columns, as they are in memory and as CSV."""

from __future__ import annotations

import functools
import io
import json
from typing import Any, NamedTuple

import pandas as pd

STATUSES = ("within", "outside", "deviation", "calibrated", "not-run", "not-compared", "missing")  # of a cell
COMPARED = ("within", "deviation", "outside")  # statuses of numbers that are compared
VERDICTS = ("holds", "fails", "undecided")  # of a claim


class Reproduction(NamedTuple):
    """What the records of a paper give. The columns of the frames are those of COLUMNS.

    `faults`: for each run without a usable record one sentence that says what is wrong, and what mends it.
    """

    cells: pd.DataFrame
    points: pd.DataFrame
    claims: pd.DataFrame
    faults: dict[str, str]


# frame -> column -> its kind and what it says. A text may be empty, a float NaN; a list is JSON in the CSV file.
COLUMNS: dict[str, dict[str, tuple[type, str]]] = {
    # One row for each published number, in the order of paper.toml.
    "cells": {
        "paper": (str, "the paper; with the next five columns the key of the number"),
        "table": (str, "the table"),
        "dataset": (str, "the dataset, as the paper names it"),
        "variant": (str, "the other axes, as axis=value;axis=value"),
        "method": (str, "the method, as the paper names it"),
        "metric": (str, "the metric, as the table names it"),
        "unit": (str, "of the published number: percent, or a metric's own, perhaps none"),
        "published": (str, "printed digits of the mean, or of the median where the table has least..largest"),
        "published_spread": (str, "printed digits of the standard deviation, or least..largest; empty where none is"),
        "note": (str, "remark on the printed number"),
        "compared_with": (str, "digits of the number that ours is compared with: the published one, if none stands in"),
        "compared_with_spread": (str, "digits of its spread, as published_spread"),
        "compared_because": (str, "why that is not the published one; empty where it is"),
        "reproduced": (str, "digits of our mean over the seeds, or median over `measured`; empty without a value"),
        "reproduced_spread": (str, "digits of the population's deviation, or least..largest; empty of a single seed"),
        "difference": (float, "reproduced less compared_with, of the digits; NaN where the two are not compared"),
        "limit": (float, "largest difference allowed; NaN where a range is, or where the metric is a substitute"),
        "least": (float, "least value allowed, where the tolerance is a range"),
        "greatest": (float, "largest value allowed, where the tolerance is a range"),
        "status": (str, "one of STATUSES"),
        "reason": (str, "sentence why the number is not simply within tolerance; empty where it is, or not compared"),
        "deviation": (str, "reason of the deviation that is declared about the cell, whether it is one or not"),
        "n_seeds": (int, "number of seeds with a value"),
        "measured": (list, "[run, seed, round, value] of all that the number is of, in its unit; diverged seeds lack"),
        "rounds": (list, "rounds trained by each seed with a value; where the number is over checkpoints, these"),
        "raised": (str, "digits of the mean with the stopping threshold three points higher; T+"),
        "n_raised": (int, "number of seeds that would have stopped there"),
        "lowered": (str, "digits of the mean with the stopping threshold three points lower; T-"),
        "n_lowered": (int, "number of seeds that would have stopped there"),
        "thresholds": (list, "training accuracies, as fractions, below which the runs stop"),
        "capped": (list, "seeds that reached the cap without stopping"),
        "diverged": (list, "[seed, round] of the seeds that diverged, which are left out"),
        "collapsed": (list, "seeds that were above chance and end at it, which count as the others"),
        "runs": (list, "planned runs that fill the cell, several with a grid"),
        "lacks": (list, "reasons why a part of its grid is not run"),
        "read": (str, "metric of the record that the number is"),
        "spread_of": (str, "metric of the record that the spread is; empty where it is over the seeds"),
        "substitute_metric": (str, "what the metric is, where it only stands in for the published one"),
        "substitute_data": (list, "what stands in for the paper's own data"),
        "floor": (list, "digits of what a perfect result would be near"),
        "readings": (list, "for each other reading of the paper what the cell is then, by the names of these columns"),
        "chosen": (str, "sentence on the hyper-parameters that a search chose"),
        "budget": (str, "the budget of the records"),
        "label": (str, "what a reader is told of the budget"),
    },
    # One row for each point of a figure, and for each panel of a gallery.
    "points": {
        "figure": (str, "the figure"),
        "metric": (str, "its panel: the metric of the record, or rounds; empty in a gallery"),
        "line": (str, "name in the legend; the column of a panel in a gallery"),
        "x": (
            str,
            "round, training accuracy, value of the figure's axis or row in a gallery; empty without a value",
        ),
        "mean": (float, "mean over the seeds, or median over all values, in percent for accuracies; six digits"),
        "spread": (float, "population's standard deviation, likewise"),
        "n": (int, "number of values"),
        "capped": (int, "seeds of the runs that reached the cap without stopping"),
        "diverged": (int, "seeds of the runs that diverged, which are left out"),
        "collapsed": (int, "seeds of the runs that were above chance and end at it, which count as the others"),
        "runs": (list, "the runs behind the point, several with a grid"),
        "samples": (str, "sha256 of the samples that a gallery shows"),
        "budget": (str, "the budget of the records"),
        "substitute_data": (str, "what stands in for the paper's own data"),
    },
    # One row for each comparison of a claim, and behind those of a claim that counts pairs one for the count.
    "claims": {
        "claim": (str, "the claim"),
        "kind": (str, "pair, pooled (the pairs of a block), groups (these, of one seed), gain, or count of pairs"),
        "pair": (str, "what is compared"),
        "high": (str, "run claimed to be larger, as picked where a side picks; empty if not a pair, or not run"),
        "low": (str, "the other run, likewise; empty, too, where the first is compared with a level"),
        "difference": (float, "mean of high less low, six digits; of a count, pairs with one above the margin"),
        "lo": (float, "lower end of its 95% interval, NaN where n is 1; of a count, pairs whose interval is above"),
        "hi": (float, "upper end, likewise; of a count, the pairs whose interval is not below the margin"),
        "n": (int, "seeds that all cells have; if groups, how many of these; of a count, the fewest seeds"),
        "censored_high": (int, "how many of them were cut off so that the true difference may be larger"),
        "censored_low": (int, "how many of them were cut off so that the true difference may be smaller"),
        "by_threshold": (list, "verdicts at the T that was found, three points above and below; empty without one"),
        "verdict": (str, "holds, fails or undecided, as where they differ; of a counted pair above, below or neither"),
        "runs": (list, "the runs of all cells"),
        "budget": (str, "the budget of the records"),
        "substitute_data": (list, "what stands in for the paper's own data"),
    },
}
KINDS = {  # kind -> dtype, and how its CSV is read
    str: ("str", str),
    int: ("int64", int),
    float: ("float64", lambda text: float(text or "nan")),
    list: ("object", json.loads),
}


def counts(cells: pd.DataFrame) -> dict[str, int]:
    """Status -> number of cells, for every status."""
    found = cells.status.value_counts()
    return {status: int(found.get(status, 0)) for status in STATUSES}


def frame(name: str, rows: list[dict[str, Any]] | dict[str, pd.Series]) -> pd.DataFrame:
    """Rows as one of the frames."""
    columns = COLUMNS[name]
    return pd.DataFrame(rows, columns=list(columns)).astype({key: KINDS[kind][0] for key, (kind, _) in columns.items()})


def text(name: str, found: pd.DataFrame) -> str:
    """A frame as CSV, from which `parse` gives an equal one."""
    lists = [key for key, (kind, _) in COLUMNS[name].items() if kind is list]
    written = found[lists].map(functools.partial(json.dumps, ensure_ascii=False))
    return found.assign(**written).to_csv(index=False, lineterminator="\n")


def parse(name: str, content: str) -> pd.DataFrame:
    """The inverse of `text`. Raises ValueError or KeyError where the content is something else."""
    found = pd.read_csv(io.StringIO(content), dtype=str, keep_default_na=False)
    return frame(name, {key: found[key].map(KINDS[kind][1]) for key, (kind, _) in COLUMNS[name].items()})
