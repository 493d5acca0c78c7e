"""The convolutional networks against torch's own convolutions, pooling and autograd."""

import inspect
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, grad_and_value

from fedrepro.core import trees
from fedrepro.errors import UsageError
from fedrepro.nets import loops
from fedrepro.nets.cnn import _in_torch, cnn
from fedrepro.nets.mlp import cross_entropy

SIZES = {
    "grey": ((1, 28, 28), {}),
    "colour": ((3, 28, 28), {}),
    "wide": ((3, 32, 32), {}),
    "padded": ((1, 28, 28), {"padding": (2, 2), "filters": (5, 7), "hidden": (9,)}),
    "first padded": ((1, 28, 28), {"padding": (2, 0)}),
}

_even = st.sampled_from((6, 8, 12, 14))  # sides of images


def plain(params, x, padding):
    """The same network in torch's words."""
    for i, zeros in enumerate(padding, 1):
        x = F.conv2d(x, params[f"conv{i}"]["weight"], params[f"conv{i}"]["bias"], padding=zeros)
        x = F.relu(F.max_pool2d(x, 2))
    x = x.flatten(1)
    layers = [layer for name, layer in params.items() if name.startswith("fc")]
    for layer in layers[:-1]:
        x = F.relu(F.linear(x, layer["weight"], layer["bias"]))
    return F.linear(x, layers[-1]["weight"], layers[-1]["bias"])


def images(shape, rows, seed=0):
    """Bytes with blank regions, in which all four of a pool are equal."""
    x = torch.randint(0, 256, (rows, *shape), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    x[..., : shape[1] // 2, :] = 0
    return x, torch.arange(rows) % 10


@pytest.fixture(params=SIZES)
def case(request):
    """(network, its parameters, the plain network) of every size."""
    shape, settings = SIZES[request.param]
    net = cnn(shape, 10, **settings)
    padding = settings.get("padding", (0, 0))
    return shape, net, net.init(torch.Generator().manual_seed(1)), lambda params, x: plain(params, x / 255, padding)


def test_logits_and_gradients_are_those_of_torch(case):
    shape, net, params, other = case
    x, y = images(shape, 6)
    live = torch.ones(6, dtype=torch.bool)
    torch.testing.assert_close(net.apply(params, x), other(params, x), rtol=1e-5, atol=1e-6)
    ours, theirs = (grad(lambda p, f=f: cross_entropy(f(p, x), y, live))(params) for f in (net.apply, other))
    for name, leaf in trees.leaves(theirs):
        torch.testing.assert_close(dict(trees.leaves(ours))[name], leaf, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 128, 129, 300])
def test_any_number_of_rows_goes_through(rows):
    net = cnn((1, 12, 12), 3, filters=(2,), hidden=(), padding=(0,))
    params = net.init(torch.Generator().manual_seed(2))
    x = torch.randint(0, 256, (rows, 1, 12, 12), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    torch.testing.assert_close(net.apply(params, x), plain(params, x / 255, (0,)), rtol=1e-5, atol=1e-6)


def test_threads_share_clients_and_change_no_bit(case, threads):
    shape, net, _, _ = case
    params = trees.stack([net.init(torch.Generator().manual_seed(seed)) for seed in range(3)])
    x, y = images(shape, 12)
    batch = x.unflatten(0, (3, 4)), y.unflatten(0, (3, 4)), torch.ones(3, 4, dtype=torch.bool)
    found = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        found.append(dict(trees.leaves(net.descend(params, *batch)[0])))
    for other in found[1:]:
        assert all(torch.equal(leaf, other[name]) for name, leaf in found[0].items() if name.startswith("conv"))


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 70), inputs=st.integers(1, 4), filters=st.integers(1, 12), sides=st.tuples(_even, _even),
    deeper=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_the_compiled_loops_are_torchs_layers(batch, inputs, filters, sides, deeper, seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = (batch, inputs, *sides), (filters, inputs, 5, 5), (filters,)
    x, weight, bias = (torch.randn(size, generator=generator).requires_grad_() for size in sizes)
    rows, batched = batch_last(x.detach()), lambda found: found[0].unflatten(-1, (-1, batch)).movedim(-1, 0)
    h, which = loops.pooled(rows, weight.detach()[None], bias.detach()[None], batch)
    y = F.conv2d(x, weight, bias)
    torch.testing.assert_close(batched(h), F.max_pool2d(y, 2).relu(), rtol=1e-5, atol=1e-5)
    # Of two that are equal but for rounding, torch may choose the other one.
    four = y.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).transpose(3, 4).flatten(4)
    of = batched(which).long()
    wanted = four.gather(-1, of.clamp(max=3)[..., None])[..., 0] * (of < 4)
    torch.testing.assert_close(batched(h), wanted, rtol=1e-5, atol=1e-5)
    slope = torch.randn(wanted.shape, generator=generator)
    wanted.backward(slope)
    found = loops.pooled_gradient(rows, weight.detach()[None], batch_last(slope), which, batch, deeper)
    torch.testing.assert_close(found[0][0], weight.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[1][0], bias.grad, rtol=1e-4, atol=1e-4)
    assert (found[2] is not None) == deeper
    if deeper:
        torch.testing.assert_close(batched(found[2]), x.grad, rtol=1e-4, atol=1e-4)


def batch_last(x):
    """Images [B, C, H, W] as the loops have them, of one client: [1, C, H, W*B]."""
    return x.movedim(0, -1).flatten(2).unsqueeze(0)


def test_nothing_but_its_own_numbers_is_written():
    # The batch is no multiple of eight, nor are the rows: what is taken at once reaches into what stands beside.
    x, weight, bias = torch.randn(3, 1, 8, 6 * 11), torch.randn(3, 3, 1, 5, 5), torch.randn(3, 3)
    together = loops.pooled(x, weight, bias, 11)
    alone = [loops.pooled(x[k : k + 1], weight[k : k + 1], bias[k : k + 1], 11) for k in range(3)]
    for found, single in zip(together, zip(*alone, strict=True), strict=True):
        assert torch.equal(found, torch.cat(single))


@pytest.mark.slow
def test_the_loops_leave_torch_its_number_of_threads():
    count = "import torch; torch.set_num_threads(1); from fedrepro.nets import loops; print(torch.get_num_threads())"
    assert subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True).stdout == "1\n"


