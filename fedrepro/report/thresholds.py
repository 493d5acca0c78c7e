"""How a figure of thresholds looks: what each gives at test, and the pairs of accuracies that the paper prints."""

from __future__ import annotations

import itertools
from typing import Any

from matplotlib.axes import Axes

from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.cells import words
from fedrepro.results.cells import compared

PRINTED = {"marker": "*", "markersize": 11, "markeredgecolor": "black", "markeredgewidth": 0.5, "linestyle": "none"}
LEAD = "A point for each threshold that stops all seeds; a star at the pair that the paper prints."


def methods(paper: Paper, name: str) -> list[str]:
    """The methods of a figure, each of which has a panel."""
    return list(dict.fromkeys(spot.cell["method"] for spot, _ in paper.spots(name)))


def fill(paper: Paper, name: str, panels: dict[str, Axes], colours: tuple[str, ...], points: Any) -> None:
    """Draw the panels, by method: a line for each run, and a star at each printed pair."""
    pairs = _printed(paper)
    for method, axis in panels.items():
        spots = [(spot, run) for spot, run in paper.spots(name) if spot.cell["method"] == method]
        marked = set()
        for colour, (spot, run) in zip(itertools.cycle(colours), spots, strict=False):
            own = points[(points.line == spot.line) & (points.n > 0)]
            x, mean, spread = (own[key].astype(float) for key in ("x", "mean", "spread"))
            said = words({axis: value for axis, value in spot.cell.items() if axis not in ("dataset", "method")})
            axis.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
            axis.plot(x, mean, color=colour, marker=".", markersize=3, label=said)
            if run in pairs and pairs[run] not in marked:
                marked.add(pairs[run])
                axis.plot(*pairs[run], color=colour, **PRINTED)
        axis.set_title(method, fontsize=9)
        axis.set_xlabel("training accuracy (%)")
        axis.set_ylabel("test accuracy (%)")
        axis.legend(fontsize=7, loc="best")


def _printed(paper: Paper) -> dict[str, tuple[float, float]]:
    """Run -> the training and test accuracy, in percent, that its first table sets it beside."""
    numbers, found = compared(paper), {}
    for table in paper.spec.tables:
        for cell in paper.cells(table):
            for run in cell.trained:
                found.setdefault(run, {}).setdefault(cell.metric, numbers[cell.key])
    wanted = ("train_accuracy", "test_accuracy")
    return {run: tuple(own[each] for each in wanted) for run, own in found.items() if own.keys() >= {*wanted}}
