"""Figures as a reader sees them: pictures and captions."""

from pathlib import Path

import made
import pytest
from test_figures import FIGURES, PARALLEL, SEQUENTIAL, levels, panels, played

from fedrepro.files import unsealed
from fedrepro.papers.load import load_paper
from fedrepro.records import paths
from fedrepro.report import plots, write
from fedrepro.results import evaluate
from fedrepro.results.check import check

ROOT = Path(__file__).parents[1]


@pytest.fixture
def toy(tmp_path):
    return played(tmp_path)


def points(toy, figure):
    """The rows of a figure in the frame, of what the records give now."""
    found = evaluate.evaluate(toy).points
    return found[found.figure == figure]


def picture(toy, figure):
    return plots.figure(toy, figure, points(toy, figure))


def caption(toy, figure):
    return plots.caption(toy, figure, points(toy, figure))


def drawn(toy):
    """The files of the paper, of what its records give now: {path: bytes}."""
    evaluate.write(toy, evaluate.evaluate(toy))
    return {path: path.read_bytes() for path in write.render(toy)}


def test_a_single_seed_is_shown_as_it_is(tmp_path):
    spec = (made.SPEC + FIGURES).replace("seeds = [0, 1, 2]", "seeds = [0]")
    loaded = made.records(made.paper(tmp_path, spec=spec))
    for run in (SEQUENTIAL, PARALLEL):
        made.watch(loaded, run, {0: {"train_accuracy": {3: 0.25}, "test_accuracy": {1: 0.5}}})
    assert caption(loaded, "f1") == "Budget: paper; 1 seed."


def test_diverged_seeds_are_said_to_be_left_out(toy):
    curve = {"train_accuracy": {1: 0.5, 2: float("nan")}, "test_accuracy": {1: 0.5}}
    other = {"train_accuracy": {1: 0.7, 2: 0.5}, "test_accuracy": {1: 0.5}}
    lost = {"status": "diverged", "metrics": {}, "rounds": 2}
    made.watch(toy, SEQUENTIAL, {0: curve, 2: other}, seed_1=lost)
    assert caption(toy, "f1") == (
        "Mean over the seeds, band: ± one standard deviation (population). Budget: paper; 2–3 seeds; "
        "Game (Smooth), type sequential: 1 diverged and left out."
    )


def test_a_run_whose_seeds_all_diverged_is_said_and_not_drawn(toy):
    lost = {"status": "diverged", "metrics": {}, "rounds": 2}
    made.watch(toy, SEQUENTIAL, {}, seed_0=lost, seed_1=lost, seed_2=lost)
    assert "type sequential, train accuracy: no value" in caption(toy, "f1")
    assert [len(axis.lines) for axis in picture(toy, "f1").axes] == [1, 1]
    assert paths.figure(made.NAME, "f1", toy.root) in drawn(toy)


@pytest.mark.slow
def test_pictures_have_the_same_bytes_each_time_and_under_any_settings(toy, monkeypatch):
    import matplotlib

    first = drawn(toy)
    assert {path.name for path in first if path.suffix == ".svg"} == {"f1.svg", "f2.svg"}
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 20)
    assert drawn(toy) == first


def test_pictures_follow_their_points(toy):
    before = plots.svg(toy, "f1", points(toy, "f1"))
    made.watch(toy, PARALLEL, dict.fromkeys((0, 1, 2), {"train_accuracy": {1: 0.8, 3: 0.7}, "test_accuracy": {3: 0.5}}))
    assert plots.svg(toy, "f1", points(toy, "f1")) != before


def test_a_picture_has_a_panel_for_each_metric_a_line_for_each_cell_and_its_units(toy):
    shown = picture(toy, "f1")
    assert [axis.get_ylabel() for axis in shown.axes] == ["train accuracy (%)", "test accuracy (%)"]
    assert shown.axes[-1].get_xlabel() == "round"
    labels = ["Game (Smooth), type sequential", "Game (Smooth), type parallel"]
    assert [text.get_text() for text in shown.axes[0].get_legend().texts] == labels
    assert [list(line.get_ydata()) for line in shown.axes[0].lines] == [[70, 60, 70], [80, 80]]
    assert [len(axis.collections) for axis in shown.axes] == [2, 2]  # the bands


