"""Figures from made curves: the points by hand, and what must stop them."""

import math
from pathlib import Path

import made
import pytest

from fedrepro.errors import FedreproError, UsageError
from fedrepro.papers.load import load_paper
from fedrepro.results.evaluate import enforce, evaluate

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
    return played(tmp_path)


def played(tmp_path):
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


def rows(toy, figure):
    """The points of a figure."""
    found = evaluate(toy).points
    return list(found[found.figure == figure].itertuples())


def points(toy, figure, **wanted):
    """The points of a figure with these fields (`run`: of this run), as {x: (mean, spread, n)}."""
    assert evaluate(toy).faults == {}
    run = wanted.pop("run", None)
    found = [row for row in rows(toy, figure) if run is None or row.runs == [run]]
    same = [row for row in found if all(getattr(row, key) == value for key, value in wanted.items())]
    return {row.x: (row.mean, row.spread, row.n) for row in same}


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
    assert {row.runs[0]: row.capped for row in rows(toy, "f2")} == {PARALLEL: 1, SEQUENTIAL: 0}


def test_a_single_seed_is_shown_as_it_is(tmp_path):
    spec = (made.SPEC + FIGURES).replace("seeds = [0, 1, 2]", "seeds = [0]")
    loaded = made.records(made.paper(tmp_path, spec=spec))
    for run in (SEQUENTIAL, PARALLEL):
        made.watch(loaded, run, {0: {"train_accuracy": {3: 0.25}, "test_accuracy": {1: 0.5}}})
    assert points(loaded, "f1", run=PARALLEL, metric="train_accuracy") == {"3": (25, 0, 1)}


def test_diverged_seeds_and_seeds_that_the_spec_does_not_have_do_not_count(toy):
    curve = {"train_accuracy": {1: 0.5, 2: float("nan")}, "test_accuracy": {1: 0.5}}
    other = {"train_accuracy": {1: 0.7, 2: 0.5}, "test_accuracy": {1: 0.5}}
    wild = {"train_accuracy": {1: 0.0, 2: 0.0}, "test_accuracy": {1: 0.0}}
    lost = {"status": "diverged", "metrics": {}, "rounds": 2}
    made.watch(toy, SEQUENTIAL, {0: curve, 1: wild, 2: other, 9: wild}, seed_1=lost)
    assert points(toy, "f1", run=SEQUENTIAL, metric="train_accuracy") == {"1": (60, 10, 2)}
    assert points(toy, "f2", run=SEQUENTIAL) == {"sequential": (50, 10, 2)}  # 40 and 60

    lost = {"status": "diverged", "metrics": {}, "rounds": 2}
    made.watch(toy, SEQUENTIAL, {}, seed_0=lost, seed_1=lost, seed_2=lost)
    (lost, _) = (row for row in rows(toy, "f1") if row.runs == [SEQUENTIAL])
    assert (lost.x, lost.n, math.isnan(lost.mean), math.isnan(lost.spread)) == ("", 0, True, True)


# Levels of a metric, and metrics that not all runs have


def levels(tmp_path, quantity):
    """The toy paper with figure f2 of a quantity over its types."""
    spec = made.SPEC + FIGURES.replace('lines = "method"', f'lines = "method"\nquantity = {quantity}')
    loaded = made.records(made.paper(tmp_path, spec=spec))
    for run, shift in ((SEQUENTIAL, 0), (PARALLEL, 0.1)):
        ends = {0: 40, 1: 50, 2: 60}  # the rounds in which the seeds end
        curves = {
            s: {"train_accuracy": {1: 0.5}, "test_accuracy": {t: shift + 0.3 + 0.2 * (t == e) for t in range(1, e + 1)}}
            for s, e in ends.items()
        }
        made.watch(loaded, run, curves)
    return loaded


def test_levels_of_a_mean_over_the_last_rounds(tmp_path):
    loaded = levels(tmp_path, '{ kind = "last", metric = "test_accuracy", rounds = 4 }')
    assert points(loaded, "f2", metric="test_accuracy") == {"parallel": (45, 0, 3), "sequential": (35, 0, 3)}


def test_levels_of_a_final_metric(tmp_path):
    loaded = levels(tmp_path, '{ kind = "final", metric = "test_accuracy" }')
    assert points(loaded, "f2") == {"parallel": (60, 0, 3), "sequential": (50, 0, 3)}


def test_levels_of_rounds_that_were_not_watched_are_a_fault(tmp_path):
    loaded = levels(tmp_path, '{ kind = "last", metric = "test_accuracy", rounds = 50 }')
    assert list(evaluate(loaded).faults) == [PARALLEL, SEQUENTIAL]
    with pytest.raises(FedreproError, match=r"test_accuracy at 40 of the last 50 rounds of seed 0.*\(2 runs of"):
        enforce(loaded, evaluate(loaded))


