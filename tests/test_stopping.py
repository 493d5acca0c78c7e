"""Signals, to commands in processes of their own: how each one ends, what it says, and what it leaves."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import commands
import pytest
from commands import PAPER, PLAIN, SMALL, fedrepro

pytestmark = pytest.mark.slow

FIRST = "stopping after this round; a second signal stops at once, without it"
OUTSIDE = "stopped; what is written is whole, and the same command does the rest."
LONG = ("train", "--method", "fedavg", *SMALL, "--set", "epochs=300")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    return tmp_path


def files():
    """The files that were written, but for locks."""
    return sorted(str(path) for path in Path().rglob("*") if path.is_file() and path.suffix != ".lock")


def next_line(process, begin):
    """Read the process's standard error until a line begins so; returns the lines before it too."""
    lines = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if line.startswith(begin):
            return lines
    pytest.fail(f"no line begins with {begin!r}: {lines}")


def test_a_second_signal_ends_a_long_round_at_once():
    with commands.start(*LONG) as process:
        next_line(process, "round 1/6")
        process.send_signal(signal.SIGINT)
        *before, said = next_line(process, "stopping")
        assert said == FIRST
        assert not any(line.startswith("round 2") for line in before)  # at once: the round is not over
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert rest == "stopped after round 1; the same command goes on from there.\n"
    assert process.returncode == 130
    (checkpoint,) = files()
    assert checkpoint.endswith("/round-00000001.checkpoint")


def test_a_trainer_that_nobody_hears_still_ends_at_its_round():
    endless = ("--set", "rounds=1000000", "--set", "stop=none")
    with commands.start("train", "--method", "f-irm", *SMALL, *endless) as process:
        next_line(process, "round 1/")
        process.stderr.close()
        process.send_signal(signal.SIGTERM)
        process.wait()
    (checkpoint,) = files()
    assert checkpoint.endswith(".checkpoint")


ORPHAN = """
import subprocess, sys
command = [sys.executable, "-c", "from fedrepro.cli.app import main; main()", *sys.argv[1:]]
subprocess.Popen(["sh", "-c", 'sleep 1; exec "$@"', "sh", *command], stderr=open("said", "w"))
"""


def test_a_trainer_whose_pipeline_is_gone_before_it_begins_trains_nothing():
    env = os.environ | {"DVC_STAGE": "train@a", "OMP_NUM_THREADS": "1"}
    alone = [sys.executable, "-c", ORPHAN, "train", "--method", "f-irm", *SMALL]
    subprocess.run(alone, env=env, check=True, start_new_session=True)
    limit = time.monotonic() + 60
    while not Path("said").read_text().endswith("\n") and time.monotonic() < limit:
        time.sleep(0.05)
    assert Path("said").read_text() == f"{OUTSIDE}\n"
    assert files() == ["said"]


PIPELINE = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "from fedrepro.cli.app import main; main()", *sys.argv[1:]])
sys.stdin.read()
"""


def test_a_trainer_ends_with_its_pipeline_at_any_time():
    env = os.environ | {"DVC_STAGE": "train@a", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PIPELINE, "train", "--method", "f-irm", *SMALL]
    with subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        next_line(process, "training")  # its data are being prepared
        process.kill()
        rest = process.stderr.read()  # until the trainer has ended too
    assert rest == f"{OUTSIDE}\n"
    assert files() == []


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_extractor_leaves_nothing(asked):
    with commands.start("extractor", "digits") as process:
        next_line(process, "epoch 1 ")
        process.send_signal(asked)
        said = process.stderr.read()
    assert said.splitlines()[-1] == OUTSIDE
    assert "Traceback" not in said
    assert process.returncode == 130
    assert files() == []


def test_a_stopped_search_enters_nothing(folder):
    commands.paper(folder, commands.SEARCHED.replace("rounds = 3", "rounds = 1000000"))
    before = files()
    with commands.start("tune", "--paper", PAPER, "--run", PLAIN) as process:
        next_line(process, "round 1/")
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert said.splitlines()[-1].endswith("; the same command goes on from there.")
    assert process.returncode == 130
    (checkpoint,) = set(files()) - set(before)
    assert checkpoint.endswith(".checkpoint")


def test_a_stopped_report_leaves_whole_files(folder):
    commands.paper(folder)
    for words in (["run"], ["evaluate"]):
        done = fedrepro(*words)
        assert done.code == 0, f"{done.out}{done.err}"
    with commands.start("report") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    written = {path: path.read_bytes() for path in Path("reports").rglob("*") if path.is_file()}
    assert (process.returncode, said) == (130, f"{OUTSIDE}\n")
    assert fedrepro("report").code == 0
    assert {path: path.read_bytes() for path in written} == written
