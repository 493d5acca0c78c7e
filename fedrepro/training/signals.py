"""The signals that ask to stop: noted, and told to whoever is to end. Nothing here needs PyTorch."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def signals(heard: Callable[[list[int]], None]) -> Iterator[list[int]]:
    """Inside the block, each SIGINT and SIGTERM is noted in the list that it yields, which `heard` is then given."""
    asked: list[int] = []

    def stop(number: int, frame: object) -> None:
        asked.append(number)
        heard(asked)

    old = {each: signal.signal(each, stop) for each in STOPPING}
    try:
        yield asked
    finally:
        for each, handler in old.items():
            signal.signal(each, handler)
