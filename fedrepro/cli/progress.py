"""A running training for the eye: a bar on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from fedrepro.records.curves import latest

if TYPE_CHECKING:
    from fedrepro.training.train import Training

INTERVAL = 30.0  # seconds between plain lines
MEMORY = 86400.0  # seconds that the time left is estimated from


@contextlib.contextmanager
def shown(title: str, console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[Display]:
    """A display that fits the console, for as long as the block lasts."""
    columns = (SpinnerColumn(), BarColumn(None), TextColumn("{task.description}"))
    look = {"expand": True, "transient": True, "disable": not console.is_terminal}
    with Progress(*columns, console=console, get_time=clock, speed_estimate_period=MEMORY, **look) as progress:
        yield Display(title, progress)


class Display:
    """What `runs.execute` tells: the training after each round, and lines for the user, which go above the bar.

    Where the bar is disabled: a line for the first round, then one every INTERVAL seconds, and one at the end.
    """

    def __init__(self, title: str, progress: Progress):
        self.progress, self.due = progress, 0.0
        self.say(title)
        progress.add_task("preparing the data", total=None)
        (self.task,) = progress.tasks

    def watch(self, training: Training) -> None:
        """Move the bar to the training's round, or print a line if one is due."""
        self.progress.update(self.task.id, completed=training.round, total=training.config.rounds)
        now = facts(training, self.task.time_remaining)
        self.progress.update(self.task.id, description=now)
        if self.progress.disable and (self.progress.get_time() >= self.due or not training.running):
            self.due = self.progress.get_time() + INTERVAL
            self.say(now)

    def say(self, line: str) -> None:
        """Print a line."""
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


def facts(training: Training, left: float | None) -> str:
    """A training at a glance: the train accuracy is the latest, the mean over the seeds that run.

    `left`: seconds to the last round, by the rounds that this process has seen; a stopping rule may end a run before.
    """
    running = len(training.running)
    parts = [f"round {training.round}/{training.config.rounds}", f"{running} running"]
    if ended := len(training.lanes) - running:
        parts.append(f"{ended} ended")
    accuracy = latest((lane.curve for lane in training.running or training.lanes), "train_accuracy")
    if accuracy is not None:
        parts.append(f"train accuracy {accuracy:.1%}")
    if left is not None and running:
        parts.append(f"ETA {timedelta(seconds=round(left))}")
    return ", ".join(parts)
