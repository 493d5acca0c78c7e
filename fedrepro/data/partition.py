"""Partitions: which rows of a source go to which client, as a pure function of (rows, clients, seed)."""

from __future__ import annotations

import numpy as np

from fedrepro.errors import UsageError
from fedrepro.streams import stream


def equal(rows: int, n: int, seed: int) -> tuple[np.ndarray, ...]:
    """All rows, shuffled and cut into n clients whose sizes differ by at most one (the first ones are the larger).

    Shuffled equal folds, as the code of Ahuja et al. 2020 makes them (flgames-2022 follows it).
    Returns int64 [K_i] for each client: disjoint, together 0..rows-1. An n that cannot be had is a UsageError.
    """
    if type(n) is not int or n < 1:
        raise UsageError(f"n is the number of clients, 1 or more, and cannot be {n!r}.")
    if n > rows:
        raise UsageError(f"there are more clients ({n:,}) than training samples ({rows:,}): set n to {rows:,} or less.")
    return tuple(np.array_split(stream(seed, purpose="partition").permutation(rows), n))
