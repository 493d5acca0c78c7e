"""`fedrepro bench`: seconds a round of the workloads W1 to W4, played by the trainer as it plays every run."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch

from fedrepro.core import lift
from fedrepro.core.precision import PRECISIONS
from fedrepro.data import DATASETS, sources
from fedrepro.errors import UsageError, short, unknown
from fedrepro.records.config import Precision
from fedrepro.training import runs
from fedrepro.training.train import Training
from workloads import RANDOM, WORKLOADS, Workload

__all__ = ["WORKLOADS", "Workload", "find", "lend", "run", "timed"]


def find(name: str) -> Workload:
    """A workload by name; UsageError with the closest one that there is."""
    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS)
    return WORKLOADS[name]


def lend(work: Workload, folder: Path) -> None:
    """Let the workload have its data from a folder. UsageError where it lacks them."""
    if work.config.dataset != RANDOM:
        source = sources.SOURCES[DATASETS[work.config.dataset].source]
        if lacking := sources.missing(source, folder):
            raise UsageError(f"{folder} has no {lacking[0]}: name a folder that has it with --data.")
    os.environ[sources.FOLDER_VARIABLE] = str(folder)


def run(work: Workload, *, precision: Precision = "fp32", device: str = "auto") -> dict:
    """Play a workload and say how long it took, as one row.

    `round_s` has the seconds of each round: the broadcast, local training, aggregation and, where
    the workload has one, the test on all test images. `wall_s` is from the start, with data and compiled loops to be
    loaded. `accuracy` is that of the last test, a fraction; None where there is no test.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {short(repr(precision))}: there is {' and '.join(PRECISIONS)}.")
    began, chosen = time.perf_counter(), runs.resolve(device)
    lift.keep_freed_memory()
    training = work.training((0,), precision, chosen)
    spent = list(islice(timed(training), work.rounds))
    row = {
        "workload": work.name,
        "contestant": "fedrepro",
        "round_s": [round(seconds, 6) for seconds in spent],
        "wall_s": round(time.perf_counter() - began, 3),
        "accuracy": accuracy(training),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "precision": precision,
        "device": chosen.type,
    }
    return row | ({"ms_per_iteration": round(1000 * sum(spent) / len(spent), 3)} if work.iterates else {})


def timed(training: Training) -> Iterator[float]:
    """Play rounds; yields the seconds of each."""
    played = iter(training)
    while True:
        began = time.perf_counter()
        next(played)
        if training.device.type == "cuda":
            torch.cuda.synchronize(training.device)
        yield time.perf_counter() - began


def accuracy(training: Training) -> float | None:
    """The accuracy at the last test."""
    tested = [value for _, metric, value in training.lanes[0].curve if metric == "test_accuracy"]
    return tested[-1] if tested else None
