"""bfloat16 is a precision of products: parameters and moments stay float32, and training stays near float32's."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedrepro.core import precision, trees


def played(training, variant, **settings):
    name, hyper = variant
    run = training(name, hyper=hyper, rounds=6, **settings)
    for _ in run:
        pass
    return run


@pytest.mark.parametrize("units", [True, False])
def test_training_in_bf16_is_near_fp32(training, variant, units, monkeypatch):
    monkeypatch.setattr(precision, "has_units", lambda: units)
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


FACTORS = {
    "mm": (torch.mm, (5, 40), (40, 7)),
    "addmm": (torch.addmm, (7,), (5, 40), (40, 7)),
    "bmm": (torch.bmm, (3, 5, 40), (3, 40, 7)),
    "baddbmm": (torch.baddbmm, (3, 1, 7), (3, 5, 40), (3, 40, 7)),
    "linear": (functional.linear, (5, 40), (7, 40), (7,)),
    "conv2d": (lambda *each: functional.conv2d(*each, stride=2, padding=1, groups=2), (3, 4, 9, 9), (6, 2, 4, 4), (6,)),
    "conv_transpose2d": (lambda *each: functional.conv_transpose2d(*each, stride=2), (3, 4, 5, 5), (4, 6, 4, 4), (6,)),
}


@pytest.mark.parametrize("case", FACTORS.values(), ids=FACTORS)
def test_a_widened_product_is_of_rounded_factors_and_rounded_once(case, monkeypatch):
    monkeypatch.setattr(precision, "has_units", lambda: False)
    product, *shapes = case
    generator = torch.Generator().manual_seed(0)
    factors = [torch.randn(shape, generator=generator).bfloat16().float().requires_grad_() for shape in shapes]
    exact = [each.detach().double().requires_grad_() for each in factors]
    wanted = product(*exact)
    weights = torch.randn(wanted.shape, generator=generator).bfloat16()
    with precision.products("cpu", "bf16"):
        out = product(*factors)
        found = [out, *torch.autograd.grad(out, factors, weights)]
    true = [wanted, *torch.autograd.grad(wanted, exact, weights.double())]
    assert out.dtype == torch.bfloat16
    for got, truth in zip(found, true, strict=True):
        # Half a unit in the last of eight binary places, and what float32 leaves of sums that cancel.
        torch.testing.assert_close(got.double(), truth, rtol=2**-8, atol=1e-5)


@pytest.mark.parametrize("units", [True, False])
def test_products_are_widened_where_there_are_no_units(units, monkeypatch):
    seen = []

    def dispatched(self, func, types, args=(), kwargs=None):
        seen.append(func)
        return func(*args, **(kwargs or {}))

    monkeypatch.setattr(precision.Widened, "__torch_dispatch__", dispatched)
    monkeypatch.setattr(precision, "has_units", lambda: units)
    with precision.products("cpu", "bf16"):
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert (torch.ops.aten.mm.default in seen) == (not units)
