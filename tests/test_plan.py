"""The generated pipeline: what it says, that staleness is seen, and that DVC reruns what changed and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import made
import pytest
import yaml

from fedrepro import page, plan
from fedrepro.errors import FedreproError, UsageError
from fedrepro.spec import load_paper

SOURCES = plan.Sources(code=lambda method: ["fedrepro/train.py", f"fedrepro/methods/{method}.py"], data=lambda _: "box")
TABLES = f"papers/{made.NAME}/dvc.yaml"
PIPELINE = f"papers/{made.NAME}/toys/dvc.yaml"


@pytest.fixture
def root(tmp_path):
    made.paper(tmp_path)
    plan.write(tmp_path, SOURCES)
    return tmp_path


def stages(path):
    return yaml.safe_load(path.read_text())["stages"]


def test_a_stage_for_every_run_and_every_table(root):
    assert list(stages(root / PIPELINE)) == [f"train-{run}" for run in made.RUNS]
    assert list(stages(root / TABLES)) == ["evaluate-t1"]
    assert list(stages(root / "dvc.yaml")) == ["digests", "data-box", "report", "check"]


def test_a_run_depends_on_its_own_settings_code_and_data(root):
    stage = stages(root / PIPELINE)["train-toys-game-parallel"]
    assert stage["cmd"] == "fedrepro train --paper toy-2022 --run toys-game-parallel"
    assert stage["wdir"] == "../../.."
    assert stage["deps"] == ["data/manifests/box.json"]
    assert stage["params"] == [
        {"papers/toy-2022/runs.json": ["toys-game-parallel"]}, {"papers/digests.json": ["code.game"]}
    ]  # fmt: skip
    digests = stages(root / "dvc.yaml")["digests"]
    code = ["fedrepro/methods/game.py", "fedrepro/methods/plain.py", "fedrepro/train.py"]
    assert digests["deps"] == [*code, "papers/toy-2022/paper.toml", "params.yaml"]
    assert digests["outs"] == [{"papers/digests.json": {"cache": False}}]
    kept = {"cache": False, "persist": True}
    assert stage["outs"] == [{f"runs/toy-2022/toys-game-parallel/{f}": kept} for f in ("record.json", "curves.csv")]


def test_every_output_is_in_git_and_declared_once(root):
    declared = [
        out
        for path in (root / "dvc.yaml", root / TABLES, root / PIPELINE)
        for stage in stages(path).values()
        for kind in ("outs", "metrics")
        for out in stage.get(kind, [])
    ]
    assert all(settings["cache"] is False for out in declared for settings in out.values())
    names = [name for out in declared for name in out]
    assert len(names) == len(set(names)) == 2 * len(made.RUNS) + 1 + 1 + 3 + 3 + 1 + 2 + 1


def test_dvc_shows_how_a_paper_agrees(root):
    pipeline = yaml.safe_load((root / "dvc.yaml").read_text())
    assert pipeline["stages"]["check"]["metrics"] == [{"reports/agreement/toy-2022.json": {"cache": False}}]
    [plot] = [each for drawn in pipeline["plots"] for each in drawn.values()]
    assert plot["y"] == {"reports/agreement/toy-2022.csv": ["reproduced", "published"]}


def test_numbers_that_are_not_compared_are_not_plotted(tmp_path):
    made.paper(tmp_path, spec=made.SPEC.replace('label = "paper"', 'label = "paper"\ncompare = false'))
    plan.write(tmp_path, SOURCES)
    assert yaml.safe_load((tmp_path / "dvc.yaml").read_text())["plots"] == []


def test_the_root_reaches_every_table(root):
    for name in ("report", "check"):
        assert "reports/metrics/toy-2022/t1.csv" in stages(root / "dvc.yaml")[name]["deps"]


def test_the_page_depends_on_every_record_and_on_what_is_left_open(root):
    deps = stages(root / "dvc.yaml")["report"]["deps"]
    records = {f"runs/toy-2022/{run}/record.json" for run in made.RUNS}
    assert records | {"fedrepro/page/build.py", "fedrepro/page/templates/style.css"} <= set(deps)
    protocol = root / "docs/protocol-toy-2022.md"
    assert "docs/protocol-toy-2022.md" not in deps
    protocol.parent.mkdir()
    protocol.write_text("# Protocol\n")
    plan.write(root, SOURCES)
    assert "docs/protocol-toy-2022.md" in stages(root / "dvc.yaml")["report"]["deps"]


def test_writing_twice_changes_nothing_and_a_change_is_seen(root):
    assert plan.write(root, SOURCES) == []
    plan.check(root, SOURCES)
    spec = root / "papers" / made.NAME / "paper.toml"
    spec.write_text(made.SPEC.replace("lr = 0.1", "lr = 0.2"))
    made.pilots(root)
    with pytest.raises(FedreproError, match=r"runs\.json: stale; run `fedrepro plan`") as raised:
        plan.check(root, SOURCES)
    assert raised.value.exit_code == 1
    assert [path.name for path in plan.write(root, SOURCES)] == ["runs.json"]
    plan.check(root, SOURCES)


def test_a_folder_in_the_place_of_a_file_is_stale_and_named(root):
    (root / PIPELINE).unlink()
    (root / PIPELINE).mkdir()
    with pytest.raises(FedreproError, match="dvc.yaml: stale"):
        plan.check(root, SOURCES)
    with pytest.raises(FedreproError, match=r"cannot write .*toys/dvc\.yaml: Is a directory"):
        plan.write(root, SOURCES)


def test_the_stages_of_a_dataset_that_is_gone_are_removed(root):
    spec = root / "papers" / made.NAME / "paper.toml"
    spec.write_text(made.SPEC.replace("[axes.dataset.Toys]", '[axes.dataset.Toys]\nrun = "blocks"'))
    made.pilots(root)
    with pytest.raises(FedreproError, match=r"toys/dvc\.yaml: stale"):
        plan.check(root, SOURCES)
    plan.write(root, SOURCES)
    assert not (root / PIPELINE).exists()
    assert "train-blocks-plain" in stages(root / f"papers/{made.NAME}/blocks/dvc.yaml")
    plan.check(root, SOURCES)


def test_planned_run_is_what_the_spec_says(root):
    assert plan.planned(made.NAME, "toys-plain", root) == ("paper", load_paper(made.NAME, root).run("toys-plain"))
    with pytest.raises(UsageError, match="unknown run of toy-2022 'toys-plan': did you mean 'toys-plain'"):
        plan.planned(made.NAME, "toys-plan", root)
    with pytest.raises(UsageError, match="unknown paper 'toy-2': did you mean 'toy-2022'"):
        plan.planned("toy-2", "toys-plain", root)
    (root / "papers" / made.NAME / "runs.json").write_text("{")
    with pytest.raises(UsageError, match="write it with `fedrepro plan`"):
        plan.planned(made.NAME, "toys-plain", root)


def test_missing_pilot_stops_the_plan_and_writes_nothing(root):
    (root / "papers" / made.NAME / "pilots.json").unlink()
    before = (root / "dvc.yaml").read_bytes()
    with pytest.raises(UsageError, match="find it with `fedrepro pilot"):
        plan.write(root, SOURCES)
    assert (root / "dvc.yaml").read_bytes() == before


def test_a_mean_over_the_last_rounds_depends_on_the_curves(root):
    before = stages(root / TABLES)["evaluate-t1"]["deps"]
    assert not [dep for dep in before if "curves" in dep]
    (root / "papers" / made.NAME / "paper.toml").write_text(made.SPEC.replace('"final"', '"last20"'))
    assert [path.name for path in plan.write(root, SOURCES)] == ["dvc.yaml"]
    wanted = [f"runs/toy-2022/{run}/{file}" for run in made.RUNS for file in ("record.json", "curves.csv")]
    assert stages(root / TABLES)["evaluate-t1"]["deps"] == ["fedrepro/curves.py", "fedrepro/evaluate.py", *wanted]


def test_levels_of_a_metric_depend_on_how_it_is_read(root):
    figure = """
