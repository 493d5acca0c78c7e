"""Compiled loops, each of torch's threads with a part of the work; they hold no lock of Python's meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

SMALL = 16_384  # numbers for which to wake a thread takes as long as the work itself


def share_out(work: Callable[[int, int], None], size: int, numbers: int) -> None:
    """Call `work(first, end)` on parts of range(size), side by side; `numbers`: how many there are to go through."""
    threads = min(torch.get_num_threads(), size) if numbers > SMALL else 1
    edges = [size * i // threads for i in range(threads + 1)]
    others = [_pool(threads).submit(work, *part) for part in zip(edges[1:], edges[2:], strict=False)]
    work(*edges[:2])
    for done in others:
        done.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)
