"""The benchmark: its rows, its count of operations, and that both contestants do the same arithmetic."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedrepro import bench
from fedrepro.errors import UsageError

TINY = bench.Workload(batch=3, hidden=5, shape=(4,), rows=30, checked=12, square=8)
KEYS = {"workload", "contestant", "seeds", "check", "round_s", "rounds_per_s", "seed_rounds_per_s", "against_plain"}
KEYS |= {"gflop", "gflop_per_s", "of_peak", "precision", "device", "threads"}


@pytest.fixture(scope="module")
def rows():
    return bench.run(TINY, seeds=2, rounds=2, repeats=3, device="cpu")


def test_there_is_a_row_for_every_contestant(rows):
    named = [(row["contestant"], row["seeds"], row["check"]) for row in rows]
    ours = [("fedrepro", seeds, check) for check in (False, True) for seeds in (1, 2)]
    assert named == [("product 8 x 8 x 8", 0, False), ("product 3 x 4 x 5", 0, False), ("plain", 1, False), *ours]


def test_rows_have_their_keys_and_are_json(rows):
    for row in rows:
        assert row.keys() == KEYS
        assert len(row["round_s"]) == 3
        assert min(row["round_s"]) > 0
        assert json.loads(json.dumps(row)) == row


def test_ratios_are_given_where_they_mean_something(rows):
    products, plain, ours = rows[:2], rows[2], rows[3:]
    assert all(row["against_plain"] is None and row["seed_rounds_per_s"] is None for row in products)
    assert max(row["of_peak"] for row in products) <= 1
    assert plain["against_plain"] == 1
    assert [row["of_peak"] is None for row in ours] == [row["check"] for row in ours]


def test_goals_read_the_rounds_without_the_check():
    row = {"contestant": "fedrepro", "against_plain": 1.5, "of_peak": 0.5, "check": False}
    slow = {"against_plain": 0.1, "of_peak": None, "check": True}
    rows = [
        {**row, "seeds": 1},
        {**row, "seeds": 5, "against_plain": 0.9},
        *({**row, **slow, "seeds": s} for s in (1, 5)),
    ]
    assert [(goal["wanted"], goal["reached"], goal["met"]) for goal in bench.goals(rows)] == [
        (1.0, 1.5, True),
        (1.0, 0.9, False),
        (0.6, 0.5, False),
    ]


def test_flops_by_hand():
    # Weights 4 x 5 + 5 x 5 + 5 x 2 = 55, behind layer 1 35; 3 rows, 2 clients, 2 operations each:
    # own 55, opponent's 55, weight gradients 55, input gradients 35.
    assert bench.flops(TINY) == 2 * 3 * 2 * (55 + 55 + 55 + 35) == 2400
    assert bench.flops(bench.Workload()) == 2_504_785_920


@pytest.fixture
def pair():
    """The plain loop and the training that it is compared with, from the same start."""
    data = bench.federation(TINY.shape, TINY.classes, (TINY.rows,) * TINY.n)
    training = bench.training(TINY, data, 2, False, torch.device("cpu"))
    return bench.Plain(TINY, data, training.state), training


def test_both_do_the_operations_that_are_counted(pair):
    plain, training = pair
    for play, seeds in ((plain.play, 1), (bench.player(training), 2)):
        with FlopCounterMode(display=False) as counted:
            play(1)
        assert counted.get_total_flops() == seeds * bench.flops(TINY)


def test_the_plain_loop_and_the_trainer_reach_the_same_predictors(pair):
    plain, training = pair
    before = training.state["clients"]["w"]["fc1"]["weight"][0].clone()
    plain.play(25)  # more than two passes over a client's data
    bench.player(training)(25)
    ours = training.state["clients"]["w"]
    assert training.round == 25
    assert not torch.allclose(ours["fc1"]["weight"][0], before, atol=1e-3)
    for k, model in enumerate(plain.models):
        for name, linear in zip(ours, model[::2], strict=True):
            torch.testing.assert_close(linear.weight, ours[name]["weight"][0, k], rtol=0, atol=1e-5)
            torch.testing.assert_close(linear.bias, ours[name]["bias"][0, k], rtol=0, atol=1e-5)


@pytest.mark.parametrize("wrong", [{"seeds": 0}, {"rounds": 0}, {"repeats": -1}])
def test_nothing_to_time_is_a_usage_error(wrong):
    with pytest.raises(UsageError, match="at least 1"):
        bench.run(TINY, **wrong)


def test_the_script_for_the_modes_of_lift(monkeypatch, capsys):
    script = Path(__file__).parents[1] / "benchmarks" / "lift.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--quick", "--seeds", "2", "--hidden", "8"])
    runpy.run_path(str(script), run_name="__main__")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    modes = {(line["work"], line["clients"], line["seeds"]) for line in lines}
    assert len(modes) == 3 * 2 * 2
    assert all(line["ms"] > 0 for line in lines)
