"""The doctor: it finds what is wrong, says how to mend it, and fails for what will not work."""

import io
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import commands
import filelock
import pytest
from commands import SMALL, fedrepro
from rich.console import Console

from fedrepro import methods
from fedrepro.cli import doctor
from fedrepro.data import sources

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    return tmp_path


def found(check):
    """what -> (state, text)"""
    return {finding.what: (finding.state, finding.text) for finding in check()}


@pytest.fixture
def checkpoints():
    """The folder of the two checkpoints that an interrupted run left."""
    return commands.interrupted("fedsgd", 4)


def test_a_healthy_folder_is_fine():
    done = fedrepro("doctor")
    assert done.code == 0
    assert done.err == ""
    for word in ("python", "packages", "data digits", "verified", "methods"):
        assert word in done.out
    assert "wrong" not in done.out


def test_findings_are_printed_as_they_come(monkeypatch):
    def first():
        yield doctor.Finding("first", "fine", "there")

    def second():
        assert "fine  first" in sys.stdout.getvalue()
        yield doctor.Finding("second", "wrong", "not there: " + 30 * "mend it ")

    monkeypatch.setattr(doctor, "CHECKS", (first, second))
    monkeypatch.setenv("COLUMNS", "80")
    done = fedrepro("doctor")
    assert (done.code, done.fault) == (1, "error: not in order: second; the table says how to mend it.")
    assert max(map(len, done.out.splitlines())) <= 80


def test_a_terminal_shows_what_is_looked_at(monkeypatch, capsys):
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr(doctor, "CHECKS", (doctor.planned,))
    print(*doctor.examine(terminal))
    assert "looking at planned" in terminal.file.getvalue()
    assert capsys.readouterr().out.startswith("Finding(what='papers'")


WRITING = """
import os, sys

def refuse(event, given):
    written = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if written and given[0] != os.devnull or event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"):
        raise OSError(30, "Read-only file system", str(given[0]))

from fedrepro.cli import app, doctor
sys.addaudithook(refuse)
app.main(["doctor"])
"""


@pytest.mark.slow
def test_nothing_is_written_so_that_a_read_only_folder_is_examined_too(checkpoints, folder):
    for lock in checkpoints.parent.glob("*.lock"):
        lock.unlink()
    before = sorted(folder.rglob("*"))
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", WRITING], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "interrupted: the same command goes on" in done.stdout
    assert sorted(folder.rglob("*")) == before


LOCKED = "schema: '2.0'\nstages:\n  a:\n    cmd: echo a > a.txt\n"
STALE = {
    "empty-lock": ("dvc.lock", b""),
    "cut-lock": ("dvc.lock", LOCKED.encode()[:-20]),
    "conflicting-lock": ("dvc.lock", b"<<<<<<< HEAD\nschema: '2.0'\n=======\nschema: '3.0'\n>>>>>>> other\n"),
    "binary-lock": ("dvc.lock", b"\xff\0"),
    "lock-of-words": ("dvc.lock", b"words\n"),
    "lock-of-another-schema": ("dvc.lock", b"schema: '1.0'\nstages: {}\n"),
    "garbage-rwlock": (".dvc/tmp/rwlock", b"garbage"),
    "empty-rwlock": (".dvc/tmp/rwlock", b""),
    "binary-rwlock": (".dvc/tmp/rwlock", b"\xff\0"),
    "strange-rwlock": (".dvc/tmp/rwlock", b'{"a.txt": 7}'),
    "garbage-config": (".dvc/config", b"garbage here"),
    "binary-config": (".dvc/config", b"\xff\0"),
    "strange-config": (".dvc/config", b"[core]\n    nonsense = 1\n"),
    "conflicting-config": (".dvc/config", b"<<<<<<< HEAD\n[core]\n=======\n>>>>>>> other\n"),
    "garbage-own-config": (".dvc/config.local", b"garbage here"),
}
REPAIRS = {
    "dvc.lock": "git checkout HEAD -- dvc.lock && dvc repro",
    ".dvc/tmp/rwlock": "remove .dvc/tmp/rwlock",
    ".dvc/config": "git checkout HEAD -- .dvc/config",
    ".dvc/config.local": "mend or remove it",
}


