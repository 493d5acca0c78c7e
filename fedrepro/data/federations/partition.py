"""Partitions: which rows of a source go to which client, as a pure function of (labels or groups, how, seed).

Each returns int64 [K_i] for each client: disjoint, together 0..rows-1, the same for equal arguments. Nothing is drawn
again until it fits: what cannot be had is a UsageError.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from fedrepro.core.streams import stream
from fedrepro.errors import UsageError

Parts = tuple[np.ndarray, ...]
Partition = Literal["iid", "label-count", "shards", "dirichlet", "dirichlet-size", "writers"]


class Deal(NamedTuple):
    """How rows are dealt to `n` clients.

    `labels_per_client` counts for "label-count" and "shards", `alpha` for "dirichlet" and "dirichlet-size".
    """

    partition: Partition
    n: int
    labels_per_client: int = 2
    alpha: float = 0.5


def deal(how: Deal, labels: np.ndarray, groups: np.ndarray | None, seed: int) -> Parts:
    """The rows of each client; labels int64 [rows], groups (writers) int64 [rows] or None where there are none."""
    kind, n, per_client, alpha = how
    if kind == "writers":
        if groups is None:
            raise UsageError('partition "writers" needs a dataset with writers: use femnist, or another partition.')
        return by_group(groups, n, seed)
    if kind in ("label-count", "shards"):
        return (label_counts if kind == "label-count" else shards)(labels, n, per_client, seed)
    if kind == "dirichlet":
        return dirichlet(labels, n, alpha, seed)
    return equal(len(labels), n, seed) if kind == "iid" else dirichlet_sizes(len(labels), n, alpha, seed)


def equal(rows: int, n: int, seed: int) -> Parts:
    """All rows, shuffled and cut into n clients whose sizes differ by at most one (the first ones are the larger).

    Shuffled equal folds, as the code of Ahuja et al. 2020 makes them (flgames-2022 follows it).
    Returns int64 [K_i] for each client: disjoint, together 0..rows-1. An n that cannot be had is a UsageError.
    """
    check_clients(n, rows)
    return tuple(np.array_split(stream(seed, purpose="partition").permutation(rows), n))


def label_counts(labels: np.ndarray, n: int, per_client: int, seed: int) -> Parts:
    """`per_client` labels for each client, the rows of a label cut equally among its owners; sizes differ.

    Quantity-based label imbalance of Li et al. 2102.02079, as `noniid-#label2` of their code (NIID-Bench): client i
    owns label i mod classes and further ones at random. With fewer clients than labels one could be without an owner,
    which is a UsageError for every seed alike, as is a label with fewer rows than owners.
    """
    classes = _check_labels(labels, n, per_client)
    if n < classes > per_client:
        raise UsageError(
            f"{n:,} clients with {per_client} labels each may leave one of {classes} labels without a client: "
            f"set n to {classes} or more, or labels_per_client to {classes}."
        )
    rng = stream(seed, purpose="partition")
    owns = np.zeros((n, classes), bool)
    for client, own in enumerate(owns):
        first = client % classes
        others = rng.permutation(np.delete(np.arange(classes), first))
        own[[first, *others[: per_client - 1]]] = True
    return among(labels, owns, rng)


def among(labels: np.ndarray, owns: np.ndarray, rng: np.random.Generator, copied: bool = False) -> Parts:
    """The rows of each client, label after label; owns: bool [clients, labels], who has rows of which label.

    The rows of a label, shuffled, are cut among its owners into parts that differ by at most one row (the first ones
    are the larger), or are `copied` to each of them. A label with fewer rows than owners is a UsageError.
    """
    shares: list[list[np.ndarray]] = [[] for _ in owns]
    for label, owners in enumerate(map(np.flatnonzero, owns.T)):
        rows = rng.permutation(np.flatnonzero(labels == label))
        if len(rows) < len(owners):
            raise UsageError(
                f"label {label} has {len(rows):,} rows for {len(owners):,} clients: set n or labels_per_client lower."
            )
        for owner, share in zip(
            owners, [rows] * len(owners) if copied else np.array_split(rows, len(owners)), strict=True
        ):
            shares[owner].append(share)
    return tuple(map(np.concatenate, shares))


def shards(labels: np.ndarray, n: int, per_client: int, seed: int) -> Parts:
    """`per_client` shards for each client, each of one label, no two of the same; sizes are about equal.

    McMahan et al. 2017, section 3, cut the rows sorted by label into shards of equal size, some of which then hold two
    labels. fedgma-2021 asks for about equal numbers of images of exactly two digits: here a label is cut into as many
    equal shards as its share of the rows gives it, and a client's shards are of different labels.
    """
    classes = _check_labels(labels, n, per_client)
    counts = np.bincount(labels, minlength=classes)
    left = _shards_per_label(counts, n, per_client)
    rng = stream(seed, purpose="partition")
    stacks = [
        np.array_split(rng.permutation(np.flatnonzero(labels == label)), many) if many else []
        for label, many in enumerate(left)
    ]
    parts = []
    for clients in range(n, 0, -1):  # those still to be served
        # A label with a shard for each of them must be taken now. So none ever has more shards than clients are left,
        # and there are always enough different ones.
        due = np.flatnonzero(left == clients)
        free = np.flatnonzero((left > 0) & (left < clients))
        missing = per_client - len(due)
        chosen = rng.choice(free, missing, replace=False, p=left[free] / left[free].sum()) if missing else free[:0]
        mine = np.concatenate([due, chosen])
        left[mine] -= 1
        parts.append(np.concatenate([stacks[label].pop() for label in mine]))
    return tuple(parts)


def _shards_per_label(counts: np.ndarray, n: int, per_client: int) -> np.ndarray:
    """How many of the n * per_client shards a label [classes] gives: the next one always cuts the largest shard.

    At least one for a label with rows, at most one for each client or row.
    """
    most = np.minimum(counts, n)
    total, many = n * per_client, (counts > 0).astype(np.int64)
    if not many.sum() <= total <= most.sum():
        raise UsageError(
            f"{n:,} clients cannot have shards of {per_client} different labels each, all rows used: "
            f"there are {len(counts)} labels and {counts.sum():,} rows; change n or labels_per_client."
        )
    for _ in range(total - many.sum()):
        many[np.argmax(np.where(many < most, counts / np.maximum(many, 1), 0))] += 1
    return many


def dirichlet(labels: np.ndarray, n: int, alpha: float, seed: int) -> Parts:
    """Each label is divided among the clients in proportions from Dirichlet(alpha, ..., alpha).

    Distribution-based label imbalance of Li et al. 2102.02079, as their text has it: their code also caps a client at
    rows / n and draws again until each has ten. A client without a row is a UsageError.
    """
    check_clients(n, len(labels))
    rng = stream(seed, purpose="partition")
    cuts = []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        ends = np.cumsum(rng.dirichlet(np.full(n, float(alpha))))[:-1] * len(rows)
        cuts.append(np.split(rows, ends.astype(np.int64)))
    parts = tuple(map(np.concatenate, zip(*cuts, strict=True)))
    if empty := [str(k + 1) for k, part in enumerate(parts) if not len(part)]:
        raise UsageError(
            f"alpha={alpha:g} leaves {len(empty):,} of {len(parts):,} clients without a row, client {empty[0]} first: "
            "set alpha higher, or n lower."
        )
    return parts


def dirichlet_sizes(rows: int, n: int, alpha: float, seed: int) -> Parts:
    """All rows, shuffled and divided in proportions from Dirichlet(alpha, ..., alpha).

    Quantity skew of Li et al. 2102.02079, without the redraws of their code. A client without a row is a UsageError.
    """
    return dirichlet(np.zeros(rows, np.int64), n, alpha, seed)  # as the rows of one label


def by_group(groups: np.ndarray, n: int, seed: int) -> Parts:
    """Whole groups (writers), int64 [rows], dealt at random, to each client as many (to within one)."""
    present, row_group = np.unique(groups, return_inverse=True)
    check_clients(n, len(present), "writers")
    hands = np.array_split(stream(seed, purpose="partition").permutation(len(present)), n)
    return tuple(np.flatnonzero(np.isin(row_group, hand)) for hand in hands)


def check_clients(n: int, most: int, of: str = "training samples") -> None:
    """UsageError unless n clients can each have at least one."""
    if n > most:
        raise UsageError(f"there are more clients ({n:,}) than {of} ({most:,}): set n to {most:,} or less.")


def _check_labels(labels: np.ndarray, n: int, per_client: int) -> int:
    """The number of labels, 0 to the largest that occurs."""
    check_clients(n, len(labels))
    classes = int(labels.max()) + 1
    if per_client > classes:
        raise UsageError(f"labels_per_client is 1 to {classes}, and cannot be {per_client!r}.")
    return classes
