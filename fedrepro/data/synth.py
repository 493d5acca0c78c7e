"""Synthesis: a federation made from a source, as a pure function of (raw data, seed, parameters)."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedrepro.data import partition
from fedrepro.data.sources import Raw
from fedrepro.errors import FedreproError, UsageError
from fedrepro.streams import stream

TEST = -1  # the test client's number in the addresses of its draws


@dataclass(frozen=True)
class Federation:
    """One seed's synthesised data.

    x: uint8 [N, *shape], client after client; y: int64 [N]; sizes: rows per client, summing to N.
    tests: evaluation sets by name, uint8 [M, *shape] and int64 [M].
    facts: what was measured in the finished data (JSON), for the run's record.
    """

    x: Tensor
    y: Tensor
    sizes: tuple[int, ...]
    tests: dict[str, tuple[Tensor, Tensor]]
    classes: int
    facts: dict


def colored_mnist(
    raw: Raw,
    seed: int,
    *,
    n: int = 2,
    p: Sequence[float] = (0.2, 0.1),
    p_test: float = 0.9,
    label_noise: float = 0.25,
    resolution: int = 28,
    binarise: bool = True,
) -> Federation:
    """Coloured digits in two classes: in training the colour predicts the noisy label, at test it misleads.

    flgames-2022, section 7.1, read as in the code of Ahuja et al. 2020 (IRM Games), whose sizes, layer widths and
    learning rates the paper has. The other reading, of Arjovsky et al. 2019, has every second pixel
    (`resolution=14`) and grey values (`binarise=False`), but also fewer images, which no argument here gives.

    y0 = 1 for digits 5 to 9; y = y0 ^ bern(label_noise); z = y ^ bern(p of the client); the image is in channel 0 (red)
    if z = 1 and in channel 1 (green) if z = 0, and the other channel is 0. All training images are dealt to `n` clients
    of equal size (to within one); the test client has all test images. Split and noise are drawn once per seed.
    """
    parts = partition.equal(len(raw.train_y), n, seed)
    _check_parameters(n, p, p_test, label_noise, resolution, binarise)
    step = 28 // resolution

    def client(x: Tensor, digits: Tensor, agreement: float, number: int) -> tuple[Tensor, Tensor, dict]:
        draw = partial(stream, seed, 0, number)
        return _colored(x[:, ::step, ::step], digits, label_noise, agreement, binarise, draw)

    clients = [client(raw.train_x[rows], raw.train_y[rows], p[k], k) for k, rows in enumerate(parts)]
    *test, test_facts = client(raw.test_x, raw.test_y, p_test, TEST)
    return Federation(
        x=torch.cat([x for x, _, _ in clients]),
        y=torch.cat([y for _, y, _ in clients]),
        sizes=tuple(map(len, parts)),
        tests={"test": tuple(test)},
        classes=2,
        facts={"clients": [facts for _, _, facts in clients], "test": test_facts},
    )


def _colored(
    images: Tensor, digits: Tensor, noise: float, p: float, binarise: bool, draw: Callable[[str], np.random.Generator]
) -> tuple[Tensor, Tensor, dict]:
    """One client: uint8 [M, H, W] and digits [M] to x [M, 2, H, W], y [M] and the facts measured in them."""
    y0 = (digits >= 5).long()
    y = y0 ^ _bernoulli(noise, len(y0), draw("label noise"))
    z = y ^ _bernoulli(p, len(y), draw("colour"))
    x = colour(images, z, binarise)
    return x, y, _facts(x, y, y0, noise, p)


def _bernoulli(p: float, rows: int, generator: np.random.Generator) -> Tensor:
    return torch.from_numpy((generator.random(rows) < p).astype(np.int64))


def colour(images: Tensor, z: Tensor, binarise: bool) -> Tensor:
    """Grey uint8 [M, H, W] to [M, 2, H, W]: in channel 0 where z [M] is 1, in channel 1 where it is 0.

    `binarise` makes 255 of every pixel above 0.5, on the scale 0..255: of every one that is not 0.
    """
    ink = (images > 0).to(torch.uint8) * 255 if binarise else images
    x = torch.zeros(len(images), 2, *images.shape[1:], dtype=torch.uint8)
    x[torch.arange(len(images)), 1 - z] = ink
    return x


def _facts(x: Tensor, y: Tensor, y0: Tensor, noise: float, p: float) -> dict:
    """Label noise, and agreement of label and colour as read back from the pixels; both must be as asked for."""
    red = x[:, 0].flatten(1).amax(1) > 0
    flipped, agreeing, rows = int((y != y0).sum()), int((red == (y == 1)).sum()), len(y)
    _check_binomial("label noise", flipped, rows, noise)
    _check_binomial("agreement of colour and label", agreeing, rows, 1 - p)
    return {"rows": rows, "label_noise": flipped / rows, "colour_agreement": agreeing / rows}


def _check_binomial(what: str, hits: int, rows: int, p: float) -> None:
    """Within five standard deviations and, since the binomial of a small client has long tails, five rows more."""
    slack = 5 * math.sqrt(rows * p * (1 - p)) + 5 if 0 < p < 1 else 0
    if abs(hits - rows * p) > slack:
        raise FedreproError(
            f"the {what} of a client is {hits / rows:.4f} where {p:g} was asked for: "
            "this is a mistake in fedrepro, please report it."
        )


def _check_parameters(
    n: int, p: Sequence[float], p_test: float, label_noise: float, resolution: int, binarise: bool
) -> None:
    if not isinstance(p, list | tuple) or len(p) != n or not all(map(_is_probability, p)):
        raise UsageError(f"p needs {n:,} probabilities, one for each client, and cannot be {reprlib.repr(p)}.")
    if not _is_probability(p_test):
        raise UsageError(f"p_test is a probability and cannot be {p_test!r}.")
    if not _is_probability(label_noise) or label_noise == 1:
        raise UsageError(f"label_noise is at least 0 and less than 1, and cannot be {label_noise!r}.")
    if type(resolution) is not int or resolution not in (28, 14):
        raise UsageError(f"resolution is 28 or 14, and cannot be {resolution!r}.")
    if type(binarise) is not bool:
        raise UsageError(f"binarise is true or false, and cannot be {binarise!r}.")


def _is_probability(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1
