"""Optimisers against torch.optim and closed forms."""

import pytest
import torch

from fedrepro.core import trees
from fedrepro.core.optim import adam, restarted, sgd, step


def params(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=dtype)  # noqa: E731
    return {"fc1": {"weight": draw(4, 3), "bias": draw(4)}, "fc2": {"weight": draw(2, 4)}}


def gradients(t):
    """Of very different sizes, from leaf to leaf and step to step; the last is nearly zero."""
    generator = torch.Generator().manual_seed(100 + t)
    sizes = iter((1.0, 1e3, 1e-6))
    return trees.map_tree(lambda p: torch.randn(p.shape, generator=generator, dtype=p.dtype) * next(sizes), params())


@pytest.mark.parametrize(
    ("rule", "reference"),
    [
        (adam(0.01), lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-7)),
        (adam(0.3, b1=0.5, b2=0.9, eps=1e-3), lambda p: torch.optim.Adam(p, lr=0.3, betas=(0.5, 0.9), eps=1e-3)),
        (sgd(0.3), lambda p: torch.optim.SGD(p, lr=0.3)),
        (sgd(0.3, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9)),
        (sgd(0.3, weight_decay=0.1), lambda p: torch.optim.SGD(p, lr=0.3, weight_decay=0.1)),
        (sgd(0.1, 0.9, 1e-3), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3)),
    ],
    ids=["adam", "adam with other constants", "sgd", "momentum", "weight decay", "both"],
)
def test_five_steps_are_torch_optims(rule, reference):
    ours = params()
    plain = {name: leaf.clone().requires_grad_() for name, leaf in trees.leaves(ours)}
    optimiser, s = reference(plain.values()), rule.init(ours)
    for t in range(5):
        before = {name: leaf.detach().clone() for name, leaf in plain.items()}
        for name, gradient in trees.leaves(gradients(t)):
            plain[name].grad = gradient
        optimiser.step()
        step, s = rule.update(gradients(t), s, ours)
        ours = trees.add(ours, step)
        for name, leaf in trees.leaves(step):  # what was subtracted has the rounding of the parameters
            torch.testing.assert_close(leaf, plain[name].detach() - before[name], rtol=2e-5, atol=1e-6)
    for name, leaf in trees.leaves(ours):
        torch.testing.assert_close(leaf, plain[name].detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("g", [3.0, -0.25, 1e-7, -1e-9, 0.0])
def test_a_constant_gradient_makes_constant_steps(g):
    # Bias correction leaves m = g and v = g^2 at every step, so the step is -lr g / (|g| + eps), for ever.
    rule = adam(0.1, eps=1e-7)
    gradient, s = {"w": torch.full((2,), g)}, rule.init({"w": torch.zeros(2)})
    for _ in range(300):
        step, s = rule.update(gradient, s)
        torch.testing.assert_close(step["w"], torch.full((2,), -0.1 * g / (abs(g) + 1e-7)), rtol=1e-4, atol=1e-9)
    assert s["t"] == 300


@pytest.mark.parametrize("at", [0, 1, 3, 9])
@pytest.mark.parametrize("rule", [adam(0.1), sgd(0.1, momentum=0.9)], ids=["adam", "momentum"])
def test_a_restarted_rule_is_made_anew_before_that_update(rule, at, same):
    again = restarted(rule, at)
    s, own = again.init(params()), rule.init(params())
    for t in range(5):
        if t == at:
            own = rule.init(params())
        step, s = again.update(gradients(t), s)
        wanted, own = rule.update(gradients(t), own)
        same(step, wanted)


@pytest.mark.parametrize("rule", [adam(0.1), sgd(0.1), sgd(0.1, momentum=0.9)], ids=["adam", "sgd", "momentum"])
def test_an_update_changes_nothing_that_it_is_given(rule):
    gradient, s = gradients(0), rule.update(gradients(1), rule.init(params()))[1]
    before = str((gradient, s))
    rule.update(gradient, s)
    assert str((gradient, s)) == before


def test_adam_under_vmap_keeps_a_state_for_each_row():
    rule = adam(0.05)
    stacked = trees.stack([gradients(0), gradients(1), gradients(2)])
    s = torch.vmap(rule.init)(stacked)
    for _ in range(3):
        step, s = torch.vmap(rule.update)(stacked, s)
    for row in range(3):
        own = rule.init(params())
        for _ in range(3):
            alone, own = rule.update(gradients(row), own)
        for name, leaf in trees.leaves(alone):
            torch.testing.assert_close(dict(trees.leaves(step))[name][row], leaf, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("rule", [adam(0.01), adam(0.3, eps=1e-3), sgd(0.3), sgd(0.3, 0.9, 0.1)])
@pytest.mark.parametrize("same", [True, False], ids=["views of one", "each its own"])
def test_stacked_networks_take_the_steps_that_they_take_alone(rule, same):
    one = trees.map_tree(lambda leaf: torch.randn(2, 130, 70), params())  # enough for two threads
    ours = trees.repeat(one, 3) if same else trees.stack([one, *(trees.map_tree(torch.sin, one) for _ in range(2))])
    s = trees.repeat(rule.init(one), 3)
    theirs, wanted = ours, s
    for _ in range(3):
        gradient = trees.map_tree(lambda leaf: torch.randn(leaf.shape).transpose(-1, -2).mT * 1e-3, ours)
        before = trees.map_tree(torch.clone, {"w": ours, "s": s, "g": gradient})
        new, after = rule.together(ours, gradient, s)
        for (_, leaf), (_, old) in zip(
            trees.leaves({"w": ours, "s": s, "g": gradient}), trees.leaves(before), strict=True
        ):
            assert torch.equal(leaf, old)
        theirs, wanted = torch.vmap(step(rule.update))(theirs, gradient, wanted)
        ours, s = new, after
        for (name, a), (_, b) in zip(
            trees.leaves({"w": ours, "s": s}), trees.leaves({"w": theirs, "s": wanted}), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=0, atol=0 if "t" in s else 1e-6, msg=lambda m, n=name: n + m)
            assert a.is_contiguous()
