"""Synthesis: a federation made from a source, as a pure function of (raw data, seed, parameters)."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedrepro.data import partition
from fedrepro.data.augment import Augment
from fedrepro.data.sources import Raw
from fedrepro.errors import FedreproError, UsageError
from fedrepro.streams import stream

TEST = -1  # the test client's number in the addresses of its draws


@dataclass(frozen=True)
class Federation:
    """One seed's synthesised data.

    x: uint8 [N, *shape], or float32 [N, d] where rows are points, client after client; y: int64 [N]; sizes: rows per
    client, summing to N.
    tests: evaluation sets by name, uint8 [M, *shape] and int64 [M].
    facts: what was measured in the finished data (JSON), for the run's record.
    groups: names of tests whose unweighted means are reported too, by the name of the mean.
    augment: what training batches go through before they are trained on, and `tests` never; see `data.augment`.
    modes: float32 [M, d], the means of the Gaussians that points are drawn from, each of deviation `mode_sd`.
    """

    x: Tensor
    y: Tensor
    sizes: tuple[int, ...]
    tests: dict[str, tuple[Tensor, Tensor]]
    classes: int
    facts: dict
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    augment: Augment | None = None
    modes: Tensor | None = None
    mode_sd: float = 0.0


def colored_mnist(
    raw: Raw,
    seed: int,
    *,
    n: int = 2,
    p: Sequence[float] = (0.2, 0.1),
    p_test: float = 0.9,
    label_noise: float = 0.25,
    classes: int = 2,
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

    With 5 or 10 `classes` (Tables 4, 5; as in the code of Choe et al. 2020) y0 = digit // (10 / classes), a flip leads
    to the following class, and the image is in channel z of as many channels as classes.
    """
    _check_ink(resolution, binarise)
    step = 28 // resolution

    def mark(images: Tensor, z: Tensor) -> Tensor:
        ink = images[:, ::step, ::step]
        ink = (ink > 0).to(torch.uint8) * 255 if binarise else ink  # above 0.5 on the scale 0..255
        return colour(ink, _channel(z, classes), classes)

    scheme = Scheme("colour", classes, mark, lambda x: _channel(x.flatten(2).amax(2).argmax(1), classes))
    return _federation(raw, seed, scheme, _groups(classes), n, p, p_test, label_noise)


def colored_fashion_mnist(
    raw: Raw,
    seed: int,
    *,
    n: int = 2,
    p: Sequence[float] = (0.2, 0.1),
    p_test: float = 0.9,
    label_noise: float = 0.25,
    classes: int = 2,
) -> Federation:
    """Coloured garments: as Colored MNIST, with y0 = 1 for footwear (5, 7, 9) and without bags (8).

    flgames-2022, section 7.1; colours as in the code of Ahuja et al. 2020: pixels above 0.5 are 1 in the channel of z
    and 0 in the other, darker ones stay grey in both. An image without a bright pixel has no colour.

    With 5 or 10 `classes` as Colored MNIST: all labels, and the grey image in channel z alone.
    """

    def mark(images: Tensor, z: Tensor) -> Tensor:
        if classes > 2:
            return colour(images, z, classes)
        bright, grey = images > 127, images[:, None].expand(-1, 2, -1, -1)
        coloured = colour(bright.to(torch.uint8) * 255, _channel(z, 2), 2)
        return torch.where(bright[:, None], coloured, grey)

    def read(x: Tensor) -> Tensor:
        strongest = x.flatten(2).amax(2)
        plain = (x[:, :1] == x).all(1).flatten(1).all(1)
        return torch.where(plain, UNREADABLE, _channel(strongest.argmax(1), classes))

    target = torch.tensor([0, 0, 0, 0, 0, 1, 0, 1, DROPPED, 1]) if classes == 2 else _groups(classes)
    return _federation(raw, seed, Scheme("colour", classes, mark, read), target, n, p, p_test, label_noise)


PATCH = 5  # pixels a side


def spurious_cifar10(
    raw: Raw,
    seed: int,
    *,
    n: int = 2,
    p: Sequence[float] = (0.2, 0.1),
    p_test: float = 0.9,
    label_noise: float = 0.25,
) -> Federation:
    """Vehicles (0, 1, 8, 9) against animals without frogs (6), with a black patch as the shortcut.

    flgames-2022, section 7.1: the 5x5 patch is in the top left corner if z = 0 and in the top right one if z = 1.
    """

    def mark(images: Tensor, z: Tensor) -> Tensor:
        x = images.clone()
        x[z == 0, :, :PATCH, :PATCH] = 0
        x[z == 1, :, :PATCH, -PATCH:] = 0
        return x

    def read(x: Tensor) -> Tensor:
        left, right = (corner.flatten(1).amax(1) == 0 for corner in (x[..., :PATCH, :PATCH], x[..., :PATCH, -PATCH:]))
        return torch.where(left == right, UNREADABLE, right.long())

    target = torch.tensor([0, 0, 1, 1, 1, 1, DROPPED, 1, 0, 0])
    return _federation(raw, seed, Scheme("patch", 2, mark, read), target, n, p, p_test, label_noise)


DROPPED = -1  # the target of labels that take no part
UNREADABLE = -1  # what is read from an image that does not show its shortcut


