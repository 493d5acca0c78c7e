"""bfloat16 is a precision of products: parameters and moments stay float32, and training stays near float32's."""

from __future__ import annotations

import torch

from fedrepro import trees


def played(training, variant, **settings):
    name, hyper = variant
    run = training(name, hyper=hyper, rounds=6, **settings)
    for _ in run:
        pass
    return run


def test_training_in_bf16_is_near_fp32(training, variant):
    exact, rounded = played(training, variant), played(training, variant, precision="bf16")
    moved = 0.0
    for (name, a), (_, b) in zip(trees.leaves(exact.state), trees.leaves(rounded.state), strict=True):
        assert a.dtype == b.dtype, name
        assert b.isfinite().all(), name
        moved = max(moved, (a - b).abs().max().item())
    x = exact.lanes[0].data.tests["test"][0]
    logits = [run.method.predict(trees.one(run.state, 0), x) for run in (exact, rounded)]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=0.1)
    assert moved > 0  # it did round something


def test_watching_in_bf16_moves_no_parameter_and_no_reported_metric(training, variant):
    exact, watched = played(training, variant), played(training, variant, watch={"precision": "bf16"})
    for (name, a), (_, b) in zip(trees.leaves(exact.state), trees.leaves(watched.state), strict=True):
        assert torch.equal(a, b), name
    assert exact.lanes[0].metrics == watched.lanes[0].metrics
