"""Pictures of runs that a user picked: a metric over the rounds, the mean of the seeds with a band of their spread."""

from __future__ import annotations

import io
from collections.abc import Sequence

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedrepro.report.plots import COLOURS, DASHES, STYLE, WIDTH, label
from fedrepro.results.points import along
from fedrepro.results.runs import Run

KINDS = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}  # -> metadata without time and version
HIGH, FEW = 4.2, 30  # inches; so many points or fewer are marked


def picture(runs: Sequence[Run], metric: str, kind: str) -> bytes:
    """The bytes of a picture of one of KINDS, equal for equal runs; UsageError for a metric that a run has not."""
    out = io.BytesIO()
    with matplotlib.style.context(STYLE):
        figure(runs, metric).savefig(out, format=kind[1:], metadata=KINDS[kind])
    return out.getvalue()


def figure(runs: Sequence[Run], metric: str) -> Figure:
    """A line for each run with a legend above."""
    drawn = Figure(figsize=(WIDTH, HIGH), layout="constrained")
    axis = drawn.subplots()
    for place, run in enumerate(runs):
        look = {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[place // len(COLOURS) % len(DASHES)]}
        points = along(run, metric)
        low, high = points["mean"] - points.spread, points["mean"] + points.spread
        axis.fill_between(points["round"], low, high, color=look["color"], alpha=0.2, linewidth=0)
        marker = "o" if len(points) <= FEW else None
        name = f"{run.name} (seeds: {len(run.seeds)})"
        axis.plot(points["round"], points["mean"], marker=marker, markersize=3, label=name, **look)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("round")
    axis.set_ylabel(label(metric))
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=1, borderaxespad=0.2)
    if any(len(run.seeds) > 1 for run in runs):
        told = "Mean over the seeds, band: ± one standard deviation (population)."
        drawn.supxlabel(told, fontsize=7, x=0.01, ha="left")
    return drawn