[figures.f]
kind = "levels"
title = "Figure"
x = "type"
lines = "method"
QUANTITY
[[figures.f.cells]]
dataset = ["Toys"]
type = ["parallel", "sequential"]
method = ["Game (Smooth)"]
"""
    for quantity, added in (("", []), ('quantity = { kind = "final", metric = "m" }', ["fedrepro/quantities.py"])):
        (root / "papers" / made.NAME / "paper.toml").write_text(made.SPEC + figure.replace("QUANTITY", quantity))
        plan.write(root, SOURCES)
        deps = stages(root / TABLES)["evaluate-f"]["deps"]
        assert deps[:-4] == [*(f"fedrepro/{each}.py" for each in ("curves", "evaluate", "figures")), *added]


def test_missing_search_stops_the_plan_and_a_made_one_is_what_the_report_shows(root):
    search = '[defaults.search]\nseed = 9\nrounds = 2\nmetric = "m"\nlast = 1\ngrid = { lr = [0.1] }\n\n[axes.dataset'
    spec = (
        made.SPEC.replace("[axes.dataset", search, 1)
        .replace("lr = 0.1,", 'lr = "search",')
        .replace('"pilot", w', "0.6, w")
    )
    path = root / "papers" / made.NAME / "paper.toml"
    games = '[axes.method."Game (Smooth)"]\nrun = "game"\nmethod = "game"\nhyper = { capacity = 5'
    path.write_text(spec.replace(games, games.replace("capacity", "lr = 1, capacity")))
    with pytest.raises(UsageError, match="find it with `fedrepro search --paper toy-2022 --run toys-plain`"):
        plan.write(root, SOURCES)
    digest = load_paper(made.NAME, root).search("toys-plain").digest()
    entry = {"chosen": {"lr": 0.1}, "config_digest": digest}
    path.with_name("searches.json").write_text(json.dumps({"toys-plain": entry}))
    plan.write(root, SOURCES)
    runs = json.loads(path.with_name("runs.json").read_text())
    assert runs["toys-plain"]["config"]["hyper"] == {"lr": 0.1, "batch": 8}
    assert "papers/toy-2022/searches.json" in stages(root / "dvc.yaml")["report"]["deps"]
    assert "papers/toy-2022/searches.json" in stages(root / "dvc.yaml")["check"]["deps"]


STAND_IN = f"""#!{sys.executable}
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[1])!r}]
import made
made.command(sys.argv[1:])
"""


@pytest.fixture
def dvc(root, tmp_path_factory, monkeypatch):
    """A repository with the toy's sources, and the real `dvc repro` on it; returns the commands that a call ran."""
    code = ("train", "evaluate", "layout", "rankings", "results", "tables", "methods/plain", "methods/game")
    code += ("check", "latex", "summary", "verdicts", "verify")
    for path in (*(f"fedrepro/{name}.py" for name in code), *page.sources()):
        source = root / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("1\n")
    (root / "fedrepro/data/sources").mkdir(parents=True)
    for name in ("femnist", "images", "pictures", *(f"sources/{module}" for module in plan.SOURCES)):
        (root / f"fedrepro/data/{name}.py").write_text("1\n")
    command = tmp_path_factory.mktemp("bin") / "fedrepro"
    command.write_text(STAND_IN)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")

    def call(*arguments, root=root):
        log = root / "log"
        log.unlink(missing_ok=True)
        run = [Path(sys.executable).with_name("dvc"), *arguments, "-q"]
        done = subprocess.run(run, cwd=root, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return log.read_text().splitlines() if log.exists() else []

    call("init", "--no-scm")
    return call


@pytest.mark.slow
def test_dvc_reruns_what_changed_and_nothing_else(root, dvc, tmp_path_factory):
    everything = ["digests", "data box", *(f"train {run}" for run in made.RUNS), "evaluate t1", "report", "check"]
    assert sorted(dvc("repro")) == sorted(everything)

    clone = tmp_path_factory.mktemp("clone") / "fresh"
    shutil.copytree(root, clone, ignore=shutil.ignore_patterns(".dvc", "log"))
    dvc("init", "--no-scm", root=clone)
    assert dvc("repro", root=clone) == []
    before = (clone / "reports/tables/toy-2022/t1.md").read_bytes()
    assert dvc("repro", "-sf", "report", root=clone) == ["report"]
    assert (clone / "reports/tables/toy-2022/t1.md").read_bytes() == before

    record = root / "runs/toy-2022/toys-plain/record.json"
    before = record.read_bytes()
    shutil.rmtree(record.parent)
    assert dvc("repro") == ["train toys-plain"]
    assert record.read_bytes() == before

    spec = root / "papers" / made.NAME / "paper.toml"
    spec.write_text(made.SPEC.replace('order = "parallel"', 'order = "together"'))
    made.pilots(root)
    plan.write(root, SOURCES)
    ran = dvc("repro")
    assert sorted(ran[:2]) == ["digests", "train toys-game-parallel"]
    assert ran[2:] == ["evaluate t1", "report", "check"]

    (root / "fedrepro/methods/plain.py").write_text("2\n")
    assert dvc("repro") == ["digests", "train toys-plain"]
    (root / "fedrepro/train.py").write_text("2\n")  # the stand-in's digests leave it out, as the real ones do comments
    assert dvc("repro") == ["digests"]
    assert json.loads((root / "reports/check.json").read_text())["problems"] == []
