"""Many jobs for the eye: one live table on a terminal, plain lines elsewhere; and how they went."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from fedrepro.cli.progress import INTERVAL
from fedrepro.pipeline.local import Driver, Work
from fedrepro.pipeline.plan import Job

MOST = 20  # rows of jobs that run
ENDED = {  # how jobs end, in words
    "done": "done",
    "kept": "done by another process",
    "stopped": "stopped",
    "failed": "failed",
    "left": "not started",
}


class Board:
    """How jobs go, for a console. Used as a context, it keeps a table of those that run where that is a terminal."""

    def __init__(self, console: Console, count: int, clock: Callable[[], float] = time.monotonic):
        self.console, self.count, self.clock = console, count, clock
        self.ended: Counter[str] = Counter()
        self.first: dict[Work, tuple[float, int]] = {}  # when a run was first seen in training, and in which round
        self.due = clock() + INTERVAL
        self.live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Board:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the table away."""
        if self.live:
            self.live.stop()

    def started(self, work: Work) -> None:
        """Say that a job begins, where no table shows it."""
        if not self.live:
            self.say(f"{work.job.name}: started{f' on GPU {work.slot}' if work.slot else ''}")

    def said(self, work: Work, line: str) -> None:
        """Print a line of a job."""
        if not line.startswith("stopping after this round"):  # said once, of all
            self.say(f"{work.job.name}: {line}")

    def over(self, work: Work) -> None:
        """Say how a job ended."""
        self.ended[work.ended] += 1
        self.first.pop(work, None)
        after = f" in {_time(self.clock() - work.began)}" if work.process else ""
        why = f": {work.why}" if work.why else ""
        self.say(f"[{self.ended.total()}/{self.count}] {work.job.name}: {ENDED[work.ended]}{after}{why}")

    def look(self, driver: Driver) -> None:
        """Draw the table anew, or print a line of all if one is due."""
        for work in driver.running.values():
            if work.at and work not in self.first:
                self.first[work] = (self.clock(), work.at.round)
        if self.live:
            self.live.update(self._table(driver), refresh=True)
        elif self.clock() >= self.due:
            self.due = self.clock() + INTERVAL
            shown = [f"{work.job.of[-1]} {_round(work)}" for work in [*driver.running.values()][:MOST] if work.at]
            self.say(": ".join(filter(None, (self._counts(driver), ", ".join(shown)))))

    def say(self, line: str) -> None:
        """Print a line."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _counts(self, driver: Driver) -> str:
        done = self.ended["done"] + self.ended["kept"]
        parts = [f"{done} done", f"{len(driver.running)} running", f"{len(driver.waiting)} waiting"]
        return ", ".join([*parts, f"{self.ended['failed']} failed"])

    def _table(self, driver: Driver) -> Group:
        right = {"justify": "right", "no_wrap": True}
        table = Table(
            *(Column("running", ratio=1, no_wrap=True, overflow="ellipsis"), Column("round", **right)),
            *(Column("loss", **right), Column("train", **right), Column("ETA", **right)),
            box=None, expand=True, padding=(0, 1), pad_edge=False,
        )  # fmt: skip
        for work in [*driver.running.values()][:MOST]:
            at = work.at
            loss = f"{at.loss:.4g}" if at and at.loss is not None else "–"
            accuracy = f"{at.accuracy:.1%}" if at and at.accuracy is not None else "–"
            table.add_row(work.job.name, _round(work), loss, accuracy, self._left(work))
        return Group(*([table] if table.rows else []), Text(self._counts(driver)))

    def _left(self, work: Work) -> str:
        """The time to the last round, by the rounds that were seen."""
        began, first = self.first.get(work, (0.0, 0))
        if not work.at or work.at.round == first:
            return "–"
        return _time((self.clock() - began) / (work.at.round - first) * (work.at.rounds - work.at.round))


def _round(work: Work) -> str:
    return f"{work.at.round}/{work.at.rounds}" if work.at else "–"


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def summary(over: Iterable[Work], left: Iterable[Job]) -> list[str]:
    """How it all went: the counts and, of each job that failed or was stopped, why, and the command that does it."""
    over = list(over)
    counts = Counter(work.ended for work in over) + Counter({"left": len(list(left))})
    lines = [", ".join(f"{counts[how]} {words}" for how, words in ENDED.items() if counts[how])]
    for work in over:
        if work.ended in ("failed", "stopped"):
            lines.append(f"{work.job.name} {work.ended}{f': {work.why}' if work.why else ''}")
            lines.append(f"  {work.job.command}")
    return lines
