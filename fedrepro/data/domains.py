"""Federations of domains (fedaug-2022): clients of some domains, a validation test for each of them, one domain unseen.

docs/protocol-fedaug-2022.md. Tests bear the domains' names; reported means are "id" over the training domains, whose
tests are held-out rows, and "ood", the whole test domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedrepro.data import augment
from fedrepro.data.clients import counted, numbers
from fedrepro.data.rotated import rotate
from fedrepro.data.sources import Raw
from fedrepro.data.synth import Federation
from fedrepro.errors import UsageError, unknown
from fedrepro.streams import stream

CONCENTRATION, SPREAD = 200, 100  # of the classes of a cut domain's clients, and of their sizes


class Domain(NamedTuple):
    """A domain by name: the numbers of its rows, int64 [M], and what else a record says of it."""

    name: str
    rows: np.ndarray
    facts: dict


def rotated_mnist(
    raw: Raw,
    seed: int,
    *,
    angles: Sequence[float] = (0, 15, 30, 45, 60),
    test_angle: float = 75,
    validation: float = 0.1,
    augmentation: str = "none",
    degrees: float = 0,
) -> Federation:
    """All digits shuffled, dealt in turn to the `angles` and the `test_angle`, and turned by them: Rotated MNIST.

    fedaug-2022, section 5.1 (as in its release and in DomainBed, which turn PIL images where torchvision's tensors
    are turned here). Counter-clockwise, bilinear, zero fill. `augmentation`: none, rotation (by up to `degrees`), blur.
    """
    _check("augmentation", augmentation, ("none", "rotation", "blur"))
    changes = {"none": None, "rotation": augment.rotation(_degrees(degrees, augmentation)), "blur": augment.blur}
    every = [*_some("angles", angles), *numbers("test_angle", [test_angle], 1)]
    names = [f"{angle:g}" for angle in every]
    if len(set(names)) < len(names):
        raise UsageError(f"angles and test_angle are different angles, and cannot be {', '.join(names):.60}.")
    x, y = torch.cat([raw.train_x, raw.test_x]), torch.cat([raw.train_y, raw.test_y])
    order = stream(seed, purpose="domains").permutation(len(y))
    domains = []
    for place, (name, angle) in enumerate(zip(names, every, strict=True)):
        rows = order[place :: len(every)]
        x[rows] = rotate(x[rows], angle)
        domains.append(Domain(name, rows, {"degrees": angle}))
    return _federation(x[:, None], y, raw.classes, domains, names[-1], seed, validation, 1, changes[augmentation])


def pictures(
    raw: Raw,
    seed: int,
    *,
    test_domain: str,
    validation: float = 0.1,
    per_domain: int = 1,
    augmentation: str = "none",
) -> Federation:
    """A client of each domain but the test domain, or `per_domain` clients of a part of it each (see `cut`).

    fedaug-2022, section 5.1. `augmentation`: none, weak (crop and flip), moderate (also colours).
    """
    changes = {"none": None, "weak": augment.weak, "moderate": augment.moderate}
    _check("augmentation", augmentation, tuple(changes))
    _check("test_domain", test_domain, raw.domains)
    if type(per_domain) is not int or per_domain < 1:
        raise UsageError(f"per_domain is the number of clients of a domain, 1 or more, and cannot be {per_domain!r}.")
    domains = [
        Domain(name, np.flatnonzero(raw.train_groups == place), {"domain": name})
        for place, name in enumerate(raw.domains)
    ]
    x, y, change = raw.train_x, raw.train_y, changes[augmentation]
    return _federation(x, y, raw.classes, domains, test_domain, seed, validation, per_domain, change)


def _federation(
    x: Tensor,
    y: Tensor,
    classes: int,
    domains: Sequence[Domain],
    test_domain: str,
    seed: int,
    validation: float,
    per_domain: int,
    change: augment.Augment | None,
) -> Federation:
    """Clients domain by domain; what is held out of a domain is so before it is cut. Facts of each client and test.

    x uint8 [N, C, H, W], y int64 [N]. Rows of a cut domain that are in no client are counted in facts["unused"].
    """
    clients, tests, facts, unused = [], {}, {"clients": []}, {}
    for place, domain in enumerate(domains):
        held, parts = domain.rows, []
        if domain.name != test_domain:
            held, kept = _split(domain, validation, seed, place)
            parts = [kept[part] for part in cut(y[kept].numpy(), per_domain, classes, seed, place, domain.name)]
            unused[domain.name] = len(kept) - sum(map(len, parts))
        of_one = {"held_out": len(held)} if per_domain == 1 else {}
        facts["clients"] += [counted(y[part]) | of_one | domain.facts for part in parts]
        clients += parts
        tests[domain.name] = x[held], y[held]
        facts[domain.name] = counted(y[held]) | domain.facts
    if per_domain > 1:
        facts["unused"] = unused
    rows = np.concatenate(clients)
    groups = {"id": tuple(name for name in tests if name != test_domain), "ood": (test_domain,)}
    return Federation(x[rows], y[rows], tuple(map(len, clients)), tests, classes, facts, groups, change)


def _split(domain: Domain, validation: float, seed: int, place: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a domain that are held out, and the others, both in the order of a permutation, as in the release."""
    count = len(domain.rows)
    held = int(validation * count) if type(validation) is float and 0 < validation < 1 else 0
    if not 0 < held < count:
        raise UsageError(
            f"validation is the part of a domain that is held out, above 0 and below 1, and cannot be {validation!r} "
            f"for the {count:,} rows of {domain.name}."
        )
    order = stream(seed, 0, place, "validation").permutation(domain.rows)
    return order[:held], order[held:]


