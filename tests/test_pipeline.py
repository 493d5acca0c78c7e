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

import commands
import pytest
import yaml

from fedrepro.data import DATASETS
from fedrepro.papers.load import load_papers
from fedrepro.pipeline import run as pipeline
from fedrepro.records import paths
from fedrepro.training import identity

ROOT = Path(__file__).parents[1]
PAPER = "flgames-2022"
METHOD, RUN = "fedavg", "colored-mnist-fedavg"  # whose numbers are those of its last round
MADE = ("runs/", "reports/", "studies/")

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
    del record["seal"]
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
    params = re.sub(r"budget: \w+", "budget: smoke", (folder / "params.yaml").read_text())
    params = re.sub(rf"(?m)^(?!{PAPER}:)\S+:\n +budget: .*\n", "", params)
    params = re.sub(r"sources: .*", "sources: [digits]", params)
    params = re.sub(r"extractors: .*", "extractors: []", params)
    (folder / "params.yaml").write_text(params)
    trained = call(folder, "fedrepro", "run")
    assert re.findall(r"(\d+) recorded, (\d+) to train", trained)[0][0] == "0"
    said = call(folder, "dvc", "repro", f"check@{PAPER}", f"sheets@{PAPER}")
    (folder / "said").write_text(said)
    call(folder, "fedrepro", "report")
    return folder


def test_smoke_fills_every_cell_from_nothing(smoke: Path):
    with paths.table(PAPER, "table1", smoke)[0].open() as file:
        rows = [row for row in csv.DictReader(file) if "reading=" not in row["variant"]]
    assert len(rows) == 20
    assert {(row["n_seeds"], row["status"], row["budget"]) for row in rows} == {("2", "not-compared", "smoke")}
    assert all(0 < float(row["reproduced"]) < 100 and row["substitute"] for row in rows)


def test_after_fedrepro_run_there_is_nothing_left_for_dvc_to_train(smoke: Path):
    said = (smoke / "said").read_text()
    assert f"Running stage 'train@{PAPER}-{METHOD}'" in said
    assert set(re.findall(r"(\d+) to train", said)) == {"0"}


STAGES = """
stages:
  train:
    foreach: [f-irm, fedsgd]
    do:
      cmd: fedrepro run tiny-2024 --method '${item}' --device cpu
      deps: [papers/tiny-2024]
      outs:
        - runs/tiny-2024/${item}: {cache: false, persist: true}
"""


def test_a_search_that_a_stage_makes_leaves_the_stages_in_order(tmp_path: Path):
    """It enters what it found beside the spec, on which all stages of the paper depend."""
    commands.paper(tmp_path, commands.SEARCHED)
    (tmp_path / "dvc.yaml").write_text(STAGES)
    (tmp_path / "fedrepro").symlink_to(ROOT / "fedrepro")  # where `call` looks for it
    call(tmp_path, "dvc", "init", "--no-scm", "--quiet")
    first = call(tmp_path, "dvc", "repro")
    assert "1 to train\nbefore them: 2 points of searches, 1 search" in first
    assert commands.PLAIN in json.loads((tmp_path / "papers/tiny-2024/tuned.json").read_text())
    second = call(tmp_path, "dvc", "repro")
    assert set(re.findall(r"(\d+) to train", second)) <= {"0"}
    assert "up to date" in call(tmp_path, "dvc", "status")


