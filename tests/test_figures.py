"""Figures from made curves: the points by hand, the same bytes each time, and what must stop them."""

import json
from pathlib import Path

import made
import pytest
import yaml

from fedrepro import check, evaluate, figures, plan, plot, report
from fedrepro.errors import FedreproError, OutsideTolerance, UsageError
from fedrepro.figures import Spread
from fedrepro.spec import load_paper

FIGURES = """
[figures.f1]
kind = "curves"
title = "Figure 1: games on toys"
metrics = ["train_accuracy", "test_accuracy"]
until = 4

[[figures.f1.cells]]
dataset = ["Toys"]
type = ["sequential", "parallel"]
method = ["Game (Smooth)"]

[figures.f2]
kind = "levels"
title = "Figure 2: rounds to stop"
x = "type"
lines = "method"

[[figures.f2.cells]]
dataset = ["Toys"]
type = ["parallel", "sequential"]
method = ["Game (Smooth)"]
"""
SEQUENTIAL, PARALLEL = "toys-game-sequential", "toys-game-parallel"


@pytest.fixture
def toy(tmp_path):
    """The toy paper with both figures, and curves of its games that are easily summed."""
    made.paper(tmp_path, spec=made.SPEC + FIGURES)
    loaded = made.records(tmp_path)
    made.watch(loaded, SEQUENTIAL, {
        0: {"train_accuracy": {1: 0.5, 2: 0.6, 3: 0.7, 9: 0.1}, "test_accuracy": {2: 0.1, 4: 0.3}},
        1: {"train_accuracy": {1: 0.7, 2: 0.6, 4: 0.9, 9: 0.1}, "test_accuracy": {2: 0.3, 3: 0.9}},
        2: {"train_accuracy": {1: 0.9, 2: 0.6, 4: 0.5}, "test_accuracy": {2: 0.5, 4: 0.4}},
    })  # fmt: skip
    flat = {"train_accuracy": {1: 0.8, 3: 0.8}, "test_accuracy": {3: 0.5}}
    made.watch(loaded, PARALLEL, dict.fromkeys((0, 1, 2), flat), seed_1={"status": "cap", "rounds": 100})
    return loaded


def points(toy, figure, **wanted):
    """The points of a figure with these fields, as {x: (mean, spread, n)}."""
    found = figures.collect(toy, figure)
    assert found.faults == {}
    same = [p for p in found.points if all(getattr(p, key) == value for key, value in wanted.items())]
    return {point.x: (point.mean, point.spread, point.n) for point in same}


def drawn(toy):
    """Everything that the figures' stages write: {path: bytes}."""
    list(report.evaluate(root=toy.root))
    return {path: path.read_bytes() for path in report.render(toy.root)}


# The points


def test_curves_are_means_in_percent_over_the_seeds_that_share_a_round(toy):
    assert points(toy, "f1", run=SEQUENTIAL, metric="train_accuracy") == {
        "1": (70, 16.3299, 3),  # 50, 70, 90: spread 20 sqrt(2/3)
        "2": (60, 0, 3),
        "4": (70, 20, 2),  # 90 and 50; only one seed was watched in round 3, and 9 is beyond the figure
    }
    assert points(toy, "f1", run=SEQUENTIAL, metric="test_accuracy") == {"2": (30, 16.3299, 3), "4": (35, 5, 2)}


def test_levels_are_the_rounds_at_which_the_seeds_ended(toy):
    assert points(toy, "f2") == {
        "parallel": (66.6667, 24.9444, 3),  # 40, the cap of 100, 60: deviations -80/3, 100/3, -20/3
        "sequential": (50, 8.16497, 3),  # 40, 50, 60
    }
    assert {point.run: point.capped for point in figures.collect(toy, "f2").points} == {PARALLEL: 1, SEQUENTIAL: 0}


