"""The judge of a method that generates: its samples against real data, and the file that shows some of them.

Images are held against the source's own by `fidelity.Yardstick`; points against the modes of their mixture.
"""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fedrepro.core.streams import stream
from fedrepro.core.types import Method, State
from fedrepro.data import Federation
from fedrepro.errors import UsageError
from fedrepro.judges import fidelity
from fedrepro.judges.scoring import in_parts
from fedrepro.records.config import RunConfig
from fedrepro.records.curves import Curve

SIDE, GAP = 8, 2  # images in a row and a column of the picture, and pixels between them
GREY = 96
POINTS, REAL = 1000, 300  # rows of the file: points of the generator, and of each client


class Generated:
    """Judges by samples from the same z [judged, dim] at every look, drawn at the address (seed, 0, 0, "judge").

    Raises UsageError for images without an extractor, and for points without modes.
    """

    def __init__(self, config: RunConfig, method: Method, data: Federation, seed: int, device: torch.device):
        self.data, self.device = data, device
        self.images = data.x.dim() == 4
        if not self.images and data.modes is None:
            raise UsageError(f"{config.dataset} has neither images nor modes to judge a generator by: choose another.")
        self.yardstick = fidelity.yardstick(config.dataset, config.watch, device) if self.images else None
        shape = (config.watch.judged, method.noise)
        self.z = torch.from_numpy(stream(seed, purpose="judge").standard_normal(shape, dtype=np.float32)).to(device)

    def tests(self, method: Method, state: State) -> dict[str, float]:
        """The distance to real images and the classes covered, or the modes covered."""
        made = self._made(method, state, len(self.z))
        if not made.isfinite().all():
            return {"samples": float("nan")}
        if self.images:
            return self.yardstick.measure(fidelity.as_bytes(made))
        return fidelity.modes(made, self.data.modes.to(made.device), self.data.mode_sd)

    def metrics(self, method: Method, state: State, tested: dict[str, float]) -> dict[str, float]:
        """The same as `tests`: a generator has nothing else to report."""
        return tested

    def samples(self, method: Method, state: State | None) -> bytes:
        """A picture of 8x8 images (PNG), or points as CSV, from the first z; without a state (diverged), empty ones."""
        made = None if state is None else self._made(method, state, SIDE * SIDE if self.images else POINTS).cpu()
        return picture(made, self.data.x.shape[1:]) if self.images else table(made, self.data)

    def collapsed(self, curve: list[Curve]) -> bool:
        """Never: how much a generator covers is measured."""
        return False

    @torch.no_grad()
    def _made(self, method: Method, state: State, count: int) -> Tensor:
        return in_parts(lambda part: method.generate(state, part), self.z[:count])


def picture(images: Tensor | None, shape: tuple[int, ...]) -> bytes:
    """Images [N, C, H, W] in -1..1, C 1 or 3, side by side as a PNG; None: an empty sheet for images of `shape`."""
    channels, height, width = shape
    sheet = np.full((SIDE * (height + GAP) - GAP, SIDE * (width + GAP) - GAP, channels), GREY, np.uint8)
    for place, image in enumerate(() if images is None else fidelity.as_bytes(images).numpy()):
        top, left = place // SIDE * (height + GAP), place % SIDE * (width + GAP)
        sheet[top : top + height, left : left + width] = image.transpose(1, 2, 0)
    out = io.BytesIO()
    Image.fromarray(sheet[..., 0] if channels == 1 else sheet).save(out, format="PNG")
    return out.getvalue()


def table(points: Tensor | None, data: Federation) -> bytes:
    """Points [N, d] of the generator, if there are any, and the first rows of each client: who,x1,...,xd."""
    named = [] if points is None else [("generator", points)]
    named += [(f"client{k + 1}", own[:REAL]) for k, own in enumerate(data.x.split(data.sizes))]
    heads = ",".join(["who", *(f"x{i + 1}" for i in range(data.x.shape[1]))])
    rows = (",".join([who, *(f"{value:.6g}" for value in row)]) for who, own in named for row in own.tolist())
    return "\n".join([heads, *rows, ""]).encode()
