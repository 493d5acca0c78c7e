"""Networks against torch.nn, and their sizes against the papers'."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, grad_and_value

from fedrepro import methods
from fedrepro.core import trees
from fedrepro.core.lift import evaluation
from fedrepro.core.types import Task
from fedrepro.nets.mlp import cross_entropy, elu, glorot, inked, mlp, pixels

POINTS = torch.cat(
    [
        torch.linspace(-20, 20, 20001),
        torch.logspace(-30, 2, 500),
        -torch.logspace(-30, 2, 500),
        torch.tensor([0.0, -0.0, 1e30, -1e30]),
    ]
)


def test_elu_is_torchs():
    torch.testing.assert_close(elu(POINTS), F.elu(POINTS), rtol=1e-7, atol=2e-7)  # two roundings near 1
    assert elu(torch.tensor([float("nan")])).isnan().all()


def test_the_slope_of_elu_is_torchs():
    x, plain = POINTS.clone().requires_grad_(), POINTS.clone().requires_grad_()
    weights = torch.linspace(-2, 2, len(POINTS))
    (elu(x) * weights).sum().backward()
    (F.elu(plain) * weights).sum().backward()
    # At 0 the two sides differ by nothing: the slope of ELU is 1 there.
    torch.testing.assert_close(x.grad, plain.grad, rtol=1e-6, atol=1e-6)


def test_elu_under_vmap_and_grad():
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 3
    loss = lambda act: lambda row: act(row * 1.3).square().sum()  # noqa: E731
    torch.testing.assert_close(torch.vmap(elu)(x), F.elu(x), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch.vmap(grad(loss(elu)))(x), grad(loss(F.elu))(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.vmap(torch.vmap(grad(loss(elu))))(x[None, :, None])[0, :, 0], grad(loss(F.elu))(x),
                               rtol=1e-5, atol=1e-5)  # fmt: skip


def test_elu_changes_nothing_that_it_is_given():
    x = torch.linspace(-2, 2, 9)
    before = x.clone()
    elu(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize(("fan_in", "fan_out"), [(1568, 390), (390, 2), (3, 5)])
def test_glorot_fills_its_bounds(fan_in, fan_out):
    layer = glorot((fan_out, fan_in), fan_in, fan_out, fan_out, torch.Generator().manual_seed(0))
    weight, bound = layer["weight"], math.sqrt(6 / (fan_in + fan_out))
    assert weight.shape == (fan_out, fan_in)
    assert layer["bias"].tolist() == [0] * fan_out
    assert weight.abs().max() <= bound
    # Uniform on [-b, b]: mean 0 and variance b^2/3, here within five standard errors; a normal would go past b.
    spread = bound / math.sqrt(3 * weight.numel())
    assert abs(weight.mean()) < 5 * spread
    assert weight.square().mean() == pytest.approx(bound**2 / 3, rel=5 * math.sqrt(0.8 / weight.numel()))


def test_equal_generators_make_equal_networks():
    net = mlp(6, 5, 2)
    make = lambda seed: net.init(torch.Generator().manual_seed(seed))  # noqa: E731
    assert torch.equal(make(1)["fc1"]["weight"], make(1)["fc1"]["weight"])
    assert not torch.equal(make(1)["fc1"]["weight"], make(2)["fc1"]["weight"])
    assert all((layer["bias"] == 0).all() for layer in make(1).values())


@pytest.mark.parametrize("last", [True, False])
def test_mlp_is_linear_layers_with_elu_between(last):
    net = mlp(18, 7, 5, 3, last=last)
    params = net.init(torch.Generator().manual_seed(3))
    params = trees.map_tree(lambda leaf: leaf + 0.1, params)  # biases that are not zero
    x = torch.randint(0, 256, (11, 2, 3, 3), dtype=torch.uint8)
    h = x.flatten(1).double() / 255
    for i, layer in enumerate(params.values()):
        h = h @ layer["weight"].double().T + layer["bias"].double()
        h = F.elu(h) if i < 2 or not last else h
    torch.testing.assert_close(net.apply(params, x).double(), h, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lit", [(0, 1), (1, 2), (0, 3)])
def test_of_coloured_images_an_mlp_leaves_out_empty_channels(lit):
    x = torch.zeros(5, 3, 4, 4, dtype=torch.uint8)
    x[:, lit[0] : lit[1]] = torch.randint(1, 256, (5, lit[1] - lit[0], 4, 4), dtype=torch.uint8)
    net = mlp(48, 7, 2)
    params = net.init(torch.Generator().manual_seed(0))
    plain = net.apply(params, x)
    # Weights of channels without ink do not count, whatever they are.
    used = torch.zeros(3, dtype=torch.bool).index_fill(0, torch.arange(*lit), True).repeat_interleave(16)
    params["fc1"]["weight"] = torch.where(used, params["fc1"]["weight"], torch.nan)
    with evaluation(coloured=True):
        assert inked(x.flatten(1)) == slice(16 * lit[0], 16 * lit[1])
        torch.testing.assert_close(net.apply(params, x), plain)


def test_what_has_ink():
    x = torch.zeros(2, 6)
    assert inked(x) == slice(0)
    x[1, 2], x[0, 4] = -1, torch.nan
    assert inked(x) == slice(2, 5)


def test_pixels():
    assert pixels(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([0, 0.2, 1])
    floats = torch.tensor([-1.5, 300.0])
    assert pixels(floats) is floats


def test_cross_entropy_counts_live_rows_only():
    generator = torch.Generator().manual_seed(5)
    logits, y = torch.randn(6, 3, generator=generator), torch.tensor([0, 2, 1, 1, 0, 2])
    live = torch.tensor([True, False, True, True, False, False])
    torch.testing.assert_close(cross_entropy(logits, y, live), F.cross_entropy(logits[live], y[live]))
    torch.testing.assert_close(cross_entropy(logits, y, torch.ones(6, dtype=torch.bool)), F.cross_entropy(logits, y))


def test_no_live_row_is_no_loss_and_no_gradient():
    logits, y, live = torch.randn(4, 2), torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.bool)
    assert cross_entropy(logits, y, live) == 0
    assert (grad(cross_entropy)(logits, y, live) == 0).all()


def count(tree):
    return sum(leaf.numel() for _, leaf in trees.leaves(tree))


@pytest.mark.parametrize(
    ("shape", "classes", "fixed", "representation"),
    [
        ((2, 28, 28), 2, 765_182, 611_910),
        ((3, 32, 32), 2, 1_351_742, 1_198_470),
        ((5, 28, 28), 5, 1_683_635, None),
        ((10, 28, 28), 10, 3_214_390, None),
    ],
)
def test_the_networks_have_the_papers_sizes(shape, classes, fixed, representation):
    """papers/flgames-2022/PROTOCOL.md; the numbers are of one client."""
    task = Task(shape, classes, (300, 300))
    streams = lambda client, purpose: torch.Generator().manual_seed(client)  # noqa: E731
    f = methods.build("f-irm", task, {}).init(streams, task.sizes)
    single = methods.build("fedavg", task, {"net": "mlp"}).init(streams, task.sizes)
    assert count(f["clients"]["w"]) == 2 * fixed
    assert count(single["server"]["params"]) == fixed
    if representation:
        v = methods.build("v-irm", task, {}).init(streams, task.sizes)
        assert count(v["server"]["phi"]) == representation
        assert count(v["clients"]["w"]) == 2 * 305_762


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_the_gradient_of_stacked_networks_is_autograds(precision):
    net = mlp(12, 7, 5, 3)
    params = trees.stack([net.init(torch.Generator().manual_seed(seed)) for seed in range(3)])
    generator = torch.Generator().manual_seed(9)
    params = trees.map_tree(lambda leaf: leaf + torch.randn(leaf.shape, generator=generator) / 10, params)
    x, y = torch.randn(3, 6, 12, generator=generator), torch.randint(3, (3, 6), generator=generator)
    live = torch.ones(3, 6, dtype=torch.bool)
    live[1, 4:] = live[2] = False
    lifted = torch.vmap(grad_and_value(lambda p, *rows: cross_entropy(net.apply(p, rows[0]), *rows[1:])))
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        (ours, risk), (wanted, other) = (f(params, x, y, live) for f in (net.descend, lifted))
    close = {"rtol": 0, "atol": 0 if precision == torch.float32 else 0.02}
    torch.testing.assert_close(risk, other, **close)
    for (name, a), (_, b) in zip(trees.leaves(ours), trees.leaves(wanted), strict=True):
        torch.testing.assert_close(a, b, msg=lambda m, n=name: n + m, **close)
        assert a.dtype == torch.float32


def test_a_representation_has_no_gradient_of_its_own():
    assert mlp(4, 3, last=False).descend is None
