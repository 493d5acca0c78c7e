"""The workloads: the line that each gives, and that the obvious loops do the same arithmetic."""

import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from plain_gan import benchmark as plain

import bench
from fedrepro.core import trees
from fedrepro.data import sources
from fedrepro.data.draws import Feeder

pytestmark = pytest.mark.slow

REPO = Path(__file__).parents[1]
CPU = torch.device("cpu")
KEYS = ["workload", "contestant", "round_s", "wall_s", "accuracy", "peak_rss_mb", "precision", "device"]
DIGITS = {
    "W1": {"dataset": "digits-plain", "data": {"partition": "shards", "n": 5}},
    "W2": {"dataset": "digits-plain", "data": {"partition": "iid", "n": 20}},
    "W4": {"dataset": "gan-digits"},
}


def small(name, rounds=2):
    """The workload on data that come with scikit-learn, or on few samples."""
    work = bench.find(name)
    if name == "W3":
        return replace(work, rounds=rounds, sizes=(300, 300))
    return replace(work, rounds=rounds, config=work.config.model_copy(update=DIGITS[name]))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", bench.WORKLOADS)
def test_the_line_of_a_workload(name, precision, monkeypatch, tmp_path):
    monkeypatch.chdir(REPO)  # the extractor of W4's judge
    monkeypatch.setattr(sources, "CACHE", tmp_path)
    row = bench.run(small(name), precision=precision, device="cpu")
    assert list(row) == KEYS + (["ms_per_iteration"] if name == "W4" else [])
    assert json.loads(json.dumps(row)) == row
    about = {"workload": name, "contestant": "fedrepro", "precision": precision, "device": "cpu"}
    assert {key: row[key] for key in about} == about
    assert len(row["round_s"]) == 2
    assert 0 < sum(row["round_s"]) < row["wall_s"]
    assert row["peak_rss_mb"] > 50
    assert (row["accuracy"] is None) == (name in ("W3", "W4"))
    assert row.get("ms_per_iteration", 0) == pytest.approx(500 * sum(row["round_s"]) if name == "W4" else 0, rel=0.01)


def test_the_workloads_have_the_stated_sizes(monkeypatch):
    assert [work.rounds for work in bench.WORKLOADS.values()] == [5, 20, 300, 20]
    for module, count in ((plain.lenet(), 61_706), (plain.mlp(), 765_182)):
        assert sum(leaf.numel() for leaf in module.parameters()) == count
    data = bench.find("W3").data(0)
    assert (data.x.shape, data.x.dtype, data.sizes) == ((60_000, 1568), torch.float32, (30_000, 30_000))


def load(module, params):
    """The module with parameters of ours, which are in the order of its layers."""
    for leaf, (_, own) in zip(module.parameters(), trees.leaves(params), strict=True):
        leaf.data.copy_(own)
    return module


@pytest.mark.parametrize(
    ("name", "module", "optimiser"),
    [
        ("W1", plain.lenet, lambda weights: torch.optim.SGD(weights, lr=0.01)),
        ("W2", plain.lenet, lambda weights: torch.optim.SGD(weights, lr=0.01)),
        ("W3", plain.mlp, lambda weights: torch.optim.Adam(weights, lr=2.5e-4, eps=1e-7)),
    ],
)
def test_the_obvious_loop_reaches_the_same_model(name, module, optimiser):
    work = small(name)
    training = work.training((0,), "fp32", CPU)
    data, (phase,) = training.lanes[0].data, training.method.phases
    model = load(module(), trees.one(training.state, 0)["server"]["params"])
    start = [leaf.detach().clone() for leaf in model.parameters()]
    feeder = Feeder(0, data.x, data.y, data.sizes)
    for round in range(work.rounds):
        batch = feeder.draw(phase.draw, round)
        x = batch.x if name == "W3" else batch.x / 255
        pairs = zip(x, batch.y, batch.live.any(-1), strict=True)
        clients = [list(zip(a[live], b[live], strict=True)) for a, b, live in pairs]
        plain.average(model, clients, [data.sizes[k] for k in batch.clients], optimiser)
        next(iter(training))
    ours = [leaf for _, leaf in trees.leaves(trees.one(training.state, 0)["server"]["params"])]
    for a, b in zip(ours, model.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=0, atol=2e-5)  # a tenth of Adam's step; as lift.py states it
    assert max((a - b.detach()).abs().max() for a, b in zip(start, model.parameters(), strict=True)) > 3e-4
    if data.tests:
        x, y = data.tests["test"]
        assert bench.accuracy(training) == pytest.approx(plain.accuracy(model, [(x / 255, y)]), abs=0.01)


def script(name, monkeypatch, *arguments):
    """Run a script of benchmarks/ in this process."""
    path = REPO / "benchmarks" / name
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    return runpy.run_path(str(path), run_name="__main__")


def test_ratios_are_medians_over_turns(monkeypatch):
    loops = runpy.run_path(str(REPO / "benchmarks" / "loops.py"))
    spent = {
        "loop": [[2.0, 4.0], [3.0, 3.0], [9.0, 9.0]],
        "images": [[6.0], [6.0], [9.0]],
        "bf16": [[1.0, 1.0], [1.0, 2.0], [3.0, 1.0]],
    }
    ended = dict.fromkeys(spent, {"accuracy": None, "peak_rss_mb": 100})
    base, images, ours = loops["lines"]("W3", spent, ended)
    assert (base["contestant"], base["round_s"], base["median_s"]) == ("loop", [3.0, 3.0, 9.0], 3.0)
    assert (images["contestant"], "times_as_fast" in images) == ("images", False)
    faster = {"loop": 3.0, "images": 4.5}
    wanted = {"contestant": "fedrepro", "precision": "bf16", "times_as_fast": faster, "goal": 3.0, "peak_rss_mb": 100}
    assert {key: ours[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("arguments", "data", "message"),
    [
        (("W3", "--precision", "fp16"), "", "there is fp32 and bf16, and not 'fp16'"),
        (("W1", "--rounds", "1"), "nowhere", "a contestant has failed"),
    ],
)
def test_the_script_of_the_loops_ends_where_it_cannot_go_on(arguments, data, message):
    command = [sys.executable, REPO / "benchmarks" / "loops.py", *arguments]
    env = os.environ | {"FEDREPRO_DATA_DIR": data}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode
    assert message in done.stderr


def test_the_script_for_the_modes_of_lift(monkeypatch, capsys):
    script("lift.py", monkeypatch, "--quick", "--seeds", "2", "--hidden", "8")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    modes = {(line["work"], line["clients"], line["seeds"]) for line in lines}
    assert len(modes) == 3 * 2 * 2
    assert all(line["ms"] > 0 for line in lines)
