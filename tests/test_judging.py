"""Laws of judging by hand: how critics' judgements are combined (f2u-2019, PROTOCOL.md), and when a seed collapses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedrepro.core.streams import torch_stream
from fedrepro.data import Federation
from fedrepro.judges.classifier import Classified
from fedrepro.methods.gan_losses import LOSSES, aggregated, highest, mean_loss, soft_worst

EXAMPLES = settings(max_examples=30, deadline=None)
SEEDS = st.integers(0, 10**6)
MSE, BCE, LINEAR = LOSSES["mse"], LOSSES["bce"], LOSSES["bce-linear"]


def drawn(seed: int, *shape: int) -> torch.Tensor:
    """Judgements around 1/2."""
    return torch.randn(shape, generator=torch_stream(seed), dtype=torch.float64) + 0.5


@given(SEEDS, st.integers(1, 6))
@EXAMPLES
def test_f2a_at_lambda_0_is_the_loss_of_the_mean_judgement(seed, count):
    d = drawn(seed, count, 8)
    torch.testing.assert_close(aggregated(0.1, 0.0)(MSE, d, None)[0], (d.mean(0) - 1).square().mean())
    torch.testing.assert_close(aggregated(0.1, 0.0)(BCE, d, None)[0], -d.sigmoid().mean(0).log().mean())


@given(SEEDS, st.integers(2, 6))
@EXAMPLES
def test_f2a_nears_f2u_as_lambda_grows(seed, count):
    d = drawn(seed, count, 8)
    gaps = []
    for sharpness in (1.0, 1e2, 1e4, 1e6):
        s = torch.softmax(sharpness * d, 0)
        gaps.append((d.max(0).values - (s * d).sum(0)).max().item())
        assert (
            gaps[-1] <= torch.tensor(float(count)).log() / sharpness + 1e-12
        )  # the softmax's entropy is at most log K
    assert gaps == sorted(gaps, reverse=True)
    for loss in (MSE, BCE):
        near = aggregated(0.1, 1e8)(loss, d, None)[0]
        torch.testing.assert_close(near, highest(loss, d, None)[0], rtol=0, atol=1e-5)


@given(SEEDS, st.integers(1, 6), st.floats(0, 5))
@EXAMPLES
def test_f2as_derivatives_are_those_of_the_protocol(seed, count, sharpness):
    # dD/dlambda = sum s d^2 - D^2 and dD/dd_i = s_i (1 + lambda (d_i - D)), beside 2 beta lambda of the regulariser.
    d, strength = drawn(seed, count, 8).requires_grad_(), torch.tensor(sharpness, dtype=torch.float64).requires_grad_()
    loss, curves = aggregated(0.1, None)(MSE, d, strength)
    by_d, by_strength = torch.autograd.grad(loss, (d, strength))
    s = torch.exp(strength * d) / torch.exp(strength * d).sum(0)
    agreed = (s * d).sum(0)
    outer, variance = 2 * (agreed - 1) / 8, (s * d**2).sum(0) - agreed**2
    torch.testing.assert_close(by_d, outer * s * (1 + strength * (d - agreed)))
    slope = ((outer * variance).sum() if sharpness else 0) + 0.2 * strength  # ReLU has no slope at 0
    torch.testing.assert_close(by_strength, slope)
    torch.testing.assert_close(curves["weighted_variance"], variance.mean())
    assert curves["lambda"] == sharpness


def test_a_strength_below_0_is_pulled_back_and_counts_as_0():
    d, strength = drawn(0, 3, 8), torch.tensor(-0.5, dtype=torch.float64, requires_grad=True)
    loss, curves = aggregated(0.1, None)(MSE, d, strength)
    assert curves["lambda"] == 0
    assert loss.item() == pytest.approx((d.mean(0) - 1).square().mean().item() + 0.1 * 0.25)
    assert torch.autograd.grad(loss, strength)[0].item() == pytest.approx(2 * 0.1 * -0.5)


@given(SEEDS, st.sampled_from(["mse", "bce"]))
@EXAMPLES
def test_f2us_gradient_reaches_only_the_highest_critic_of_each_sample(seed, loss):
    d = drawn(seed, 5, 8).requires_grad_()
    (by_d,) = torch.autograd.grad(highest(LOSSES[loss], d, None)[0], d)
    chosen = nn.functional.one_hot(d.argmax(0), 5).T.bool()
    assert (by_d[~chosen] == 0).all()
    top = d.max(0).values.detach()
    slope = 2 * (top - 1) if loss == "mse" else -torch.sigmoid(-top)
    torch.testing.assert_close(by_d[chosen], (slope / 8)[d.argmax(0).argsort(stable=True)])


@given(SEEDS, st.integers(1, 6))
@EXAMPLES
def test_gman_without_sharpness_is_gman_0(seed, count):
    # softplus(-800) is 0, and so is the price of it.
    d, strength = drawn(seed, count, 8), torch.tensor(-800.0, dtype=torch.float64)
    torch.testing.assert_close(soft_worst(0.001)(MSE, d, strength)[0], mean_loss(MSE, d, None)[0])


@given(SEEDS, st.floats(-3, 3))
@EXAMPLES
def test_gman_by_hand(seed, v):
    # L = sum w L_i - c lambda; dL/dlambda is the weighted variance of the L_i, less c; dlambda/dv = sigmoid(v).
    d, strength = drawn(seed, 4, 8), torch.tensor(v, dtype=torch.float64, requires_grad=True)
    loss, curves = soft_worst(0.25)(MSE, d, strength)
    each = (d - 1).square().mean(1)
    sharpness = torch.log1p(torch.exp(strength.detach()))
    w = torch.exp(sharpness * each) / torch.exp(sharpness * each).sum()
    mean = (w * each).sum()
    torch.testing.assert_close(loss.detach(), mean - 0.25 * sharpness)
    torch.testing.assert_close(curves["lambda"].detach(), sharpness)
    variance = (w * each.square()).sum() - mean.square()
    (slope,) = torch.autograd.grad(loss, strength)
    torch.testing.assert_close(slope, (variance - 0.25) * torch.sigmoid(strength.detach()))


def test_the_standard_losses_are_torchs():
    d = drawn(1, 40) * 3
    cross_entropy = nn.functional.binary_cross_entropy_with_logits
    for got, target in ((BCE.real, 1.0), (BCE.fake, 0.0), (BCE.fool, 1.0)):
        torch.testing.assert_close(got(d).mean(), cross_entropy(d, torch.full_like(d, target)))
    torch.testing.assert_close(BCE.persuade(BCE.output(d)).mean(), BCE.fool(d).mean())
    assert BCE.persuade(torch.zeros(1)).item() == pytest.approx(16.118, abs=1e-3)  # -log 1e-7
    assert [MSE.real(d)[0], MSE.fake(d)[0], MSE.fool(d)[0]] == [(d[0] - 1) ** 2, d[0] ** 2, (d[0] - 1) ** 2]


def test_cross_entropy_of_linear_outputs_by_hand():
    # -log p and -log (1 - p) at p = d clipped to [1e-7, 1 - 1e-7]; beyond either end nothing has a slope.
    d = torch.tensor([-0.5, 0.2, 0.5, 1.5], dtype=torch.float64, requires_grad=True)
    real, fake = [16.118096, 1.609438, 0.693147, 1e-7], [1e-7, 0.223144, 0.693147, 16.118096]
    slopes = {LINEAR.real: [0, -5, -2, 0], LINEAR.fake: [0, 1.25, 2, 0], LINEAR.fool: [0, -5, -2, 0]}
    for loss, values in ((LINEAR.real, real), (LINEAR.fake, fake), (LINEAR.fool, real)):
        got = loss(d)
        assert got.tolist() == pytest.approx(values, abs=1e-6)
        assert torch.autograd.grad(got.sum(), d)[0].tolist() == pytest.approx(slopes[loss])
    # F2U: of two judgements the higher one counts; F2A: their average, which need not be between 0 and 1.
    judged = torch.tensor([[0.2, -3.0], [0.5, 2.0]], dtype=torch.float64)
    assert highest(LINEAR, judged, None)[0].item() == pytest.approx((0.693147 + 0) / 2, abs=1e-6)
    assert aggregated(0.1, 0.0)(LINEAR, judged, None)[0].item() == pytest.approx((1.049822 + 16.118096) / 2, abs=1e-6)


def test_gman_0s_gradient_is_the_mean_of_the_critics():
    d = drawn(3, 5, 8).requires_grad_()
    (whole,) = torch.autograd.grad(mean_loss(MSE, d, None)[0], d)
    each = [torch.autograd.grad(mean_loss(MSE, d[k : k + 1], None)[0], d)[0] for k in range(5)]
    torch.testing.assert_close(whole, sum(each) / 5)  # the mean of the critics' feedbacks


# Collapse: ten rows of two classes in training, of which six are of one, and a test set that is even


@pytest.mark.parametrize(
    ("train", "test", "collapsed"),
    [
        ([0.9, 0.6], [0.9, 0.5], True),  # one class for all rows
        ([0.9, 0.4], [0.6, 0.5], True),  # the other one
        ([0.9, 0.61], [0.9, 0.51], True),
        ([0.9, 0.7], [0.9, 0.5], False),  # something is left in training
        ([0.9, 0.6], [0.9, 0.7], False),  # or at test
        ([0.9, 0.6], [0.9, 0.2], False),  # it predicts, against the labels
        ([0.6, 0.6], [0.5, 0.5], False),  # it never learnt anything
        ([0.69, 0.6], [0.59, 0.5], False),
        ([0.5, 0.6], [0.65, 0.5], True),  # test accuracy alone had been above
        ([0.9, 0.9], [0.9, 0.9], False),
    ],
)
def test_a_seed_collapses_that_was_above_chance_and_ends_at_it(train, test, collapsed):
    labels = torch.tensor([0] * 6 + [1] * 4), torch.tensor([0, 1])
    x = [torch.zeros(len(y), 1) for y in labels]
    data = Federation(x[0], labels[0], (5, 5), {"test": (x[1], labels[1])}, 2, {})
    curve = [(round, "train_accuracy", value) for round, value in enumerate(train, 1)]
    curve += [(round, "test_accuracy", value) for round, value in enumerate(test, 1)] + [(2, "loss", 9.0)]
    assert Classified(data, torch.device("cpu"), False).collapsed(curve) is collapsed
