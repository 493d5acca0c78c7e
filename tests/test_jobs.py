"""Many runs at once, in processes: whatever is killed, stopped or fails, the same command ends with equal records."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import commands
import pytest
from commands import GAME, PAPER, PLAIN, fedrepro
from kills import computed, numbers

from fedrepro.pipeline import local, process
from fedrepro.pipeline.costs import Cost
from fedrepro.pipeline.plan import Job
from fedrepro.pipeline.workers import Workers
from fedrepro.records import record

pytestmark = pytest.mark.slow

# Runs of some seconds, which no rule stops.
LONG = commands.SPEC.replace("rounds = 6\n", "rounds = 200\n").replace("threshold = 0.6", "threshold = 0.0")
FOLDERS = {PLAIN: Path("runs", PAPER, "fedsgd", PLAIN), GAME: Path("runs", PAPER, "f-irm", GAME)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    return tmp_path


def results():
    """Run -> its record but for what may differ, and the bytes of the files beside it."""
    return {run: numbers(path) for run, path in FOLDERS.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The results of the long runs, one after another, that nobody disturbed."""
    root = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        commands.paper(root, LONG)
        assert fedrepro("run", "--jobs", "1", "--device", "cpu").code == 0
        return results()


def family(pid):
    """The processes that a process started, and those that these started, without those that ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            own, _, rest = path.read_text().partition(" (")
            state, parent = rest.rsplit(") ", 1)[1].split()[:2]
        except (OSError, ValueError):
            continue
        if int(parent) == pid and state != "Z":
            found += [int(own), *family(int(own))]
    return found


def trainers():
    """The processes that hold the locks of runs."""
    inodes = {path.stat().st_ino for path in Path(".fedrepro/state").glob("*.lock")}
    held = (line.split() for line in Path("/proc/locks").read_text().splitlines() if "FLOCK" in line)
    return sorted(int(words[4]) for words in held if int(words[5].rsplit(":", 1)[1]) in inodes)


def until(true, what, limit=90):
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def gone(pids):
    return not [pid for pid in pids if Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in _status(pid)]


def _status(pid):
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "\nState:\tZ"


def running(driver):
    """Wait until both runs are in training; returns their processes."""
    lines = []
    for line in driver.stderr:
        lines.append(line)
        if sum("started" in each and "fetch" not in each for each in lines) == 2:
            break
    until(lambda: sum(computed(pid) > 0.9 for pid in trainers()) == 2, lines)  # past the preparation of data
    return trainers()


# From nothing


def test_a_paper_from_nothing_has_the_same_bytes_however_many_run_at_once(folder):
    commands.paper(folder, commands.SEARCHED)
    done = fedrepro("run", "--jobs", "2", "--device", "cpu")
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "2 runs planned, 0 recorded, 2 to train",
        "before them: 1 source to fetch, 2 points of searches, 1 search",
    ]
    assert done.fault == "6 done"
    two, tuned = results(), Path("papers", PAPER, "tuned.json").read_bytes()
    for name in ("runs", "studies", f"papers/{PAPER}/tuned.json"):
        shutil.rmtree(name, ignore_errors=True) if Path(name).is_dir() else Path(name).unlink()
    for job, run in (("tune", PLAIN), ("train", PLAIN), ("train", GAME)):
        assert fedrepro(job, "--paper", PAPER, "--run", run, "--device", "cpu").code == 0
    assert results() == two
    assert Path("papers", PAPER, "tuned.json").read_bytes() == tuned
    assert fedrepro("run").out == "2 runs planned, 2 recorded, 0 to train\n"


def test_the_provenance_of_a_run_is_the_command_that_does_it_alone(folder):
    commands.paper(folder)
    assert fedrepro("run", "--threads", "1", "--method", "fedsgd").code == 0
    found = record.read(FOLDERS[PLAIN]).seeds[0].provenance
    assert (found.command, found.threads) == (f"fedrepro train --paper {PAPER} --run {PLAIN}", 1)


# What fails


@pytest.mark.parametrize("keep_going", [True, False])
def test_a_run_that_fails_stops_nothing_else_where_it_is_to_go_on(folder, keep_going):
    commands.paper(folder)
    FOLDERS[PLAIN].parent.mkdir(parents=True)
    FOLDERS[PLAIN].write_text("in the way")
    done = fedrepro("run", "--jobs", "1", "--device", "cpu", *["--keep-going"] * keep_going)
    assert (done.code, done.fault) == (1, "error: 1 of 3 failed.")
    lines = done.err.splitlines()
    assert lines[-4:-1] == [
        "2 done, 1 failed" if keep_going else "1 done, 1 failed, 1 not started",
        f"{PAPER} {PLAIN} failed: cannot write {FOLDERS[PLAIN]}/.probe: File exists; choose another place.",
        f"  fedrepro train --paper {PAPER} --run {PLAIN}",
    ]
    assert (FOLDERS[GAME] / "record.json").exists() == keep_going


def test_what_needs_a_job_that_failed_is_left_with_its_reason(folder):
    """A search whose points diverge, and the run that waits for it."""
    commands.paper(folder, commands.SEARCHED.replace("[0.01, 1e-5]", "[1e30]"))
    done = fedrepro("run", "--keep-going", "--device", "cpu")
    assert (done.code, done.fault) == (1, "error: 1 of 5 failed.")
    left = rf"\[[45]/5\] {PAPER} {PLAIN}: not started: what it needs failed"  # before or after the game ends
    assert re.search(left, done.err)
    assert f"every point of the search of {PLAIN} diverged" in done.err
    assert "3 done, 1 failed, 1 not started" in done.err
    assert (FOLDERS[GAME] / "record.json").exists()


def test_settings_that_a_method_does_not_have_are_refused_before_any_training(folder):
    commands.paper(folder, commands.SPEC.replace('method = "fedsgd"', 'method = "fedsgd"\nhyper = { mue = 1 }'))
    done = fedrepro("run")
    assert done.code == 2
    assert f"paper.toml: run {PLAIN}: unknown hyper-parameter of fedsgd 'mue'" in done.fault
    assert not Path("runs").exists()


# What is killed or stopped


def test_a_killed_worker_is_one_run_that_failed(folder, undisturbed):
    commands.paper(folder, LONG)
    with commands.start("run", "--jobs", "2", "--device", "cpu", "--keep-going") as driver:
        os.kill(running(driver)[0], signal.SIGKILL)
        said = driver.stderr.read()
    assert driver.returncode == 1, said
    assert "2 done, 1 failed" in said
    (failed,) = re.findall(rf"^{PAPER} (\S+) failed: its process was killed by SIGKILL$", said, re.M)
    (other,) = set(FOLDERS) - {failed}
    assert numbers(FOLDERS[other]) == undisturbed[other]
    assert fedrepro("run", "--device", "cpu").code == 0
    assert results() == undisturbed


def test_a_worker_that_is_stopped_from_outside_is_no_success(folder):
    commands.paper(folder, LONG)
    with commands.start("run", "--jobs", "2", "--device", "cpu") as driver:
        os.kill(running(driver)[0], signal.SIGTERM)
        said = driver.stderr.read()
    assert driver.returncode == 1, said
    assert said.splitlines()[-1] == "error: 1 of 3 stopped: the same command goes on from there."
    assert "2 done, 1 stopped" in said


def test_after_a_killed_driver_the_runs_end_with_a_checkpoint_and_the_same_command_goes_on(folder, undisturbed):
    commands.paper(folder, LONG)
    with commands.start("run", "--jobs", "2", "--device", "cpu") as driver:
        running(driver)
        all = family(driver.pid)
        driver.kill()
        done = fedrepro("run", "--jobs", "2", "--device", "cpu")  # while they still end
    assert done.code == 0, done.err
    assert gone(all)
    assert results() == undisturbed
    assert done.err.count("resumed after round") == 2


def test_after_all_were_killed_the_same_command_goes_on(folder, undisturbed):
    commands.paper(folder, LONG)
    with commands.start("run", "--jobs", "2", "--device", "cpu") as driver:
        running(driver)
        for pid in [driver.pid, *family(driver.pid)]:
            os.kill(pid, signal.SIGKILL)
    done = fedrepro("run", "--jobs", "2", "--device", "cpu")
    assert done.code == 0, done.err
    assert results() == undisturbed


def test_a_signal_stops_all_at_their_rounds_end_and_the_same_command_goes_on(folder, undisturbed):
    commands.paper(folder, LONG)
    with commands.start("run", "--jobs", "2", "--device", "cpu") as driver:
        running(driver)
        all = family(driver.pid)
        driver.send_signal(signal.SIGINT)
        said = driver.stderr.read()
    assert driver.returncode == 130
    lines = said.splitlines()
    assert lines[-1] == "stopped, 2 in their midst; the same command goes on from there."
    assert "1 done, 2 stopped" in lines
    assert said.count("stopped after round ") >= 2
    assert "Traceback" not in said
    assert gone(all)
    assert len([*Path(".fedrepro/state").glob("*/round-*.checkpoint")]) >= 2
    done = fedrepro("run", "--jobs", "2", "--device", "cpu")
    assert done.err.count("resumed after round") == 2
    assert results() == undisturbed


def test_two_drivers_on_one_folder_share_the_runs(folder, undisturbed):
    commands.paper(folder, LONG)
    with commands.start("run", "--jobs", "1", "--device", "cpu") as one:
        for line in one.stderr:
            if "started" in line and "fetch" not in line:
                break
        until(trainers, "the first run is trained")
        two = fedrepro("run", "--jobs", "1", "--device", "cpu")
        rest = one.stderr.read()
    assert (one.returncode, two.code) == (0, 0), rest + two.err
    assert results() == undisturbed
    assert (rest + two.err).count("done in") == 2  # and each of them by one
    assert "another process is at it" in two.err
    assert "done by another process" in rest + two.err


# Slots


def put_down(job, pipe, device, threads, there, folder):
    """In the place of a job's process: write down the GPU that it sees, and that it began and ended."""

    def trained(*_):
        with Path("seen").open("a") as file:
            file.write(f"{job.of[1]} {os.environ.get('CUDA_VISIBLE_DEVICES')} {device} {threads} begins\n")
        time.sleep(1)
        with Path("seen").open("a") as file:
            file.write(f"{job.of[1]} ends\n")
        return "done", ""

    process.outcome = trained
    process.child(job, pipe, device, threads, there, folder)


