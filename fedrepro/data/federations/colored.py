"""Federations with a shortcut (colour, patch) that agrees with the noisy label in training and misleads at test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedrepro.core.parameters import completed_by
from fedrepro.core.streams import stream
from fedrepro.data.federations import partition
from fedrepro.data.federations.federation import (
    TEST,
    Clients,
    Federation,
    Fraction,
    Probability,
    Treated,
    assembled,
    bernoulli,
    check_binomial,
    colour,
    of_each,
)
from fedrepro.data.sources import Raw

DROPPED = -1  # the target of labels that take no part
UNREADABLE = -1  # what is read from an image that does not show its shortcut
PATCH = 5  # pixels a side
Classes = Literal[2, 5, 10]


class Scheme(NamedTuple):
    """A shortcut: `mark(images, z)` puts it in, `read(x)` finds z [M] again, UNREADABLE where it cannot be seen.

    target: int64 [labels], the class of each label of the source, DROPPED for those that are left out.
    """

    name: str
    classes: int
    target: Tensor
    mark: Callable[[Tensor, Tensor], Tensor]
    read: Callable[[Tensor], Tensor]


def _federation(
    raw: Raw,
    seed: int,
    scheme: Scheme,
    *,
    n: Clients = 2,
    p: Sequence[Probability] = (0.2, 0.1),
    p_test: Probability = 0.9,
    label_noise: Fraction = 0.25,
) -> Federation:
    """Clients of equal size whose shortcut disagrees with the noisy label with probability p_k, at test with p_test."""
    taking, testing = (torch.nonzero(scheme.target[y] != DROPPED)[:, 0] for y in (raw.train_y, raw.test_y))
    parts = [taking[part] for part in partition.equal(len(taking), n, seed)]
    p = of_each("p", p, n)

    def treated(x: Tensor, labels: Tensor, agreement: float, client: int) -> Treated:
        draw = partial(stream, seed, 0, client)
        y0 = scheme.target[labels]
        y = (y0 + bernoulli(label_noise, len(y0), draw("label noise"))) % scheme.classes
        z = (y + bernoulli(agreement, len(y), draw("colour"))) % scheme.classes
        x = scheme.mark(x, z)
        return Treated(x, y, _facts(scheme, x, y, y0, label_noise, agreement))

    clients = [treated(raw.train_x[rows], raw.train_y[rows], p[k], k) for k, rows in enumerate(parts)]
    test = treated(raw.test_x[testing], raw.test_y[testing], p_test, TEST)
    return assembled(clients, {"test": test}, scheme.classes, {})


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


@completed_by(_federation)
def colored_mnist(
    raw: Raw, seed: int, *, classes: Classes = 2, resolution: Literal[28, 14] = 28, binarise: bool = True
) -> Scheme:
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
    step = 28 // resolution

    def mark(images: Tensor, z: Tensor) -> Tensor:
        ink = images[:, ::step, ::step]
        ink = (ink > 0).to(torch.uint8) * 255 if binarise else ink  # above 0.5 on the scale 0..255
        return colour(ink, _channel(z, classes), classes)

    return Scheme(
        "colour", classes, _groups(classes), mark, lambda x: _channel(x.flatten(2).amax(2).argmax(1), classes)
    )


@completed_by(_federation)
def colored_fashion_mnist(raw: Raw, seed: int, *, classes: Classes = 2) -> Scheme:
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
    return Scheme("colour", classes, target, mark, read)


@completed_by(_federation)
def spurious_cifar10(raw: Raw, seed: int) -> Scheme:
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

    return Scheme("patch", 2, torch.tensor([0, 0, 1, 1, 1, 1, DROPPED, 1, 0, 0]), mark, read)


def _groups(classes: int) -> Tensor:
    """The class of each of ten labels: label // (10 / classes)."""
    return torch.arange(10) // (10 // classes)


def _channel(z: Tensor, classes: int) -> Tensor:
    """The channel of a colour, and the colour of a channel: of two, z = 1 is the first (red)."""
    return 1 - z if classes == 2 else z