def test_levels_stand_in_the_order_of_their_axis_and_the_cap_is_marked(toy):
    (axis,) = picture(toy, "f2").axes
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["sequential", "parallel"]  # as in paper.toml
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("type", "rounds")
    assert list(axis.lines[0].get_ydata()) == [50, 66.6667]
    assert (axis.lines[1].get_markerfacecolor(), list(axis.lines[1].get_xdata())) == ("white", [1])
    assert [text.get_text() for text in axis.texts] == ["1 of 3 at the cap"]


def test_the_caption_says_budget_seeds_and_data(toy):
    assert caption(toy, "f1") == (
        "Mean over the seeds, band: ± one standard deviation (population). Budget: paper; 3 seeds."
    )
    place = paths.run(made.NAME, "game", PARALLEL, toy.root)
    record = unsealed((place / "record.json").read_bytes())
    record["data"]["substitute"] = "other toys"
    made.write(toy.root, PARALLEL, record, (place / "curves.csv").read_text())
    assert caption(toy, "f2").endswith("3 seeds; data: other toys, in place of the paper's own.")


def test_smoke_is_never_compared(tmp_path):
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + FIGURES, budget="smoke"))
    for run in (SEQUENTIAL, PARALLEL):
        made.watch(loaded, run, {0: {"train_accuracy": {3: 0.25}, "test_accuracy": {3: 0.5}}})
    assert "Budget: smoke; never compared with the paper's numbers; 1 seed." in caption(loaded, "f1")


def test_levels_of_a_mean_over_the_last_rounds(tmp_path):
    loaded = levels(tmp_path, '{ kind = "last", metric = "test_accuracy", rounds = 4 }')
    (axis,) = picture(loaded, "f2").axes
    assert axis.get_ylabel() == "test accuracy (%),\nmean of the last 4 rounds"
    assert list(axis.lines[0].get_ydata()) == [35, 45]
    assert axis.get_ylim()[0] > 30  # no zero on an axis of accuracies


def test_levels_of_a_final_metric(tmp_path):
    (axis,) = picture(levels(tmp_path, '{ kind = "final", metric = "test_accuracy" }'), "f2").axes
    assert axis.get_ylabel() == "test accuracy (%)"


def test_a_line_may_be_of_several_axes(toy):
    spec = toy.folder / "paper.toml"
    spec.write_text(spec.read_text().replace('lines = "method"', 'lines = ["dataset", "method"]'))
    (axis,) = picture(load_paper(made.NAME, toy.root), "f2").axes
    legend = axis.get_legend()
    assert legend.get_title().get_text() == "dataset × method"
    assert [each.get_text() for each in legend.texts] == ["Toys × Game (Smooth)"]


def test_a_run_without_a_metric_is_absent_from_its_panel_alone(tmp_path):
    loaded = panels(tmp_path, ["mask_survival", "test_accuracy", "mask_survival_conv1"])
    shown = picture(loaded, "f1")
    assert [axis.get_ylabel() for axis in shown.axes] == [
        *("mask survival (%)", "test accuracy (%)", "mask survival conv1 (%)")
    ]
    assert [len(axis.lines) for axis in shown.axes] == [1, 2, 1]
    legend = [text.get_text() for text in shown.axes[0].get_legend().texts]
    assert legend == ["Game (Smooth), type sequential", "Game (Smooth), type parallel"]
    colours = {axis.lines[-1].get_color() for axis in shown.axes}  # of the parallel game, the last line of each panel
    assert len(colours) == 1
    assert "no value" not in caption(loaded, "f1")


def test_check_names_a_faulty_run_once(toy):
    drawn(toy)
    (paths.run(made.NAME, "game", PARALLEL, toy.root) / "record.json").unlink()
    problems = check([toy]).problems
    assert len([problem for problem in problems if "record.json is missing" in problem]) == 1


def test_the_places_on_two_axes_are_in_the_order_of_the_spec_and_only_those_that_are_there():
    paper = load_paper("f2u-2019", ROOT)
    there = {"F2A × MNIST", "MD-GAN × MNIST", "F2A × 1D"}
    assert plots._places(paper, ("method", "dataset"), there) == ["MD-GAN × MNIST", "F2A × MNIST", "F2A × 1D"]
    assert plots._places(paper, "method", {"F2A", "MD-GAN"}) == ["MD-GAN", "F2A"]
    assert plots._places(paper, (), there) == []
