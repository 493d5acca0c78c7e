"""The two datasets of fedgma-2021: digits whose colour tells their class in training and not at test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field
from torch import Tensor

from fedrepro.core.streams import stream
from fedrepro.data.federations.clients import Plan, Treated, partitioned
from fedrepro.data.federations.federation import (
    TEST,
    Distance,
    Probability,
    bernoulli,
    check_binomial,
    colour,
    counted,
)
from fedrepro.data.federations.palettes import UNSEEN, choose, paint, painted, palettes, shades
from fedrepro.data.sources import Raw


@partitioned(n=100, partition="shards")
def binary(
    raw: Raw,
    seed: int,
    *,
    n: int,
    p: Annotated[Sequence[Probability], Field(min_length=2, max_length=2)] = (0.1, 0.2),
    p_test: Probability = 0.9,
    label_flip: Probability = 0.0,
) -> Plan:
    """Digits 0-4 against 5-9, red or green: in training the colour is mostly the class, at test mostly the other.

    fedgma-2021, section 4. y = (digit > 4) ^ bern(label_flip), z = y ^ bern(p_k); the image is
    in channel 0 (red) if z = 0 and in channel 1 (green) if z = 1. p_k runs evenly from the first to the second `p`,
    client after client. Clients are dealt digits, not classes.
    """
    chances = np.linspace(*p, n)

    def treat(images: Tensor, digits: Tensor, client: int) -> Treated:
        chance = p_test if client == TEST else chances[client]
        flips = bernoulli(label_flip, len(digits), stream(seed, 0, client, "label noise"))
        y = (digits > 4).long() ^ flips
        x = colour(images, y ^ bernoulli(chance, len(y), stream(seed, 0, client, "colour")), 3)
        agreeing = int((x.flatten(2).amax(2).argmax(1) == y).sum())
        check_binomial("label noise", int(flips.sum()), len(y), label_flip)
        check_binomial("agreement of colour and label", agreeing, len(y), 1 - chance)
        measured = {"label_noise": flips.double().mean().item(), "colour_agreement": agreeing / len(y)}
        return Treated(x, y, {"digits": counted(digits)["labels"], **measured})

    return Plan(raw, treat, classes=2)


@partitioned(n=100, partition="shards")
def colored(raw: Raw, seed: int, *, distance: Distance = 0.15, contrast: Distance = 0.4) -> Plan:
    """Digits of ten classes; each digit owns two foreground and two background colours, used half of the time each.

    fedgma-2021, section 4, in the colours of Arpit et al. 2019. At test each image has one of
    ten other foreground and one of ten other background colours, drawn apart. Distances as in `palettes.fedcmnist`, but
    0.15, since the sixty colours do not fit at 0.2.
    """
    test, *own = palettes(seed, [(UNSEEN, UNSEEN), *[(2, 2)] * raw.classes], distance, contrast)
    own_fg, own_bg = map(np.stack, zip(*own, strict=True))  # [classes, 2, 3]
    seen: dict[str, dict[str, str]] = {}

    def treat(images: Tensor, digits: Tensor, client: int) -> Treated:
        if client == TEST:
            return painted(images, digits, test, seed, client)
        fg, bg = choose(seed, client, 2, len(digits))
        x, ink = paint(images, own_fg[digits, fg], own_bg[digits, bg], seed, client)
        for digit in {*digits.tolist()} - {*map(int, seen)}:
            of = digits == digit
            which = of.numpy()
            seen[str(digit)] = {"fg": shades(x[of], ink[of], fg[which]), "bg": shades(x[of], ~ink[of], bg[which])}
        return Treated(x, digits, {"second_fg": float(fg.mean()), "second_bg": float(bg.mean())})

    return Plan(raw, treat, raw.classes, lambda: {"digits": dict(sorted(seen.items()))})
