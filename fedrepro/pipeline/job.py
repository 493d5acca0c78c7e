"""One job done in the present process: what its command does, with the lock of another process waited for."""

from __future__ import annotations

import contextlib
import time
from typing import Protocol

from fedrepro.data import manifests
from fedrepro.errors import Busy
from fedrepro.judges import networks
from fedrepro.papers.load import load_paper
from fedrepro.pipeline import tune
from fedrepro.pipeline.adopt import adopt
from fedrepro.pipeline.plan import Job, settled_run
from fedrepro.pipeline.run import place
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Place
from fedrepro.training import runs
from fedrepro.training.train import Training

POLL = 1.0  # seconds between two looks at a lock that another process holds


class Display(Protocol):
    """A listener while a job is done: the training after each round, and lines for the user."""

    def watch(self, training: Training) -> None:
        """See the training after a round."""

    def say(self, line: str) -> None:
        """Take a line."""


class Silent:
    """A display that shows nothing."""

    def watch(self, training: Training) -> None:
        """Show nothing."""

    say = watch


def perform(job: Job, device: str = "auto", display: Display = Silent()) -> None:
    """Do a job, unless another process does it meanwhile. Raises what its command does."""
    waits = False
    while not (waits and job.done):
        try:
            _perform(job, device, display)
            return
        except Busy:
            if not waits:
                display.say("another process is at it: waiting for it")
            waits = True
            time.sleep(POLL)


def _perform(job: Job, device: str, display: Display) -> None:
    shown = lambda title: contextlib.nullcontext(display)  # noqa: E731
    match job.kind, job.of:
        case "fetch", (source,):
            with runs.locked(job.place):
                manifests.fetch(source)
        case "extractor", (name,):
            with runs.locked(job.place):
                networks.make(name, display.say)
        case "point", (paper, run, point):
            tune.point(paper, run, point, shown, budget=job.budget, device=device)
        case "study", (paper, run):
            tune.tune(paper, run, shown, budget=job.budget, device=device)
        case _, (paper, run):
            if job.trains is None and settled_run(load_paper(paper).at(job.budget), run) is None:  # a second search
                tune.tune(paper, run, shown, budget=job.budget, device=device)
            config, where = _run(job, paper, run)
            adopt(config, where, display.say)
            runs.execute(config, where, device=device, watch=display.watch, say=display.say)


def _run(job: Job, paper: str, run: str) -> tuple[RunConfig, Place]:
    """The run of a job and its place; one whose search was still to be made has what that found."""
    if job.trains:
        return job.trains.config, job.trains.place
    loaded = load_paper(paper).at(job.budget)
    config = loaded.run(run)
    return config, place(loaded, run, config)
