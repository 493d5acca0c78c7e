"""How a gallery looks: a panel for each run, with its images, or with its points over those of the clients."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from PIL import Image

from fedrepro.errors import FedreproError
from fedrepro.files import file_digest
from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.cells import values
from fedrepro.papers.schema.figures import Figure

CLIENTS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00")  # blue, orange and green first, as in f2u-2019
MARGIN = 2.0  # of the frame around the clients' points
BINS = 60
NOTE = "#222222"  # on a panel that is white in a reader's dark mode, too, where black text is not black
ENDS = {"samples": "Samples from the same noise for all methods.", "mixtures": "Black: samples; coloured: clients."}


def said(spec: Figure, points: pd.DataFrame) -> list[str]:
    """What the panels show, and seeds that diverged, whose samples are empty."""
    rows = " × ".join(axis.replace("_", " ") for axis in values(spec.x))
    lost = points[points.diverged > 0].itertuples()
    seed = "" if len(points) and (points.n == 1).all() else ", first seed that did not diverge"
    return [
        f"{ENDS[spec.kind]} Rows: {rows}. End of training{seed}. ",
        *(f"{each.line}, {each.x}: {each.diverged} diverged" for each in lost),
    ]


def fill(paper: Paper, spec: Figure, rows: dict[str, Sequence[Axes]], columns: list[str], points: Any) -> None:
    """Draw each panel in its place; a place without one stays empty.

    Raises FedreproError where a file of samples is not the one that the frame was made of.
    """
    placed, draw = {(each.x, each.line): each for each in points.itertuples()}, DRAW[spec.kind]
    for number, (row, line) in enumerate(rows.items()):
        for column, axis in zip(columns, line, strict=True):
            axis.grid(False)
            axis.set_xticks([])
            axis.set_yticks([])
            if not number:
                axis.set_title(column, fontsize=8)
            if column == columns[0]:
                axis.set_ylabel(row, fontsize=8)
            if (row, column) in placed:
                own = placed[row, column]
                draw(axis, _samples(paper, spec, *own.runs, own.samples))
                if own.n:
                    axis.set_xlabel(_below(own), fontsize=7)
            else:
                axis.spines[:].set_visible(False)


def _below(panel: Any) -> str:
    """The quantity below a panel; of a run of several seeds, whose first is shown, the mean."""
    of = f"\n(mean of {panel.n} seeds)" if panel.n > 1 else ""
    return f"{panel.metric.replace('_', ' ')}: {panel.mean:.3g}{of}"


def _samples(paper: Paper, spec: Figure, run: str, digest: str) -> bytes:
    """The file of a run."""
    path = paper.home(run, paper.drafts[run].config.method) / spec.gallery
    if not path.exists() or file_digest(path) != digest:
        raise FedreproError(f"{path} is not what the figure was made of: run `fedrepro evaluate {paper.name}`.")
    return path.read_bytes()


def _images(axis: Axes, content: bytes) -> None:
    """A sheet of images pixel by pixel."""
    sheet = np.asarray(Image.open(io.BytesIO(content)))
    axis.imshow(sheet, cmap="gray", vmin=0, vmax=255, interpolation="none")
    axis.spines[:].set_visible(False)


def _mixture(axis: Axes, content: bytes) -> None:
    """Densities of points on a line, places of points in the plane; how many samples lie outside the frame.

    The file has rows of who,x1,...,xd; who is generator, client1, ...
    """
    table = pd.read_csv(io.BytesIO(content), index_col=0)
    clients = [own.to_numpy() for who, own in table.groupby(level=0, sort=False) if who != "generator"]
    every, made = np.concatenate(clients), table[table.index == "generator"].to_numpy()
    low, high = every.min(0) - MARGIN, every.max(0) + MARGIN
    inside = made[((made >= low) & (made <= high)).all(1)]
    (_line if every.shape[1] == 1 else _plane)(axis, clients, inside, low, high)
    if len(inside) < len(made):
        note = f"{len(made) - len(inside)} of {len(made)} outside"
        axis.text(0.5, 0.98, note, transform=axis.transAxes, ha="center", va="top", fontsize=6, color=NOTE)


def _line(axis: Axes, clients: list[np.ndarray], made: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    bins = np.linspace(low[0], high[0], BINS + 1)
    for own, colour in zip(clients, itertools.cycle(CLIENTS), strict=False):
        axis.hist(own[:, 0], bins, density=True, color=colour, alpha=0.5)
    if len(made):
        axis.hist(made[:, 0], bins, density=True, histtype="step", color="black")


def _plane(axis: Axes, clients: list[np.ndarray], made: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    for own, colour in zip(clients, itertools.cycle(CLIENTS), strict=False):
        axis.scatter(*own.T, s=3, color=colour, linewidths=0, rasterized=True)
    axis.scatter(*made.T, s=1.5, color="black", alpha=0.5, linewidths=0, rasterized=True)
    axis.set_xlim(low[0], high[0])
    axis.set_ylim(low[1], high[1])
    axis.set_aspect("equal")


DRAW = {"samples": _images, "mixtures": _mixture}
