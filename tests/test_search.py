"""Searches: the score of a curve and the choice by hand, and what a small search trains, keeps and enters."""

import contextlib
import json
import math
from pathlib import Path

import made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro import runs, search
from fedrepro.errors import FedreproError, UsageError
from fedrepro.schema import Search
from fedrepro.spec import load_paper

SPEC = """
title = "A toy"

[defaults]
rounds = 50
seeds = [0, 1]
hyper = { batch = 64, hidden = 4, lr = "search" }
watch = { samples = 100 }

[defaults.search]
seed = 1000
rounds = 4
metric = "train_accuracy"
last = 2
data = { label_noise = 0.0 }
grid = { lr = [1e-5, 0.05, 0.01] }

[search]
base = { aggregation = "AVG" }

[axes.dataset.Digits]
dataset = "digits"

[axes.method.Plain]
method = "fedsgd"

[axes.method.Fixed]
method = "fedavg"
hyper = { lr = 0.01 }

[axes.aggregation.AVG]
run = ""

[axes.aggregation.GMA]
run = "gma"
hyper = { eps = 1e-6 }

[budgets.paper]
label = "paper"

[tables.t1]
title = "Table 1"
metrics = ["test_accuracy"]
reduction = "final"
tolerance = { spreads = 2, points = 3, reason = "a toy" }

[[tables.t1.cells]]
dataset = ["Digits"]
method = ["Plain", "Fixed"]
aggregation = ["AVG", "GMA"]
"""
POINTS = Path("runs/toy/searches/digits-plain")


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The paper "toy", in the working folder; returns its searches.json, which is not there yet."""
    monkeypatch.chdir(tmp_path)
    return made.bare(SPEC) / "searches.json"


class Log:
    """What a search shows: the titles, and per title the rounds that were trained and the lines that were said."""

    def __init__(self):
        self.titles, self.rounds, self.lines = [], [], []

    @contextlib.contextmanager
    def __call__(self, title):
        self.titles.append(title)
        self.rounds.append([])
        yield self

    def watch(self, training):
        self.rounds[-1].append(training.round)

    def say(self, line):
        self.lines.append(line)


def find(run="digits-plain"):
    """The search's name, its entry, and what it showed."""
    log = Log()
    return *search.find("toy", run, log, device="cpu"), log


def rule(**changes):
    return Search(**({"seed": 1, "rounds": 9, "metric": "validation_accuracy", "last": 3, "grid": {}} | changes))


def curve(*values, metric="validation_accuracy"):
    return [(2 * t + 2, metric, value) for t, value in enumerate(values)]  # watched every second round


# Score and choice


def test_the_score_by_hand():
    assert search.score(rule(), curve(0.9, 0.1, 0.2, 0.6)) == 0.3
    assert search.score(rule(last=1), curve(0.9, 0.1, 0.2, 0.6)) == 0.6
    assert search.score(rule(last=4), curve(0.9, 0.1, 0.2, 0.6)) == 0.45


def test_nothing_but_its_metric_is_looked_at():
    others = curve(0.9, 0.9, 0.9, 0.9, metric="test_accuracy") + curve(0.8, 0.8, metric="train_accuracy")
    assert search.score(rule(), others[:3] + curve(0.1, 0.2, 0.6) + others[3:]) == 0.3


def test_a_score_that_is_not_finite_is_none():
    assert search.score(rule(), curve(0.1, math.nan, 0.2)) is None


def test_a_curve_without_the_metric_or_with_too_little_of_it_is_refused():
    with pytest.raises(UsageError, match="unknown metric of a search 'validation_accuracy'.*'train_accuracy'"):
        search.score(rule(), curve(0.1, 0.2, 0.3, metric="train_accuracy"))
    with pytest.raises(
        UsageError, match="validation_accuracy was watched in 2 rounds, and the mean over the last 3 is"
    ):
        search.score(rule(), curve(0.1, 0.2))


def test_ties_go_to_the_first_and_diverged_points_lose():
    assert search.choose({"a": 0.5, "b": 0.7, "c": 0.7}) == "b"
    assert search.choose({"a": None, "b": 0.0}) == "b"
    assert search.choose({"a": None, "b": None}) is None


@given(st.dictionaries(st.text(), st.none() | st.floats(0, 1)))
def test_the_choice_is_the_first_that_no_other_beats(scores):
    best = search.choose(scores)
    there = [score for score in scores.values() if score is not None]
    if best is None:
        assert there == []
    else:
        assert scores[best] == max(there)
        assert next(name for name, score in scores.items() if score == max(there)) == best