def test_clients_batched_are_clients_alone(case):
    shape, net, _, _ = case
    states = [net.init(torch.Generator().manual_seed(seed)) for seed in range(3)]
    x, y = images(shape, 12)
    x, y, live = x.unflatten(0, (3, 4)), y.unflatten(0, (3, 4)), torch.ones(4, dtype=torch.bool)
    step = grad(lambda p, x, y: cross_entropy(net.apply(p, x), y, live))
    batched = torch.vmap(step)(trees.stack(states), x, y)
    for k, state in enumerate(states):
        for name, leaf in trees.leaves(step(state, x[k], y[k])):
            torch.testing.assert_close(dict(trees.leaves(batched))[name][k], leaf, rtol=1e-4, atol=1e-6)


def test_the_gradient_of_stacked_clients_is_autograds(case):
    shape, net, _, other = case
    states = [net.init(torch.Generator().manual_seed(seed)) for seed in range(3)]
    x, y = images(shape, 12)
    x, y, live = x.unflatten(0, (3, 4)), y.unflatten(0, (3, 4)), torch.ones(3, 4, dtype=torch.bool)
    live[1, 2:] = live[2] = False
    gradient, risk = net.descend(trees.stack(states), x, y, live)
    for k, state in enumerate(states):
        wanted, value = grad_and_value(lambda p, k=k: cross_entropy(other(p, x[k]), y[k], live[k]))(state)
        torch.testing.assert_close(risk[k], value, rtol=1e-5, atol=1e-6)
        for name, leaf in trees.leaves(wanted):
            torch.testing.assert_close(dict(trees.leaves(gradient))[name][k], leaf, rtol=1e-4, atol=1e-6)


def test_bfloat16_products_are_near(case):
    shape, net, params, _ = case
    x, _ = images(shape, 5)
    with torch.autocast("cpu", torch.bfloat16):
        low = net.apply(params, x)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, net.apply(params, x), rtol=0.05, atol=0.02)


@pytest.mark.parametrize(("shape", "count"), [((1, 28, 28), 44_426), ((3, 28, 28), 44_726), ((3, 32, 32), 62_006)])
def test_the_small_network_has_the_stated_parameters(shape, count):  # papers/gma-2022/PROTOCOL.md
    params = cnn(shape, 10).init(torch.Generator().manual_seed(0))
    assert sum(leaf.numel() for _, leaf in trees.leaves(params)) == count


def test_initial_weights_are_within_torchs_bounds():
    params = cnn((1, 28, 28), 10).init(torch.Generator().manual_seed(0))
    for name, fan_in in {"conv1": 25, "conv2": 150, "fc1": 256, "fc2": 120, "fc3": 84}.items():
        for leaf in params[name].values():
            assert leaf.abs().max() <= fan_in**-0.5
    assert params["fc1"]["weight"].std() == pytest.approx(256**-0.5 / 3**0.5, rel=0.02)


@pytest.mark.parametrize("side", [27, 12])
def test_images_that_do_not_fit_are_refused(side):
    with pytest.raises(UsageError, match=f"images of {side}x{side} pixels do not fit"):
        cnn((1, side, side), 10)


def test_what_a_gpu_would_run_is_the_same(case):
    shape, net, params, other = case
    x, _ = images(shape, 3)
    padding = inspect.getclosurevars(net.apply).nonlocals["padding"]
    leaves = [leaf for layer in params.values() for leaf in (layer["weight"], layer["bias"])]
    torch.testing.assert_close(_in_torch(padding, x / 255, leaves), other(params, x), rtol=1e-5, atol=1e-6)