def test_a_single_seed_is_shown_as_it_is(tmp_path):
    spec = (made.SPEC + FIGURES).replace("seeds = [0, 1, 2]", "seeds = [0]")
    loaded = made.records(made.paper(tmp_path, spec=spec))
    for run in (SEQUENTIAL, PARALLEL):
        made.watch(loaded, run, {0: {"train_accuracy": {3: 0.25}, "test_accuracy": {1: 0.5}}})
    assert points(loaded, "f1", run=PARALLEL, metric="train_accuracy") == {"3": (25, 0, 1)}
    assert plot.caption(loaded, "f1", figures.collect(loaded, "f1").points) == "Budget: paper; 1 seed."


def test_diverged_seeds_and_seeds_that_the_spec_does_not_have_do_not_count(toy):
    curve = {"train_accuracy": {1: 0.5, 2: float("nan")}, "test_accuracy": {1: 0.5}}
    other = {"train_accuracy": {1: 0.7, 2: 0.5}, "test_accuracy": {1: 0.5}}
    wild = {"train_accuracy": {1: 0.0, 2: 0.0}, "test_accuracy": {1: 0.0}}
    lost = {"status": "diverged", "metrics": {}, "rounds": 2}
    made.watch(toy, SEQUENTIAL, {0: curve, 1: wild, 2: other, 9: wild}, seed_1=lost)
    assert points(toy, "f1", run=SEQUENTIAL, metric="train_accuracy") == {"1": (60, 10, 2)}
    assert points(toy, "f2", run=SEQUENTIAL) == {"sequential": (50, 10, 2)}  # 40 and 60
    assert "type sequential: 1 diverged and left out" in plot.caption(toy, "f1", figures.collect(toy, "f1").points)


def test_a_run_whose_seeds_all_diverged_is_said_and_not_drawn(toy):
    lost = {"status": "diverged", "metrics": {}, "rounds": 2}
    made.watch(toy, SEQUENTIAL, {}, seed_0=lost, seed_1=lost, seed_2=lost)
    assert points(toy, "f1", run=SEQUENTIAL) == {"": (None, None, 0)}
    assert "type sequential, train accuracy: no value" in plot.caption(toy, "f1", figures.collect(toy, "f1").points)
    drawn(toy)
    assert [problem for problem in check.run(toy.root).problems if "figures" in problem] == []


def test_writing_and_reading_points_loses_nothing(toy):
    found = figures.collect(toy, "f1").points
    assert figures.parse(figures.text(found)) == found
    empty = [Spread("a, b", "run", "rounds", "2", None, None, 0, 1, 2, "paper", "")]
    assert figures.parse(figures.text(empty)) == empty
    path = figures.figure(toy, "f1")
    assert path == toy.root / "reports/figures/toy-2022/f1.csv"
    assert path.read_text().splitlines()[:2] == [
        "line,run,metric,x,mean,spread,n,capped,diverged,budget,substitute",
        '"Game (Smooth), type sequential",toys-game-sequential,train_accuracy,1,70.0,16.3299,3,0,0,paper,',
    ]


# The pictures


def test_pictures_have_the_same_bytes_each_time_and_under_any_settings(toy, monkeypatch):
    import matplotlib

    first = drawn(toy)
    pictures = {path.name for path in first if path.parts[-3] == "figures"}
    assert pictures == {"f1.svg", "f1.png", "f2.svg", "f2.png"}
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 20)
    assert drawn(toy) == first


def test_pictures_follow_their_points(toy):
    before = plot.pictures(toy, "f1", figures.collect(toy, "f1").points, "svg")
    made.watch(toy, PARALLEL, dict.fromkeys((0, 1, 2), {"train_accuracy": {1: 0.8, 3: 0.7}, "test_accuracy": {3: 0.5}}))
    assert plot.pictures(toy, "f1", figures.collect(toy, "f1").points, "svg") != before


def test_a_picture_has_a_panel_for_each_metric_a_line_for_each_cell_and_its_units(toy):
    picture = plot._figure(toy, "f1", figures.collect(toy, "f1").points)
    assert [axis.get_ylabel() for axis in picture.axes] == ["train accuracy (%)", "test accuracy (%)"]
    assert picture.axes[-1].get_xlabel() == "round"
    labels = ["Game (Smooth), type sequential", "Game (Smooth), type parallel"]
    assert [text.get_text() for text in picture.axes[0].get_legend().texts] == labels
    assert [list(line.get_ydata()) for line in picture.axes[0].lines] == [[70, 60, 70], [80, 80]]
    assert [len(axis.collections) for axis in picture.axes] == [2, 2]  # the bands


