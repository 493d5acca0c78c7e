"""Runs beside each other: differences against formulas, what is unfair, pictures, lists, tables, and Python."""

import csv
import importlib.util
import json
import math
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import commands
import made
import pandas as pd
import pytest
from commands import PAPER, PLAIN, fedrepro
from recorded import SGD, run

import fedrepro as python
from fedrepro import data
from fedrepro.errors import FedreproError, UsageError
from fedrepro.papers.load import load_paper
from fedrepro.records import record as records
from fedrepro.records.record import Place
from fedrepro.results import chosen, evaluate
from fedrepro.results.compare import compare
from fedrepro.training import runs

T2, T3 = 4.302652729749464, 3.182446305284263  # Student's t, 97.5%, of 2 and 3 degrees of freedom
PLAINLY = {key: value for key, value in SGD.items() if key != "optimiser"}  # of methods with that one alone
A, B = {0: 0.50, 1: 0.60, 2: 0.61}, {0: 0.55, 1: 0.66, 2: 0.69}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def row(found, run, metric="test_accuracy"):
    ((_, row),) = found.metrics[(found.metrics.run == run) & (found.metrics.metric == metric)].iterrows()
    return row


# Numbers


def test_means_spreads_and_paired_intervals_are_those_of_the_formulas():
    found = compare([run("a", A), run("b", B, "scaffold", PLAINLY)])
    own = row(found, "a")
    assert (own["mean"], own.seeds, own.pairs) == (57.0, 3, 0)
    assert own.spread == pytest.approx(100 * statistics.pstdev(A.values()), rel=1e-5)
    assert math.isnan(own.difference)
    other, differences = row(found, "b"), [5.0, 6.0, 8.0]
    half = T2 * statistics.stdev(differences) / math.sqrt(3)
    assert other.difference == pytest.approx(19 / 3, rel=1e-5)
    assert (other.lo, other.hi) == pytest.approx((19 / 3 - half, 19 / 3 + half), rel=1e-5)
    assert other.pairs == 3
    loss = row(found, "b", "test_loss")  # not in percent
    assert (loss["mean"], loss.difference) == pytest.approx((1 - statistics.fmean(B.values()), -19 / 300), rel=1e-5)


def test_pairs_are_the_seeds_that_both_runs_have():
    """Seeds that one of the two lacks, or that diverged in it, are no pair; they count for the run's own mean."""
    found = compare([run("a", A | {3: 0.7, 7: 0.1}), run("b", B | {3: 0.72, 7: None, 8: 0.9})])
    other, differences = row(found, "b"), [5.0, 6.0, 8.0, 2.0]
    half = T3 * statistics.stdev(differences) / 2
    assert (other.pairs, other.seeds, row(found, "a").seeds) == (4, 5, 5)
    assert (other.lo, other.hi) == pytest.approx((5.25 - half, 5.25 + half), rel=1e-5)
    assert other["mean"] == pytest.approx(100 * statistics.fmean([*B.values(), 0.72, 0.9]), rel=1e-5)


def test_one_common_seed_gives_a_difference_and_no_interval_and_none_gives_neither():
    found = compare([run("a", {0: 0.5}), run("b", {0: 0.6, 1: 0.7}), run("c", {5: 0.6})])
    one, none = row(found, "b"), row(found, "c")
    assert (one.difference, one.pairs, math.isnan(one.lo), math.isnan(row(found, "a").spread)) == (10, 1, True, True)
    assert (none.pairs, math.isnan(none.difference), none["mean"]) == (0, True, 60)


def test_a_planned_run_has_the_numbers_of_its_tables(folder):
    made.paper(folder)
    made.records(folder)
    paper = load_paper(made.NAME)
    found = compare([chosen.run(f"{made.NAME}/{name}") for name in made.RUNS])
    cells = evaluate.evaluate(paper).cells
    for cell in cells[cells.metric == "test_accuracy"].itertuples():
        assert f"{row(found, cell.runs[0])['mean']:.2f}" == cell.reproduced
        assert f"{row(found, cell.runs[0]).spread:.2f}" == cell.reproduced_spread


# Settings


def test_what_only_one_method_has_is_no_unfairness_and_what_both_have_is():
    fair = compare([run("a", A), run("b", B, "fedprox", PLAINLY | {"mu": 0.1})])
    assert fair.unfair == []
    assert fair.settings["method"] == {"a": "fedavg", "b": "fedprox"}
    assert fair.settings["mu"] == {"b": 0.1}
    assert "numerics.method" not in fair.settings
    assert {"lr", "network", "optimiser", "rounds", "net"} & fair.settings.keys() == set()
    slow = run("slow", B, "fedprox", PLAINLY | {"lr": 0.1, "net": "mlp", "epochs": 5}, rounds=4, dataset="mnist")
    assert {"lr", "network", "epochs", "rounds", "dataset", "data files"} <= set(compare([run("a", A), slow]).unfair)
    adam = run("adam", A, hyper=SGD | {"optimiser": "adam"})
    assert compare([adam, run("b", B, "fedprox", PLAINLY)]).unfair == ["optimiser"]