class Quiet:
    """A board that shows nothing."""

    def __getattr__(self, name):
        return lambda *_: None


def drive(monkeypatch, jobs, workers, **change):
    monkeypatch.setattr(local, "child", put_down)
    driver = local.Driver(jobs, workers, Quiet(), False, process.serve(1))
    for name, value in change.items():
        setattr(driver, name, value)
    assert [work.ended for work in driver.run()] == ["done"] * len(jobs)
    return [line.split() for line in Path("seen").read_text().splitlines()]


def jobs(count, memory=0):
    return [Job("run", ("p", str(n)), f"fedrepro train {n}", cost=Cost(1.0, memory)) for n in range(count)]


def most(seen):
    """The most jobs that were at work at once."""
    at_once, highest = 0, 0
    for line in seen:
        at_once += 1 if line[-1] == "begins" else -1
        highest = max(highest, at_once)
    return highest


def test_each_gpu_is_seen_by_as_many_runs_as_share_it(folder, monkeypatch):
    seen = drive(monkeypatch, jobs(8), Workers(3, ("0", "1", "0", "1"), "cuda"))
    begun = [line for line in seen if line[-1] == "begins"]
    assert sorted(line[1] for line in begun[:4]) == ["0", "0", "1", "1"]
    assert {tuple(line[2:4]) for line in begun} == {("cuda", "3")}
    assert most(seen) == 4
    assert most([[*line[:1], line[-1]] for line in seen if _gpu(seen, line[0]) == "0"]) == 2


def _gpu(seen, name):
    return next(line[1] for line in seen if line[0] == name and line[-1] == "begins")


def test_runs_that_do_not_fit_into_memory_beside_others_wait_for_them(folder, monkeypatch):
    assert most(drive(monkeypatch, jobs(4, memory=600), Workers(1, (None,) * 4), free=1300.0)) == 2
    Path("seen").unlink()
    assert most(drive(monkeypatch, jobs(2, memory=5000), Workers(1, (None,) * 4), free=1300.0)) == 1


def test_what_is_recorded_is_kept(folder):
    commands.paper(folder)
    assert fedrepro("run", "--device", "cpu").code == 0
    before = {path: path.read_bytes() for path in Path("runs").rglob("*.*")}
    commands.paper(folder, commands.SPEC.replace('"f-irm"', '"f-irm"\nhyper = { lr = 0.02 }'))
    assert "2 runs planned, 1 recorded, 1 to train" in fedrepro("run", "--device", "cpu").out
    changed = {path for path, content in before.items() if path.read_bytes() != content}
    assert {path.parent for path in changed} == {FOLDERS[GAME]}
    assert json.loads((FOLDERS[GAME] / "record.json").read_text())["config"]["hyper"]["lr"] == 0.02
