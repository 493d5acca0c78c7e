"""Jobs side by side on this machine: a process each, so that one that is killed is one run that failed.

The processes are forked from a server that has imported the trainer once. Each is in a group of its own: the driver
passes signals on, and a process whose driver is gone ends at its round's end, with a checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from fedrepro.errors import FedreproError, Interrupted
from fedrepro.files import held
from fedrepro.pipeline.plan import Job
from fedrepro.pipeline.process import TICK, At, child
from fedrepro.pipeline.workers import Workers
from fedrepro.training.signals import STOPPING, signals


@dataclass(eq=False)
class Work:
    """A job that is or was done.

    `ended`: "" while it runs, then "done", "failed", "stopped", "kept" (another process did it) or "left" (not tried).
    """

    job: Job
    slot: str | None = None
    process: BaseProcess | None = None
    began: float = field(default_factory=time.monotonic)
    at: At | None = None
    ended: str = ""
    why: str = ""


class Board(Protocol):
    """A display of how jobs go."""

    def started(self, work: Work) -> None:
        """See a job begin."""

    def said(self, work: Work, line: str) -> None:
        """Take a line of a job."""

    def over(self, work: Work) -> None:
        """See a job end."""

    def look(self, driver: Driver) -> None:
        """See how all stand, a few times a second."""

    def say(self, line: str) -> None:
        """Take a line for the user."""


class Driver:
    """Starts jobs in their order, each once what it needs is done, and hears how they go.

    A job that another process has locked is left until it is free: two drivers on one folder share the work.
    """

    def __init__(
        self, jobs: Iterable[Job], workers: Workers, board: Board, keep_going: bool, context: ForkServerContext
    ):
        self.waiting = {job.command: job for job in jobs}
        self.workers, self.board, self.keep_going, self.context = workers, board, keep_going, context
        self.running: dict[connection.Connection, Work] = {}
        self.over: list[Work] = []
        self.done: set[str] = set()
        self.lost: set[str] = set()
        self.elsewhere: set[str] = set()  # those that another process was seen to hold
        self.stops = 0
        self.free = available()

    def run(self) -> list[Work]:
        """Do the jobs; returns those that ended. Raises Interrupted after SIGINT or SIGTERM."""
        with signals(self._asked) as asked:
            while self.running or (self.waiting and not self.stops):
                while not self.stops and (job := self._next()):
                    self._start(job)
                ready = connection.wait(list(self.running), TICK) if self.running or self.waiting else ()
                for pipe in ready:
                    self._hear(pipe)
                self.board.look(self)
        if asked:
            stopped = sum(work.ended == "stopped" for work in self.over)
            raise Interrupted(f"stopped, {stopped} in their midst; the same command goes on from there.")
        return self.over

    def _next(self) -> Job | None:
        """The first job that can start now, if there is one and a slot for it."""
        if len(self.running) == len(self.workers.slots):
            return None
        for job in [*self.waiting.values()]:
            if job.needs & self.lost:
                self._end(Work(job, ended="left", why="what it needs failed"))
            if not job.needs <= self.done:
                continue
            if held(job.place.lock):
                self._skip(job)
                continue
            if not fits(job, (work.job for work in self.running.values()), self.free):
                continue
            try:
                done = job.done
            except FedreproError as error:
                self._end(Work(job, ended="failed", why=str(error)))
                continue
            if not done:
                return self.waiting.pop(job.command)
            self._end(Work(job, ended="kept"))
        return None

    def _skip(self, job: Job) -> None:
        """Leave a job to the process that has it; say so once."""
        if job.command not in self.elsewhere:
            self.elsewhere.add(job.command)
            self.board.say(f"{job.name}: another process is at it")

    def _start(self, job: Job) -> None:
        taken = [work.slot for work in self.running.values()]
        slot = min(self.workers.slots, key=taken.count)
        pipe, theirs = self.context.Pipe(duplex=False)
        there = dict(os.environ) | ({} if slot is None else {"CUDA_VISIBLE_DEVICES": slot})
        told = (job, theirs, self.workers.device, self.workers.threads, there, os.getcwd())
        work = Work(job, slot, self.context.Process(target=child, args=told, daemon=True))
        work.process.start()
        theirs.close()
        self.running[pipe] = work
        self.board.started(work)
        if self.stops:  # a signal came meanwhile
            self._stop(work)

    def _hear(self, pipe: connection.Connection) -> None:
        """Take what a process tells; it ends with it, or without a word where it was killed."""
        work = self.running[pipe]
        try:
            kind, *told = pipe.recv()
        except (EOFError, OSError):
            work.process.join()
            del self.running[pipe]
            pipe.close()
            if not work.ended:
                work.ended, work.why = self._unsaid(work.process.exitcode)
            work.process.close()
            self._end(work)
            return
        if kind == "at":
            work.at = At(*told)
        elif kind == "said":
            self.board.said(work, *told)
        else:
            work.ended, work.why = told

    def _unsaid(self, code: int) -> tuple[str, str]:
        """How a process ended that did not say so."""
        if self.stops and -code in STOPPING:
            return "stopped", ""
        cause = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
        return "failed", f"its process was {cause}" if code < 0 else f"its process {cause}"

    def _end(self, work: Work) -> None:
        self.waiting.pop(work.job.command, None)
        (self.done if work.ended in ("done", "kept") else self.lost).add(work.job.command)
        self.over.append(work)
        self.board.over(work)
        if work.ended == "failed" and not self.keep_going and not self.stops:
            self.board.say("one failed: those that run stop after their round, and no other is started")
            self.stop()

    def _asked(self, asked: list[int]) -> None:
        if not self.stops:
            self.board.say("stopping after the rounds that are played; a second signal stops at once, without them")
        self.stop()

    def stop(self) -> None:
        """Start no job any more, and have those that run stop after their round; at once the second time."""
        self.stops += 1
        for work in [*self.running.values()]:
            self._stop(work)

    def _stop(self, work: Work) -> None:
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(work.process.pid, signal.SIGTERM)


def fits(job: Job, running: Iterable[Job], free: float) -> bool:
    """Whether a job may start beside others: the most memory that they were recorded to take, in MiB, is there.

    One job always may.
    """
    others = [each.cost.memory for each in running]
    return not others or job.cost.memory + sum(others) <= free


def available() -> float:
    """MiB of memory that nobody uses now; infinity where the system does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) / 1024
    return float("inf")
