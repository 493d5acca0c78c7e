"""The GANs: whole iterations against the plain loop over modules, and what a step and a run promise."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from conftest import GANS
from plain_gan import benchmark, load, read, values
from torch import nn

from fedrepro import methods
from fedrepro.core import lift, optim, trees
from fedrepro.core.streams import torch_stream
from fedrepro.core.types import Batch, Task
from fedrepro.data import Federation
from fedrepro.errors import UsageError
from fedrepro.records.config import RunConfig
from fedrepro.training.train import Training

# A large eps, so that Adam makes no step of a gradient that is rounding; also of a size that shows in three iterations.
ADAM = {"lr": 0.01, "eps": 1e-3}


def make(name: str, shape=(2,), clients: int = 3, **hyper):
    """(method, initial state) with batches of 4; the backbone has one client."""
    clients = 1 if name == "gan-backbone" else clients
    task = Task(shape, 10, (20,) * clients)
    method = methods.build(name, task, {"batch": 4} | ADAM | hyper)
    return method, method.init(lambda client, purpose: torch_stream(0, 0, client, purpose), task.sizes)


def batch_for(method, clients: int, shape=(2,), turn: int = 0) -> Batch:
    """The batch of round `turn`: bytes for images, normal points else."""
    draw, generator = method.phases[turn % len(method.phases)].draw, torch_stream(turn, 0, 0, "test")
    size = (clients, 1, draw.size, *shape)
    x = torch.randn(size, generator=generator)
    x = x if len(shape) == 1 else (x * 60 + 128).clamp(0, 255).to(torch.uint8)
    noise = torch.randn(draw.noise[0], draw.size, draw.noise[1], generator=generator)
    rows = torch.zeros(clients, 1, draw.size)
    return Batch(torch.arange(clients), x, rows.long(), rows == 0, noise)


def played(method, state, rounds: int, shape=(2,), first: int = 0):
    clients, shown = len(next(trees.leaves(state["clients"]))[1]), {}
    for turn in range(first, first + rounds):
        phase = method.phases[turn % len(method.phases)]
        state, shown = phase.step(state, batch_for(method, clients, shape, turn))
    return state, shown


# Whole iterations beside modules


class Mirror:
    """The plain loop over modules that begins at a state. `turns` as in `benchmark.Adversaries`."""

    def __init__(self, state, shape, turns, learnt=(), normal=True):
        server, clients = state["server"], state["clients"]
        sequence = (
            benchmark.generator(256, 7, (128, 64), 1) if shape == (1, 28, 28) else perceptron(nn.ReLU(), 2, shape[0])
        )
        judges = []
        for k in range(len(clients["critic"][next(iter(clients["critic"]))]["bias"])):
            blank = benchmark.critic(normal) if shape == (1, 28, 28) else perceptron(nn.LeakyReLU(0.2), shape[0], 1)
            judges.append(load(blank, trees.one(clients["critic"], k), trees.one(clients["spectral"], k)))
        load(sequence, server["generator"])
        for module in (sequence, *judges):
            module.to(next(trees.leaves(server["generator"]))[1].dtype)
        for layer in sequence:
            if isinstance(layer, nn.ConvTranspose2d) and layer.kernel_size == (4, 4):
                layer.bias.requires_grad_(False)  # its gradient is rounding, see test_gannets
        self.loop = benchmark.Adversaries(sequence, judges, turns, learnt, **ADAM)

    def assert_is(self, state, atol):
        pairs = [(self.loop.generator, state["server"]["generator"])]
        pairs += [(judge, trees.one(state["clients"]["critic"], k)) for k, judge in enumerate(self.loop.critics)]
        for module, params in pairs:
            for a, b in zip(values(params), read(module), strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=atol)
        norms = [layer for layer in self.loop.generator if isinstance(layer, nn.BatchNorm2d)]
        for layer, stats in zip(norms, state["server"]["running"].values(), strict=True):
            torch.testing.assert_close(stats["mean"], layer.running_mean, rtol=0, atol=atol)
            torch.testing.assert_close(stats["var"], layer.running_var, rtol=0, atol=atol)


def perceptron(bend: nn.Module, first: int, last: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(first, 64), bend, nn.Linear(64, 64), bend, nn.Linear(64, last))


def away(d):
    return (d - 1).square()


@pytest.mark.parametrize(
    ("name", "hyper", "turns"),
    [
        ("gan-backbone", {}, (lambda d: away(d).mean(),)),
        ("gman-0", {}, (lambda d: sum(away(own).mean() for own in d) / len(d),)),
        ("f2u", {}, (benchmark.most_forgiving,)),
        ("f2u", {"generator_loss": "bce"}, (lambda d: -d.max(0).values.sigmoid().log().mean(),)),
        ("f2a", {}, None),
    ],
)
def test_two_iterations_on_images_are_the_plain_loops(name, hyper, turns):
    shape = (1, 28, 28)
    method, state = make(name, shape, clients=2, **hyper)
    strength = state["server"].get("strength", torch.zeros(())).double().requires_grad_()

    def f2a(d):
        weights = torch.exp(strength * d) / torch.exp(strength * d).sum(0)
        return away((weights * d).sum(0)).mean() + 0.1 * strength**2

    clients = len(state["clients"]["critic"]["fc"]["bias"])
    # In float64, since one ReLU that is on by rounding in one of the two is a different gradient.
    state = trees.map_tree(torch.Tensor.double, state)
    batches = [batch_for(method, clients, shape, turn) for turn in range(2)]
    batches = [batch._replace(x=batch.x.double() / 127.5 - 1, noise=batch.noise.double()) for batch in batches]
    mirror = Mirror(state, shape, turns or (f2a,), () if turns else (strength,))
    for batch in batches:
        mirror.loop.iterate(batch.x[:, 0], batch.noise)
        state, shown = method.phases[0].step(state, batch)
    mirror.assert_is(state, atol=1e-9)
    assert shown["accepted"].tolist() == [True] * clients
    if not turns:
        torch.testing.assert_close(state["server"]["strength"], strength.detach(), rtol=0, atol=1e-9)
        assert abs(strength.item() - 0.1) > 1e-3


@pytest.mark.parametrize("mode", ["sequential", "average"])
def test_md_gan_on_points_is_the_plain_loop(mode):
    method, state = make(
        "md-gan", mode=mode, spectral=False
    )  # modules iterate the norms of those who do not judge, too
    in_turn = tuple(lambda d, k=k: away(d[k]).mean() for k in range(3))
    mirror = Mirror(state, (2,), in_turn if mode == "sequential" else (lambda d: away(d).mean(),), normal=False)
    for turn in range(3):
        batch = batch_for(method, 3, turn=turn)
        mirror.loop.iterate(batch.x[:, 0], batch.noise)
    state, _ = played(method, state, 3)
    mirror.assert_is(state, atol=2e-5)
    assert state["server"]["opt"]["t"] == (9 if mode == "sequential" else 3)
    assert state["clients"]["opt"]["t"].tolist() == [3, 3, 3]


def test_md_gans_average_moves_along_gman_0s_gradient():
    (average, state), (gman_0, same_state) = make("md-gan", mode="average"), make("gman-0")
    for (_, a), (_, b) in zip(
        trees.leaves(played(average, state, 2)[0]), trees.leaves(played(gman_0, same_state, 2)[0]), strict=True
    ):
        assert torch.equal(a, b)


def test_round_robin_asks_one_critic_after_another():
    method, state = make("md-gan", mode="round_robin")
    assert len(method.phases) == 3
    for turn in range(3):
        batch, steps = batch_for(method, 3, turn=turn), []
        for client in (None, 0, 1, 2):  # whose data are others
            x = batch.x.clone()
            if client is not None:
                x[client] += 1
            new, _ = method.phases[turn].step(state, batch._replace(x=x))
            steps.append(new["server"]["generator"]["fc3"]["bias"])
        heard = [not torch.equal(step, steps[0]) for step in steps[1:]]
        assert heard == [client == turn for client in range(3)]
        state, _ = method.phases[turn].step(state, batch)


# What a step promises


@pytest.mark.parametrize("label", GANS)
def test_the_state_keeps_its_shape_and_what_came_in_is_left_alone(label, same):
    name, hyper = GANS[label]
    method, state = make(name, **hyper)
    clients = len(state["clients"]["critic"]["fc1"]["bias"])
    before = copy.deepcopy(state)
    new, shown = played(method, state, len(method.phases))
    same(state, before)
    shapes = [{leaf: (v.shape, v.dtype) for leaf, v in trees.leaves(tree)} for tree in (state, new)]
    assert shapes[0] == shapes[1]
    moved = [new["clients"]["critic"]["fc3"][of] != state["clients"]["critic"]["fc3"][of] for of in ("weight", "bias")]
    if label != "f2a-bce-linear":  # whose critics have no slope where they judge below 0 or above 1
        assert all(each.flatten(1).any(1).all() for each in moved)
    assert shown["accepted"].tolist() == [True] * clients
    curves = {"gman": {"lambda"}, "f2a": {"lambda", "weighted_variance"}}.get(name, set())
    assert set(shown) == {"loss", "accepted", "critic_loss"} | curves
    assert ("strength" in new["server"]) == (name == "gman" or label in ("f2a", "f2a-bce", "f2a-bce-linear"))
    assert method.generate(new, torch.zeros(7, method.noise)).shape == (7, 2)
    assert method.predict is None


@pytest.mark.parametrize("label", ["f2a", "md-gan"])
def test_a_critic_that_is_not_finite_is_rejected_and_judges_nothing(label):
    method, state = make(label)
    batch = batch_for(method, 3)
    spoilt = batch._replace(x=batch.x.clone())
    spoilt.x[1] = torch.nan
    new, shown = method.phases[0].step(state, spoilt)
    assert shown["accepted"].tolist() == [True, False, True]
    for tree in (new["server"], trees.rows(new["clients"], [0, 2])):
        assert all(leaf.isfinite().all() for _, leaf in trees.leaves(tree))
    assert shown["loss"].isfinite()
    assert shown["critic_loss"].isfinite()
    # The generator moved as if the other two were all there are.
    others = {"clients": trees.rows(state["clients"], [0, 2]), "server": state["server"]}
    two, _ = make(label, clients=2)
    noise = batch.noise if label == "f2a" else batch.noise[[0, 1, 3]]
    alone, _ = two.phases[0].step(others, batch._replace(clients=torch.arange(2), x=batch.x[[0, 2]], noise=noise))
    for (_, a), (_, b) in zip(trees.leaves(new["server"]), trees.leaves(alone["server"]), strict=True):
        torch.testing.assert_close(a, b)


def test_without_an_accepted_critic_the_generator_stays():
    method, state = make("f2u")
    new, shown = method.phases[0].step(state, batch_for(method, 3)._replace(x=torch.full((3, 1, 4, 2), torch.inf)))
    assert not shown["accepted"].any()
    assert shown["loss"].isnan()
    for a, b in zip(values(new["server"]["generator"]), values(state["server"]["generator"]), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("label", ["f2a", "md-gan-round-robin"])
def test_a_state_that_was_stored_goes_on_as_if_it_had_not_been(label, same):
    name, hyper = GANS[label]
    method, state = make(name, **hyper)
    whole, _ = played(method, state, 5)
    half, _ = played(method, state, 2)
    stored = {leaf: value.clone().contiguous() for leaf, value in trees.leaves(half)}
    resumed, _ = played(make(name, **hyper)[0], trees.fill(half, stored), 3, first=2)
    same(whole, resumed)


def mixture(seed: int) -> Federation:
    """Two clients with a Gaussian each."""
    modes = torch.tensor([[-4.0, 0.0], [4.0, 0.0]])
    x = modes.repeat_interleave(20, 0) + torch.randn(40, 2, generator=torch_stream(seed))
    return Federation(x, torch.zeros(40).long(), (20, 20), {}, 2, {}, modes=modes, mode_sd=1.0)


def training(seeds: tuple[int, ...], name: str = "f2a", **hyper) -> Training:
    """Six rounds of a method on the mixture."""
    task, hyper = Task((2,), 2, (20, 20)), {"batch": 4} | ADAM | hyper
    watch = {"judged": 100, "test_every": 3}
    config = RunConfig(method=name, dataset="mixture-2d", hyper=hyper, rounds=6, watch=watch, seeds=seeds)
    return Training(
        config, methods.build(name, task, hyper), {seed: mixture(seed) for seed in seeds}, torch.device("cpu")
    )


def test_a_run_that_is_resumed_is_the_run(same):
    whole, first, second = training((0, 1)), training((0, 1)), training((0, 1))
    assert [*whole] == [1, 2, 3, 4, 5, 6]
    for _ in zip(range(4), first, strict=False):
        pass
    tensors, notes = first.snapshot()
    second.restore({name: leaf.clone() for name, leaf in tensors.items()}, json.loads(json.dumps(notes)))
    assert [*second][-1] == 6
    same(whole.state, second.state)
    for a, b in zip(whole.lanes, second.lanes, strict=True):
        assert a.curve == b.curve
        assert a.status == "finished"
        assert {"lambda", "critic_loss", "weighted_variance"} <= {metric for _, metric, _ in a.curve}


@pytest.mark.parametrize(
    "label", [label for label in GANS if label != "gan-backbone"]
)  # it has pooled data, and all that md-gan has
def test_a_round_that_is_broken_off_is_played_again_to_the_same_bits(label, same, broken_off):
    name, hyper = GANS[label]
    whole, run = (training((0,), name, **hyper) for _ in range(2))
    assert [*whole]
    broken_off(run)
    same(run.state, whole.state)
    assert run.lanes[0].curve == whole.lanes[0].curve


@pytest.mark.parametrize("mode", ["vmap", "loop", "2"])
def test_critics_take_their_steps_in_turn_in_any_mode(same, mode):
    usual, asked = training((0,)), training((0,))
    list(usual)
    with lift.asked(mode):
        list(asked)
    same(usual.state, asked.state)


def test_a_seed_alone_is_the_seed_among_others(same):
    together, alone = training((0, 1)), training((1,))
    assert [*together] == [*alone]
    same(trees.one(together.state, 1), trees.one(alone.state, 0))


def test_a_seed_that_is_not_finite_diverges_alone(same):
    run, alone = training((0, 1)), training((1,))
    run.lanes[0].feeder.x[:] = torch.nan  # no critic of this seed is accepted
    assert [*run] == [*alone]
    assert [lane.status for lane in run.lanes] == ["diverged", "finished"]
    assert run.lanes[0].rejected == 2 * run.lanes[0].rounds > 0
    same(run.state, alone.state)


def test_bfloat16_is_a_precision_of_products():
    shape = (1, 28, 28)
    method, state = make("f2a", shape, clients=2)
    batch = batch_for(method, 2, shape)
    exact, _ = method.phases[0].step(state, batch)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, shown = method.phases[0].step(state, batch)
    assert all(shown[name].dtype == torch.float32 for name in ("loss", "critic_loss", "lambda"))
    moves, gap = [], []
    for (name, a), (_, b), (_, old) in zip(*(trees.leaves(tree) for tree in (exact, rounded, state)), strict=True):
        assert a.dtype == b.dtype, name
        if ".m." not in name and ".v." not in name:
            moves.append((a - old).norm().item())
            gap.append((a - b).norm().item())
    assert 0 < sum(gap) < 0.2 * sum(moves)


def test_samples_are_made_with_the_running_statistics():
    method, state = make("f2u", (1, 28, 28), clients=2)
    state, _ = played(method, state, 1, (1, 28, 28))
    z = torch.randn(3, 128, generator=torch_stream(9))
    together = method.generate(state, z)
    torch.testing.assert_close(together[:1], method.generate(state, z[:1]), rtol=0, atol=1e-5)
    assert together.abs().max() <= 1


# What cannot be


@pytest.mark.parametrize(
    ("name", "task", "hyper", "message"),
    [
        ("f2u", Task((2,), 1, (40, 20)), {}, "a client has 20 samples: set batch to that number or less"),
        ("gan-backbone", Task((2,), 1, (40, 40)), {}, "takes pooled data, not that of 2 clients: set overlap=pooled"),
        ("f2a", Task((2,), 1, (40, 40)), {"strength": -1.0}, "strength cannot be -1.0: set it to 0 or more"),
        ("f2u", Task((2,), 1, (40, 40)), {"b1": 0.0}, "'b1' of f2u cannot be 0.0"),
        ("f2u", Task((2,), 1, (40, 40)), {"loss": "hinge"}, "'loss' of f2u cannot be 'hinge'"),
        ("md-gan", Task((2,), 1, (40, 40)), {"mode": "swap"}, "'mode' of md-gan cannot be 'swap'"),
    ],
)
def test_what_cannot_be_built(name, task, hyper, message):
    with pytest.raises(UsageError, match=message):
        methods.build(name, task, hyper)


# The optimiser


@pytest.mark.parametrize("counter", [torch.tensor(3.0), torch.tensor([0.0, 5.0, 2.0])], ids=["one", "stacked"])
def test_the_fused_step_is_adams(counter):
    def draw(seed):
        generator = torch_stream(seed)
        tree = {"a": torch.randn(3, 4, 2, 5, generator=generator), "b": {"c": torch.randn(3, generator=generator)}}
        return {**tree, "a": tree["a"].movedim(1, -1)}  # not in order in memory

    params, gradient = draw(0), draw(1)
    s = {"m": draw(2), "v": trees.map_tree(torch.square, draw(3)), "t": counter}
    options = {"lr": 0.1, "b1": 0.5, "b2": 0.9, "eps": 1e-3}
    before = copy.deepcopy((params, gradient, s))
    new, state = optim.fused(**options).together(params, gradient, s)
    update = optim.adam(**options).update
    move, wanted = (torch.vmap(update) if counter.dim() else update)(gradient, s)
    for got, right in ((new, trees.add(params, move)), (state, wanted)):
        for (name, a), (_, b) in zip(trees.leaves(got), trees.leaves(right), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: name + text)
            assert a.is_contiguous()
    for tree, old in zip((params, gradient, s), before, strict=True):
        assert all(torch.equal(a, b) for (_, a), (_, b) in zip(trees.leaves(tree), trees.leaves(old), strict=True))


# The registry


def test_every_gan_is_tested_here():
    assert {name for name, _ in GANS.values()} == {n for n, row in methods.REGISTRY.items() if row.generates}
