"""Records to measures: what is kept, and that a record which is not whole is named, never used."""

import json
from pathlib import Path
from types import SimpleNamespace

import made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro import evaluate
from fedrepro.errors import FedreproError, UsageError

RUN = "toys-game-parallel"


@pytest.fixture
def toy(tmp_path):
    return made.records(made.paper(tmp_path))


def test_one_row_per_run_seed_and_metric(toy):
    path = evaluate.table(made.NAME, "t1", toy.root)
    assert path == toy.root / "reports/metrics/toy-2022/t1.csv"
    lines = path.read_text().splitlines()
    assert lines[0] == "run,seed,metric,value,status,rounds,threshold,budget,substitute,raised,lowered"
    assert lines[1] == "toys-plain,0,train_accuracy,0.84,finished,100,,paper,,,"
    assert lines[-1] == "toys-game-parallel,2,test_accuracy,0.71,stopped,60,0.575,paper,,,"
    assert len(lines) == 1 + 3 * 3 * 2


def test_writing_and_reading_measures_loses_nothing(toy):
    found = evaluate.collect(toy, "t1")
    assert evaluate.parse(evaluate.text(found.measures)) == found.measures
    assert found.faults == {}


def test_a_diverged_seed_has_rows_without_a_value(toy):
    record = made.record(toy, RUN, made.ACCURACIES[RUN])
    record["seeds"]["1"] |= {"status": "diverged", "metrics": {}, "rounds": 7}
    made.write(toy.root, RUN, record)
    rows = [measure for measure in evaluate.collect(toy, "t1").measures if (measure.run, measure.seed) == (RUN, 1)]
    assert [(row.value, row.status, row.rounds) for row in rows] == [(None, "diverged", 7)] * 2
    assert evaluate.parse(evaluate.text(rows)) == rows


def test_only_the_seeds_of_the_spec_count(toy):
    record = made.record(toy, RUN, made.ACCURACIES[RUN])
    record["seeds"]["9"] = record["seeds"]["0"]
    made.write(toy.root, RUN, record)
    assert {measure.seed for measure in evaluate.collect(toy, "t1").measures} == {0, 1, 2}