def test_one_setting_of_one_method_may_differ_and_a_second_one_is_told():
    own, other = run("a", A), run("b", B, hyper=SGD | {"lr": 0.1})
    assert compare([own, other]).unfair == []
    both = run("c", B, hyper=SGD | {"lr": 0.1, "batch": 32})
    assert compare([own, both]).unfair == ["lr", "batch"]
    watched = run("d", B, hyper=SGD | {"lr": 0.1}, watch={"test_every": 1})
    found = compare([own, watched])
    assert (found.unfair, found.settings["watch.test_every"]["d"]) == ([], 1)


def test_data_settings_differ_with_their_defaults():
    found = compare([run("a", A), run("b", B, data={"n": 20})])
    assert found.settings["data.n"] == {"a": data.parameters("digits-plain")["n"], "b": 20}


# The commands


@pytest.fixture
def pair():
    return run("a", A), run("b", B, "fedprox", PLAINLY | {"mu": 0.1, "lr": 0.02})


def test_the_table_fits_80_columns_and_warns(pair, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = fedrepro("compare", "a", "runs/adhoc/b")
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= 80
    assert "Warning: Not only the method differs. A difference may come from: lr." in done.out
    cells = [[part.strip() for part in line.split("│")[1:-1]] for line in done.out.splitlines() if "│" in line]
    half = T2 * statistics.stdev([5.0, 6.0, 8.0]) / math.sqrt(3)
    assert ["", "B", "63.33 ± 6.02", "+6.33", f"+{19 / 3 - half:.2f} to +{19 / 3 + half:.2f} *"] in cells
    assert ["test accuracy", "A", "57.00 ± 4.97", "", ""] in cells
    assert ["lr", "0.01", "0.02"] in cells


def test_markdown_and_json_have_the_same(pair):
    text = fedrepro("compare", "a", "b", "--md", "--metric", "test_accuracy").out
    assert text.count("\n## ") + text.startswith("## ") == 3
    assert "| B   | 63.33 ± 6.02  | +6.33  |" in text
    assert "test loss" not in text
    found = json.loads(fedrepro("compare", "a", "b", "--json").out)
    assert [each["run"] for each in found["runs"]] == ["a", "b"]
    assert (found["unfair"], found["settings"]["lr"]) == (["lr"], {"a": 0.01, "b": 0.02})
    (own,) = (each for each in found["metrics"] if (each["run"], each["metric"]) == ("b", "test_accuracy"))
    assert own["difference"] == pytest.approx(19 / 3, rel=1e-5)
    (first,) = (each for each in found["metrics"] if (each["run"], each["metric"]) == ("a", "test_accuracy"))
    assert first["lo"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "error: a comparison is of two runs or more: name another one."),
        (["a", "runs/adhoc/a"], "error: runs/adhoc/a is named twice: leave one out."),
        (["a", "b", "--md", "--json"], "error: give one of --md and --json."),
        (["a", "b", "--metric", "test_accurcy"], "error: unknown metric 'test_accurcy': did you mean 'test_accuracy'?"),
        (
            ["a", "c"],
            "error: there is no record 'c': name its folder, an ad hoc run (`fedrepro show runs --adhoc` lists them), "
            "or a planned one as PAPER/RUN.",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(pair, arguments, message):
    done = fedrepro("compare", *arguments)
    assert (done.code, done.out, done.fault) == (2, "", message)


def test_a_damaged_record_is_refused(pair):
    with open("runs/adhoc/b/curves.csv", "a") as curves:
        curves.write("0,9,x,1\n")
    done = fedrepro("compare", "a", "b")
    assert (done.code, "curves.csv does not belong to the record beside it" in done.fault) == (1, True)


def test_seeds_that_say_little_are_told():
    run("a", {0: 0.5, 1: None})
    run("b", {0: 0.6})
    out = fedrepro("compare", "a", "b").out
    assert "Warning: one common seed gives no interval: train more seeds with --seeds 0,1,2." in out
    assert "Warning: a: seed 1 diverged." in out
    run("c", {4: 0.6})
    assert "the runs have no common seed" in fedrepro("compare", "a", "c").out


def test_a_plot_has_the_mean_and_the_band_of_each_run(pair):
    from fedrepro.report import lines
    from fedrepro.results.points import along

    points = along(pair[0], "test_accuracy")
    assert points["round"].tolist() == [1, 2, 3]
    assert points["mean"].tolist() == pytest.approx([19, 38, 57])
    assert points.spread.tolist()[-1] == pytest.approx(100 * statistics.pstdev(A.values()), rel=1e-5)
    (axis,) = lines.figure(pair, "test_accuracy").axes
    assert [line.get_ydata().tolist()[-1] for line in axis.lines] == pytest.approx([57, 63.3333], rel=1e-5)
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a (seeds: 3)", "b (seeds: 3)"]
    band = axis.collections[0].get_paths()[0].get_extents()
    assert (band.y1, band.x0, band.x1) == pytest.approx((57 + points.spread[2], 1, 3))
    assert fedrepro("plot", "a", "b").out == "wrote build/test_accuracy.svg\n"
    first = Path("build/test_accuracy.svg").read_bytes()
    assert b"b (seeds: 3)" in first
    assert fedrepro("plot", "a", "b", "--out", "other.svg").code == 0
    assert Path("other.svg").read_bytes() == first
    assert fedrepro("plot", "a", "--out", "one.png").code == 0
    assert Path("one.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_refused(pair):
    assert "name that ends in .svg or .png" in fedrepro("plot", "a", "--out", "one.pdf").fault
    done = fedrepro("plot", "a", "--metric", "test")
    assert (done.code, done.fault) == (2, "error: a: unknown metric 'test': did you mean 'test_loss'?")
    assert not Path("build").exists()


def test_ad_hoc_runs_are_listed_with_settings_and_final_metric(pair, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run("fedavg-lost", {0: None})
    out = fedrepro("show", "runs", "--adhoc").out
    cells = [[part.strip() for part in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    assert ["3 finished", "63.33 ± 6.02"] in [each[2:] for each in cells]
    assert ["1 diverged", ""] in [each[2:] for each in cells]
    assert "mu=0.1" in out
    assert max(map(len, out.splitlines())) <= 80
    names = lambda *options: [  # noqa: E731
        each["run"] for each in json.loads(fedrepro("show", "runs", "--json", *options).out)["runs"]
    ]
    assert names() == ["a", "b", "fedavg-lost"]
    assert names("--method", "fedprox") == ["b"]
    assert names("--status", "diverged") == ["fedavg-lost"]
    Path("runs/adhoc/a/record.json").write_text("{")
    assert names("--status", "damaged") == ["a"]
    (own,) = json.loads(fedrepro("show", "runs", "--json", "--method", "fedprox").out)["runs"]
    assert own["settings"] == {"rounds": 3, "lr": 0.02, "batch": 64, "net": "cnn", "mu": 0.1}
    assert own["seeds"]["2"]["metrics"]["test_accuracy"] == 0.69
    assert fedrepro("show", "runs", "--status", "lost").code == 2
    assert fedrepro("show", "runs", "--adhoc", "--paper", "x").fault == (
        "error: an ad hoc run has no paper: leave --adhoc or --paper out."
    )


def test_planned_runs_are_listed_by_paper_and_status(folder):
    commands.paper(folder)
    fedrepro("train", "--paper", PAPER, "--run", PLAIN)
    run("mine", A)
    listed = json.loads(fedrepro("show", "runs", "--paper", PAPER, "--json").out)["runs"]
    assert {each["run"]: each["status"] for each in listed}[PLAIN] == ["finished"]
    assert "mine" not in {each["run"] for each in listed}
    missing = json.loads(fedrepro("show", "runs", "--status", "missing", "--json").out)["runs"]
    assert {each["run"] for each in missing} == {each["run"] for each in listed} - {PLAIN}


def test_exported_tables_have_every_number(pair):
    done = fedrepro("export", "--parquet", "tables", "--csv", "text")
    assert done.code == 0
    frames = {path.stem: pd.read_parquet(path) for path in Path("tables").glob("*.parquet")}
    assert frames.keys() == {"runs", "settings", "metrics", "curves"}
    assert frames["runs"][["run", "method", "budget"]].values.tolist() == [
        ["a", "fedavg", "ad hoc"],
        ["b", "fedprox", "ad hoc"],
    ]
    metrics = frames["metrics"].query("run == 'b' and metric == 'test_accuracy'")
    assert dict(zip(metrics.seed, metrics.value, strict=True)) == B
    settings = frames["settings"].query("run == 'b'").set_index("setting").value
    assert (json.loads(settings["lr"]), json.loads(settings["network"])) == (0.02, "cnn")
    with open("runs/adhoc/a/curves.csv") as file:
        own = [(int(r["seed"]), int(r["round"]), r["metric"], float(r["value"])) for r in csv.DictReader(file)]
    curves = frames["curves"].query("run == 'a'")
    assert list(curves[["seed", "round", "metric", "value"]].itertuples(index=False, name=None)) == own
    text = pd.read_csv("text/curves.csv", keep_default_na=False)
    assert text.value.tolist() == pytest.approx(frames["curves"].value.tolist())
    assert fedrepro("export").fault == "error: say where the tables go: --parquet DIR, --csv DIR or both."


def test_an_export_says_what_it_leaves_out(folder):
    commands.paper(folder)
    done = fedrepro("export", PAPER, "--csv", "text")
    assert done.err == "left out, without a usable record: 2 of 2 runs\n"
    assert Path("text/runs.csv").read_text().count("\n") == 1


# Python


def test_importing_is_light_and_offers_the_functions():
    code = "import fedrepro, sys; print(sorted({'torch', 'pandas', 'numpy'} & set(sys.modules)), fedrepro.train)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.stdout.startswith("[] <function train")
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = python.trian


class Writer:
    """A stand-in for TensorBoard's SummaryWriter."""

    def __init__(self):
        self.points = []

    def add_scalar(self, tag, value, step):
        self.points.append((tag, step, value))


def test_a_run_is_trained_loaded_compared_and_followed_in_python(folder):
    small = {"dataset": "digits", "batch": 64, "hidden": 16, "rounds": 3, "watch.test_every": 1}
    writer = Writer()
    first = python.train(method="fedsgd", seeds=(0, 1), watch=python.track(writer), save_model=True, **small)
    assert first.record == records.read(first.folder)
    assert first.record.models.keys() == {0, 1}
    curve = records.curves(first.folder)
    expected = {(f"{name}/seed-{s}", r, float(f"{v:.6g}")) for s, points in curve.items() for r, name, v in points}
    assert {(tag, step, float(f"{value:.6g}")) for tag, step, value in writer.points} == expected
    assert len(writer.points) == len(expected)
    second = python.train(method="fedsgd", seeds=[0, 1], **small, lr=0.01, out="here")
    assert (second.config.hyper["lr"], second.folder) == (0.01, Path("here"))
    found = python.compare(first, second, metrics=["test_accuracy"])
    assert found.unfair == []
    assert len(found.metrics) == 2
    assert python.load("here").record == second.record
    assert python.load(first.name).record == first.record
    with pytest.raises(UsageError, match="unknown setting 'lrr'"):
        python.train(method="fedsgd", lrr=1)
    with pytest.raises(UsageError, match="settings are numbers, words, true or false"):
        python.train(method="fedsgd", lr={1})


def test_runs_of_one_name_are_compared_by_their_folders(pair):
    shutil.copytree("runs/adhoc/b", "other/a")
    found = python.compare(pair[0], python.load("other/a"))
    assert found.settings["lr"] == {"runs/adhoc/a": 0.01, "other/a": 0.02}
    assert row(found, "other/a").difference == pytest.approx(19 / 3, rel=1e-5)
    with pytest.raises(UsageError, match="runs/adhoc/a is named twice: leave one out"):
        python.compare(pair[0], pair[0])


@pytest.mark.parametrize(
    ("seeds", "paper", "trained"),
    [(None, PAPER, [0, 1]), ([0], None, [0]), (iter([1]), None, [1])],
    ids=["none", "one", "iterator"],
)
def test_a_run_of_a_paper_has_its_seeds_unless_others_are_given(folder, seeds, paper, trained):
    commands.paper(folder)
    found = python.train(paper=PAPER, run=PLAIN, seeds=seeds).record
    assert (found.paper, list(found.seeds)) == (paper, trained)


def test_seeds_that_the_paper_has_elsewhere_are_taken_over_in_python(folder):
    commands.paper(folder)
    own, said = load_paper(PAPER).run(PLAIN), []
    runs.execute(own, Place(Path(f"studies/{PAPER}/long/one"), PAPER, "one", "long"), device="cpu")
    python.train(paper=PAPER, run=PLAIN, say=said.append)
    assert said[0] == f"seeds 0, 1 have these settings in studies/{PAPER}/long/one: taken over"


def test_the_cells_of_a_paper_are_those_that_were_evaluated(folder):
    made.paper(folder)
    made.records(folder)
    with pytest.raises(FedreproError, match="cells.csv is missing"):
        python.cells(made.NAME)
    paper = load_paper(made.NAME)
    evaluate.write(paper, evaluate.evaluate(paper))
    assert python.cells(made.NAME).published.tolist()[0] == "84.88"


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
def test_tensorboard_takes_the_points(folder):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter("board") as writer:
        python.train(method="fedsgd", dataset="digits", rounds=1, watch=python.track(writer))
    assert list(Path("board").glob("events.*"))