def test_levels_stand_in_the_order_of_their_axis_and_the_cap_is_marked(toy):
    picture = plot._figure(toy, "f2", figures.collect(toy, "f2").points)
    (axis,) = picture.axes
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["sequential", "parallel"]  # as in paper.toml
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("type", "rounds")
    assert list(axis.lines[0].get_ydata()) == [50, 66.6667]
    assert (axis.lines[1].get_markerfacecolor(), list(axis.lines[1].get_xdata())) == ("white", [1])
    assert [text.get_text() for text in axis.texts] == ["1 of 3 at the cap"]


def test_the_caption_says_budget_seeds_and_data(toy):
    assert plot.caption(toy, "f1", figures.collect(toy, "f1").points) == (
        "Mean over the seeds, band: ± one standard deviation (population). Budget: paper; 3 seeds."
    )
    record = json.loads(evaluate.record_path(made.NAME, PARALLEL, toy.root).read_text())
    record["data"]["substitute"] = "other toys"
    made.write(toy.root, PARALLEL, record)
    assert plot.caption(toy, "f2", figures.collect(toy, "f2").points).endswith(
        "3 seeds; data: other toys, in place of the paper's own."
    )


def test_smoke_is_never_compared(tmp_path):
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + FIGURES, budget="smoke"))
    for run in (SEQUENTIAL, PARALLEL):
        made.watch(loaded, run, {0: {"train_accuracy": {3: 0.25}, "test_accuracy": {3: 0.5}}})
    assert "Budget: smoke; never compared with the paper's numbers; 1 seed." in plot.caption(
        loaded, "f1", figures.collect(loaded, "f1").points
    )


# Levels of a metric, and metrics that not all runs have


def levels(tmp_path, quantity):
    """The toy paper with figure f2 of a quantity over its types."""
    spec = made.SPEC + FIGURES.replace('lines = "method"', f'lines = "method"\nquantity = {quantity}')
    loaded = made.records(made.paper(tmp_path, spec=spec))
    for run, shift in ((SEQUENTIAL, 0), (PARALLEL, 0.1)):
        ends = {0: 40, 1: 50, 2: 60}  # the rounds in which the seeds end
        curves = {
            s: {"test_accuracy": {t: shift + (0.5 if t == e else 0.3) for t in range(1, e + 1)}}
            for s, e in ends.items()
        }
        made.watch(loaded, run, curves)
    return loaded


def test_levels_of_a_mean_over_the_last_rounds(tmp_path):
    loaded = levels(tmp_path, '{ kind = "last", metric = "test_accuracy", rounds = 4 }')
    assert points(loaded, "f2", metric="test_accuracy") == {"parallel": (45, 0, 3), "sequential": (35, 0, 3)}
    (axis,) = plot._figure(loaded, "f2", figures.collect(loaded, "f2").points).axes
    assert axis.get_ylabel() == "test accuracy (%),\nmean of the last 4 rounds"
    assert list(axis.lines[0].get_ydata()) == [35, 45]
    assert axis.get_ylim()[0] > 30  # no zero on an axis of accuracies


def test_levels_of_a_final_metric(tmp_path):
    loaded = levels(tmp_path, '{ kind = "final", metric = "test_accuracy" }')
    assert points(loaded, "f2") == {"parallel": (69, 1.63299, 3), "sequential": (67, 0.816497, 3)}  # of made.ACCURACIES
    (axis,) = plot._figure(loaded, "f2", figures.collect(loaded, "f2").points).axes
    assert axis.get_ylabel() == "test accuracy (%)"
    found = figures.collect(loaded, "f2").points
    assert figures.parse(figures.text(found)) == found


def test_levels_of_rounds_that_were_not_watched_are_a_fault(tmp_path):
    loaded = levels(tmp_path, '{ kind = "last", metric = "test_accuracy", rounds = 50 }')
    assert list(figures.collect(loaded, "f2").faults) == [PARALLEL, SEQUENTIAL]
    with pytest.raises(FedreproError, match=r"test_accuracy at 40 of the last 50 rounds of seed 0.*\(2 runs of"):
        figures.figure(loaded, "f2")


