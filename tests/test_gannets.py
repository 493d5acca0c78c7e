"""The GANs' networks and their parts against torch's own modules."""

from __future__ import annotations

import pytest
import torch
from plain_gan import benchmark, load
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from fedrepro.core import trees
from fedrepro.errors import UsageError
from fedrepro.nets import gan
from fedrepro.nets.gan import normalise, power_start, through

SHAPES = {"dcgan-28": (1, 28, 28), "dcgan-32": (3, 32, 32), "points": (2,), "points with batch norm": (2,)}
TIGHT = {"rtol": 1e-4, "atol": 1e-5}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=seeded(seed))


def count(params: dict) -> int:
    return sum(leaf.numel() for _, leaf in trees.leaves(params))


@pytest.fixture(scope="module", params=SHAPES)
def pair(request):
    """(name, generator, critic, parameters of both) of each pair of networks."""
    generator, critic = networks(request.param)
    return request.param, generator, critic, generator.init(seeded(1)), critic.init(seeded(2))


def networks(name: str) -> tuple:
    return gan.choose(SHAPES[name], norm="with" in name)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("dcgan-28", (2_274_689, 388_865)),
        ("dcgan-32", (3_812_355, 932_161)),
        ("points", (4482, 4417)),
        ("points with batch norm", (4482 + 2 * 2 * 64, 4417)),
    ],
)
def test_the_numbers_of_parameters(name, sizes):
    # The first two are the paper's; 2*64+64 + 64*64+64 + 64*2+2 and 2*64+64 + 64*64+64 + 64+1 for points.
    assert tuple(count(each.init(seeded(0))) for each in networks(name)) == sizes


def test_shapes_and_ranges(pair):
    name, generator, critic, g, d = pair
    shape = SHAPES[name]
    samples, stats = generator.apply(g, generator.running(), randn(5, generator.noise), True)
    assert samples.shape == (5, *shape)
    assert samples.dtype == torch.float32
    assert len(shape) == 1 or samples.abs().max() <= 1
    assert critic.apply(d, samples).shape == (5,)
    before = dict(trees.leaves(generator.running()))
    assert all((leaf != before[name]).any() for name, leaf in trees.leaves(stats))


def test_weights_are_glorot_uniform_and_biases_zero(pair):
    for params in pair[3:]:
        for name, layer in params.items():
            assert not layer["bias"].any()
            if name.startswith("norm"):
                assert (layer["weight"] == 1).all()
                continue
            weight = layer["weight"]
            one, other = weight.shape[0], weight.shape[3 if name.startswith("conv") else 1]
            bound = (6 / (weight.numel() / (one * other) * (one + other))) ** 0.5
            assert weight.abs().max() <= bound
            assert weight.std() == pytest.approx(bound / 3**0.5, rel=0.2)


def critic_32() -> nn.Sequential:
    """The critic for 3x32x32 as modules, without spectral norm."""
    sizes = (3, 64, 3, 1), (64, 64, 4, 2), (64, 128, 3, 1), (128, 128, 4, 2), (128, 256, 4, 2)
    steps = [(nn.Conv2d(i, o, k, s, padding=1), nn.LeakyReLU(0.1)) for i, o, k, s in sizes]
    return nn.Sequential(*(each for step in steps for each in step), nn.Flatten(), nn.Linear(4096, 1))


def perceptron(bend: nn.Module, *widths: int) -> nn.Sequential:
    a, b, c, d = widths
    return nn.Sequential(nn.Linear(a, b), bend, nn.Linear(b, c), bend, nn.Linear(c, d))


def normed(*widths: int) -> nn.Sequential:
    a, b, c, d = widths
    steps = [(nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU()) for i, o in ((a, b), (b, c))]
    return nn.Sequential(*(each for step in steps for each in step), nn.Linear(c, d))


MODULES = {
    "dcgan-28": lambda: (benchmark.generator(256, 7, (128, 64), 1), benchmark.critic(normal=False)),
    "dcgan-32": lambda: (benchmark.generator(512, 4, (256, 128, 64), 3), critic_32()),
    "points": lambda: (perceptron(nn.ReLU(), 2, 64, 64, 2), perceptron(nn.LeakyReLU(0.2), 2, 64, 64, 1)),
    "points with batch norm": lambda: (normed(2, 64, 64, 2), perceptron(nn.LeakyReLU(0.2), 2, 64, 64, 1)),
}


def test_networks_are_the_modules(pair):
    name, generator, critic, g, d = pair
    g_module, d_module = MODULES[name]()
    load(g_module, g), load(d_module, d)
    stats = generator.running()
    for turn in range(2):
        z = randn(4, generator.noise, seed=turn)
        samples, stats = generator.apply(g, stats, z, True)
        torch.testing.assert_close(samples, g_module(z).detach(), **TIGHT)
    g_module.eval()
    kept, same = generator.apply(g, stats, z, False)
    torch.testing.assert_close(kept, g_module(z).detach(), **TIGHT)
    for (_, a), (_, b) in zip(trees.leaves(same), trees.leaves(stats), strict=True):
        assert torch.equal(a, b)
    torch.testing.assert_close(critic.apply(d, samples), d_module(samples)[:, 0].detach(), **TIGHT)


