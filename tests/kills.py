"""Trials of `kill -9`: a run that is killed at random moments must end as one that was left alone, bit for bit.

`python tests/kills.py [--kills N] [METHOD ...]` kills runs of each method 50 times, which takes some minutes, and
prints a row of each.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from fedrepro.records.config import RunConfig
from fedrepro.records.record import Place
from fedrepro.training import runs

SMALL = {"batch": 64, "hidden": 16}
# One of each family and more; each trains for some seconds.
CASES = {
    "scaffold": {"dataset": "digits", "hyper": SMALL | {"net": "mlp"}, "rounds": 14},
    "vm": {"dataset": "rotated-mnist-digits", "hyper": SMALL | {"net": "mlp"}, "rounds": 36},
    "v-fl-smooth-fast": {"dataset": "digits", "hyper": SMALL, "rounds": 36},
    "erm": {"dataset": "rotated-mnist-digits", "hyper": SMALL | {"net": "mlp"}, "rounds": 90},
    "f2u": {"dataset": "mixture-2d", "rounds": 100, "watch": {"judged": 200}},
}
SAID, STATE, WHOLE, KILLED = map(Path, ("said", ".fedrepro/state", "runs/whole", "runs/killed"))
FORK = multiprocessing.get_context("fork")  # so that a trial's process need not import PyTorch first


def train(config: RunConfig, folder: Path) -> None:
    """Train with a checkpoint every second, and write down what is said."""
    with SAID.open("w") as said:
        say = lambda line: print(line, file=said, flush=True)  # noqa: E731
        runs.execute(config, Place(folder), device="cpu", every=1.0, say=say)


def start(config: RunConfig, folder: Path) -> multiprocessing.Process:
    """Train in a process of its own; this one computes nothing, so that it can be forked."""
    SAID.write_text("")
    process = FORK.Process(target=train, args=(config, folder))
    process.start()
    return process


def computed(pid: int | str, children: bool = False) -> float:
    """The processor seconds of a process, or of those of its children that ended, whatever else the machine does."""
    counts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:15]
    return sum(map(int, counts[2:] if children else counts[:2])) / os.sysconf("SC_CLK_TCK")


def numbers(folder: Path) -> tuple:
    """All bytes of a record but those that say how, when and how fast it came about."""
    record = json.loads((folder / "record.json").read_text())
    for entry in record["seeds"].values():
        del entry["seconds"], entry["provenance"]
    record.pop("seal", None)  # of these too
    return record, {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "record.json"}


def trial(method: str, kills: int) -> Counter:
    """Kill runs at moments that are uniform in the time that one computes; a run that ended begins again.

    The processes that follow a kill are `restarts`, those of them that found a checkpoint `resumed`; `ended` runs have
    a record, which may be `equal` to that of a run that was left alone.
    """
    config, rng, told = RunConfig(method=method, seeds=(0, 1), **CASES[method]), random.Random(method), Counter()
    torch.set_num_threads(1)
    next(iter(runs.prepare(config, config.seeds, torch.device("cpu"))))  # imports what the forked processes need
    before = computed("self", children=True)
    start(config, WHOLE).join()
    usual, killed = computed("self", children=True) - before, False
    while told["kills"] < kills or killed:
        process = start(config, KILLED)
        limit = rng.uniform(0, usual) if told["kills"] < kills else math.inf
        while process.is_alive() and computed(process.pid) < limit:
            time.sleep(0.005)
        told["restarts"] += killed
        if killed := process.is_alive():
            process.kill()
            process.join()
        else:
            assert process.exitcode == 0
            told["ended"] += 1
            told["equal"] += numbers(KILLED) == numbers(WHOLE) and not any(path.is_dir() for path in STATE.iterdir())
            shutil.rmtree(KILLED)
        told["kills"] += killed
        told["resumed"] += "resumed after round" in SAID.read_text()
    return told


def main() -> None:
    """Print how the trials of each method went; the exit status is 1 where a number depends on a kill."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", metavar="METHOD", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--kills", type=int, default=50)
    asked, failed = parser.parse_args(), False
    columns = ("kills", "restarts", "resumed", "ended", "equal")
    print(f"{'method':16}", *(f"{column:>9}" for column in columns))
    for method in asked.methods:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            told = trial(method, asked.kills)
            os.chdir("/")
        print(f"{method:16}", *(f"{told[column]:9}" for column in columns), flush=True)
        failed |= told["equal"] < told["ended"]
    sys.exit(failed)


if __name__ == "__main__":
    main()
