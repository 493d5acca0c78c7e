"""Runs on a Slurm of one node, this machine: submitted as an array, queued again in their midst, with equal records.

`.ci/run` installs Slurm where it may; elsewhere these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import commands
import pytest
from commands import PAPER, fedrepro
from test_jobs import FOLDERS, LONG, Quiet, results

from fedrepro.errors import FedreproError
from fedrepro.pipeline.plan import Job
from fedrepro.pipeline.workers import Workers

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests/one_node.sh"
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or None in map(shutil.which, NEEDED),
        reason="a Slurm of one node takes root and the packages slurm-wlm and munge",
    ),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A Slurm that runs, for the commands of this process."""
    pytest.importorskip("submitit")
    folder = tmp_path_factory.mktemp("slurm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
        patch.setenv("OMP_NUM_THREADS", "1")
        try:
            subprocess.run([SCRIPT, "start", folder], check=True)
            yield
        finally:
            subprocess.run([SCRIPT, "stop", folder], check=False)


@pytest.fixture
def folder(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    return tmp_path


def queue():
    """Job -> (name, state) of those in the queue."""
    asked = ["squeue", "--noheader", "--array", "--format=%i %j %T"]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[0]: tuple(line.split()[1:]) for line in lines}


def until(true, what, limit=60):
    end = time.monotonic() + limit
    while not (found := true()):
        assert time.monotonic() < end, what
        time.sleep(0.1)
    return found


def submit(*more):
    """The command for a table of the paper, as a process."""
    asked = ("--backend=slurm", "--partition=tests", "--time=30", "--device=cpu")
    return commands.start("run", PAPER, "--table=t1", *asked, *more)


def logs():
    """The output of all jobs."""
    return "".join(path.read_text() for path in Path(".fedrepro/slurm").glob("*.out"))


def in_training(count):
    """The jobs that run, once so many have printed a round."""
    until(lambda: logs().count("round 1/") == count, "runs are trained")
    return sorted(job for job, (_, state) in queue().items() if state == "RUNNING")


def test_a_table_is_submitted_and_jobs_that_are_queued_again_go_on_to_the_same_records(folder):
    commands.paper(folder, LONG)
    with submit() as driver:
        one, other = in_training(2)
        subprocess.run(["scontrol", "requeue", one], check=True)  # as an administrator, or preemption
        subprocess.run(["scancel", "--signal=USR2", other], check=True)  # as Slurm does before a time limit
        before = [next(line for line in driver.stderr if "queued again" in line) for _ in (one, other)]
        for job in (one, other):  # which else wait for two minutes
            subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=True)
        said = driver.communicate(timeout=200)[1]
    assert (driver.returncode, said.splitlines()[-1], len(before)) == (0, "3 done", 2), said
    assert logs().count("resumed after round") == 2
    found = results()
    for path in FOLDERS.values():
        shutil.rmtree(path)
    assert fedrepro("run", "--jobs", "2", "--device", "cpu").code == 0
    assert results() == found


def test_a_job_that_is_cancelled_is_said_a_signal_cancels_the_others_and_all_have_checkpoints(folder):
    commands.paper(folder, LONG.replace("rounds = 200", "rounds = 9999"))
    with submit("--keep-going") as driver:
        one, other = in_training(2)
        subprocess.run(["scancel", one], check=True)
        for line in driver.stderr:
            if "failed: cancelled or killed: " in line:
                break
        driver.terminate()
        said = driver.communicate(timeout=100)[1]
    assert driver.returncode == 130
    assert "1 done, 1 stopped, 1 failed" in said
    assert said.splitlines()[-1].startswith("stopped, and its jobs of Slurm cancelled")
    assert len({path.parent for path in Path(".fedrepro/state").glob("*/round-*.checkpoint")}) == 2


def test_what_slurm_refuses_is_one_sentence(folder):
    commands.paper(folder)
    done = fedrepro("run", "--backend", "slurm", "--partition", "nowhere")
    assert done.code == 1
    assert done.fault.startswith("error: Slurm takes no jobs: ")
    assert "invalid partition specified: nowhere" in done.fault


@pytest.fixture
def driver(monkeypatch):
    """A driver of two jobs, the second of which needs the first, and the commands that it ran, which do nothing."""
    slurm = pytest.importorskip("fedrepro.pipeline.slurm")
    one = Job("run", ("p", "one"), "one")
    jobs = [one, Job("run", ("p", "two"), "two", frozenset({"one"}))]
    made = slurm.Slurm(jobs, Workers(1, (None,)), Quiet(), False, partition=None, limit=None, most=None)
    ran = []

    def run(command, **_):
        ran.append(command[0])
        return subprocess.CompletedProcess(command, made.code, "7_0 RUNNING\n8_0 FAILED\n", "Socket timed out")

    made.code = 0
    monkeypatch.setattr(slurm.subprocess, "run", run)
    return made, ran


def test_a_queue_that_does_not_answer_for_a_minute_is_asked_again(driver):
    made, _ = driver
    for _ in range(2):  # an answer begins the minute anew
        made.code = 1
        assert [made._queue() for _ in range(30)] == [None] * 30
        made.code = 0
        assert made._queue() == {"7_0": "RUNNING"}
    made.code = 1
    with pytest.raises(FedreproError, match="does not answer: Socket timed out. Its jobs go on"):
        [made._queue() for _ in range(31)]


@pytest.mark.parametrize("ends", ["refused", "signal"])
def test_what_slurm_has_taken_is_cancelled_where_it_takes_no_more_and_after_a_signal(driver, monkeypatch, ends):
    made, ran = driver
    sent = []

    def send(part, asked):
        sent.append([job.command for job in part])
        if ends == "signal":
            made._asked([15])
        elif len(sent) == 2:
            raise FedreproError("Slurm takes no jobs")
        return [type("Sent", (), {"job_id": f"{len(sent)}_0"})()]

    monkeypatch.setattr(made, "_send", send)
    if ends == "refused":
        with pytest.raises(FedreproError, match="takes no jobs"):
            made._submit()
    else:
        made._submit()
    assert sent == [["one"], ["two"]][: 1 if ends == "signal" else 2]
    assert ran[-1] == "scancel"
