"""Federations that generators learn from (f2u-2019; papers/f2u-2019/PROTOCOL.md): classes by client, and mixtures.

No method looks at the labels, which say what each client holds. There are no tests: a generator is judged by samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from fedrepro.core.streams import stream
from fedrepro.data.federations.federation import Clients, Federation, counted
from fedrepro.data.federations.partition import among
from fedrepro.data.sources import Raw
from fedrepro.errors import UsageError

Held = tuple[tuple[int, ...], ...]  # the classes of each client

ALL = tuple(range(10))
OVERLAPS: dict[str, dict[int, Held]] = {  # by the number of clients
    "non": {
        5: tuple((k, k + 1) for k in range(0, 10, 2)),
        10: tuple((k,) for k in ALL),
        20: tuple((k // 2,) for k in range(20)),
    },
    "mod": {5: tuple(tuple((k + i) % 10 for i in range(4)) for k in range(0, 10, 2))},
    "full": {5: (ALL,) * 5},
    "pooled": {1: (ALL,), 5: (ALL,)},
}
Mode = Literal["divide", "copy"]


def by_class(
    raw: Raw,
    seed: int,
    *,
    overlap: Literal["non", "mod", "full", "pooled"] = "non",
    n: Clients = 5,
    overlap_mode: Mode = "divide",
) -> Federation:
    """Ten classes among `n` clients: each has two of its own ("non"), four ("mod") or all ("full"), or one has all.

    f2u-2019, section 5. Of a class with several holders each has an equal part, at random, so that an image is in
    one client; the other reading, all of it, is `overlap_mode="copy"`, where classes overlap. With "non", 10 clients
    have one class each and 20 have half of one (Fig. 4). "pooled" is one client with all, for a centralised GAN.
    """
    if overlap_mode == "copy" and overlap not in ("mod", "full"):
        raise UsageError(f'overlap_mode "copy" is for overlap "mod" and "full", and cannot be with {overlap!r}.')
    if n not in (known := OVERLAPS[overlap]):
        raise UsageError(f"n is {' or '.join(map(str, known))} with overlap {overlap!r}, and cannot be {n!r}.")
    owns = np.array([np.isin(ALL, own) for own in known[n]])
    rng = stream(seed, purpose="partition")
    parts = among(raw.train_y.numpy(), owns, rng, overlap_mode == "copy")
    rows = torch.from_numpy(np.concatenate(parts))
    x, y, sizes = raw.train_x[rows], raw.train_y[rows], tuple(map(len, parts))
    facts = {"clients": [counted(own) for own in y.split(sizes)]}
    return Federation(x[:, None] if x.dim() == 3 else x, y, sizes, {}, raw.classes, facts)


# Mixtures of Gaussians

Pooled = Literal["non", "pooled"]
POINTS = 10_000  # of each Gaussian
LINE = ((-4.0,), (0.0,), (4.0,))
CIRCLE = ((3.0, 0.0), (-1.5, 1.5 * math.sqrt(3)), (-1.5, -1.5 * math.sqrt(3)))


def mixture_1d(raw: Raw, seed: int, *, overlap: Pooled = "non") -> Federation:
    """Three clients, each with points of a Gaussian of its own: means -4, 0 and 4, deviation 0.5; or one with all.

    f2u-2019, Fig. 5, whose numbers are not printed. `overlap`: "non" or "pooled".
    """
    return _mixture(LINE, 0.5, seed, overlap)


def mixture_2d(raw: Raw, seed: int, *, overlap: Pooled = "non") -> Federation:
    """As `mixture_1d` in the plane: means on a circle of radius 3, 120 degrees apart, deviation 0.3."""
    return _mixture(CIRCLE, 0.3, seed, overlap)


def _mixture(means: Sequence[Sequence[float]], sd: float, seed: int, overlap: str) -> Federation:
    """x float32 [N, d]; y is the number of a point's Gaussian. The draws of each are those of its own address."""
    modes, shape = np.array(means), (POINTS, len(means[0]))
    parts = [mean + sd * stream(seed, 0, k, "points").standard_normal(shape) for k, mean in enumerate(modes)]
    x = torch.from_numpy(np.concatenate(parts)).float()
    y = torch.arange(len(modes)).repeat_interleave(POINTS)
    sizes = (len(y),) if overlap == "pooled" else (POINTS,) * len(modes)
    facts = {
        "clients": [counted(own) for own in y.split(sizes)],
        "modes": modes.round(6).tolist(),
        "mode_sd": sd,
    }
    return Federation(x, y, sizes, {}, len(modes), facts, modes=torch.from_numpy(modes).float(), mode_sd=sd)
