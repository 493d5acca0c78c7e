"""How far numbers within tolerance are from the published ones, in points: a wide tolerance is not agreement."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

import pandas as pd

from fedrepro.results.cells import SCALE, decimals
from fedrepro.results.frames import COMPARED, VERDICTS

EDGES = (1, 3, 10)  # points
LABELS = {  # band of a number within tolerance, or another status -> what a reader is told
    "near0": "within tolerance, at most 1 point off",
    "near1": "within, 1 to 3 points off",
    "near2": "within, 3 to 10 points off",
    "near3": "within, but more than 10 points off: the tolerance is wide",
    "unscaled": "within; not measured in points",
    "deviation": "outside tolerance, the reason is given",
    "outside": "outside tolerance, no reason is given",
    "calibrated": "fitted to the published number, so not compared",
    "not-compared": "run, but not compared: another metric or budget than the paper's",
    "not-run": "not run, the reason is given",
}

SHORT = {  # the same for the key of small bars
    "near0": "within, by 1 point or less", "near1": "by 3", "near2": "by 10", "near3": "by more than 10",
    "unscaled": "within, not in points", "deviation": "outside", "outside": "outside, no reason",
    "calibrated": "fitted", "not-compared": "not compared", "not-run": "not run",
}  # fmt: skip


class Segment(NamedTuple):
    """A part of a bar: its band or status, its count, and what it means."""

    band: str
    count: int
    label: str


def band(cell: Any) -> str:
    """The band of a row of `cells` that is within tolerance; else its status."""
    if cell.status != "within":
        return cell.status
    if cell.unit not in SCALE or math.isnan(cell.difference):
        return "unscaled"
    return f"near{sum(abs(cell.difference) > edge for edge in EDGES)}"


def bar(cells: pd.DataFrame) -> list[Segment]:
    """The numbers by band, in the order of LABELS, without the empty ones."""
    found = Counter(map(band, cells.itertuples()))
    return [Segment(name, found[name], label) for name, label in LABELS.items() if found[name]]


def judged(verdicts: Counter[str]) -> list[Segment]:
    """The claims of a paper by verdict, for one that prints no numbers."""
    said = {"holds": ("claim holds", "claims hold"), "fails": ("claim fails", "claims fail")}
    said["undecided"] = ("claim is undecided", "claims are undecided")
    return [Segment(name, n, said[name][n > 1]) for name in VERDICTS if (n := verdicts[name])]


def gap(cells: pd.DataFrame) -> str:
    """The median distance of compared numbers from the published ones; empty without any, or where units differ."""
    compared = cells[cells.status.isin(COMPARED) & cells.difference.notna()]
    if compared.unit.nunique() != 1:
        return ""
    digits, unit = decimals(compared.reproduced.iloc[0]), compared.unit.iloc[0]
    return f"{compared.difference.abs().median():.{digits}f}{' points' if unit in SCALE else ''}"
