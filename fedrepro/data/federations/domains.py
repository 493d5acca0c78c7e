"""Federations of domains (fedaug-2022): clients of some domains, a validation test for each of them, one domain unseen.

papers/fedaug-2022/PROTOCOL.md. Tests bear the domains' names; reported means are "id" over the training domains, whose
tests are held-out rows, and "ood", the whole test domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedrepro.core.parameters import completed_by
from fedrepro.core.streams import stream
from fedrepro.data import augment
from fedrepro.data.federations.federation import Clients, Federation, Number, counted
from fedrepro.data.federations.rotated import rotate
from fedrepro.data.sources import Raw
from fedrepro.errors import UsageError, unknown

CONCENTRATION, SPREAD = 200, 100  # of the classes of a cut domain's clients, and of their sizes


class Domain(NamedTuple):
    """A domain by name: the numbers of its rows, int64 [M], and what else a record says of it."""

    name: str
    rows: np.ndarray
    facts: dict


class Plan(NamedTuple):
    """Images x uint8 [N, C, H, W], labels y int64 [N], the domains of these rows, and how clients are made of them."""

    x: Tensor
    y: Tensor
    domains: Sequence[Domain]
    test_domain: str
    augment: augment.Augment | None
    per_domain: int = 1


def _federation(
    raw: Raw, seed: int, plan: Plan, *, validation: Annotated[float, Field(gt=0, lt=1)] = 0.1
) -> Federation:
    """Clients domain by domain; what is held out of a domain is so before it is cut. Facts of each client and test.

    Rows of a cut domain that are in no client are counted in facts["unused"].
    """
    x, y, domains, test_domain, change, per_domain = plan
    clients, tests, facts, unused = [], {}, {"clients": []}, {}
    for place, domain in enumerate(domains):
        held, parts = domain.rows, []
        if domain.name != test_domain:
            held, kept = _split(domain, validation, seed, place)
            parts = [kept[part] for part in cut(y[kept].numpy(), per_domain, raw.classes, seed, place, domain.name)]
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
    return Federation(x[rows], y[rows], tuple(map(len, clients)), tests, raw.classes, facts, groups, change)


@completed_by(_federation)
def rotated_mnist(
    raw: Raw,
    seed: int,
    *,
    angles: Annotated[Sequence[Number], Field(min_length=1)] = (0, 15, 30, 45, 60),
    test_angle: Number = 75,
    augmentation: Literal["none", "rotation", "blur"] = "none",
    degrees: Annotated[float, Field(ge=0, le=180)] = 0,
) -> Plan:
    """All digits shuffled, dealt in turn to the `angles` and the `test_angle`, and turned by them: Rotated MNIST.

    fedaug-2022, section 5.1 (as in its release and in DomainBed, which turn PIL images where torchvision's tensors
    are turned here). Counter-clockwise, bilinear, zero fill. `augmentation`: none, rotation (by up to `degrees`), blur.
    """
    if (degrees > 0) != (augmentation == "rotation"):
        wanted = "degrees is above 0 where augmentation is rotation, and else 0"
        raise UsageError(f"{wanted}: it cannot be {degrees:g} with {augmentation}.")
    every = [float(angle) for angle in (*angles, test_angle)]
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
    changes = {"none": None, "rotation": augment.rotation(degrees), "blur": augment.blur}
    return Plan(x[:, None], y, domains, names[-1], changes[augmentation])


@completed_by(_federation)
def pictures(
    raw: Raw,
    seed: int,
    *,
    test_domain: str,
    per_domain: Clients = 1,
    augmentation: Literal["none", "weak", "moderate"] = "none",
) -> Plan:
    """A client of each domain but the test domain, or `per_domain` clients of a part of it each (see `cut`).

    fedaug-2022, section 5.1. `augmentation`: none, weak (crop and flip), moderate (also colours).
    """
    if test_domain not in raw.domains:
        raise unknown("test_domain", test_domain, raw.domains)
    places = [np.flatnonzero(raw.train_groups == place) for place in range(len(raw.domains))]
    domains = [Domain(name, rows, {"domain": name}) for name, rows in zip(raw.domains, places, strict=True)]
    change = {"none": None, "weak": augment.weak, "moderate": augment.moderate}[augmentation]
    return Plan(raw.train_x, raw.train_y, domains, test_domain, change, per_domain)


def _split(domain: Domain, validation: float, seed: int, place: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a domain that are held out, and the others, both in the order of a permutation, as in the release."""
    count = len(domain.rows)
    held = int(validation * count)
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