@dataclass(frozen=True)
class Scheme:
    """A shortcut: `mark(images, z)` puts it in, `read(x)` finds z [M] again, UNREADABLE where it cannot be seen."""

    name: str
    classes: int
    mark: Callable[[Tensor, Tensor], Tensor]
    read: Callable[[Tensor], Tensor]


def _groups(classes: int) -> Tensor:
    """The class of each of ten labels: label // (10 / classes)."""
    if type(classes) is not int or classes not in (2, 5, 10):
        raise UsageError(f"classes is 2, 5 or 10, and cannot be {classes!r}.")
    return torch.arange(10) // (10 // classes)


def _channel(z: Tensor, classes: int) -> Tensor:
    """The channel of a colour, and the colour of a channel: of two, z = 1 is the first (red)."""
    return 1 - z if classes == 2 else z


def _federation(
    raw: Raw,
    seed: int,
    scheme: Scheme,
    target: Tensor,
    n: int,
    p: Sequence[float],
    p_test: float,
    noise: float,
) -> Federation:
    """Clients of equal size whose shortcut agrees with the noisy label but for p_k; at test it disagrees with p_test.

    `target` [labels]: the class of each label of the source, DROPPED for those that are left out.
    """
    taking, testing = (torch.nonzero(target[y] != DROPPED)[:, 0] for y in (raw.train_y, raw.test_y))
    parts = partition.equal(len(taking), n, seed)
    _check_parameters(n, p, p_test, noise)

    def client(x: Tensor, labels: Tensor, agreement: float, number: int) -> tuple[Tensor, Tensor, dict]:
        draw = partial(stream, seed, 0, number)
        y0 = target[labels]
        y = (y0 + bernoulli(noise, len(y0), draw("label noise"))) % scheme.classes
        z = (y + bernoulli(agreement, len(y), draw("colour"))) % scheme.classes
        x = scheme.mark(x, z)
        return x, y, _facts(scheme, x, y, y0, noise, agreement)

    rows = [taking[part] for part in parts]
    clients = [client(raw.train_x[part], raw.train_y[part], p[k], k) for k, part in enumerate(rows)]
    *test, test_facts = client(raw.test_x[testing], raw.test_y[testing], p_test, TEST)
    return Federation(
        x=torch.cat([x for x, _, _ in clients]),
        y=torch.cat([y for _, y, _ in clients]),
        sizes=tuple(map(len, parts)),
        tests={"test": tuple(test)},
        classes=scheme.classes,
        facts={"clients": [facts for _, _, facts in clients], "test": test_facts},
    )


def bernoulli(p: float, rows: int, generator: np.random.Generator) -> Tensor:
    """int64 [rows], 1 with probability p."""
    return torch.from_numpy((generator.random(rows) < p).astype(np.int64))


def colour(images: Tensor, channel: Tensor, channels: int) -> Tensor:
    """uint8 [M, H, W] to [M, channels, H, W]: each image in its channel [M], the others 0."""
    x = torch.zeros(len(images), channels, *images.shape[1:], dtype=torch.uint8)
    x[torch.arange(len(images)), channel] = images
    return x


def _facts(scheme: Scheme, x: Tensor, y: Tensor, y0: Tensor, noise: float, p: float) -> dict:
    """Label noise, and agreement of label and shortcut as read back from the pixels; both must be as asked for."""
    z = scheme.read(x)
    seen = z != UNREADABLE
    rows, readable = len(y), int(seen.sum())
    flipped, agreeing = int((y != y0).sum()), int((z == y)[seen].sum())
    check_binomial("label noise", flipped, rows, noise)
    check_binomial(f"agreement of {scheme.name} and label", agreeing, readable, 1 - p)
    facts = {"rows": rows, "label_noise": flipped / rows, f"{scheme.name}_agreement": agreeing / readable}
    return facts | ({f"without_{scheme.name}": rows - readable} if readable < rows else {})


def check_binomial(what: str, hits: int, rows: int, p: float) -> None:
    """FedreproError unless a share is near enough to p.

    Within five standard deviations and, since the binomial of a small client has long tails, five rows more.
    """
    slack = 5 * math.sqrt(rows * p * (1 - p)) + 5 if 0 < p < 1 else 0
    if abs(hits - rows * p) > slack:
        raise FedreproError(
            f"the {what} of a client is {hits / rows:.4f} where {p:g} was asked for: "
            "this is a mistake in fedrepro, please report it."
        )


def _check_parameters(n: int, p: Sequence[float], p_test: float, label_noise: float) -> None:
    if not isinstance(p, list | tuple) or len(p) != n or not all(map(is_probability, p)):
        raise UsageError(f"p needs {n:,} probabilities, one for each client, and cannot be {reprlib.repr(p)}.")
    if not is_probability(p_test):
        raise UsageError(f"p_test is a probability and cannot be {p_test!r}.")
    if not is_probability(label_noise) or label_noise == 1:
        raise UsageError(f"label_noise is at least 0 and less than 1, and cannot be {label_noise!r}.")


def _check_ink(resolution: int, binarise: bool) -> None:
    if type(resolution) is not int or resolution not in (28, 14):
        raise UsageError(f"resolution is 28 or 14, and cannot be {resolution!r}.")
    if type(binarise) is not bool:
        raise UsageError(f"binarise is true or false, and cannot be {binarise!r}.")


def is_probability(value: object) -> bool:
    """Whether the value is a number from 0 to 1."""
    return type(value) in (int, float) and 0 <= value <= 1
