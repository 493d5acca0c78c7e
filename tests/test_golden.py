"""Tiny runs of every built-in method against stored numbers: a change that is meant to keep the numbers keeps these.

After a change that is meant to move them, `python tests/test_golden.py` writes tests/golden/runs.json anew.
"""

import json
from pathlib import Path

import pytest
import torch
from conftest import VARIANTS

from fedrepro import methods, runs, trees
from fedrepro.config import RunConfig

STORED = Path(__file__).parent / "golden" / "runs.json"
HYPER = {"batch": 16, "hidden": 6, "lr": 0.01, "phi_lr": 0.005, "capacity": 2, "epochs": 1, "net": "mlp"}
# Many small steps of a fresh Adam would let rounding decide what the risks that weigh clients make large.
SMOOTH = {"lr": 0.001, "eps": 1e-3}
OWN = {"fedyogi": {"net": "cnn"}, "afl": SMOOTH, "gen-afl": SMOOTH, "vm": SMOOTH}
BUILT_IN = {"-".join([name, *hyper.values()]): (name, hyper) for name, hyper in VARIANTS if name in methods.REGISTRY}


def measure(name: str, hyper: dict) -> dict:
    """What seven rounds of one seed on the digits leave: losses by round, final metrics, norms of all tensors."""
    hyper = {key: value for key, value in HYPER.items() if key in methods.find(name).hyper} | hyper
    hyper |= OWN.get(name, {})
    watch = {"samples": 200, "test_every": 7}
    config = RunConfig(method=name, dataset="digits", hyper=hyper, rounds=7, watch=watch)
    run = runs.prepare(config, (0,), torch.device("cpu"))
    for _ in run:
        pass
    lane = run.lanes[0]
    return {
        "train_loss": [value for _, metric, value in lane.curve if metric == "train_loss"],
        "metrics": lane.metrics,
        "norms": {leaf: values.double().norm().item() for leaf, values in trees.leaves(run.state)},
    }


@pytest.fixture(scope="module")
def stored():
    return json.loads(STORED.read_text())


def test_there_is_a_stored_run_for_every_built_in_method(stored):
    assert set(stored) == set(BUILT_IN)


@pytest.mark.parametrize("label", BUILT_IN)
def test_the_numbers_are_the_stored_ones(stored, label):
    got, wanted = measure(*BUILT_IN[label]), stored[label]
    # Other processors round otherwise: losses and norms move in the sixth digit, an accuracy by a row or two.
    assert got["train_loss"] == pytest.approx(wanted["train_loss"], rel=1e-4)
    assert got["norms"] == pytest.approx(wanted["norms"], rel=1e-4, abs=1e-9)
    for metric, value in wanted["metrics"].items():
        tolerance = {"abs": 0.004} if metric.endswith("accuracy") else {"rel": 1e-4}
        assert got["metrics"][metric] == pytest.approx(value, **tolerance), metric


if __name__ == "__main__":
    torch.set_num_threads(1)
    content = {label: measure(*variant) for label, variant in BUILT_IN.items()}
    STORED.write_text(json.dumps(content, indent=1) + "\n")
    print(f"wrote {STORED}")
