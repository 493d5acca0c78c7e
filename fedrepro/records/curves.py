"""A run's curves as CSV, and the units in which a reader is shown numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

Curve = tuple[int, str, float]  # round, metric, value


def curves_text(curves: dict[int, list[Curve]]) -> str:
    """Curves as CSV: seed, round, metric, value (six significant digits)."""
    points = ((seed, *point) for seed, curve in curves.items() for point in curve)
    return "\n".join(["seed,round,metric,value", *(f"{s},{round},{name},{v:.6g}" for s, round, name, v in points), ""])


def read_curves(path: Path) -> dict[int, list[Curve]]:
    """The curves of each seed, as `curves_text` wrote them."""
    curves: dict[int, list[Curve]] = {}
    _, *rows = path.read_text(encoding="utf-8").splitlines()
    for row in rows:
        seed, round, metric, value = row.split(",")  # nothing is quoted; csv's own readers take twice as long
        curves.setdefault(int(seed), []).append((int(round), metric, float(value)))
    return curves


def percent(metric: str) -> bool:
    """Whether a reader is shown the metric, a fraction, in percent: accuracies, and the shares that survive a mask."""
    return metric.endswith("accuracy") or metric.startswith("mask_survival")


def shown(metric: str, value: float) -> float:
    """A value of the record or the curves, in the unit that a reader is shown."""
    return 100 * value if percent(metric) else value


def digits(value: float) -> float:
    """A number with six significant digits, as figures and claims keep it and the CSV files have it."""
    return float(f"{value:.6g}")


def reduced(values: Sequence[float]) -> tuple[float, float]:
    """Mean over the seeds and spread, the population's standard deviation; NaN where there are none, or one."""
    mean = statistics.fmean(values) if values else math.nan
    return mean, statistics.pstdev(values) if len(values) > 1 else math.nan


def latest(curves: Iterable[Sequence[Curve]], *metrics: str) -> float | None:
    """The mean over curves of the latest value of any of these metrics; None where no curve has one."""
    found = [next((value for _, name, value in reversed(curve) if name in metrics), None) for curve in curves]
    there = [value for value in found if value is not None]
    return statistics.fmean(there) if there else None


def form(metric: str) -> str:
    """The format of a metric's values for a reader."""
    return ".2f" if percent(metric) else ".4f" if metric.endswith("loss") else ".4g"


def number(metric: str, value: float | None) -> str:
    """A metric's value for a reader, in percent where `percent` says so."""
    return "–" if value is None else f"{shown(metric, value):{form(metric)}}"
