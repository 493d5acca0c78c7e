"""Records to the reproduction: what is kept, and that a record which is not whole is named, never used."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import made
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrepro.errors import FedreproError, UsageError
from fedrepro.papers.load import load_paper
from fedrepro.records import paths
from fedrepro.records.config import RunConfig
from fedrepro.results import cells, evaluate, frames
from fedrepro.results.runs import Run, current

RUN = "toys-game-parallel"
FOLDER = f"runs/{made.NAME}/game/{RUN}"


@pytest.fixture
def toy(tmp_path):
    return made.records(made.paper(tmp_path))


def measures(loaded, table="t1"):
    """What a table takes from its runs."""
    groups, faults = cells.measures(loaded, table, current(loaded, loaded.table_runs(table))[0])
    assert faults == {}
    return [measure for group in groups.values() for measure in group]


def written(loaded):
    """Evaluate and write."""
    return evaluate.write(loaded, evaluate.evaluate(loaded))


def test_one_measure_for_each_run_metric_and_seed(toy):
    found = measures(toy)
    assert [list(measure)[:6] for measure in (found[0], found[-1])] == [
        ["toys-plain", 0, "train_accuracy", 0.84, "finished", 100],
        ["toys-game-parallel", 2, "test_accuracy", 0.71, "stopped", 60],
    ]
    assert math.isnan(found[-1].raised)
    assert len(found) == 3 * 3 * 2


def test_a_cell_has_all_that_a_reader_is_told_of_it(toy):
    row = evaluate.evaluate(toy).cells.iloc[4]
    assert row[["paper", "table", "dataset", "variant", "method", "metric"]].tolist() == [
        *("toy-2022", "t1", "Toys", "type=parallel", "Game (Smooth)", "train_accuracy"),
    ]
    assert row[["unit", "published", "published_spread", "compared_with", "compared_because"]].tolist() == [
        *("percent", "58.03", "6.22", "58.03", ""),
    ]
    assert row[["reproduced", "reproduced_spread", "difference", "limit", "status", "reason"]].tolist() == [
        *("60.00", "1.63", 1.97, 12.44, "within", ""),
    ]
    assert (row.measured, row.rounds) == ([[RUN, 0, 40, 58], [RUN, 1, 50, 60], [RUN, 2, 60, 62]], [40, 50, 60])
    assert (row.n_seeds, row.thresholds, row.runs, row["read"], row.budget, row.label) == (
        *(3, [0.575], [RUN], "train_accuracy", "paper", "paper"),
    )
    assert all(math.isnan(row[key]) for key in ("least", "greatest"))


def test_every_column_is_documented_and_every_frame_has_those_columns(toy):
    for name, frame in zip(paths.FRAMES, evaluate.evaluate(toy), strict=False):
        assert list(frame.columns) == list(frames.COLUMNS[name])
        assert all(words for _, words in frames.COLUMNS[name].values())


def test_writing_and_reading_loses_nothing(toy):
    found = evaluate.evaluate(toy)
    made_files = evaluate.write(toy, found)
    reports = toy.root / "reports" / made.NAME
    names = ("cells.csv", "points.csv", "claims.csv", "metrics.json", "compared.csv")
    assert made_files == [reports / name for name in names]
    again = evaluate.read(toy)
    for before, after in zip(found[:3], again[:3], strict=True):
        pd.testing.assert_frame_equal(before, after)
    assert found.faults == again.faults == {}


@pytest.mark.slow
@settings(deadline=None)  # a shared machine may pause
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")), st.floats(allow_nan=False) | st.just(math.nan))
def test_any_text_and_number_survive_the_file(text, number):
    row = {key: kind() for key, (kind, _) in frames.COLUMNS["claims"].items()}
    found = frames.frame("claims", [row | {"pair": text, "lo": number, "runs": [text, "b"]}])
    pd.testing.assert_frame_equal(frames.parse("claims", frames.text("claims", found)), found)


def test_the_metrics_of_a_paper(toy):
    written(toy)
    found = json.loads(paths.metrics(made.NAME, toy.root).read_text())
    assert (found["cells"]["all"], found["cells"]["within"], found["cells"]["outside"]) == (6, 6, 0)
    assert found["claims"] == {"holds": 0, "fails": 0, "undecided": 0}
    assert found["mean_difference"] == {"percent": 0.8717}  # 0.12, 0.6, 0.24, 0.44, 1.97, 1.86


def test_a_diverged_seed_has_no_value_and_is_named(toy):
    record = made.record(toy, RUN, made.ACCURACIES[RUN])
    record["seeds"]["1"] |= {"status": "diverged", "metrics": {}, "rounds": 7}
    made.write(toy.root, RUN, record)
    found = evaluate.evaluate(toy).cells
    for row in found[found.runs.map(lambda runs: runs == [RUN])].itertuples():
        assert (row.n_seeds, row.diverged, row.rounds) == (2, [[1, 7]], [40, 60])
        assert [seed for _, seed, *_ in row.measured] == [0, 2]


def test_only_the_seeds_of_the_spec_count(toy):
    record = made.record(toy, RUN, made.ACCURACIES[RUN])
    record["seeds"]["9"] = record["seeds"]["0"]
    made.write(toy.root, RUN, record)
    assert {measure.seed for measure in measures(toy)} == {0, 1, 2}


def other_settings(record):
    record["config"]["hyper"] |= {"lr": 0.7}
    record["identity"]["config"] = RunConfig.model_validate(record["config"]).digest()


FAULTS = {
    "config": (other_settings, "was made with other settings than the spec's"),
    "budget": (lambda record: record.update(budget="smoke"), "was made at budget 'smoke' instead of 'paper'"),
    "seed": (lambda record: record["seeds"].pop("1"), "lacks seed 1"),
    "metric": (lambda record: record["seeds"]["1"]["metrics"].pop("test_accuracy"), "lacks test_accuracy of seed 1"),
    "provenance": (lambda record: record["seeds"]["2"]["provenance"].pop("device"), "is no record .*device"),
    "identity": (lambda record: record["identity"].pop("data"), "is no record .*identity.data"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_faulty_record_is_named_with_the_remedy(toy, fault):
    spoil, message = FAULTS[fault]
    record = made.record(toy, RUN, made.ACCURACIES[RUN])
    spoil(record)
    made.write(toy.root, RUN, record)
    remedy = f"run `fedrepro train --paper toy-2022 --run {RUN}`"
    found = evaluate.evaluate(toy)
    with pytest.raises(FedreproError, match=rf"{RUN}/record\.json {message}.*{remedy}"):
        evaluate.enforce(toy, found)
    assert list(found.faults) == [RUN]
    assert found.cells.status.tolist() == ["within"] * 4 + ["missing"] * 2
    assert found.cells.reason.iloc[-1] == found.faults[RUN]


def test_missing_and_broken_records_are_counted_and_nothing_is_written(toy):
    (toy.root / "runs/toy-2022/plain/toys-plain/record.json").unlink()
    (toy.root / FOLDER / "record.json").write_text(json.dumps({})[:-1])
    with pytest.raises(FedreproError, match=r"toys-plain/record\.json is missing: .*\(2 runs of toy-2022 lack"):
        written(toy)
    assert not (toy.root / "reports").exists()


@pytest.mark.parametrize("name", paths.FRAMES)
def test_what_is_read_must_be_whole_and_of_this_budget(tmp_path, name):
    toy = made.records(made.paper(tmp_path, spec=made.SPEC + PARTS))
    for run in made.RUNS[1:]:
        made.watch(toy, run, dict.fromkeys((0, 1, 2), {"test_accuracy": {1: 0.5}}))
    written(toy)
    path, remedy = paths.frame(made.NAME, name, tmp_path), "run `fedrepro evaluate toy-2022`"
    whole = path.read_text()
    path.write_text("\n".join(line for line in whole.splitlines() if RUN not in line))
    with pytest.raises(FedreproError, match=f"lacks toys-game-(parallel|sequential): {remedy}"):
        evaluate.read(toy)
    path.write_text(whole.replace(",paper,", ",smoke,"))
    with pytest.raises(FedreproError, match=f"is of budget 'smoke' instead of 'paper': {remedy}"):
        evaluate.read(toy)
    path.write_text("run,seed\n1,2\n")
    with pytest.raises(FedreproError, match=f"cannot be read.*{remedy}"):
        evaluate.read(toy)
    path.unlink()
    with pytest.raises(FedreproError, match=f"is missing: {remedy}"):
        evaluate.read(toy)


PARTS = """
[figures.f1]
kind = "curves"
title = "Figure 1"
metrics = ["test_accuracy"]
cells = [{ dataset = ["Toys"], type = ["sequential", "parallel"], method = ["Game (Smooth)"] }]

