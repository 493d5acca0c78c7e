"""The sample sheet: what a synthesised dataset looks like to each client, as a PNG."""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import hsv_to_rgb
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from fedrepro import files
from fedrepro.core.streams import torch_stream
from fedrepro.data import Federation, load


@dataclass(frozen=True)
class Look:
    """How panels look: images in a row, rows per label, panels beside each other, letters of a caption's line."""

    columns: int
    rows: int
    beside: int
    letters: int


FEW, MANY = Look(16, 2, 1, 110), Look(8, 1, 3, 42)  # of few labels, and of more than FEW_LABELS
FEW_LABELS = 4
CLIENTS = 4  # training clients shown; more would make a sheet that nobody reads
LABELS = 10  # shown of each client
GAP = 2  # pixels between images
BINS, DOTS = 60, 500  # of a client's points, which are more
DPI, COLOURS = 110, 64  # of the picture, so that it stays small


def show(name: str, out: Path, seed: int = 0, params: dict | None = None, mark: str = "") -> Path:
    """Write the sample sheet of a dataset: a panel for each of the first clients and for the test client.

    A panel has rows of images for each label that the client has, of the first ten, augmented as in training; its
    caption is what was measured in its data. The title says how many clients there are. Of tests by domain, those that
    no client has seen are shown. Points are drawn in one panel, in the colours of their clients. The PNG carries `mark`
    as the text "fedrepro". Equal arguments give equal bytes.
    """
    federation = load(name, seed, params or {})
    picture = _points if federation.x.is_floating_point() else _images
    drawn, png = io.BytesIO(), io.BytesIO()
    picture(name, seed, federation).savefig(drawn, format="png", dpi=DPI)
    said = PngInfo()
    said.add_text("fedrepro", mark)
    with Image.open(drawn) as image:
        few = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(png, format="png", optimize=True, pnginfo=said)
    return files.write_bytes(out, png.getvalue())


def _images(name: str, seed: int, federation: Federation) -> Figure:
    x, y = federation.x.split(federation.sizes), federation.y.split(federation.sizes)
    facts, count = federation.facts, min(len(y), CLIENTS)
    usual = ("test",) if "test" in federation.tests else tuple(federation.tests)  # a plugin may have others
    tested = federation.groups.get("ood", usual)
    look = FEW if all(map(_few, y[:count])) else MANY
    shown = [(f"client {k + 1}", facts["clients"][k], x[k], y[k]) for k in range(count)]
    shown += [("test client", facts[test], *federation.tests[test]) for test in tested]
    panels = []  # title, pixels, labels
    for k, (who, measured, images, had) in enumerate(shown):
        images, had = sample(images, had, look)
        if federation.augment and k < count:
            images = federation.augment(images, torch_stream(seed, 0, k, "augment"))
        images = images.reshape(len(images), -1, *(1, *images.shape[1:])[-2:])  # rows of fewer axes have one channel
        labels = had.unique().tolist()
        pixels = mosaic(images, had, labels, look if _few(had) else replace(look, rows=1))
        panels.append((textwrap.fill(f"{who}: {caption(measured)}", look.letters), pixels, labels))
    clients = f"{count} of {len(y)} clients" + (" and the test client" if tested else "")
    return _arranged(f"{name}, seed {seed}: {clients}", panels, look.beside)


def _arranged(title: str, panels: Sequence[tuple[str, np.ndarray, list[int]]], beside: int) -> Figure:
    """The panels line by line, so many beside each other; those of a line are as high as the highest."""
    high = [len(pixels) / pixels.shape[1] for _, pixels, _ in panels]
    lines = [max(high[start : start + beside]) for start in range(0, len(panels), beside)]
    heights = [7.5 / beside * each + 0.3 * beside for each in lines]
    figure = Figure(figsize=(8, sum(heights) + 0.4), layout="constrained")
    figure.suptitle(title, fontsize=10)
    axes = figure.subplots(len(lines), beside, squeeze=False, height_ratios=heights).flatten()
    for axis, (said, pixels, labels) in zip(axes, panels, strict=False):
        _panel(axis, pixels, labels, said)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    return figure


def _points(name: str, seed: int, federation: Federation) -> Figure:
    """Points by two coordinates as dots, some of each client; those of a line as histograms of all."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    figure.suptitle(f"{name}, seed {seed}: {len(federation.sizes)} clients", fontsize=10)
    axis = figure.subplots()
    for k, points in enumerate(federation.x.split(federation.sizes)):
        label = textwrap.fill(f"client {k + 1}: {caption(federation.facts['clients'][k])}", FEW.letters)
        if points.shape[1] == 1:
            axis.hist(points[:, 0].numpy(), bins=BINS, alpha=0.7, label=label)
        else:
            axis.scatter(*points[:: max(len(points) // DOTS, 1), :2].T.numpy(), s=4, label=label)
            axis.set_aspect("equal", adjustable="datalim")
    figure.legend(loc="outside lower left", fontsize=7)
    return figure


def _few(y: Tensor) -> bool:
    return len(y.unique()) <= FEW_LABELS


def sample(x: Tensor, y: Tensor, look: Look = FEW) -> tuple[Tensor, Tensor]:
    """The rows of x [M, ...] and y [M] that a panel shows, in their order."""
    chosen = [torch.nonzero(y == label)[: look.rows * look.columns, 0] for label in y.unique()[:LABELS]]
    rows = torch.cat(chosen).sort().values
    return x[rows], y[rows]


def caption(facts: dict) -> str:
    """The facts of one client in words: counts as they are, fractions as percentages, other values in brackets."""
    return ", ".join(_worded(str(key).replace("_", " "), value) for key, value in facts.items())


def _worded(what: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):  # a plugin's facts may be any JSON
        return f"{what} ({value if isinstance(value, str) else json.dumps(value)})"
    if what == "degrees":
        return f"{value:.4g} {what}"
    return f"{what} {value:.1%}" if isinstance(value, float) else f"{value:,} {what}"


def mosaic(x: Tensor, y: Tensor, labels: Sequence[int], look: Look = FEW) -> np.ndarray:
    """The first images of each of these labels, x uint8 [M, C, H, W], as one RGB picture uint8 [height, width, 3].

    Label after label, as many rows each as the look has; where a client has fewer images the rest stays grey.
    """
    height, width = x.shape[-2] + GAP, x.shape[-1] + GAP
    tiles = np.full((len(labels), look.rows * look.columns, height, width, 3), 96, np.uint8)
    for own, label in zip(tiles, labels, strict=True):
        for tile, image in zip(own, x[y == label], strict=False):
            tile[:-GAP, :-GAP] = rgb(image)
    lines = tiles.reshape(-1, look.columns, height, width, 3).swapaxes(1, 2)
    return lines.reshape(-1, look.columns * width, 3)


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


def _panel(axis: Axes, pixels: np.ndarray, labels: Sequence[int], title: str) -> None:
    axis.imshow(pixels, interpolation="nearest")
    axis.set_anchor("W")  # the layout leaves no room for labels where a centred picture has some beside it
    axis.set_title(title, fontsize=7, loc="left")
    band = len(pixels) / len(labels)
    axis.set_yticks([band * (place + 0.5) for place in range(len(labels))], [f"y = {label}" for label in labels])
    axis.tick_params(left=False, labelsize=7)
    axis.set_xticks([])
    axis.spines[:].set_visible(False)
