"""A running training for the eye: a bar on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from statistics import fmean
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

if TYPE_CHECKING:
    from fedrepro.train import Lane, Training

INTERVAL = 30.0  # seconds between plain lines


class Display(Protocol):
    """What `runs.execute` tells: the training after each round, and lines for the user."""

    def watch(self, training: Training) -> None: ...

    def say(self, line: str) -> None: ...


@contextlib.contextmanager
def shown(title: str, console: Console) -> Iterator[Display]:
    """A display that fits the console, for as long as the block lasts."""
    if not console.is_terminal:
        yield Lines(title, console)
        return
    columns = (SpinnerColumn(), BarColumn(None), TextColumn("{task.description}"))
    with Progress(*columns, console=console, expand=True, transient=True) as progress:
        yield Bar(title, progress)


class Pace:
    """How long the rounds that are left will take, from those that this process has seen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock, self._first = clock, None

    def left(self, round: int, rounds: int) -> float | None:
        """Seconds to the last round, None as long as nothing is known. A stopping rule may end a run before it."""
        now = self._clock()
        if self._first is None:
            self._first = round, now
        start, began = self._first
        return (now - began) / (round - start) * (rounds - round) if round > start else None


@dataclass(frozen=True)
class Facts:
    """A training at a glance.

    `running`, `ended`: numbers of seeds. `accuracy`: the latest on the training data, mean over the seeds that run.
    `left`: seconds, see `Pace.left`.
    """

    round: int
    rounds: int
    running: int
    ended: int
    accuracy: float | None
    left: float | None

    def __str__(self) -> str:
        parts = [f"round {self.round}/{self.rounds}", f"{self.running} running"]
        if self.ended:
            parts.append(f"{self.ended} ended")
        if self.accuracy is not None:
            parts.append(f"train accuracy {self.accuracy:.1%}")
        if self.left is not None and self.running:
            parts.append(f"ETA {timedelta(seconds=round(self.left))}")
        return ", ".join(parts)


def facts(training: Training, pace: Pace) -> Facts:
    """What a training shows now."""
    running, rounds = len(training.running), training.config.rounds
    accuracies = [value for value in map(_accuracy, training.running or training.lanes) if value is not None]
    accuracy = fmean(accuracies) if accuracies else None
    left = pace.left(training.round, rounds)
    return Facts(training.round, rounds, running, len(training.lanes) - running, accuracy, left)


def _accuracy(lane: Lane) -> float | None:
    return next((value for _, metric, value in reversed(lane.curve) if metric == "train_accuracy"), None)


class Bar:
    """A bar that moves; lines go above it."""

    def __init__(self, title: str, progress: Progress):
        self.progress, self.pace = progress, Pace()
        self.say(title)
        self.task: TaskID = progress.add_task("preparing the data", total=None)

    def watch(self, training: Training) -> None:
        """Move the bar to the training's round."""
        now = facts(training, self.pace)
        self.progress.update(self.task, completed=now.round, total=now.rounds, description=str(now))

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        _plain(self.progress.console, line)


class Lines:
    """The title, a line for the first round, then one every INTERVAL seconds, and one at the end."""

    def __init__(self, title: str, console: Console, clock: Callable[[], float] = time.monotonic):
        self.console, self.clock = console, clock
        self.pace, self.due = Pace(clock), 0.0
        self.say(title)

    def watch(self, training: Training) -> None:
        """Print a line if one is due."""
        now = facts(training, self.pace)
        if self.clock() >= self.due or not now.running:
            self.due = self.clock() + INTERVAL
            self.say(str(now))

    def say(self, line: str) -> None:
        """Print a line."""
        _plain(self.console, line)


def _plain(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
