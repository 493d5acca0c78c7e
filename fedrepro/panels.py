"""How a gallery looks: a panel for each run, with its images, or with its points over those of the clients."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from fedrepro import gallery
from fedrepro.gallery import Panel
from fedrepro.schema import product, values
from fedrepro.spec import Paper

WIDTH = 7.2  # inches
CLIENTS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00")  # blue, orange and green first, as in f2u-2019
MARGIN = 2.0  # of the frame around the clients' points
BINS = 60
ENDS = {"samples": "Samples from the same noise for all methods.", "mixtures": "Black: samples; coloured: clients."}

Points = dict[str, np.ndarray]  # "generator", "client1", ... -> points [n, d]


def figure(paper: Paper, name: str, panels: list[Panel]) -> Figure:
    """The panels with columns and rows in the order of paper.toml, and a caption below.

    Raises FedreproError where a file of samples is not the one that the panels were made of.
    """
    spec = paper.figure(name)
    read, draw = gallery.contents(paper, spec, panels), {"samples": _images, "mixtures": _mixture}[spec.kind]
    columns = [value for value in paper.spec.axes[spec.columns] if value in {panel.column for panel in panels}]
    places = map(spec.place, product({axis: paper.spec.axes[axis] for axis in values(spec.rows)}))
    rows = [place for place in places if place in {panel.row for panel in panels}]
    side = WIDTH / len(columns)
    drawn = Figure(figsize=(WIDTH, 0.9 + side * len(rows)), layout="constrained")
    drawn.suptitle(textwrap.fill(spec.title, 90), fontsize=10)
    drawn.supxlabel(textwrap.fill(caption(paper, name, panels), 118), fontsize=7, x=0.01, ha="left")
    axes = drawn.subplots(len(rows), len(columns), squeeze=False)
    _fill(axes, columns, rows, panels, lambda axis, panel: draw(axis, read[panel.run]))
    return drawn


def caption(paper: Paper, name: str, panels: list[Panel]) -> str:
    """What the panels show, at which budget and on which data, and what is not in them."""
    budget = paper.spec.budgets[paper.budget].of(name)
    spec = paper.figure(name)
    rows = f"Rows: {' × '.join(axis.replace('_', ' ') for axis in values(spec.rows))}."
    parts = [
        f"{ENDS[spec.kind]} {rows} End of training, first seed that did not diverge. Budget: {budget.label}",
        "" if budget.compare else "never compared with the paper's",
        *(f"{each.column}, {each.row}: {each.diverged} diverged" for each in panels if each.diverged),
        *(f"data: {each}, in place of the paper's own" for each in sorted({p.substitute for p in panels} - {""})),
    ]
    return " ".join(["; ".join(filter(None, parts)) + ".", *paper.not_shown(name)])


def points(content: bytes) -> Points:
    """The points of a file of samples: who,x1,...,xd."""
    _, *rows = csv.reader(io.StringIO(content.decode()))
    found: dict[str, list[list[float]]] = {}
    for who, *place in rows:
        found.setdefault(who, []).append([float(each) for each in place])
    return {who: np.array(own) for who, own in found.items()}


def _fill(
    axes: Sequence[Sequence[Axes]],
    columns: list[str],
    rows: list[str],
    panels: list[Panel],
    draw: Callable[[Axes, Panel], None],
) -> None:
    """Draw each panel in its place; a place without one stays empty."""
    placed = {(panel.row, panel.column): panel for panel in panels}
    for row, line in zip(rows, axes, strict=True):
        for column, axis in zip(columns, line, strict=True):
            axis.grid(False)
            axis.set_xticks([])
            axis.set_yticks([])
            if row == rows[0]:
                axis.set_title(column, fontsize=8)
            if column == columns[0]:
                axis.set_ylabel(row, fontsize=8)
            if (row, column) in placed:
                draw(axis, placed[row, column])
            else:
                axis.spines[:].set_visible(False)


def _images(axis: Axes, content: bytes) -> None:
    """A sheet of images pixel by pixel."""
    sheet = np.asarray(Image.open(io.BytesIO(content)))
    axis.imshow(sheet, cmap="gray", vmin=0, vmax=255, interpolation="none")
    axis.spines[:].set_visible(False)


def _mixture(axis: Axes, content: bytes) -> None:
    """Densities of points on a line, places of points in the plane; how many samples lie outside the frame."""
    found = points(content)
    clients = [own for who, own in found.items() if who != "generator"]
    every = np.concatenate(clients)
    low, high = every.min(0) - MARGIN, every.max(0) + MARGIN
    made = found.get("generator", np.empty((0, every.shape[1])))
    inside = made[((made >= low) & (made <= high)).all(1)]
    (_line if every.shape[1] == 1 else _plane)(axis, clients, inside, low, high)
    if len(inside) < len(made):
        note = f"{len(made) - len(inside)} of {len(made)} outside"
        axis.text(0.5, 0.98, note, transform=axis.transAxes, ha="center", va="top", fontsize=6)


def _line(axis: Axes, clients: list[np.ndarray], made: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    bins = np.linspace(low[0], high[0], BINS + 1)
    for own, colour in zip(clients, CLIENTS, strict=False):
        axis.hist(own[:, 0], bins, density=True, color=colour, alpha=0.5)
    if len(made):
        axis.hist(made[:, 0], bins, density=True, histtype="step", color="black")


def _plane(axis: Axes, clients: list[np.ndarray], made: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    for own, colour in zip(clients, CLIENTS, strict=False):
        axis.scatter(*own.T, s=3, color=colour, linewidths=0, rasterized=True)
    axis.scatter(*made.T, s=1.5, color="black", alpha=0.5, linewidths=0, rasterized=True)
    axis.set_xlim(low[0], high[0])
    axis.set_ylim(low[1], high[1])
    axis.set_aspect("equal")
