"""Pilots: the threshold of a curve by hand, and where it is entered."""

import csv
import json
from pathlib import Path

import made
import numpy as np
import pytest

from fedrepro import pilot
from fedrepro.config import Stop
from fedrepro.errors import FedreproError, UsageError
from fedrepro.schema import Found, Pilot
from fedrepro.spec import load_paper

SPEC = """
title = "A toy"

[defaults]
rounds = 50
seeds = [0, 1]
hyper = { batch = 16, hidden = 4, lr = 0.01 }
watch = { samples = 100 }
pilot = { seed = 1000, rounds = 9, every = 2, quantiles = [0.0, 1.0], fraction = 0.25 }

[axes.dataset.Digits]
dataset = "digits"

[axes.method.Game]
method = "f-irm"
stop = { threshold = "pilot", warm_start = 3, margin = 0.1 }

[axes.method.Plain]
method = "fedsgd"

[budgets.paper]
label = "paper"

[tables.t1]
title = "Table 1"
metrics = ["test_accuracy"]
reduction = "final"
tolerance = { spreads = 2, points = 3, reason = "a toy" }

[[tables.t1.cells]]
dataset = ["Digits"]
method = ["Game", "Plain"]
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The paper "toy", in the working folder; returns its pilots.json, which is not there yet."""
    monkeypatch.chdir(tmp_path)
    return made.bare(SPEC) / "pilots.json"


def settings(**changes):
    rule = {"threshold": 0, "warm_start": 2}
    return Pilot(**({"seed": 1000, "rounds": 9, "quantiles": (0.1, 0.9), "fraction": 0.25, "rule": rule} | changes))


def curve(*accuracies):
    return [(t + 1, "train_accuracy", value) for t, value in enumerate(accuracies)]


def test_the_threshold_by_hand():
    # After the warm start: 0.5, 0.6, ..., 1.0, six numbers, whose quantile q is 0.5 + 0.5 q.
    found = pilot.threshold(settings(), curve(0.1, 0.2, 0.9, 0.5, 0.8, 1.0, 0.7, 0.6))
    assert found == {"threshold": 0.65, "lo": 0.55, "hi": 0.95}  # 0.55 + 0.25 (0.95 - 0.55)


@pytest.mark.parametrize(("hi", "margin"), [(0.9, 0.05), (0.7, 0.05), (0.66, 0.03), (0.6, 0.0)])
def test_the_margin_is_at_most_half_of_the_way_to_hi(hi, margin):
    found = Found(threshold=0.6, hi=hi, config_digest="")
    assert settings().stop(found) == Stop(threshold=0.6, warm_start=2, margin=margin)


@pytest.mark.parametrize(("fraction", "wanted"), [(0.0, 0.5), (0.5, 0.6), (1.0, 0.7)])
def test_the_fraction_goes_from_lo_to_hi(fraction, wanted):
    found = pilot.threshold(settings(fraction=fraction, quantiles=(0, 1)), curve(0, 1, 0.5, 0.6, 0.7))
    assert found["threshold"] == wanted


def test_only_training_accuracy_is_looked_at():
    plain = curve(0.1, 0.2, 0.5, 0.6, 0.7)
    others = [(round, metric, 0.01) for round in range(1, 6) for metric in ("test_accuracy", "train_loss", "test_loss")]
    assert pilot.threshold(settings(), plain + others) == pilot.threshold(settings(), plain)


def test_a_pilot_is_trained_and_entered(toy):
    toy.write_text(json.dumps({"a-run": {"threshold": 0.1, "config_digest": "a"}, "z-run": {"threshold": 0.2}}))
    entries = json.loads(toy.read_text())
    toy.unlink()
    seen = []
    entry = pilot.find("toy", "digits-game", device="cpu", watch=lambda training: seen.append(training.round))
    assert seen == list(range(1, 10))
    folder = Path("runs/toy/pilots/digits-game")
    record = json.loads((folder / "record.json").read_text())
    assert (record["run"], record["budget"]) == ("pilot-digits-game", "pilot")
    assert list(record["seeds"]) == ["1000"]
    assert record["config"]["stop"] is None
    assert record["config"]["rounds"] == record["seeds"]["1000"]["rounds"] == 9

    with open(folder / "curves.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "train_accuracy"]
    assert [int(row["round"]) for row in rows] == [2, 4, 6, 8, 9]
    values = [float(row["value"]) for row in rows][1:]  # after round 3
    assert entry["threshold"] == pytest.approx(min(values) + 0.25 * np.ptp(values), abs=1e-4)
    assert (entry["lo"], entry["hi"]) == (min(values), max(values))
    assert (entry["seed"], entry["rounds"]) == (1000, 9)

    stop = load_paper("toy").run("digits-game").stop
    assert (stop.threshold, stop.warm_start) == (entry["threshold"], 3)
    assert stop.margin == pytest.approx(min(0.1, (entry["hi"] - entry["threshold"]) / 2), abs=1e-4)
    pilot.enter(toy, "a-run", entries["a-run"])
    pilot.enter(toy, "z-run", entries["z-run"])
    assert json.loads(toy.read_text()) == {**entries, "digits-game": entry}
    assert list(json.loads(toy.read_text())) == ["a-run", "digits-game", "z-run"]


def test_a_diverged_pilot_is_no_threshold(toy):
    spec = toy.with_name("paper.toml")
    spec.write_text(SPEC.replace("lr = 0.01", "lr = 1e30"))
    with pytest.raises(FedreproError, match="the pilot of digits-game diverged in round 2"):  # the first looked at
        pilot.find("toy", "digits-game", device="cpu")
    assert not toy.exists()


@pytest.mark.parametrize(("run", "message"), [("digits-plain", "needs no pilot"), ("digits-gam", "did you mean")])
def test_a_run_without_a_pilot(toy, run, message):
    with pytest.raises(UsageError, match=message):
        pilot.find("toy", run)
    assert not Path("runs").exists()