@pytest.mark.parametrize("kind", ['"final"', '"last", rounds = 4'])
def test_levels_of_an_unknown_metric_are_refused(tmp_path, kind):
    loaded = levels(tmp_path, f'{{ kind = {kind}, metric = "tset_accuracy" }}')
    with pytest.raises(UsageError, match=rf"figures\.f2: run {PARALLEL}: .*'tset_accuracy': did you mean 'test_acc"):
        evaluate(loaded)


@pytest.mark.parametrize("kind", ['"oscillation", metric = "m", window = 3', '"rounds", metric = "m"'])
def test_levels_of_other_quantities_are_refused(tmp_path, kind):
    with pytest.raises(UsageError, match=r"figures\.f2.*(its quantity cannot be 'oscillation'|rounds has no `metric`)"):
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
    assert [(row.runs[0], row.metric, row.mean) for row in rows(loaded, "f1")] == [
        (PARALLEL, "mask_survival", 25),
        (SEQUENTIAL, "test_accuracy", 50),
        (PARALLEL, "test_accuracy", 40),
        (PARALLEL, "mask_survival_conv1", 50),
    ]


def test_a_run_with_none_of_the_metrics_is_refused(tmp_path):
    loaded = panels(tmp_path, ["mask_survival"])
    with pytest.raises(UsageError, match=rf"run {SEQUENTIAL}: it has watched none of mask_survival: leave it out"):
        evaluate(loaded)


def test_a_faulty_or_diverged_run_hides_no_metric_of_the_others(tmp_path):
    lost = {"status": "diverged", "metrics": {}, "rounds": 2}
    loaded = panels(tmp_path, ["test_accuracy", "mask_survival"], seed_0=lost, seed_1=lost, seed_2=lost)
    [row] = [row for row in rows(loaded, "f1") if row.metric == "mask_survival"]
    assert (row.x, row.n, row.diverged, math.isnan(row.mean)) == ("", 0, 3, True)
    (loaded.root / "runs" / made.NAME / "game" / PARALLEL / "record.json").unlink()
    assert list(evaluate(loaded).faults) == [PARALLEL]


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


# What stops a figure


MISTAKES = {
    "axis": ('type = ["sequential", "parallel"]\nmethod', 'tpye = ["parallel"]\nmethod', "s.0: unknown axis 'tpye'"),
    "value": ('["parallel", "sequential"]', '["paralel"]', "cells.0: unknown type 'paralel': did you mean 'parallel'"),
    "own axis": ('x = "type"', 'x = "tipe"', "f2.x: unknown axis 'tipe': did you mean 'type'"),
    "axis of a block": ('type = ["parallel", "sequential"]\n', "", "f2: a block of cells has no axis 'type'"),
    "fixed axis": ('type = ["sequential", "parallel"]\nmethod = ["Game (Smooth)"]', 'type = ["parallel"]',
                   "f1: a block of cells has no axis 'method'"),
    "kind": ('kind = "levels"', 'kind = "leevels"', "figures.f2: unknown kind 'leevels': did you mean 'levels'"),
    "key": ("until = 4", "untill = 4", "f1.untill: there is no such key"),
    "table": ("figures.f2", "figures.t1", "the name 't1' is taken twice: rename"),
    "reserved": ("figures.f2", "figures.claims", "the name 'claims' is taken twice: rename"),
    "twice": ('["parallel", "sequential"]', '["parallel", "parallel"]',
              r"figures\.f2\.cells\.0\.type: 'parallel' is there twice"),
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
        evaluate(load_paper(made.NAME, toy.root))


def spoil_record(folder: Path):
    (folder / "record.json").unlink()
    return r"record\.json is missing"


def spoil_curves(folder: Path):
    (folder / "curves.csv").unlink()
    return r"curves\.csv is missing"


def change_curves(folder: Path):
    (folder / "curves.csv").write_text("seed,round,metric,value\n0,1,train_accuracy,0.5\n")
    return r"curves\.csv does not belong to the record beside it"


@pytest.mark.parametrize("spoil", [spoil_record, spoil_curves, change_curves])
def test_a_faulty_run_is_named_with_the_remedy(toy, spoil):
    message = spoil(toy.root / "runs" / made.NAME / "game" / PARALLEL)
    sentence = rf"{PARALLEL}/{message}: run `fedrepro train --paper toy-2022 --run {PARALLEL}`"
    with pytest.raises(FedreproError, match=sentence):
        enforce(toy, evaluate(toy))
    assert {row.runs[0] for row in rows(toy, "f1")} == {SEQUENTIAL}
