"""The estimate of a run's memory against what its state really takes, and the refusal of what no machine holds."""

import os

import pytest
import torch

from fedrepro import methods
from fedrepro.core import trees
from fedrepro.core.streams import torch_stream
from fedrepro.core.types import Draw, Task
from fedrepro.errors import UsageError
from fedrepro.training import memory


def taken(tree):
    return sum(leaf.numel() * leaf.element_size() for _, leaf in trees.leaves(tree))


def built(name, hyper, data):
    return methods.build(name, Task(tuple(data.x.shape[1:]), data.classes, data.sizes), {"net": "mlp"} | hyper)


def test_a_state_is_as_large_as_estimated(variant, toy):
    name, hyper = variant
    data = toy(sizes=(20, 20, 10))
    hyper = hyper | {key: value for key, value in {"net": "mlp"}.items() if key in methods.find(name).hyper}
    method = methods.build(name, Task(tuple(data.x.shape[1:]), data.classes, data.sizes), hyper)
    state = method.init(lambda client, part: torch_stream(0, 0, client, part), data.sizes)
    clients = 2 * 3 * taken(state.get("server", {}).get("params", {}))  # a model and its change at each of three
    assert memory._models(method, data, Draw(size=4)) == taken(state) + clients


@pytest.mark.parametrize(
    ("draw", "rows"),
    [(Draw(size=4, steps=5), 20), (Draw(size=4, epochs=2), 40), (Draw(size=None, chunk=8), 24), (Draw(size=99), 20)],
)
def test_a_round_s_batches_are_as_large_as_drawn(toy, draw, rows):
    data = toy(sizes=(20, 20))
    assert memory._batches(draw, data) == 2 * rows * (data.x[0].numel() + 16)


def test_what_no_machine_holds_is_refused_with_its_size_and_a_way_out(toy, monkeypatch):
    data = toy()
    method = built("fedavg", {"batch": 4, "hidden": 200_00}, data)
    sizes = {"SC_PHYS_PAGES": 2**18, "SC_PAGE_SIZE": 4096}  # 1 GiB
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    least = r"takes at least 7 GiB of memory and the machine has 1, most of it for the models of clients and server"
    with pytest.raises(UsageError, match=least):
        memory.enough(method, data, 1)
    memory.enough(built("fedavg", {"batch": 4, "hidden": 2_000}, data), data, 1)
    with pytest.raises(UsageError, match="a smaller network, fewer clients or fewer seeds"):
        memory.enough(built("fedavg", {"batch": 4, "hidden": 2_000}, data), data, 1000)
    with pytest.raises(UsageError, match="most of it for the batches of one round: ask for fewer steps or epochs"):
        memory.enough(built("fedavg", {"batch": 4, "hidden": 6, "steps": 10**8}, data), data, 1)


def test_nothing_is_allocated_for_the_estimate(toy):
    data = toy()
    before = torch.get_default_device()
    memory.enough(built("fedavg", {"batch": 4, "hidden": 20_000}, data), data, 1)  # 1.6 GB, in no time
    assert torch.zeros(1).device == before
