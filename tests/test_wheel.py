"""The wheel, built from a copy of the sources and unpacked elsewhere: what works without a checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from commands import fedrepro

ROOT = Path(__file__).parents[1]
PARTS = ("fedrepro", "papers", "params.yaml", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
SPECS = {path.relative_to(ROOT).as_posix() for path in (ROOT / "papers").glob("*/*") if path.is_file()}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder with the unpacked wheel, as if it were installed there."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "sources").mkdir()
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / "sources" / name)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", "built", "./sources"]
    done = subprocess.run([sys.executable, "-m", "pip", *build], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "built").glob("fedrepro-*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def away(site, tmp_path):
    """away(*words): a command of the unpacked wheel in an empty folder."""

    def run(*words, cwd=tmp_path):
        env = {key: value for key, value in os.environ.items() if key != "FEDREPRO_DATA_DIR"}
        env |= {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
        code = "import fedrepro; from fedrepro.cli.app import main; print(fedrepro.__file__); main()"
        done = subprocess.run([sys.executable, "-c", code, *words], cwd=cwd, env=env, capture_output=True, text=True)
        assert done.stdout.startswith(str(site))
        return done

    return run


@pytest.mark.slow
def test_the_wheel_has_all_files_of_the_package_and_the_specs(site):
    data = {path.relative_to(ROOT).as_posix() for path in (ROOT / "fedrepro").rglob("*") if path.is_file()}
    data = {path for path in data if "__pycache__" not in path}
    there = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    there = {path for path in there if ".dist-info" not in path}
    assert there == data | {f"fedrepro/project/{path}" for path in SPECS | {"params.yaml"}}


@pytest.mark.slow
def test_without_a_checkout_methods_are_listed_and_trained(away, tmp_path):
    assert "fedavg" in away("show", "methods").stdout
    assert "digits" in away("show", "datasets").stdout
    train = away("train", "--method", "fedavg", "--dataset", "digits", "--set", "rounds=2", "--out", "made")
    assert train.returncode == 0, train.stderr
    assert (tmp_path / "made/record.json").exists()


@pytest.mark.slow
def test_what_needs_a_project_says_so_and_init_makes_one(away, tmp_path):
    for words in (("show", "papers"), ("run",), ("check",), ("train", "--paper", "gma-2022", "--run", "x")):
        done = away(*words)
        assert (done.returncode, "or make one by `fedrepro init`" in done.stderr) == (2, True), words
    assert away("init", "mine").returncode == 0
    papers = away("show", "papers", cwd=tmp_path / "mine").stdout
    assert all(name in papers for name in ("flgames-2022", "f2u-2019"))
    planned = away("run", "fedgma-2021", "--dry-run", cwd=tmp_path / "mine")
    assert (planned.returncode, " 0 recorded" in planned.stdout) == (0, True), planned.stderr
    assert "fedrepro data fetch mnist" in planned.stdout


def test_init_copies_the_specs_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, folder in ((), tmp_path), (("a/new",), tmp_path / "a/new"):
        done = fedrepro("init", *arguments)
        assert (done.code, f"to {folder}: `fedrepro run --dry-run`" in done.out) == (0, True)
        made = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert {path for path in made if not path.startswith("a/")} == SPECS | {"params.yaml"}
        for path in SPECS:
            assert (folder / path).read_bytes() == (ROOT / path).read_bytes()
        refused = fedrepro("init", *arguments)
        assert (refused.code, "already: name another folder." in refused.fault) == (2, True)


@pytest.mark.parametrize("folder", ["", "\udcff", "x" * 300, "/proc/evil", "/dev/null/evil", "a/" * 2_000, "file/x"])
def test_a_project_that_cannot_be_made_is_one_sentence(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("papers").mkdir()
    done = fedrepro("init", folder)
    assert done.code == 2
    assert done.fault.startswith("error: ")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["file", "papers"]