@pytest.mark.parametrize("kind", ['"final"', '"last", rounds = 4'])
def test_levels_of_an_unknown_metric_are_refused(tmp_path, kind):
    loaded = levels(tmp_path, f'{{ kind = {kind}, metric = "tset_accuracy" }}')
    with pytest.raises(UsageError, match=rf"figures\.f2: run {PARALLEL}: .*'tset_accuracy': did you mean 'test_acc"):
        figures.collect(loaded, "f2")


@pytest.mark.parametrize("kind", ['"oscillation", metric = "m", window = 3', '"rounds", metric = "m"'])
def test_levels_of_other_quantities_are_refused(tmp_path, kind):
    with pytest.raises(UsageError, match=r"figures\.f2\.levels\.quantity"):
        levels(tmp_path, f"{{ kind = {kind} }}")


def panels(tmp_path, metrics, **entries):
    """The toy paper whose parallel game alone has watched a mask."""
    spec = made.SPEC + FIGURES.replace('["train_accuracy", "test_accuracy"]\nuntil', f"{metrics}\nuntil")
    loaded = made.records(made.paper(tmp_path, spec=spec))
    made.watch(loaded, SEQUENTIAL, dict.fromkeys((0, 1, 2), {"test_accuracy": {1: 0.5}}))
    both = {"test_accuracy": {1: 0.4}, "mask_survival": {1: 0.25}, "mask_survival_conv1": {1: 0.5}}
    made.watch(loaded, PARALLEL, dict.fromkeys((0, 1, 2), both), **entries)
    return loaded


def test_a_run_without_a_metric_is_absent_from_its_panel_alone(tmp_path):
    loaded = panels(tmp_path, ["mask_survival", "test_accuracy", "mask_survival_conv1"])
    found = figures.collect(loaded, "f1").points
    assert [(point.run, point.metric, point.mean) for point in found] == [
        (PARALLEL, "mask_survival", 25),
        (SEQUENTIAL, "test_accuracy", 50),
        (PARALLEL, "test_accuracy", 40),
        (PARALLEL, "mask_survival_conv1", 50),
    ]
    picture = plot._figure(loaded, "f1", found)
    assert [axis.get_ylabel() for axis in picture.axes] == [
        *("mask survival (%)", "test accuracy (%)", "mask survival conv1 (%)")
    ]
    assert [len(axis.lines) for axis in picture.axes] == [1, 2, 1]
    legend = [text.get_text() for text in picture.axes[0].get_legend().texts]
    assert legend == ["Game (Smooth), type sequential", "Game (Smooth), type parallel"]
    colours = {axis.lines[-1].get_color() for axis in picture.axes}  # of the parallel game, the last line of each panel
    assert len(colours) == 1
    assert "no value" not in plot.caption(loaded, "f1", found)


def test_a_run_with_none_of_the_metrics_is_refused(tmp_path):
    loaded = panels(tmp_path, ["mask_survival"])
    with pytest.raises(UsageError, match=rf"run {SEQUENTIAL}: it has watched none of mask_survival: leave it out"):
        figures.collect(loaded, "f1")


def test_a_faulty_or_diverged_run_hides_no_metric_of_the_others(tmp_path):
    lost = {"status": "diverged", "metrics": {}, "rounds": 2}
    loaded = panels(tmp_path, ["test_accuracy", "mask_survival"], seed_0=lost, seed_1=lost, seed_2=lost)
    assert points(loaded, "f1", metric="mask_survival") == {"": (None, None, 0)}
    (loaded.root / "runs" / made.NAME / PARALLEL / "record.json").unlink()
    assert list(figures.collect(loaded, "f1").faults) == [PARALLEL]


# The runs, and the stages


def test_a_figure_that_shares_runs_with_a_table_adds_none(toy):
    assert list(toy.runs()) == list(made.RUNS)
    assert toy.figure_runs("f1") == [SEQUENTIAL, PARALLEL]


