"""Everything that computes, on a second device (tests/elsewhere.py): by each method, network, judge and augmentation.

Its numbers must be those of the CPU, bit for bit where both go the same way, and no operation one for which torch has
no deterministic way on CUDA.
"""

import json
import os
from functools import partial
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import safetensors.torch
import torch
from elsewhere import AWAY, RAISING, Away, elsewhere
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from fedrepro import methods
from fedrepro.core import trees
from fedrepro.core.lift import over_steps
from fedrepro.core.parameters import defaults
from fedrepro.core.precision import products
from fedrepro.core.streams import torch_stream
from fedrepro.core.types import Draw, Task
from fedrepro.data import Federation, augment
from fedrepro.data.draws import Feeder
from fedrepro.judges import fidelity, networks
from fedrepro.judges.extractors import Found
from fedrepro.methods import penalties
from fedrepro.nets import gan
from fedrepro.nets.choose import NETS, Nets
from fedrepro.nets.mlp import cross_entropy
from fedrepro.training import runs
from fedrepro.training.checkpoints import Checkpoints

CPU, SIZES = torch.device("cpu"), (20, 12)


@pytest.fixture
def away():
    """The other device."""
    with elsewhere() as mode:
        yield mode


def test_what_may_mix_is_what_cuda_lets_mix(away):
    there, here = torch.arange(6.0).view(3, 2).to(AWAY), torch.ones(3)
    assert isinstance(there, Away)
    assert there.device == AWAY
    for mixing in (lambda: there.T + here, lambda: torch.cat([there[:, 0], here]), lambda: there[0].add_(here[:2])):
        with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
            mixing()
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        there.index_select(0, torch.arange(2))
    with pytest.raises(AssertionError, match="stack|cat"):
        torch.stack([there[0, 0], here[0]])
    assert (there * here[0]).tolist() == there[torch.arange(3)].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert there.sum().item() == 15
    assert not isinstance(there.cpu(), Away)
    assert all(hasattr(torch.ops.aten, name) for name in RAISING)


def test_an_operation_that_would_raise_on_cuda_is_found():
    def pooled():
        with elsewhere():
            x = torch.ones(1, 1, 4, 4).to(AWAY).requires_grad_()
            torch.autograd.grad(torch.nn.functional.adaptive_avg_pool2d(x, 3).sum(), x)

    with pytest.raises(AssertionError, match="_adaptive_avg_pool2d_backward.*would raise on CUDA"):
        pooled()


@pytest.mark.parametrize("look", [lambda x: x.sum().item(), lambda x: x * torch.tensor([2.0], device=x.device)])
def test_a_recorded_step_that_waits_or_is_handed_a_number_is_found(away, look):
    x, live = torch.ones(2, 4, 5).to(AWAY), torch.ones(2, 4, 5, dtype=torch.bool).to(AWAY)
    carry = {"w": torch.zeros(2, 3).to(AWAY)}

    def step(carry, fixed, x, live):
        look(x)
        return carry

    over_steps(step, carry, {}, (x,), live)
    with pytest.raises(AssertionError, match="in a recorded step"):
        over_steps(step, carry, {}, (x,), live, recorded=True)


def compared(start, folder, atol=0.0):
    """The training `start(device=...)` on both devices, there resumed after a round, has the same state and results.

    With `atol`, the state alone is near. Returns the names of the operations there.
    """
    here = start(device="cpu")
    assert [*here]
    with elsewhere() as mode:
        begun, there = start(device=AWAY.type), start(device=AWAY.type)
        next(iter(begun))
        Checkpoints(folder, {}, print).save(begun, {})
        Checkpoints(folder, {}, print).resume(there, {})
        assert [*there][0] == 2
        assert all(isinstance(leaf, Away) for _, leaf in trees.leaves(there.state))
        state = trees.map_tree(Away.cpu, there.state)
    for (name, a), (_, b) in zip(trees.leaves(here.state), trees.leaves(state), strict=True):
        torch.testing.assert_close(b, a, rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}")
    for a, b in zip(here.lanes, there.lanes, strict=True):
        assert b.status == a.status
        if not atol:
            assert (b.curve, b.metrics, b.samples) == (a.curve, a.metrics, a.samples)
    return mode.used


SHARED = {"mask": "fedavg", "sign_weighting": "fedavg", "keep_optimiser": "fedavg", "spectral": "f2u"}  # tried with one


