"""The command line for tests: in this process where that is enough, in one of its own where signals are involved."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedrepro.cli import app
from fedrepro.pipeline.request import Request, resolve
from fedrepro.training import runs

SMALL = ("--dataset", "digits", "--set", "batch=64", "--set", "hidden=16", "--set", "rounds=6")

# A paper of two runs that train in a second.
PAPER, PLAIN, GAME = "tiny-2024", "digits-fedsgd", "digits-f-irm-parallel"
SPEC = """
title = "Tiny"

[defaults]
rounds = 6
seeds = [0, 1]
hyper = { batch = 64, hidden = 16 }

[axes.dataset.Digits]
dataset = "digits"

[axes.method.FedSGD]
method = "fedsgd"

[axes.method.F-IRM]
method = "f-irm"
stop = { threshold = 0.6, warm_start = 2 }

[axes.type.none]
run = ""

[axes.type.parallel]
hyper = { order = "parallel" }

[budgets.paper]
label = "paper"

[budgets.smoke]
label = "smoke"
compare = false

[[budgets.smoke.rules]]
settings = { rounds = 2, seeds = [0] }

[tables.t1]
title = "Table 1"
metrics = ["test_accuracy"]
reduction = "final"
tolerance = { spreads = 2, points = 100, reason = "digits are few" }
cells = [
    { dataset = ["Digits"], type = ["none"], method = ["FedSGD"] },
    { dataset = ["Digits"], type = ["parallel"], method = ["F-IRM"] },
]
"""
PUBLISHED = """\
paper,table,dataset,variant,method,metric,mean,std,unit,note
tiny-2024,t1,Digits,type=none,FedSGD,test_accuracy,20.5,1,percent,
tiny-2024,t1,Digits,type=parallel,F-IRM,test_accuracy,30,1,percent,
"""

# The paper with a search of the rate of its first run.
SEARCH = """
[defaults.search]
seed = 1000
rounds = 3
metric = "train_accuracy"
last = 2
grid = { lr = [0.01, 1e-5] }

[axes.dataset"""
SEARCHED = SPEC.replace("\n[axes.dataset", SEARCH, 1).replace(
    'method = "fedsgd"', 'method = "fedsgd"\nhyper = { net = "mlp", optimiser = "adam", lr = "search" }'
)


@dataclass(frozen=True)
class Done:
    """A command's outcome."""

    code: int
    out: str
    err: str

    @property
    def fault(self) -> str:
        """The last line on standard error, where what went wrong is said."""
        return self.err.splitlines()[-1] if self.err else ""


def fedrepro(*arguments: str | Path) -> Done:
    """Run a command in this process, as the console script would."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app.main(list(map(str, arguments)))
        except SystemExit as exit:
            code = exit.code
    return Done(code or 0, out.getvalue(), err.getvalue())


def start(*arguments: str, **options) -> subprocess.Popen:
    """Start a command as a process of its own; its progress comes through `stderr`."""
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from fedrepro.cli.app import main; main()", *arguments]
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def paper(root: Path, spec: str = SPEC) -> None:
    """Write the tiny paper."""
    folder = root / "papers" / PAPER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "paper.toml").write_text(spec)
    (folder / "published.csv").write_text(PUBLISHED)
    (root / "params.yaml").write_text(f"{PAPER}:\n  budget: paper\n")


def interrupted(method: str, after: int) -> Path:
    """The folder of the checkpoints that a run of six rounds leaves when it is killed in that round."""
    config, place = resolve(Request(method=method, dataset="digits", sets=("batch=64", "hidden=16", "rounds=6")))

    def die(training):
        if training.round == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.execute(config, place, watch=die, every=0)
    return place.state
