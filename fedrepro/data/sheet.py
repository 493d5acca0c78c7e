"""The sample sheet: what a synthesised dataset looks like to each client, as a PNG."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import hsv_to_rgb
from matplotlib.figure import Figure
from torch import Tensor

from fedrepro import files
from fedrepro.data import load

COLUMNS, ROWS = 16, 2  # images in a row, rows per label
CLIENTS = 10  # training clients shown; more would make a sheet that nobody reads
GAP = 2  # pixels between images


def show(name: str, out: Path, seed: int = 0, params: dict | None = None) -> Path:
    """Write the sample sheet of a dataset: a panel per client and for the test client, two rows of images per label.

    Each panel's caption has the client's size and measured correlations. Equal arguments give equal bytes.
    """
    federation = load(name, seed, params or {})
    shown = min(len(federation.sizes), CLIENTS)
    x, y = federation.x.split(federation.sizes), federation.y.split(federation.sizes)
    panels = [(f"client {k + 1}", x[k], y[k], federation.facts["clients"][k]) for k in range(shown)]
    panels.append(("test client", *federation.tests["test"], federation.facts["test"]))

    mosaics = [mosaic(images, labels, federation.classes) for _, images, labels, _ in panels]
    height, width, _ = mosaics[0].shape
    figure = Figure(figsize=(8, (7.5 * height / width + 0.3) * len(panels) + 0.4), layout="constrained")
    figure.suptitle(f"{name}, seed {seed}: {shown} of {len(federation.sizes)} clients and the test client", fontsize=10)
    axes = figure.subplots(len(panels), squeeze=False)[:, 0]
    for axis, pixels, (title, _, _, facts) in zip(axes, mosaics, panels, strict=True):
        _panel(axis, pixels, federation.classes, f"{title}: {caption(facts)}")
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
    return files.write_bytes(out, png.getvalue())


def caption(facts: dict) -> str:
    """The facts of one client in words: counts as they are, fractions as percentages."""
    return ", ".join(
        f"{key.replace('_', ' ')} {value:.1%}" if isinstance(value, float) else f"{value:,} {key.replace('_', ' ')}"
        for key, value in facts.items()
    )


def mosaic(x: Tensor, y: Tensor, classes: int) -> np.ndarray:
    """The first images of each label, x uint8 [M, C, H, W], as one RGB picture uint8 [height, width, 3].

    Label after label, ROWS rows each; where a client has fewer images the rest stays grey.
    """
    height, width = x.shape[-2] + GAP, x.shape[-1] + GAP
    picture = np.full((classes * ROWS * height, COLUMNS * width, 3), 96, np.uint8)
    for label in range(classes):
        for place, image in enumerate(x[y == label][: ROWS * COLUMNS]):
            row, column = label * ROWS + place // COLUMNS, place % COLUMNS
            top, left = row * height, column * width
            picture[top : top + height - GAP, left : left + width - GAP] = rgb(image)
    return picture


def rgb(image: Tensor) -> np.ndarray:
    """uint8 [C, H, W] as [H, W, 3]: one is grey, two are red and green, three are RGB, more have a hue each."""
    channels = image.numpy()
    if len(channels) == 1:
        channels = np.repeat(channels, 3, axis=0)
    elif len(channels) == 2:
        channels = np.stack([*channels, np.zeros_like(channels[0])])
    elif len(channels) > 3:
        hues = np.array([hsv_to_rgb((c / len(channels), 0.9, 1.0)) for c in range(len(channels))])
        channels = np.einsum("chw,cr->rhw", channels, hues).clip(max=255).round().astype(np.uint8)
    return channels.transpose(1, 2, 0)


def _panel(axis: Axes, pixels: np.ndarray, classes: int, title: str) -> None:
    axis.imshow(pixels, interpolation="nearest")
    axis.set_title(title, fontsize=8, loc="left")
    band = len(pixels) / classes
    axis.set_yticks([band * (label + 0.5) for label in range(classes)], [f"y = {label}" for label in range(classes)])
    axis.tick_params(left=False, labelsize=8)
    axis.set_xticks([])
    axis.spines[:].set_visible(False)
