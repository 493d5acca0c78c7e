"""Records to measures: what is kept, and that a record which is not whole is named, never used."""

import json

import made
import pytest

from fedrepro import evaluate
from fedrepro.errors import FedreproError, UsageError
from fedrepro.spec import load_paper

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


def test_unknown_reduction_comes_with_the_closest_one(tmp_path):
    root = made.paper(tmp_path, spec=made.SPEC.replace('"final"', '"finale"'))
    with pytest.raises(UsageError, match="unknown reduction 'finale': did you mean 'final'"):
        evaluate.collect(load_paper(made.NAME, root), "t1")