def test_a_figure_may_add_a_run_of_its_own_and_keeps_one_that_a_table_leaves_out(tmp_path):
    own = '\n[axes.clients."5"]\nrun = "n5"\ndata = { n = 5 }\n' + FIGURES.replace(
        'x = "type"', 'x = "clients"'
    ).replace('type = ["parallel", "sequential"]', 'type = ["sequential"]\nclients = ["5"]')
    left_out = '\n[[tables.t1.not_run]]\nwhen = { type = ["parallel", "none"] }\nreason = "too dear"\n'
    loaded = load_paper(made.NAME, made.paper(tmp_path, spec=made.SPEC + left_out + own))
    assert list(loaded.runs()) == [SEQUENTIAL, PARALLEL, "toys-game-sequential-n5"]
    assert loaded.run("toys-game-sequential-n5").data == {"n": 5}


def test_stages_depend_on_records_curves_and_the_figure_alone(toy):
    sources = plan.Sources(code=lambda method: [f"fedrepro/methods/{method}.py"], data=lambda _: "box")
    plan.write(toy.root, sources)
    stages = yaml.safe_load((toy.folder / "dvc.yaml").read_text())["stages"]
    assert list(stages)[-3:] == ["evaluate-t1", "evaluate-f1", "evaluate-f2"]
    stage = stages["evaluate-f1"]
    assert stage["cmd"] == "fedrepro evaluate --paper toy-2022 --figure f1"
    assert stage["deps"][-4:] == [
        f"runs/toy-2022/{run}/{file}" for run in (SEQUENTIAL, PARALLEL) for file in ("record.json", "curves.csv")
    ]
    assert stage["params"] == [{"papers/digests.json": ["papers.toy-2022.figures.f1"]}]
    assert stage["outs"] == [{"reports/figures/toy-2022/f1.csv": {"cache": False}}]
    root = yaml.safe_load((toy.root / "dvc.yaml").read_text())["stages"]
    pictures = [f"reports/figures/toy-2022/{name}" for name in ("f1.svg", "f1.png", "f2.svg", "f2.png")]
    assert set(pictures) <= {name for out in root["report"]["outs"] for name in out}
    for name in ("report", "check"):
        assert {"fedrepro/plot.py", "reports/figures/toy-2022/f1.csv"} <= set(root[name]["deps"])
    assert set(pictures) <= set(root["check"]["deps"])


# What stops a figure