# The whole search


def test_every_point_is_trained_and_the_best_one_entered(toy):
    toy.write_text(json.dumps({"z-run": {"chosen": {"lr": 1}, "config_digest": "a"}}))
    run, entry, log = find()
    assert run == "digits-plain"
    names = ["lr-1e-05", "lr-0.05", "lr-0.01"]
    assert log.titles == [f"search of digits-plain, toy: {name}, {n} of 3" for n, name in enumerate(names, 1)]
    assert log.rounds == [[1, 2, 3, 4]] * 3
    assert list(entry) == ["chosen", "metric", "scores", "seed", "rounds", "config_digest"]
    assert list(entry["scores"]) == names
    for name, lr in zip(names, (1e-5, 0.05, 0.01), strict=True):
        record = json.loads((POINTS / name / "record.json").read_text())
        assert (record["paper"], record["run"], record["budget"]) == ("toy", f"search-digits-plain-{name}", "search")
        assert (record["config"]["hyper"]["lr"], record["config"]["rounds"]) == (lr, 4)
        assert record["config"]["data"] == {"label_noise": 0.0}
        assert list(record["seeds"]) == ["1000"]
        points = runs.read_curves(POINTS / name / "curves.csv")[1000]
        last = [value for _, metric, value in points if metric == "train_accuracy"][-2:]
        assert entry["scores"][name] == pytest.approx(sum(last) / 2, rel=1e-5)
    best = max(entry["scores"], key=entry["scores"].get)
    assert best != names[0]  # a step too small to learn anything
    assert entry["chosen"] == {"lr": float(best.removeprefix("lr-"))}
    assert list(json.loads(toy.read_text())) == ["digits-plain", "z-run"]
    assert json.loads(toy.read_text())["digits-plain"] == entry
    assert load_paper("toy").run("digits-plain").hyper["lr"] == entry["chosen"]["lr"]


def test_masked_runs_share_the_search_of_their_base(toy):
    run, entry, _ = find("digits-plain-gma")
    assert run == "digits-plain"
    assert list(json.loads(toy.read_text())) == ["digits-plain"]
    record = json.loads((POINTS / "lr-0.05/record.json").read_text())
    assert "eps" not in record["config"]["hyper"]
    config = load_paper("toy").run("digits-plain-gma")
    assert (config.hyper["lr"], config.hyper["eps"], config.data) == (entry["chosen"]["lr"], 1e-6, {})


def test_an_interrupted_search_goes_on(toy, monkeypatch):
    started, train = [], runs.execute

    def stop_at_the_second(config, place, **how):
        started.append(place.folder.name)
        if len(started) == 2:
            raise KeyboardInterrupt
        return train(config, place, **how)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "execute", stop_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            find()
    assert not toy.exists()
    _, entry, log = find()
    assert log.rounds == [[], [1, 2, 3, 4], [1, 2, 3, 4]]
    assert log.lines == ["kept from the earlier record: seeds 1000"]
    assert find()[1] == entry


def test_a_point_that_diverges_loses(toy):
    spec = toy.with_name("paper.toml")
    spec.write_text(SPEC.replace("[1e-5, 0.05, 0.01]", "[1e30, 0.01]"))
    _, entry, _ = find()
    assert entry["scores"]["lr-1e+30"] is None
    assert entry["chosen"] == {"lr": 0.01}


def test_a_search_whose_points_all_diverge_finds_nothing(toy):
    toy.with_name("paper.toml").write_text(SPEC.replace("[1e-5, 0.05, 0.01]", "[1e30, 1e31]"))
    with pytest.raises(
        FedreproError, match="every point of the search of digits-plain diverged: give search.grid small"
    ):
        find()
    assert not toy.exists()


def test_a_metric_that_is_not_watched_is_refused(toy):
    toy.with_name("paper.toml").write_text(SPEC.replace('"train_accuracy"', '"train_acuracy"'))
    with pytest.raises(UsageError, match="unknown metric of a search 'train_acuracy': did you mean 'train_accuracy'"):
        find()


@pytest.mark.parametrize(("run", "message"), [("digits-fixed", "needs no search"), ("digits-plai", "did you mean")])
def test_a_run_without_a_search(toy, run, message):
    with pytest.raises(UsageError, match=message):
        find(run)
    assert not Path("runs").exists()
