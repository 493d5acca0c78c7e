"""Networks made from torch's modules: the modules' own numbers, draws and gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad

from fedrepro.core import trees
from fedrepro.errors import UsageError
from fedrepro.nets.mlp import cross_entropy
from fedrepro.nets.modules import network, small_cnn

SHAPES = {"grey": (1, 28, 28), "colour": (3, 32, 32), "odd": (2, 9, 11)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rows(shape, *count, seed=0):
    x = torch.randint(0, 256, (*count, *shape), generator=generator(seed), dtype=torch.uint8)
    x[..., : shape[1] // 2, :] = 0  # where all four of a pool are equal
    return x, torch.randint(7, count, generator=generator(seed + 1))


def plain(params, x):
    """The small CNN in the paper's words: convolution, ReLU, pool; twice; linear."""
    h = x / 255
    for name in ("conv1", "conv2"):
        h = F.max_pool2d(F.relu(F.conv2d(h, params[name]["weight"], params[name]["bias"], padding=2)), 2)
    return F.linear(h.flatten(1), params["fc"]["weight"], params["fc"]["bias"])


@pytest.fixture(params=SHAPES)
def shape(request):
    return SHAPES[request.param]


def near(left, right, rtol=1e-4, atol=1e-6):
    left, right = dict(trees.leaves(left)), dict(trees.leaves(right))
    assert left.keys() == right.keys()
    for name, leaf in left.items():
        torch.testing.assert_close(leaf, right[name], rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def test_the_network_has_the_stated_parameters():  # papers/fedaug-2022/PROTOCOL.md
    params = small_cnn((1, 28, 28), 10).init(generator())
    assert sum(leaf.numel() for _, leaf in trees.leaves(params)) == 28_938


def test_logits_are_those_of_the_layers_in_turn(shape):
    net = small_cnn(shape, 7)
    params, (x, _) = net.init(generator()), rows(shape, 6)
    torch.testing.assert_close(net.apply(params, x), plain(params, x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(net.apply(params, x / 255), net.apply(params, x))


def test_features_are_the_input_of_the_last_layer(shape):
    net = small_cnn(shape, 7)
    params, (x, _) = net.init(generator()), rows(shape, 6)
    seen, last = net.features(params, x), params[net.head]
    torch.testing.assert_close(F.linear(seen, last["weight"], last["bias"]), net.apply(params, x))
    assert net.features(params, x[:2]).shape == (2, last["weight"].shape[1])


@pytest.mark.parametrize("inference", [False, True])
def test_the_gradient_of_stacked_clients_is_autograds(shape, inference):
    net = small_cnn(shape, 7)
    params = trees.stack([net.init(generator(seed)) for seed in range(3)])
    before = trees.map_tree(torch.clone, params)
    (x, y), live = rows(shape, 3, 5), torch.ones(3, 5, dtype=torch.bool)
    live[1, 2:] = live[2] = False
    with torch.set_grad_enabled(not inference):
        gradient, risk = net.descend(params, x, y, live)
    for k in range(3):
        wanted = grad(lambda p, k=k: cross_entropy(plain(p, x[k]), y[k], live[k]))(trees.one(params, k))
        near(trees.one(gradient, k), wanted)
        torch.testing.assert_close(risk[k], cross_entropy(plain(trees.one(params, k), x[k]), y[k], live[k]))
    near(params, before, rtol=0, atol=0)
    assert not any(leaf.requires_grad for _, leaf in trees.leaves(params))
    assert not any(leaf.requires_grad for leaf in (risk, *(leaf for _, leaf in trees.leaves(gradient))))


def test_seeds_and_clients_batched_are_one_after_another():
    shape = SHAPES["odd"]
    net = small_cnn(shape, 7)
    params = trees.stack([trees.stack([net.init(generator(10 * s + k)) for k in range(3)]) for s in range(2)])
    (x, y), live = rows(shape, 2, 3, 4), torch.ones(4, dtype=torch.bool)
    step = grad(lambda p, x, y: cross_entropy(net.apply(p, x), y, live))
    logits, slopes = (torch.vmap(torch.vmap(fn)) for fn in (net.apply, step))
    for s in range(2):
        for k in range(3):
            own = trees.one(trees.one(params, s), k)
            torch.testing.assert_close(logits(params, x)[s, k], net.apply(own, x[s, k]), rtol=1e-5, atol=1e-6)
            near(trees.one(trees.one(slopes(params, x, y), s), k), step(own, x[s, k], y[s, k]))


def test_bfloat16_is_of_the_products_alone(shape):
    net = small_cnn(shape, 7)
    params = trees.stack([net.init(generator(seed)) for seed in range(2)])
    (x, y), live = rows(shape, 2, 5), torch.ones(2, 5, dtype=torch.bool)
    (exact, risk), plainly = net.descend(params, x, y, live), net.apply(trees.one(params, 0), x[0])
    with torch.autocast("cpu", torch.bfloat16):
        (low, low_risk), logits = net.descend(params, x, y, live), net.apply(trees.one(params, 0), x[0])
        assert net.features(trees.one(params, 0), x[0]).dtype == torch.float32
    assert {leaf.dtype for leaf in (low_risk, logits, *(leaf for _, leaf in trees.leaves(low)))} == {torch.float32}
    torch.testing.assert_close(logits, plainly, rtol=0.05, atol=0.02)
    torch.testing.assert_close(low_risk, risk, rtol=0.02, atol=0.01)
    near(low, exact, rtol=0.1, atol=0.02)
    assert not torch.equal(logits, plainly)  # it did round something


# Initial parameters


def test_the_generator_alone_decides_the_parameters():
    net = small_cnn((1, 8, 8), 7)
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first, other = net.init(generator(1)), net.init(generator(2))
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(3)
    near(net.init(generator(1)), first, rtol=0, atol=0)
    assert not torch.equal(first["fc"]["weight"], other["fc"]["weight"])
    drawing = generator(1)
    assert not torch.equal(net.init(drawing)["fc"]["weight"], net.init(drawing)["fc"]["weight"])


def test_initial_weights_are_torchs():
    params = small_cnn((1, 28, 28), 10).init(generator())
    for name, fan_in in {"conv1": 25, "conv2": 400, "fc": 1568}.items():
        for leaf in params[name].values():
            assert leaf.abs().max() <= fan_in**-0.5
        assert params[name]["weight"].std() == pytest.approx(fan_in**-0.5 / 3**0.5, rel=0.15)


def test_building_a_network_draws_nothing():
    state = torch.random.get_rng_state()
    small_cnn((1, 28, 28), 10)
    assert torch.equal(torch.random.get_rng_state(), state)


# Any module


class Two(nn.Module):
    """A module with a list of parts, and a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Conv2d(2, 3, 1), nn.Linear(3, 4)])
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.scale * self.parts[1](self.parts[0](x).mean((2, 3)))


def test_parameters_are_nested_by_the_modules_path():
    net = network(Two, "parts.1", prepare=lambda x: x / 10)
    params, x = net.init(generator()), torch.rand(3, 2, 4, 4)
    assert params.keys() == {"parts", "scale"}
    assert params["parts"]["0"]["weight"].shape == (3, 2, 1, 1)
    own = Two()
    own.load_state_dict(dict(trees.leaves(params)))
    torch.testing.assert_close(net.apply(params, x), own(x / 10))
    assert net.features(params, x).shape == (3, 3)


def test_the_last_layer_is_found_by_its_name():
    net = network(Two, "parts.1")
    assert net.head == "parts.1"
    assert {"parts.1.weight", "parts.1.bias"} <= dict(trees.leaves(net.init(generator()))).keys()


def test_buffers_are_refused():
    with pytest.raises(UsageError, match=r"cannot have buffers, and this one has '1.running_mean': leave out batch"):
        network(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2)), "3")


@pytest.mark.parametrize("side", [1, 3])
def test_images_that_do_not_fit_are_refused(side):
    with pytest.raises(UsageError, match=f"images of {side}x9 pixels do not fit"):
        small_cnn((1, side, 9), 10)