MISTAKES = {
    "axis": ('type = ["sequential", "parallel"]\nmethod', 'tpye = ["parallel"]\nmethod', "f1: unknown axis 'tpye'"),
    "value": ('["parallel", "sequential"]', '["paralel"]', "f2: unknown type 'paralel': did you mean 'parallel'"),
    "own axis": ('x = "type"', 'x = "tipe"', "f2: unknown axis 'tipe': did you mean 'type'"),
    "axis of a block": ('type = ["parallel", "sequential"]\n', "", "f2: a block of cells has no axis 'type'"),
    "fixed axis": ('type = ["sequential", "parallel"]\nmethod = ["Game (Smooth)"]', 'type = ["parallel"]',
                   "f1: a block of cells has no axis 'method'"),
    "kind": ('kind = "levels"', 'kind = "leevels"', "figures.f2: input tag 'leevels'"),
    "key": ("until = 4", "untill = 4", "f1.curves.untill: there is no such key"),
    "table": ("figures.f2", "figures.t1", "two stages 'evaluate-t1': rename"),
    "reserved": ("figures.f2", "figures.claims", "two stages 'evaluate-claims': rename"),
    "twice": ('["parallel", "sequential"]', '["parallel", "parallel"]',
              "f2: two cells are at 'Game .Smooth., parallel'"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_mistake_in_the_spec_is_one_sentence_with_its_place(tmp_path, mistake):
    old, new, message = MISTAKES[mistake]
    made.paper(tmp_path)
    assert old in FIGURES
    (tmp_path / "papers" / made.NAME / "paper.toml").write_text(made.SPEC + FIGURES.replace(old, new))
    with pytest.raises(UsageError, match=rf"paper\.toml.*({message})") as raised:
        load_paper(made.NAME, tmp_path)
    assert "\n" not in str(raised.value)


def test_an_unknown_metric_is_one_sentence_with_its_place(toy):
    path = toy.folder / "paper.toml"
    path.write_text(path.read_text().replace('["train_accuracy", "test_accuracy"]\nuntil', '["tset_accuracy"]\nuntil'))
    with pytest.raises(UsageError, match=rf"figures\.f1: run {SEQUENTIAL}: .*'tset_accuracy': did you mean 'test_acc"):
        figures.collect(load_paper(made.NAME, toy.root), "f1")


def test_an_unknown_figure_names_the_closest(toy):
    with pytest.raises(UsageError, match="unknown figure of toy-2022 'f3': did you mean 'f"):
        list(report.evaluate(made.NAME, figure="f3", root=toy.root))
    with pytest.raises(UsageError, match="a figure is one of a paper's: name the paper too"):
        list(report.evaluate(figure="f1", root=toy.root))


def test_what_is_named_is_written_and_else_all(toy):
    def names(**chosen):
        return [str(path.relative_to(toy.root / "reports")) for path in report.evaluate(root=toy.root, **chosen)]

    f1, f2, t1 = "figures/toy-2022/f1.csv", "figures/toy-2022/f2.csv", "metrics/toy-2022/t1.csv"
    assert names() == names(paper=made.NAME) == [t1, f1, f2]
    assert names(paper=made.NAME, figure="f2") == [f2]
    assert names(paper=made.NAME, table="t1", figure="f1") == [t1, f1]


def spoil_record(folder: Path):
    (folder / "record.json").unlink()
    return r"record\.json is missing"


def spoil_curves(folder: Path):
    (folder / "curves.csv").unlink()
    return r"curves\.csv cannot be read \(No such file or directory\)"


def change_curves(folder: Path):
    (folder / "curves.csv").write_text("seed,round,metric,value\n0,1,train_accuracy,0.5\n")
    return r"curves\.csv does not belong to the record beside it"


@pytest.mark.parametrize("spoil", [spoil_record, spoil_curves, change_curves])
def test_a_faulty_run_is_named_with_the_remedy(toy, spoil):
    message = spoil(toy.root / "runs" / made.NAME / PARALLEL)
    sentence = rf"{PARALLEL}/{message}: run `dvc repro papers/toy-2022/toys/dvc\.yaml:train-{PARALLEL}`"
    with pytest.raises(FedreproError, match=sentence):
        figures.figure(toy, "f1")
    assert {point.run for point in figures.collect(toy, "f1").points} == {SEQUENTIAL}


def test_report_needs_the_points_of_every_run(toy):
    drawn(toy)
    path = figures.path(made.NAME, "f1", toy.root)
    remedy = "run `fedrepro evaluate --paper toy-2022 --figure f1`"
    path.write_text("\n".join(line for line in path.read_text().splitlines() if PARALLEL not in line))
    with pytest.raises(FedreproError, match=f"lacks run {PARALLEL}: {remedy}"):
        report.render(toy.root)
    path.write_text("line,run\n1,2\n")
    with pytest.raises(FedreproError, match=f"cannot be read.*{remedy}"):
        report.render(toy.root)
    path.unlink()
    with pytest.raises(FedreproError, match=f"is missing: {remedy}"):
        report.render(toy.root)


@pytest.mark.parametrize(
    ("file", "old", "new"), [("f1.csv", "70.0", "71.0"), ("f1.svg", "M ", "M 0"), ("f2.svg", "", "")]
)
def test_check_finds_a_file_that_its_records_do_not_render(toy, file, old, new):
    drawn(toy)
    check.run(toy.root).enforce()
    path = toy.root / "reports/figures/toy-2022" / file
    if old:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new, 1))
    else:
        path.unlink()
    with pytest.raises(OutsideTolerance, match=rf"figures/toy-2022/{file} does not equal what its records render"):
        check.run(toy.root).enforce()


def test_check_names_a_faulty_run_once(toy):
    drawn(toy)
    (toy.root / "runs" / made.NAME / PARALLEL / "record.json").unlink()
    problems = check.run(toy.root).problems
    assert len([problem for problem in problems if "record.json is missing" in problem]) == 1
