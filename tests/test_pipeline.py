"""The whole pipeline with the real DVC: from nothing at budget `smoke`, and as committed."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAPER = "flgames-2022"
RUN = "colored-mnist-v-irm-sequential"
MADE = ("runs/", "reports/")

pytestmark = pytest.mark.slow


def tracked(*, results: bool) -> list[str]:
    """The project's files, with or without what the pipeline made."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    kept = (name for name in listed if name and (ROOT / name).is_file())
    return [name for name in kept if results or not name.startswith(MADE) and Path(name).name != "dvc.lock"]


def copy(folder: Path, *, results: bool) -> Path:
    """A copy of the project that DVC takes for one of its own, without git."""
    for name in tracked(results=results):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    call(folder, "dvc", "config", "core.no_scm", "true")
    return folder


def call(folder: Path, *command: str) -> str:
    """Run a command of this environment in the copy, on the copy's own sources and without data; returns its output."""
    env = {key: value for key, value in os.environ.items() if key not in ("FEDREPRO_DATA_DIR", "OMP_NUM_THREADS")}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}", "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(folder: Path) -> tuple[dict, bytes]:
    """A run's record without what may differ from one time to the next, and its curves."""
    record = json.loads((folder / "record.json").read_text())
    for entry in record["seeds"].values():
        del entry["provenance"], entry["seconds"]
    return record, (folder / "curves.csv").read_bytes()


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One paper alone: `make smoke` runs all, and takes longer."""
    folder = copy(tmp_path_factory.mktemp("smoke"), results=False)
    for spec in folder.glob("papers/*/paper.toml"):
        if spec.parent.name != PAPER:
            shutil.rmtree(spec.parent)
    (folder / "params.yaml").write_text(f"{PAPER}:\n  budget: smoke\n")
    call(folder, "fedrepro", "plan")
    call(folder, "dvc", "repro")
    return folder


def test_smoke_fills_every_cell_from_nothing(smoke: Path):
    with (smoke / "reports" / "tables" / PAPER / "table1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    assert {(row["n_seeds"], row["status"], row["budget"]) for row in rows} == {("2", "not-compared", "smoke")}
    assert all(0 < float(row["reproduced"]) < 100 and row["substitute"] for row in rows)


def test_a_command_of_the_page_gives_the_number_beside_it(smoke: Path):
    """A reader's path: from a number of the page to its command, and to a record that has the number."""
    text = (smoke / "reports/index.html").read_text(encoding="utf-8")
    shown = json.loads(re.search(r'<script[^>]* id="data">(.*?)</script>', text, re.S)[1])
    name, cell = next((name, cell) for name, cell in shown["cells"].items() if cell["runs"] == [f"{PAPER}/{RUN}"])
    command = shown["runs"][cell["runs"][0]]["command"]
    call(smoke, *shlex.split(command))
    committed, again = smoke / "runs" / PAPER / RUN, smoke / "build" / RUN
    assert numbers(again)[1] == numbers(committed)[1]
    seeds = json.loads((again / "record.json").read_text())["seeds"].values()
    ours = statistics.fmean(100 * seed["metrics"][name.rpartition(".")[2].replace("-", "_")] for seed in seeds)
    assert dict(cell["facts"])["reproduced"].split()[0] == f"{ours:.2f}"


def test_a_deleted_run_is_trained_again_alone_to_the_same_bits(smoke: Path):
    folder = smoke / "runs" / PAPER / RUN
    before = numbers(folder)
    shutil.rmtree(folder)
    shutil.rmtree(smoke / ".fedrepro")
    said = call(smoke, "dvc", "repro")
    assert [line for line in said.splitlines() if "train-" in line and line.startswith("Running")] == [
        f"Running stage 'papers/{PAPER}/colored-mnist/dvc.yaml:train-{RUN}':"
    ]
    assert numbers(folder) == before
    assert "up to date" in call(smoke, "dvc", "repro")


def test_the_committed_pipeline_is_up_to_date(tmp_path: Path):
    """Nothing is stale: a fresh clone trains nothing, and its tables are what its records give, byte for byte."""
    folder = copy(tmp_path, results=True)
    assert "up to date" in call(folder, "dvc", "status")
    tables = {path: path.read_bytes() for path in (folder / "reports" / "tables").rglob("*.*")}
    call(folder, "dvc", "repro", "--single-item", "--force", "report")
    assert tables
    assert {path: path.read_bytes() for path in tables} == tables