[claims.c1]
statement = "Sequential play needs more rounds"
place = "here"
quantity = { kind = "rounds" }
margin = 0

[[claims.c1.pairs]]
both = { dataset = "Toys", method = "Game (Smooth)" }
high = { type = "sequential" }
low = { type = "parallel" }
"""


def test_a_part_that_the_spec_has_gained_is_lacking(toy):
    written(toy)
    (toy.folder / "paper.toml").write_text(made.SPEC + PARTS)
    with pytest.raises(
        FedreproError, match=r"points\.csv lacks toys-game-sequential: run `fedrepro evaluate toy-2022`"
    ):
        evaluate.read(load_paper(made.NAME, toy.root))


@pytest.mark.parametrize("name", ["finale", "last", "last0", "last-3", "last3.5", "mean"])
def test_an_unknown_reduction_is_one_sentence_with_its_place(tmp_path, name):
    with pytest.raises(UsageError, match=rf"paper\.toml: tables\.t1: unknown reduction '{name}': "):
        made.paper(tmp_path, spec=made.SPEC.replace('"final"', f'"{name}"'))
    with pytest.raises(UsageError, match="did you mean 'final'"):
        made.paper(tmp_path, spec=made.SPEC.replace('"final"', '"finale"'))


# The mean of the last rounds

LAST = made.SPEC.replace('"final"', '"last3"')
ROUNDS = {37: 0.9, 38: 0.1, 39: 0.2, 40: 0.6, 41: 0.9}  # seed 0 of a game ends in round 40


def curves(*ends, **changed):
    """Curves of seeds that end in these rounds: the mean over the last three is (0.1 + 0.2 + 0.6) / 3."""
    shape = {end: {end - 40 + t: value for t, value in ROUNDS.items()} for end in ends}
    whole = [{"train_accuracy": shape[end], "test_accuracy": shape[end]} for end in ends]
    return {seed: each | changed.get(f"seed_{seed}", {}) for seed, each in enumerate(whole)}


@pytest.fixture
def over(tmp_path):
    """The toy paper with a mean over the last three rounds."""
    loaded = made.records(made.paper(tmp_path, spec=LAST))
    made.watch(loaded, "toys-plain", curves(100, 100, 100))
    made.watch(loaded, "toys-game-sequential", curves(40, 50, 60))
    made.watch(loaded, RUN, curves(40, 50, 60))
    return loaded


def test_the_mean_over_the_last_rounds_of_each_seed(over):
    found = measures(over)
    assert len(found) == 3 * 3 * 2
    assert {round(measure.value, 12) for measure in found} == {0.3}
    row = evaluate.evaluate(over).cells.iloc[-1]
    assert (row.reproduced, [value for *_, value in row.measured]) == ("30.00", pytest.approx([30, 30, 30]))


def test_a_diverged_seed_has_no_mean_and_no_fault(over):
    lost = {"status": "diverged", "metrics": {}, "rounds": 7}
    made.watch(over, RUN, curves(40, 50, 60, seed_1={"train_accuracy": {}, "test_accuracy": {}}), seed_1=lost)
    rows = [measure for measure in measures(over) if (measure.run, measure.seed) == (RUN, 1)]
    assert [(math.isnan(row.value), row.status) for row in rows] == [(True, "diverged")] * 2


@pytest.mark.parametrize(
    ("curve", "had"), [({38: 0.1, 40: 0.6}, 2), ({}, 1), ({38: 0.1, 39: float("nan"), 40: 0.2}, 2), ({1: 0.5}, 1)]
)
def test_too_few_watched_rounds_are_a_fault(over, curve, had):
    made.watch(over, RUN, curves(40, 50, 60, seed_0={"test_accuracy": curve}))
    found = evaluate.evaluate(over)
    assert list(found.faults) == [RUN]
    sentence = (
        rf"{RUN}/curves\.csv has test_accuracy at {had} of the last 3 rounds of seed 0, and their mean is asked for: "
        r"in paper\.toml, train as many rounds and watch each of them\."
    )
    with pytest.raises(FedreproError, match=sentence):
        evaluate.enforce(over, found)


def test_a_fault_of_a_figure_leaves_the_cells_of_its_run_as_they_are(tmp_path):
    levels = """