def stage(lock=LOCKED):
    """The files that DVC keeps of a pipeline of one stage."""
    Path(".dvc/tmp").mkdir(parents=True)
    Path(".dvc/config").write_text("[core]\n    analytics = false\n    check_update = false\n")
    Path("dvc.yaml").write_text("stages:\n  a:\n    cmd: echo a > a.txt\n")
    Path("dvc.lock").write_text(lock)


@pytest.mark.parametrize("fault", STALE)
def test_what_dvc_cannot_read_is_named_with_its_repair(fault):
    stage()
    assert found(doctor.pipeline_state) == {"dvc": ("fine", "its configuration and its locks can be read")}
    path, content = STALE[fault]
    Path(path).write_bytes(content)
    ((what, (state, text)),) = found(doctor.pipeline_state).items()
    assert (what, state) == (path, "wrong")
    assert REPAIRS[path] in text
    assert "\n" not in text
    assert fedrepro("doctor").code == 1


@pytest.mark.slow
def test_the_repairs_of_what_dvc_cannot_read_work():
    def run(*words, code=0):
        done = subprocess.run(words, capture_output=True, text=True)
        assert (done.returncode != 0) == code, done.stdout + done.stderr

    python = (sys.executable, "-m", "dvc", "repro", "-q")
    stage()
    run("git", "init", "-q")
    run("git", "add", "-f", "dvc.yaml", "dvc.lock", ".dvc/config")
    run("git", "-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a")
    run(*python)
    for fault in ("conflicting-lock", "garbage-rwlock", "garbage-config"):
        path, content = STALE[fault]
        Path("a.txt").unlink()  # so that the stage is run
        Path(path).write_bytes(content)
        run(*python, code=1)
        if path == ".dvc/tmp/rwlock":
            Path(path).unlink()
        else:
            run("git", "checkout", "HEAD", "--", path)
        run(*python)
        assert found(doctor.pipeline_state)["dvc"][0] == "fine"


def test_a_process_that_dvc_waits_for_is_a_note():
    stage()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for pid, state in ((gone.pid, "fine"), (os.getpid(), "note")):
        held = {"write": {"a.txt": {"pid": pid, "cmd": "dvc repro"}}, "read": {"b": [{"pid": pid, "cmd": "dvc"}]}}
        Path(".dvc/tmp/rwlock").write_text(json.dumps(held))
        assert found(doctor.pipeline_state)["dvc"][0] == state
    assert f"process {os.getpid()} (`dvc repro`) holds files" in found(doctor.pipeline_state)["dvc"][1]


def test_packages_against_the_lock(monkeypatch):
    torch = metadata.version("torch")
    Path("requirements.lock").write_text(f"torch=={torch} --hash=sha256:0\nrich==0.0.1 ; python_version > '3'\n")
    missing = lambda name: None if name == "typer" else metadata.version(name)  # noqa: E731
    monkeypatch.setattr(doctor, "_version", missing)
    states = found(doctor.environment)
    assert states["rich"] == (
        "note", f"{metadata.version('rich')} where the lock has 0.0.1: new results may differ from recorded ones",
    )  # fmt: skip
    assert states["typer"][0] == "wrong"
    assert "torch" not in states
    assert states["packages"][1].endswith("installed, as in requirements.lock")


def test_data_that_can_be_downloaded_are_a_note():
    state, text = found(doctor.data)["data mnist"]
    assert (state, "`fedrepro data fetch mnist`" in text) == ("note", True)


def test_a_data_folder_that_lacks_its_files_is_wrong(monkeypatch, folder):
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(folder))
    manifest = Path("data/manifests/mnist.json")
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")  # so planned runs use it
    state, text = found(doctor.data)["data mnist"]
    assert (state, "FEDREPRO_DATA_DIR is" in text) == ("wrong", True)
    state, text = found(doctor.data)["data cifar10"]
    assert (state, "no planned run needs it" in text) == ("note", True)