def test_batched_networks_are_looped_ones(pair):
    # Under vmap convolutions are grouped, and the running statistics are those of each.
    _, generator, critic, *_ = pair
    several = [(generator.init(seeded(k)), critic.init(seeded(k + 5))) for k in range(2)]
    g, d = trees.stack([each for each, _ in several]), trees.stack([each for _, each in several])
    stats, z = trees.stack([generator.running()] * 2), randn(2, 3, generator.noise)
    samples, seen = torch.vmap(lambda *given: generator.apply(*given, True))(g, stats, z)
    looped = [generator.apply(*(trees.one(tree, k) for tree in (g, stats, z)), True) for k in range(2)]
    torch.testing.assert_close(samples, torch.stack([own for own, _ in looped]), **TIGHT)
    for (_, a), (_, b) in zip(trees.leaves(seen), trees.leaves(trees.stack([own for _, own in looped])), strict=True):
        torch.testing.assert_close(a, b, **TIGHT)
    judged = torch.stack([critic.apply(trees.one(d, k), samples[k]) for k in range(2)])
    torch.testing.assert_close(torch.vmap(critic.apply)(d, samples), judged, **TIGHT)


def test_batch_norm_is_torchs_module():
    module, stats = nn.BatchNorm2d(3), {"mean": torch.zeros(3), "var": torch.ones(3)}
    params = {"weight": torch.rand(3) + 0.5, "bias": torch.randn(3)}
    with torch.no_grad():
        module.weight.copy_(params["weight"])
        module.bias.copy_(params["bias"])
    leaves = {name: leaf.requires_grad_() for name, leaf in params.items()}
    for turn in range(3):
        x = 3 * randn(4, 3, 5, 5, seed=turn) + 1
        given, before = x.clone().requires_grad_(), {name: leaf.clone() for name, leaf in stats.items()}
        y, after = gan.batch_norm(leaves, stats, given, True)
        assert all(torch.equal(stats[name], before[name]) for name in stats)  # what came in is as it was
        stats, wanted = after, module(x.requires_grad_())
        torch.testing.assert_close(y, wanted)
        got = torch.autograd.grad(y.square().sum(), [given, *leaves.values()])
        torch.testing.assert_close(got, torch.autograd.grad(wanted.square().sum(), [x, *module.parameters()]))
    torch.testing.assert_close(stats["mean"], module.running_mean)
    torch.testing.assert_close(stats["var"], module.running_var)
    y, after = gan.batch_norm(params, stats, x, False)
    torch.testing.assert_close(y, module.eval()(x))
    assert after["mean"] is stats["mean"]


def test_a_bias_before_batch_norm_has_no_gradient():
    # Why generators need not compute it.
    module = nn.Sequential(nn.ConvTranspose2d(2, 3, 4, 2, padding=1), nn.BatchNorm2d(3), nn.Tanh()).double()
    module(randn(4, 2, 3, 3).double()).pow(3).sum().backward()
    assert module[0].bias.grad.abs().max() < 1e-12 * module[0].weight.grad.abs().max()


# Spectral norm


def test_spectral_norm_is_torchs():
    layers = [nn.Conv2d(2, 4, 3), nn.Linear(10, 1)]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        modules = [spectral_norm(layer) for layer in layers]
    given = [randn(3, 2, 6, 6), randn(3, 10)]
    for module, x in zip(modules, given, strict=True):
        weight = module.parametrizations.weight.original
        v = module.parametrizations.weight[0]._v.clone()[None]
        for _ in range(3):
            normal = normalise(weight.detach()[None], v)
            v, leaf = normal.v, normal.weight[0].clone().requires_grad_()
            run = (lambda w, x=x: nn.functional.conv2d(x, w)) if weight.dim() == 4 else (lambda w, x=x: x @ w.mT)
            gradient = torch.autograd.grad(run(leaf).pow(3).sum(), leaf)[0]
            wanted = torch.autograd.grad((module(x) - module.bias.view(-1, *[1] * (x.dim() - 2))).pow(3).sum(), weight)
            torch.testing.assert_close(v[0], module.parametrizations.weight[0]._v)
            torch.testing.assert_close(through(gradient[None], normal)[0], wanted[0], **TIGHT)
    with torch.no_grad():
        torch.testing.assert_close(normal.weight[0], module.eval().weight)


def test_the_norm_becomes_the_largest_singular_value_of_each():
    weight = randn(3, 5, 2, 3, 3)
    v = trees.stack([power_start({"fc": {"weight": each}}, seeded(0), 400)["fc"] for each in weight])
    normal = normalise(weight, v)
    torch.testing.assert_close(normal.sigma, torch.linalg.matrix_norm(weight.flatten(2), 2), rtol=1e-4, atol=0)
    assert torch.linalg.matrix_norm(normal.weight.flatten(2), 2) == pytest.approx([1, 1, 1], rel=1e-4)
    torch.testing.assert_close(normal.v.norm(dim=1), torch.ones(3))


def test_each_of_several_weights_is_normalised_alone():
    weight, v = randn(3, 5, 7), randn(3, 7, seed=1)
    together, gradient = normalise(weight, v), randn(3, 5, 7, seed=2)
    for k in range(3):
        own = normalise(weight[k : k + 1], v[k : k + 1])
        for a, b in zip(together, own, strict=True):
            torch.testing.assert_close(a[k : k + 1], b)
        torch.testing.assert_close(through(gradient, together)[k : k + 1], through(gradient[k : k + 1], own))


def test_a_weight_of_zeros_stays_finite():
    normal = normalise(torch.zeros(1, 2, 3), torch.ones(1, 3))
    assert not normal.weight.any()
    assert through(torch.ones(1, 2, 3), normal).isfinite().all()


# What fits


def test_images_that_no_networks_fit():
    message = "no GAN here makes samples of 2x28x28: take data of 1x28x28, of 3x32x32, or points"
    with pytest.raises(UsageError, match=message):
        gan.choose((2, 28, 28))


def test_images_have_batch_norm_in_any_case():
    with pytest.raises(UsageError, match="norm is for generators of points, and those of images have it in any case"):
        gan.choose((1, 28, 28), norm=True)
