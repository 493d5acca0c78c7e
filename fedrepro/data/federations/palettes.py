"""Palettes: foreground and background colours that differ enough, and digits painted in them.

Colours and painting as in the code of Arpit et al. 2019 (corr_based_prediction), with colours of whole 256ths.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedrepro.core.streams import stream
from fedrepro.data.federations.clients import Plan, Treated, partitioned
from fedrepro.data.federations.federation import TEST, Distance
from fedrepro.data.sources import Raw
from fedrepro.errors import UsageError

THRESHOLD = 150  # a pixel above it is ink
NOISE = 10.0  # standard deviation of the pixel noise, of 255
UNSEEN = 10  # foreground colours, and as many background colours, of the test client
ATTEMPTS = 20  # at a whole palette
CANDIDATES = 400  # colours looked at for one place in it
MEASURED = 100  # images that a measured colour is read off
CHUNK = 1000  # images painted at a time, for the cache


class Palette(NamedTuple):
    """Colours that occur in one image together: fg uint8 [F, 3], bg uint8 [B, 3]."""

    fg: np.ndarray
    bg: np.ndarray


@partitioned()
def fedcmnist(raw: Raw, seed: int, *, n: int, distance: Distance = 0.2, contrast: Distance = 0.4) -> Plan:
    """Coloured digits of ten classes, in one foreground and one background colour per client, which no other has.

    gma-2022, section 5. At test each image has one of ten other foreground and one of ten other
    background colours, drawn apart. Any two colours differ by more than `distance`, and a foreground from every
    background that it may meet by more than `contrast` (Euclidean, channels 0 to 1). About fifty colours fit at 0.2.
    """
    test, *own = palettes(seed, [(UNSEEN, UNSEEN), *[(1, 1)] * n], distance, contrast)

    def treat(images: Tensor, labels: Tensor, client: int) -> Treated:
        return painted(images, labels, test if client == TEST else own[client], seed, client)

    return Plan(raw, treat, raw.classes)


def palettes(seed: int, sizes: Sequence[tuple[int, int]], distance: float, contrast: float) -> list[Palette]:
    """Palettes of (foreground, background) colours, drawn one colour after another, uniform RGB over its maximum.

    A colour that is too near to one drawn before is passed over; a palette that does not fit is begun again, at most
    ATTEMPTS times. UsageError where none of them fits.
    """
    for attempt in range(ATTEMPTS):
        if found := _attempt(stream(seed, attempt, purpose="palette"), sizes, distance, contrast):
            return found
    raise UsageError(
        f"{sum(map(sum, sizes)):,} colours that differ by {distance:g}, foreground and background by {contrast:g}, "
        f"were not found in {ATTEMPTS} attempts: set distance, contrast or n lower."
    )


def _attempt(
    rng: np.random.Generator, sizes: Sequence[tuple[int, int]], distance: float, contrast: float
) -> list[Palette] | None:
    taken = np.empty((sum(map(sum, sizes)), 3))
    count, found = 0, []
    for fg, bg in sizes:
        palette: tuple[list, list] = [], []
        # In turns, so that both kinds find room.
        for place in (kind for i in range(max(fg, bg)) for kind, most in ((0, fg), (1, bg)) if i < most):
            colours = rng.random((CANDIDATES, 3))
            colours = np.rint(255 * colours / colours.max(1, keepdims=True))
            fits = _apart(colours, taken[:count], distance) & _apart(colours, palette[1 - place], contrast)
            if not fits.any():
                return None
            taken[count] = colours[fits.argmax()]
            palette[place].append(taken[count])
            count += 1
        found.append(Palette(*(np.array(kind, np.uint8).reshape(-1, 3) for kind in palette)))
    return found


def _apart(colours: np.ndarray, others: Sequence, distance: float) -> np.ndarray:
    """bool [M], whether colours [M, 3] differ from all others [N, 3] by more than the distance; 0 to 255."""
    between = colours[:, None] - np.reshape(others, (-1, 3))
    return (np.linalg.norm(between, axis=2) > 255 * distance).all(1)


def choose(seed: int, client: int, colours: int, rows: int) -> np.ndarray:
    """int64 [2, rows]: which foreground and which background colour an image has, drawn apart."""
    return stream(seed, 0, client, "colour choice").integers(colours, size=(2, rows))


def painted(images: Tensor, labels: Tensor, palette: Palette, seed: int, client: int) -> Treated:
    """A client's images, each in a foreground and a background colour of the palette, with the colours measured."""
    fg, bg = choose(seed, client, len(palette.fg), len(labels))
    x, ink = paint(images, palette.fg[fg], palette.bg[bg], seed, client)
    return Treated(x, labels, {"fg": shades(x, ink, fg), "bg": shades(x, ~ink, bg)})


def paint(images: Tensor, fg: np.ndarray, bg: np.ndarray, seed: int, client: int) -> tuple[Tensor, Tensor]:
    """Images uint8 [M, H, W] in their colours [M, 3], uint8 [M, 3, H, W]; and where their ink is, bool [M, H, W].

    fg on ink, bg elsewhere, plus N(0, NOISE), rounded and clipped to 0..255.
    """
    rng = stream(seed, 0, client, "pixel noise")
    ink = images.numpy() > THRESHOLD
    x = np.empty((len(ink), 3, *ink.shape[1:]), np.uint8)
    for start in range(0, len(ink), CHUNK):
        part = slice(start, start + CHUNK)
        colour = (each[part, :, None, None].astype(np.int16) for each in (fg, bg))
        clean = np.where(ink[part, None], *colour)
        noise = _noise()[rng.integers(1 << 16, size=clean.shape, dtype=np.uint16)]
        np.clip(clean + noise, 0, 255, out=x[part], casting="unsafe")
    return torch.from_numpy(x), torch.from_numpy(ink)


@cache
def _noise() -> np.ndarray:
    """N(0, NOISE), rounded, at 2^16 equally likely places: int16; much faster than drawing it."""
    normal = NormalDist(0, NOISE)
    return np.rint([normal.inv_cdf((i + 0.5) / (1 << 16)) for i in range(1 << 16)]).astype(np.int16)


def shades(x: Tensor, where: Tensor, which: np.ndarray) -> str:
    """The colours of an image's pixels `where` bool [M, H, W], for each value of `which` [M]: "#rrggbb #rrggbb ...".

    Measured: the median of the first images that have it; a colour without a pixel is left out.
    """
    found = []
    for colour in np.unique(which):
        rows = torch.from_numpy(np.flatnonzero(which == colour)[:MEASURED])
        pixels = x[rows].movedim(1, -1)[where[rows]]
        found += ["#" + bytes(pixels.median(0).values.tolist()).hex()] if len(pixels) else []
    return " ".join(found)