def test_damaged_data_are_wrong():
    for file in sources.SOURCES["mnist"].files:
        path = sources.folder() / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"short")
    state, text = found(doctor.data)["data mnist"]
    assert (state, "has 5 bytes instead of 47,040,016" in text) == ("wrong", True)


@pytest.mark.slow
def test_the_planned_runs(folder):
    assert found(doctor.planned)["papers"][0] == "note"
    commands.paper(folder, commands.SEARCHED)
    state, text = found(doctor.planned)[commands.PAPER]
    assert (state, "fedrepro tune --paper tiny-2024" in text) == ("wrong", True)
    commands.paper(folder)
    todo = "2 of 2 runs have no current record: `fedrepro run tiny-2024` trains them"
    assert found(doctor.planned) == {commands.PAPER: ("note", todo)}
    fedrepro("run")
    assert found(doctor.planned) == {commands.PAPER: ("fine", "2 runs, all recorded")}


def test_an_interrupted_run_is_a_note(checkpoints):
    assert found(doctor.checkpoints) == {
        checkpoints.name: ("note", "interrupted: the same command goes on from its checkpoint")
    }


def test_damaged_checkpoints(checkpoints):
    old, new = sorted(checkpoints.iterdir())
    new.write_bytes(new.read_bytes()[:-1])
    assert found(doctor.checkpoints)[checkpoints.name] == (
        "note", f"{new} is damaged: the other checkpoint will be used",
    )  # fmt: skip
    old.write_bytes(b"")
    assert found(doctor.checkpoints)[checkpoints.name] == (
        "wrong", f"no checkpoint can be read: remove {checkpoints} to train anew",
    )  # fmt: skip


def test_a_run_in_training_is_left_alone(checkpoints):
    with filelock.FileLock(f"{checkpoints}.lock"):
        assert found(doctor.checkpoints) == {checkpoints.name: ("note", "being trained by another process")}


def test_records():
    for method in ("fedsgd", "fedavg", "f-irm"):
        assert fedrepro("train", "--method", method, *SMALL, "--out", f"runs/adhoc/{method}").code == 0
    assert found(doctor.records) == {"records": ("fine", "3 whole")}
    with open("runs/adhoc/fedavg/curves.csv", "a") as curves:
        curves.write("0,99,train_loss,1\n")
    record = Path("runs/adhoc/f-irm/record.json")
    content = json.loads(record.read_text())
    del content["identity"]
    record.write_text(json.dumps(content))
    mend = "restore it from git, or remove it and train again"
    assert found(doctor.records) == {
        "runs/adhoc/f-irm/record.json": (
            "wrong",
            f"runs/adhoc/f-irm/record.json cannot be trusted (it was changed after it was written): {mend}",
        ),
        "runs/adhoc/fedavg/record.json": (
            "wrong",
            f"runs/adhoc/fedavg/curves.csv does not belong to the record beside it: {mend}",
        ),
        "records": ("fine", "1 whole"),
    }
    Path("runs/adhoc/fedavg/curves.csv").unlink()
    assert "runs/adhoc/fedavg/curves.csv is missing" in found(doctor.records)["runs/adhoc/fedavg/record.json"][1]
    done = fedrepro("doctor")
    assert done.code == 1
    assert done.fault == (
        "error: not in order: runs/adhoc/f-irm/record.json, runs/adhoc/fedavg/record.json; "
        "the table says how to mend it."
    )


def test_a_record_that_is_no_json_is_damaged():
    Path("runs/adhoc/x").mkdir(parents=True)
    Path("runs/adhoc/x/record.json").write_text("{")
    assert found(doctor.records)["runs/adhoc/x/record.json"][1].startswith(
        "runs/adhoc/x/record.json cannot be trusted ("
    )


def test_broken_plugins_are_a_note(monkeypatch):
    monkeypatch.setattr(methods, "discover", lambda: (methods.REGISTRY, {"mine": "m:x cannot be loaded: OSError: no"}))
    assert found(doctor.plugins)["method mine"] == (
        "note", "m:x cannot be loaded: OSError: no; mend or remove that package",
    )  # fmt: skip
