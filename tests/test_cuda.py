"""On a real GPU: every method and network ends near where the CPU does, and twice at the same bits.

What can be told without one is in tests/test_devices.py.
"""

import pytest
import torch
from test_devices import CASES, GENERATING, LABELS, SIZES, WITH_NETS, federation, with_net

from fedrepro import methods
from fedrepro.core import trees
from fedrepro.core.lift import over_steps
from fedrepro.core.types import Task
from fedrepro.training import runs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def deterministic():
    """The settings of a training on CUDA, until the test ends."""
    tf32 = torch.backends.cudnn.allow_tf32
    runs.resolve("cuda")
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.allow_tf32 = tf32


def compared(start, atol):
    """A training on the CPU and two on the GPU."""
    states = []
    for device in ("cpu", "cuda", "cuda"):
        training = start(device=device)
        assert [*training]
        assert {lane.status for lane in training.lanes} <= {"finished", "cap", "stopped"}
        states.append({name: leaf.cpu() for name, leaf in trees.leaves(training.state)})
    here, there, twice = states
    for name, leaf in here.items():
        assert torch.equal(there[name], twice[name]), name
        torch.testing.assert_close(there[name], leaf, rtol=0, atol=atol, msg=lambda m, name=name: f"{name}: {m}")


def test_recorded_steps_are_the_steps():
    draws = torch.Generator().manual_seed(0)
    x, carry = torch.randn(3, 20, 4, generator=draws).cuda(), {"w": torch.randn(3, 4, generator=draws).cuda()}
    live = torch.ones(3, 20, 1, dtype=torch.bool, device="cuda")
    live[0, 12:] = live[2, 2:] = False

    def step(carry, fixed, x, live):
        return {"w": carry["w"] * fixed["by"] + torch.sin(x)}

    for by in (0.5, 0.9):  # the second time, the recordings of the first
        fixed = {"by": torch.full((3, 1), by, device="cuda")}
        plain, replayed = (over_steps(step, carry, fixed, (x,), live, recorded)["w"] for recorded in (False, True))
        assert torch.equal(plain, replayed)


@pytest.mark.parametrize(("name", "hyper"), CASES, ids=LABELS)
@pytest.mark.parametrize(("precision", "atol"), [("fp32", 1e-3), ("bf16", 0.1)])
def test_a_method_ends_where_it_does_on_the_cpu(training, name, hyper, precision, atol):
    game, hyper = methods.find(name).family == "games", {"batch": 2} | hyper  # enough steps for a recording
    rounds = len(training(name, SIZES, hyper=hyper).method.phases) + 1
    watch = {"grad_norm": not game, "test_every": 1, "precision": precision}
    how = {"sizes": SIZES, "hyper": hyper, "rounds": rounds, "precision": precision, "watch": watch}
    compared(lambda device: training(name, seeds=(0, 1), device=device, **how), atol)


@pytest.mark.parametrize(("name", "net"), WITH_NETS)
@pytest.mark.parametrize(("precision", "atol"), [("fp32", 1e-4), ("bf16", 1e-2)])
def test_a_network_ends_where_it_does_on_the_cpu(training, name, net, precision, atol):
    data, method = with_net(name, net, (18, 15), batch=3)
    how = {"data": {0: data, 1: data}, "seeds": (0, 1), "rounds": 2, "precision": precision}
    compared(lambda device: training(method, device=device, **how), atol)


@pytest.mark.parametrize(("name", "hyper"), [*GENERATING, ("f2a", {"strength": 3.65})])
def test_a_gan_ends_where_it_does_on_the_cpu(training, name, hyper):
    sizes = (8,) if name == "gan-backbone" else (8, 9)
    data = federation((2,), sizes, modes=torch.eye(2), mode_sd=0.5)
    method = methods.build(name, Task((2,), 3, sizes), {"batch": 4} | hyper)
    how = {"data": {0: data, 1: data}, "seeds": (0, 1), "rounds": 3, "watch": {"judged": 100, "test_every": 100}}
    compared(lambda device: training(method, device=device, **how), 1e-3)