FAULTS = {
    "digest": (lambda record: record.update(digest="other"), "was made with other settings than the spec's"),
    "budget": (lambda record: record.update(budget="smoke"), "was made at budget 'smoke' instead of 'paper'"),
    "seed": (lambda record: record["seeds"].pop("1"), "lacks seed 1"),
    "metric": (lambda record: record["seeds"]["1"]["metrics"].pop("test_accuracy"), "lacks test_accuracy of seed 1"),
    "NaN": (lambda record: record["seeds"]["1"]["metrics"].update(test_accuracy=float("nan")), "is incomplete"),
    "provenance": (lambda record: record["seeds"]["2"]["provenance"].pop("device"), "is incomplete .*device"),
    "fingerprint": (lambda record: record["data"].pop("fingerprint"), "is incomplete .*fingerprint"),
    "code": (lambda record: record.pop("code"), "is incomplete .*code"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_faulty_record_is_named_with_the_remedy(toy, fault):
    spoil, message = FAULTS[fault]
    record = made.record(toy, RUN, made.ACCURACIES[RUN])
    spoil(record)
    made.write(toy.root, RUN, record)
    remedy = r"run `dvc repro papers/toy-2022/toys/dvc\.yaml:train-toys-game-parallel`"
    with pytest.raises(FedreproError, match=rf"{RUN}/record\.json {message}.*{remedy}"):
        evaluate.table(made.NAME, "t1", toy.root)
    found = evaluate.collect(toy, "t1")
    assert list(found.faults) == [RUN]
    assert {measure.run for measure in found.measures} == set(made.RUNS) - {RUN}


def test_missing_and_broken_records_are_counted(toy):
    (toy.root / "runs/toy-2022/toys-plain/record.json").unlink()
    (toy.root / "runs/toy-2022/toys-game-parallel/record.json").write_text(json.dumps({})[:-1])
    with pytest.raises(FedreproError, match=r"toys-plain/record\.json is missing: .*\(2 runs of toy-2022 t1 lack"):
        evaluate.table(made.NAME, "t1", toy.root)


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
    found = evaluate.collect(over, "t1")
    assert found.faults == {}
    assert len(found.measures) == 3 * 3 * 2
    assert {round(measure.value, 12) for measure in found.measures} == {0.3}
    assert evaluate.parse(evaluate.text(found.measures)) == found.measures


def test_a_mean_over_the_last_rounds_has_no_value_at_another_threshold(tmp_path):
    spec = LAST.replace("warm_start = 10 }", "warm_start = 10, shifts = [0.03, -0.03] }")
    loaded = made.records(made.paper(tmp_path, spec=spec))
    shifted = {"shifted": {"+0.03": {"train_accuracy": 0.5, "test_accuracy": 0.5}}}
    made.watch(loaded, RUN, curves(40, 50, 60), seed_0=shifted)
    rows = [measure for measure in evaluate.collect(loaded, "t1").measures if measure.run == RUN]
    assert {(row.raised, row.lowered) for row in rows} == {(None, None)}


def test_a_diverged_seed_has_no_mean_and_no_fault(over):
    lost = {"status": "diverged", "metrics": {}, "rounds": 7}
    made.watch(over, RUN, curves(40, 50, 60, seed_1={"train_accuracy": {}, "test_accuracy": {}}), seed_1=lost)
    found = evaluate.collect(over, "t1")
    rows = [measure for measure in found.measures if (measure.run, measure.seed) == (RUN, 1)]
    assert found.faults == {}
    assert [(row.value, row.status) for row in rows] == [(None, "diverged")] * 2


@pytest.mark.parametrize(
    ("curve", "had"), [({38: 0.1, 40: 0.6}, 2), ({}, 0), ({38: 0.1, 39: float("nan"), 40: 0.2}, 2), ({1: 0.5}, 0)]
)
def test_too_few_watched_rounds_are_a_fault(over, curve, had):
    made.watch(over, RUN, curves(40, 50, 60, seed_0={"test_accuracy": curve}))
    found = evaluate.collect(over, "t1")
    assert list(found.faults) == [RUN]
    sentence = (
        rf"{RUN}/curves\.csv has test_accuracy at {had} of the last 3 rounds of seed 0, and their mean is asked for: "
        r"in paper\.toml, train as many rounds and watch each of them\."
    )
    with pytest.raises(FedreproError, match=sentence):
        evaluate.table(made.NAME, "t1", over.root)


def test_curves_of_another_record_are_refused(over):
    path = over.root / "runs" / made.NAME / RUN / "curves.csv"
    path.write_text(path.read_text().replace("0.6", "0.7"))
    remedy = r"run `dvc repro papers/toy-2022/toys/dvc\.yaml:train-toys-game-parallel`"
    with pytest.raises(FedreproError, match=rf"curves\.csv does not belong to the record beside it: {remedy}"):
        evaluate.table(made.NAME, "t1", over.root)
    path.unlink()
    with pytest.raises(FedreproError, match=rf"curves\.csv cannot be read \(No such file or directory\): {remedy}"):
        evaluate.table(made.NAME, "t1", over.root)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(1, 12))
def test_the_mean_is_that_of_the_last_values_of_a_seed(values, rounds):
    curve = [(t + 1, "test_accuracy", value) for t, value in enumerate(values)]
    entry = SimpleNamespace(rounds=len(values), status="finished")
    run = evaluate.Watched(Path("record.json"), None, SimpleNamespace(seeds={4: entry}), {4: curve})
    if rounds > len(values):
        with pytest.raises(FedreproError, match=f"at {len(values)} of the last {rounds} rounds of seed 4"):
            run.last(4, "test_accuracy", rounds)
    else:
        assert run.last(4, "test_accuracy", rounds) == pytest.approx(sum(values[::-1][:rounds]) / rounds)


def test_the_final_metrics_need_no_curves(toy):
    for path in (toy.root / "runs").rglob("curves.csv"):
        path.unlink()
    assert evaluate.collect(toy, "t1").faults == {}
