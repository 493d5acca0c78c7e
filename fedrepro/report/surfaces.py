"""Loss surfaces of fictional clients and their average: an illustration, computed from what a spec says of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.figures import Well
from fedrepro.report import plots

POINTS = 81  # of a side of the grid over -1..1
LEVELS = 11  # of the contours


def loss(wells: Iterable[Well], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The loss of a client at parameters (x, y): zero far from its minima, less a Gaussian at each."""
    away = (((x - well.at[0]) ** 2 + (y - well.at[1]) ** 2) / (2 * well.width**2) for well in wells)
    return -sum(well.depth * np.exp(-each) for well, each in zip(wells, away, strict=True))


def average(clients: Iterable[Iterable[Well]], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The mean loss of the clients, which is what the server of FedAVG goes down."""
    return np.mean([loss(wells, x, y) for wells in clients], axis=0)


def svg(paper: Paper, name: str) -> str:
    """The picture: a panel for each client and one for the average; equal specs give equal bytes."""
    return plots.drawing(lambda: _figure(paper, name))


def _figure(paper: Paper, name: str) -> Figure:
    spec = paper.spec.surfaces[name]
    x, y = np.meshgrid(*[np.linspace(-1, 1, POINTS)] * 2)
    panels = {f"client {client.upper()}": loss(wells, x, y) for client, wells in spec.clients.items()}
    panels["average"] = average(spec.clients.values(), x, y)
    drawn = plots.framed(spec.title, spec.about, 3.4)
    axes = drawn.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    levels = np.linspace(min(each.min() for each in panels.values()), 0, LEVELS)
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        shown = axis.contourf(x, y, values, levels, cmap="viridis")
        axis.set(title=title, xlabel="θ₁", aspect="equal")
        for at in {well.at for wells in spec.clients.values() for well in wells}:
            axis.plot(*at, "+", color="#D55E00")
    axes[0].set_ylabel("θ₂")
    drawn.colorbar(shown, ax=axes, shrink=0.7, label="loss")
    return drawn
