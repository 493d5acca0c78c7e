"""The doctor: it finds what is wrong, says how to mend it, and fails for what will not work."""

import json
from importlib import metadata
from pathlib import Path

import commands
import filelock
import pytest
from commands import SMALL, fedrepro

from fedrepro import methods
from fedrepro.cli import doctor
from fedrepro.data import sources


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


def test_packages_against_the_lock(monkeypatch):
    torch = metadata.version("torch")
    Path("requirements.lock").write_text(f"torch=={torch} --hash=sha256:0\nrich==0.0.1 ; python_version > '3'\n")
    missing = lambda name: None if name == "typer" else metadata.version(name)  # noqa: E731
    monkeypatch.setattr(doctor, "_version", missing)
    states = found(doctor.environment)
    assert states["rich"] == (
        "note", f"{metadata.version('rich')} where the lock has 0.0.1: results may differ in the last digits",
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


def test_the_planned_runs(folder):
    assert found(doctor.planned)["papers"][0] == "note"
    commands.paper(folder)
    state, text = found(doctor.planned)[commands.PAPER]
    assert (state, "fedrepro tune --paper tiny-2024" in text) == ("wrong", True)
    commands.paper(folder, commands.SPEC.replace('threshold = "pilot"', "threshold = 0.6"))
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
            f"runs/adhoc/f-irm/record.json is incomplete (identity: field required): {mend}",
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
        "runs/adhoc/x/record.json is incomplete (invalid JSON"
    )


def test_broken_plugins_are_a_note(monkeypatch):
    monkeypatch.setattr(methods, "discover", lambda: (methods.REGISTRY, {"mine": "m:x cannot be loaded: OSError: no"}))
    assert found(doctor.plugins)["method mine"] == (
        "note", "m:x cannot be loaded: OSError: no; mend or remove that package",
    )  # fmt: skip
