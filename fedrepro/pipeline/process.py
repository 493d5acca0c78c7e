"""The process of a job: forked from a server that has imported the trainer, it tells its driver how the job goes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import connection, forkserver
from multiprocessing.context import ForkServerContext
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

from fedrepro.errors import FedreproError, Interrupted
from fedrepro.pipeline import run as pipeline
from fedrepro.pipeline.plan import Job
from fedrepro.records.config import RunConfig
from fedrepro.records.curves import latest
from fedrepro.training.signals import STOPPING

if TYPE_CHECKING:
    from fedrepro.pipeline.job import Display
    from fedrepro.training.train import Training

# What a training imports: once in the server, and not in each of its processes.
PRELOADED = ("fedrepro.pipeline.job", "sklearn.datasets", "numba", "torch._dynamo", "torchvision")
TICK = 0.5  # seconds between two looks at locks, and the least between two messages of a process
SELDOM = 30.0  # seconds between two lines of a job that prints


class At(NamedTuple):
    """Where a training is: the latest training loss and accuracy are means over the seeds that run."""

    round: int
    rounds: int
    loss: float | None
    accuracy: float | None


def serve(threads: int, preload: Iterable[str] = ()) -> ForkServerContext:
    """The server that processes are forked from. What it imports starts no more threads than a process may have."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, *preload])
    with mock.patch.dict(os.environ, OMP_NUM_THREADS=str(threads)):
        forkserver.ensure_running()
    return context


def check(context: ForkServerContext, trained: list[tuple[str, str, RunConfig]]) -> None:
    """Raise UsageError where a run has settings that its method or dataset does not have; done in a process."""
    with ProcessPoolExecutor(1, context) as pool:
        pool.submit(_check, trained).result()


def _check(trained: list[tuple[str, str, RunConfig]]) -> None:
    for each in trained:
        pipeline.check(*each)


class Pipe:
    """A display that tells the driver; where that is gone, nobody."""

    def __init__(self, pipe: connection.Connection):
        self.pipe, self.due = pipe, 0.0

    def watch(self, training: Training) -> None:
        """Tell where the training is, now and then."""
        now = time.monotonic()
        if now >= self.due or not training.running:
            self.due = now + TICK
            seen = [lane.curve for lane in training.running or training.lanes]
            loss, accuracy = latest(seen, "train_loss", "generator_loss"), latest(seen, "train_accuracy")
            self.tell("at", training.round, training.config.rounds, loss, accuracy)

    def say(self, line: str) -> None:
        """Tell a line."""
        self.tell("said", line)

    def tell(self, *what: object) -> None:
        """Tell anything."""
        with contextlib.suppress(OSError):
            self.pipe.send(what)


class Printed:
    """A display that prints."""

    def __init__(self) -> None:
        self.due = 0.0

    def watch(self, training: Training) -> None:
        """Print the round, now and then."""
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + SELDOM
            self.say(f"round {training.round}/{training.config.rounds}")

    def say(self, line: str) -> None:
        """Print a line."""
        print(line, flush=True)


def child(
    job: Job, pipe: connection.Connection, device: str, threads: int, there: Mapping[str, str], folder: str
) -> None:
    """Do a job in the environment `there` and in a folder, and tell how it ended."""
    os.chdir(folder)  # the server's may be another one
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    for each in STOPPING:
        signal.signal(each, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(there)
    threading.Thread(target=_with_driver, daemon=True).start()
    display = Pipe(pipe)
    display.tell("end", *outcome(job, device, threads, display))


def outcome(job: Job, device: str, threads: int, display: Display) -> tuple[str, str]:
    """Do a job in this process, as its command; returns how it ended, and why it failed."""
    sys.argv = shlex.split(job.command)  # for the provenance of records
    try:
        import torch

        from fedrepro.pipeline import job as jobs

        torch.set_num_threads(threads)
        jobs.perform(job, device, display)
    except (Interrupted, KeyboardInterrupt) as stop:
        return "stopped", str(stop)
    except FedreproError as error:
        return "failed", str(error)
    except Exception as error:
        return "failed", f"internal error: {' '.join(f'{type(error).__name__}: {error}'.split())}"
    return "done", ""


def _with_driver() -> None:
    """End as at SIGTERM when the driver is gone, however it went."""
    multiprocessing.parent_process().join()
    os.kill(os.getpid(), signal.SIGTERM)