def cut(labels: np.ndarray, clients: int, classes: int, seed: int, place: int, name: str) -> list[np.ndarray]:
    """A domain's rows, labels int64 [M], cut into clients; int64 [K_i] each, disjoint, some rows in none.

    fedaug-2022, section 5.1, as its release does it: client j has a size s from int(Normal(M // (clients + 1),
    100)) and class shares q from Dir(200 / classes, ...), both from streams of our own and not from its seeds, and
    takes the next round(s q_k) rows of each class k, or what is left of them. One client has the whole domain. A client
    without a row is a UsageError.
    """
    if clients == 1:
        return [np.arange(len(labels))]
    rng = stream(seed, 0, place, "partition")
    sizes = rng.normal(len(labels) // (clients + 1), SPREAD, clients).astype(np.int64).clip(min=0)
    shares = rng.dirichlet(np.full(classes, CONCENTRATION / classes), clients)
    ends = np.rint(sizes[:, None] * shares).astype(np.int64).cumsum(0)
    starts = np.vstack([np.zeros_like(ends[:1]), ends[:-1]])
    rows = [np.flatnonzero(labels == label) for label in range(classes)]
    parts = [
        np.concatenate([own[a:b] for own, a, b in zip(rows, start, end, strict=True)])
        for start, end in zip(starts, ends, strict=True)
    ]
    if empty := [str(j + 1) for j, part in enumerate(parts) if not len(part)]:
        raise UsageError(
            f"per_domain={clients} leaves client {empty[0]} of {name} without a row at seed {seed}: "
            "set per_domain lower, or use another seed."
        )
    return parts


def _some(name: str, values: object) -> list[float]:
    """One number or more."""
    return numbers(name, values, max(1, len(values)) if isinstance(values, list | tuple) else 1)


def _check(what: str, name: object, known: tuple[str, ...]) -> None:
    if name not in known:
        raise unknown(what, str(name), known)


def _degrees(value: object, augmentation: str) -> float:
    (degrees,) = numbers("degrees", [value], 1)
    if not (0 < degrees <= 180 if augmentation == "rotation" else degrees == 0):
        raise UsageError(
            f"degrees is above 0 and up to 180 where augmentation is rotation, and else 0: it cannot be {value!r} "
            f"with {augmentation!s:.60}."
        )
    return degrees