def choices(name):
    """A method as it is, and with each other value of a hyper-parameter that has a few: there code paths part."""
    build = methods.find(name).build
    yield {}
    for key, kind in get_type_hints(build, include_extras=True).items():
        values = get_args(kind) if get_origin(kind) is Literal else (True, False) if kind is bool else ()
        if key not in ("net", "init") and SHARED.get(key, name) == name:
            yield from ({key: value} for value in values if value != defaults(build)[key])


MORE = [("fedavg", {"cohort": 1, "steps": 2}), ("v-rex", {"anneal": 1}), ("irm", {"anneal": 1})]
CASES = [(name, hyper) for name, row in methods.REGISTRY.items() if not row.generates for hyper in choices(name)] + MORE
LABELS = ["-".join([name, *(f"{key}={value}" for key, value in hyper.items())]) for name, hyper in CASES]


@pytest.mark.parametrize(("name", "hyper"), CASES, ids=LABELS)
def test_a_method_trains_as_on_the_cpu(training, tmp_path, name, hyper):
    game = methods.find(name).family == "games"
    hyper = {"batch": 8} | hyper
    rounds = len(training(name, SIZES, hyper=hyper).method.phases) + 1
    how = {"sizes": SIZES, "hyper": hyper, "rounds": rounds, "watch": {"grad_norm": not game, "test_every": 1}}
    batched = {"seeds": (0, 1)} | how
    compared(partial(training, name, **batched), tmp_path / "batched")
    how["watch"] |= {"precision": "bf16"}
    alone = {"seeds": (0,), "precision": "bf16"} | how
    compared(partial(training, name, **alone), tmp_path / "alone", atol=0.1)


def federation(shape, sizes, classes=3, **more):
    """Random rows: bytes of images, or points."""
    draws, total = torch_stream(0), sum(sizes) + 5
    points = torch.randn(total, *shape, generator=draws)
    x = points if len(shape) == 1 else torch.randint(0, 256, points.shape, generator=draws).byte()
    y = torch.randint(0, classes, (total,), generator=draws)
    return Federation(x[:-5], y[:-5], sizes, {"test": (x[-5:], y[-5:])}, classes, {}, **more)


WITH_NETS = [("fedavg", net) for net in get_args(Nets)]
WITH_NETS += [("vm", "cnn"), ("vm", "cnn-fair"), ("fed-irm", "cnn-fair"), ("irm", "cnn-fair"), ("fedgma", "cnn")]


def with_net(name, net, sizes, batch):
    """A method with that network, and images that fit it: (data, method)."""
    data = federation((3, 32, 32) if net == "resnet18" else (1, 28, 28), sizes)
    hyper = {"optimiser": "sgd", "batch": batch, "net": net, "lr": 1e-3}
    hyper = {key: value for key, value in hyper.items() if key in methods.find(name).hyper}
    return data, methods.build(name, Task(tuple(data.x.shape[1:]), data.classes, data.sizes), hyper)


@pytest.mark.parametrize(("name", "net"), WITH_NETS)
def test_a_network_trains_as_on_the_cpu(training, tmp_path, name, net):
    data, method = with_net(name, net, (3, 2), batch=2)
    for precision, atol in (("fp32", 1e-4), ("bf16", 1e-2)):
        how = {"data": {0: data}, "rounds": 2, "precision": precision}
        used = compared(partial(training, method, **how), tmp_path / precision, atol)
        assert net == "mlp" or "convolution" in used


GENERATING = [(name, hyper) for name, row in methods.REGISTRY.items() if row.generates for hyper in choices(name)]


@pytest.mark.parametrize(("name", "hyper"), [*GENERATING, ("f2a", {"strength": 3.65})])
def test_a_gan_trains_as_on_the_cpu(training, tmp_path, name, hyper):
    sizes = (8,) if name == "gan-backbone" else (8, 9)
    data = federation((2,), sizes, modes=torch.eye(2), mode_sd=0.5)
    method = methods.build(name, Task((2,), 3, sizes), {"batch": 4} | hyper)
    how = {"data": {0: data, 1: data}, "seeds": (0, 1), "rounds": 3, "watch": {"judged": 100, "test_every": 1}}
    used = compared(partial(training, method, **how), tmp_path)
    assert "_fused_adam_" in used


