"""FedAvgM against a loop that is its formula and nothing else, and as a method that fedrepro finds."""

import pytest
import torch
from torch.func import grad
from torch.nn.functional import cross_entropy

from fedrepro import methods
from fedrepro.core.types import Batch, Task
from fedrepro.errors import UsageError

TASK = Task(shape=(1, 1, 2), classes=2, sizes=(3, 1))  # two clients, of three rows and of one
X = torch.tensor([[[[0, 255]]], [[[255, 0]]]], dtype=torch.uint8)  # a row of each client, which it always draws
Y = torch.tensor([0, 1])
ONE = {"net": "mlp", "hidden": 3, "batch": 1, "steps": 1, "lr": 0.5}  # a gradient step a round


def played(name, rounds, **hyper):
    """The method and its state before the first round and after each."""
    method = methods.build(name, TASK, ONE | hyper)
    states = [method.init(lambda client, purpose: torch.Generator().manual_seed(client), TASK.sizes)]
    batch = Batch(torch.arange(2), X[:, None, None], Y[:, None, None], torch.ones(2, 1, 1, dtype=torch.bool))
    for _ in range(rounds):
        states.append(method.phases[0].step(states[-1], batch)[0])
    return method, states


def leaves(state):
    return {f"{layer}.{name}": p for layer, part in state["server"]["params"].items() for name, p in part.items()}


def test_three_rounds_by_the_formula():
    """v = 0.9 v + d and w = w + 0.7 v, with d the mean of -lr times the clients' gradients by their rows."""
    method, states = played("fedavgm", 3, server_lr=0.7, momentum=0.9)

    def loss(params, k):
        return cross_entropy(method.predict({"server": {"params": params}}, X[[k]]), Y[[k]])

    w = states[0]["server"]["params"]
    v = {layer: {name: torch.zeros_like(p) for name, p in part.items()} for layer, part in w.items()}
    for state in states[1:]:
        first, second = (grad(loss)(w, k) for k in (0, 1))
        for layer, part in v.items():
            for name in part:
                d = -0.5 * (0.75 * first[layer][name] + 0.25 * second[layer][name])
                v[layer][name] = 0.9 * v[layer][name] + d
        w = {layer: {name: p + 0.7 * v[layer][name] for name, p in part.items()} for layer, part in w.items()}
        torch.testing.assert_close(state["server"]["params"], w)
    assert any(p.abs().max() > 0.01 for part in v.values() for p in part.values())


def test_without_momentum_it_is_federated_averaging():
    averaged = leaves(played("fedavg", 3, optimiser="sgd")[1][-1])
    torch.testing.assert_close(leaves(played("fedavgm", 3, momentum=0.0)[1][-1]), averaged, rtol=0, atol=0)


def test_it_is_found_with_its_defaults():
    found = methods.find("fedavgm")
    assert (found.dataset, found.rounds, found.hyper["momentum"]) == ("mnist", 20, 0.9)
    assert found.summary.startswith("FedAvgM: ")


def test_its_own_limits_hold():
    with pytest.raises(UsageError, match="'momentum' of fedavgm cannot be 1.0: input should be less than 1"):
        methods.build("fedavgm", TASK, ONE | {"momentum": 1.0})