def test_a_command_of_the_page_gives_the_number_beside_it(smoke: Path):
    """A reader's path: from a number of the page to its command, and to a record that has the number."""
    text = (smoke / f"reports/{PAPER}.html").read_text(encoding="utf-8")
    shown = json.loads(re.search(r'<script[^>]* id="data">(.*?)</script>', text, re.S)[1])
    name = re.search(rf'id="([^"]+)"[^<]*<a [^>]*data-runs="{PAPER}/{RUN}"', text)[1]
    cell, command = shown["cells"][name], shown["runs"][f"{PAPER}/{RUN}"]["command"]
    call(smoke, *shlex.split(command))
    committed, again = paths.run(PAPER, METHOD, RUN, smoke), smoke / "build" / RUN
    assert numbers(again)[1] == numbers(committed)[1]
    seeds = json.loads((again / "record.json").read_text())["seeds"].values()
    ours = statistics.fmean(100 * seed["metrics"][name.rpartition(".")[2].replace("-", "_")] for seed in seeds)
    assert dict(cell["facts"])["reproduced"].split()[0] == f"{ours:.2f}"


def test_a_deleted_run_is_trained_again_alone_to_the_same_bits(smoke: Path):
    folder = paths.run(PAPER, METHOD, RUN, smoke)
    before = numbers(folder)
    shutil.rmtree(folder)
    shutil.rmtree(smoke / ".fedrepro")
    said = call(smoke, "dvc", "repro", f"check@{PAPER}")
    assert f"Running stage 'train@{PAPER}-{METHOD}'" in said
    assert re.findall(r"(\d+) to train", said.split(f"Running stage 'train@{PAPER}-{METHOD}'")[1])[0] == "1"
    assert numbers(folder) == before
    assert "didn't change" in call(smoke, "dvc", "repro", f"check@{PAPER}")


def test_the_committed_pipeline_is_up_to_date(tmp_path: Path):
    """Nothing is stale: a fresh clone trains nothing, and its reports are what its records give, byte for byte."""
    folder = copy(tmp_path, results=True)
    assert "up to date" in call(folder, "dvc", "status")
    reports = {path: path.read_bytes() for path in (folder / "reports").rglob("*.*")}
    for source in (folder / "fedrepro").rglob("*.py"):
        source.write_text(source.read_text() + "# A comment that changes no number.\n")
    said = call(folder, "dvc", "repro")
    assert "Running stage 'train@" in said
    assert set(re.findall(r"(\d+) to train", said)) == {"0"}
    assert reports
    assert {path: path.read_bytes() for path in reports} == reports


def stages() -> dict:
    """The pipeline as it is written, with what params.yaml names put in."""
    written = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    known = yaml.safe_load((ROOT / "params.yaml").read_text()) | {
        k: v for each in written["vars"] for k, v in each.items()
    }
    for stage in written["stages"].values():
        if isinstance(over := stage.get("foreach"), str):
            stage["foreach"] = known[over.removeprefix("${").removesuffix("}")]
    return written["stages"]


def test_there_is_a_stage_for_each_paper_and_for_each_of_its_methods():
    papers = load_papers(ROOT)
    found, planned = stages(), pipeline.planned(papers)
    pairs = {(run.place.paper, run.config.method) for run in planned}
    wanted = {f"{paper}-{method}": {"paper": paper, "method": method} for paper, method in pairs}
    assert found["train"]["foreach"] == wanted
    for stage in ("evaluate", "sheets", "report", "check"):
        assert sorted(found[stage]["foreach"]) == [paper.name for paper in papers]
    assert {"papers", *(f"reports/{paper.name}/metrics.json" for paper in papers)} <= set(found["overview"]["deps"])
    assert found["overview"]["params"] == [f"{paper.name}.budget" for paper in papers]


def test_there_is_a_stage_for_each_source_and_extractor_that_runs_need():
    found, planned = stages(), pipeline.planned(load_papers(ROOT))
    sources = {DATASETS[run.config.dataset].source for run in planned}
    assert set(found["data"]["foreach"]) == sources
    judged = {DATASETS[run.config.dataset].source for run in planned if identity.extractor(run.config)}
    assert set(found["extractor"]["foreach"]) == judged


def test_what_stages_depend_on_is_there():
    for name, stage in stages().items():
        stage = stage.get("do", stage)
        for path in stage.get("deps", ()):
            assert "${" in path or (ROOT / path).exists(), (name, path)