@pytest.fixture
def extractor(tmp_path):
    """extractor(shape, device) -> a small classifier of images, with random weights, as `networks.load` loads one."""

    def load(shape, device):
        params, path = networks.cnn(shape, 3).init(torch_stream(1)), tmp_path / "made-cnn.safetensors"
        safetensors.torch.save_file(dict(trees.leaves(params)), path)
        path.with_suffix(".json").write_text(json.dumps({"shape": shape, "classes": 3}))
        return networks.load(Found("made_cnn", "", path), torch.device(device))

    return load


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gan_of_images_is_trained_and_judged_as_on_the_cpu(
    training, tmp_path, monkeypatch, extractor, shape, precision
):
    data = federation(shape, (4, 5))
    method = methods.build("f2a", Task(shape, 3, data.sizes), {"batch": 2})
    real = fidelity.moments(extractor(shape, "cpu").features(data.x))
    watch, judged = {"judged": 100}, {}

    class Judge(fidelity.Yardstick):
        def measure(self, images):
            found = judged[images.device.type] = super().measure(images)
            return found

    monkeypatch.setattr(fidelity, "yardstick", lambda dataset, watch, on: Judge(*[extractor(shape, on)] * 2, real, 0.0))
    exactly = precision == "fp32"
    start = partial(training, method, data={0: data}, rounds=2, watch=watch, precision=precision)
    compared(start, tmp_path, atol=0.0 if exactly else 0.05)
    assert judged[AWAY.type] == (judged["cpu"] if exactly else pytest.approx(judged["cpu"], rel=0.2))


@pytest.mark.parametrize("change", [augment.rotation(45), augment.blur, augment.weak, augment.moderate])
@pytest.mark.parametrize("sizes", [(9, 9), (9, 4)])
def test_augmented_draws_are_those_of_the_cpu(away, change, sizes):
    data = federation((3, 8, 8), sizes)
    for x in (data.x, data.x / 255):
        here, there = (Feeder(0, x.to(on), data.y.to(on), sizes, change) for on in (CPU, AWAY))
        for want in (Draw(3, epochs=1, noise=(1, 2)), Draw(None, chunk=4), Draw(2, clients=1)):
            for a, b in zip(here.draw(want, 0), there.draw(want, 0), strict=True):
                assert isinstance(b, Away)
                assert torch.equal(a, b.cpu())


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_cuda_is_deterministic_and_float32_is_float32(monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert runs.resolve("cpu") == CPU
    assert not torch.are_deterministic_algorithms_enabled()
    try:
        assert runs.resolve(device) == torch.device("cuda")
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert os.environ == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.fixture
def cuda(monkeypatch):
    """cuda(init) -> parameters on CUDA without values, under its autocast; without a driver there are no gradients."""
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    with FakeTensorMode() as fake, torch.no_grad(), products("cuda", "bf16"):
        assert torch.is_autocast_enabled("cuda")

        def moved(init):
            with unset_fake_temporarily():
                params = init(torch_stream(0))
            return trees.map_tree(lambda leaf: fake.from_tensor(leaf).to("cuda"), params)

        yield moved


@pytest.mark.parametrize("name", get_args(Nets))
def test_a_network_fits_the_autocast_of_cuda(cuda, name):
    net = NETS[name](Task((3, 32, 32), 3, SIZES), 6)
    params, x, y = cuda(net.init), torch.empty(2, 4, 3, 32, 32, device="cuda"), torch.zeros(2, 4, device="cuda")
    y, live = y.long(), y == 0
    losses = [cross_entropy(net.apply(params, x[0]), y[0], live[0])]
    if name == "mlp":
        gradient, risk = net.descend(trees.repeat(params, 2), x, y, live)
        losses += [risk, *(leaf for _, leaf in trees.leaves(gradient))]
    measures = [penalties.on_scalar] + [penalties.on_weights] * (net.features is not None)
    losses += [each(net, params, x[0], y[0], live[0])[1] for each in measures]
    assert {(leaf.device.type, leaf.dtype) for leaf in losses} == {("cuda", torch.float32)}


@pytest.mark.parametrize("shape", [(2,), *gan.NETS])
def test_the_networks_of_a_gan_fit_the_autocast_of_cuda(cuda, shape):
    generator, critic = gan.choose(shape)
    params, judge, running = cuda(generator.init), cuda(critic.init), cuda(lambda _: generator.running())
    x, running = generator.apply(params, running, torch.empty(4, generator.noise, device="cuda"), True)
    found = [x, critic.apply(judge, x), *(leaf for _, leaf in trees.leaves(running))]
    for layer in judge.values():
        weight = layer["weight"][None]
        normal = gan.normalise(weight, weight[:, 0].flatten(1))
        found += [*normal, gan.through(weight.clone(), normal)]
    assert {(leaf.device.type, leaf.dtype) for leaf in found} == {("cuda", torch.float32)}