[figures.f1]
kind = "levels"
title = "Figure 1"
x = "type"
lines = "method"
quantity = { kind = "last", metric = "test_accuracy", rounds = 50 }
cells = [{ dataset = ["Toys"], type = ["sequential", "parallel"], method = ["Game (Smooth)"] }]
"""
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + levels))
    for run in made.RUNS[1:]:
        made.watch(loaded, run, curves(40, 50, 60))
    found = evaluate.evaluate(loaded)
    assert sorted(found.faults) == sorted(made.RUNS[1:])
    assert "missing" not in set(found.cells.status)


def test_curves_of_another_record_are_refused(over):
    path = over.root / FOLDER / "curves.csv"
    path.write_text(path.read_text().replace("0.6", "0.7"))
    remedy = f"run `fedrepro train --paper toy-2022 --run {RUN}`"
    with pytest.raises(FedreproError, match=rf"curves\.csv does not belong to the record beside it: {remedy}"):
        written(over)
    path.unlink()
    with pytest.raises(FedreproError, match=rf"curves\.csv is missing: {remedy}"):
        written(over)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(1, 12))
def test_the_mean_is_that_of_the_last_values_of_a_seed(values, rounds):
    entry = SimpleNamespace(rounds=len(values), status="finished")
    run = Run("r", Path("r"), SimpleNamespace(seeds=[4]), SimpleNamespace(seeds={4: entry}))
    vars(run)["points"] = {"test_accuracy": {4: dict(enumerate(values, start=1))}}
    if rounds > len(values):
        with pytest.raises(FedreproError, match=f"at {len(values)} of the last {rounds} rounds of seed 4"):
            run.last("test_accuracy", rounds)
    else:
        assert run.last("test_accuracy", rounds) == {4: pytest.approx(sum(values[::-1][:rounds]) / rounds)}
