"""The federated methods, and the games with one client, against plain torch.nn and torch.optim on the same batches."""

import copy

import pytest
import torch
from torch import nn

from fedrepro import trees
from fedrepro.data.draws import Feeder
from fedrepro.methods import federated
from fedrepro.methods.parts import average
from fedrepro.nets import mlp
from fedrepro.optim import sgd
from fedrepro.types import Draw, Task

HIDDEN = 6


def module(params):
    """The same network as a torch.nn module with these parameters."""
    linears = []
    for layer in params.values():
        linears.append(nn.Linear(layer["weight"].shape[1], layer["weight"].shape[0]))
        linears[-1].load_state_dict(layer)
    return nn.Sequential(nn.Flatten(), *[part for linear in linears for part in (linear, nn.ELU())][:-1])


def parameters(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def flat(params):
    return torch.cat([leaf.flatten() for _, leaf in trees.leaves(params)])


def descend(net, optimiser, x, y):
    """One step of a torch optimiser on one batch."""
    optimiser.zero_grad()
    nn.functional.cross_entropy(net(x.float() / 255), y).backward()
    optimiser.step()


def adam_of(net, lr):
    return torch.optim.Adam(net.parameters(), lr=lr, eps=1e-7)


def batches(training, rounds, lane=0):
    """The batches that a training is about to see, drawn by a feeder of its own."""
    lane = training.lanes[lane]
    feeder, phases = Feeder(lane.seed, lane.feeder.x, lane.feeder.y, lane.feeder.sizes), training.method.phases
    return [feeder.draw(phases[t % len(phases)].draw, t) for t in range(rounds)]


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.parametrize("steps", [1, 3])
def test_f_irm_with_one_client_is_plain_adam(training, order, steps):
    run = training("f-irm", sizes=(20,), rounds=12, hyper={"steps": steps, "order": order})
    net, drawn = module(trees.one(trees.one(run.state["clients"]["w"], 0), 0)), batches(run, 12)
    optimiser = adam_of(net, 0.02)
    for _ in run:
        pass
    for batch in drawn:
        for x, y in zip(batch.x[0], batch.y[0], strict=True):
            descend(net, optimiser, x, y)
    torch.testing.assert_close(flat(run.state["clients"]["w"]), parameters(net), rtol=1e-4, atol=1e-5)


def test_fedavg_with_one_step_is_fedsgd_for_sgd(training):
    task, net = Task((2, 3, 3), 2, (20, 20, 20)), mlp(18, HIDDEN, 2)
    local = federated.federated(task, net, Draw(size=4, steps=1), client=sgd(0.3), server=average(sgd(1.0)))
    central = federated.federated(task, net, Draw(size=4), client=sgd(1.0), server=average(sgd(0.3)))
    results = []
    for method in (local, central):
        run = training(method, sizes=(20, 20, 20), rounds=7)
        start, drawn = trees.one(run.state["server"]["params"], 0), batches(run, 7)  # equal for both methods
        for _ in run:
            pass
        results.append(flat(run.state["server"]["params"]))
    plain = module(start)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.3)
    for batch in drawn:  # clients of equal size: the mean of their gradients is that of all rows
        descend(plain, optimiser, batch.x.flatten(0, 2), batch.y.flatten())
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(results[0], parameters(plain), rtol=1e-5, atol=1e-6)


def test_fedsgd_is_adam_on_the_weighted_mean_gradient(training):
    run = training("fedsgd", sizes=(20, 8), rounds=9)
    net, drawn = module(trees.one(run.state["server"]["params"], 0)), batches(run, 9)
    optimiser = adam_of(net, 0.02)
    for _ in run:
        pass
    for batch in drawn:
        optimiser.zero_grad()
        for k, share in enumerate((20 / 28, 8 / 28)):
            (share * nn.functional.cross_entropy(net(batch.x[k, 0].float() / 255), batch.y[k, 0])).backward()
        optimiser.step()
    torch.testing.assert_close(flat(run.state["server"]["params"]), parameters(net), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("epochs", [1, 2])
def test_fedavg_averages_local_epochs_of_a_fresh_adam(training, epochs):
    sizes = (21, 9, 3)  # five, two and one batches of four rows a pass (the last: of its three rows)
    run = training("fedavg", sizes=sizes, rounds=3, hyper={"epochs": epochs})
    net, drawn = module(trees.one(run.state["server"]["params"], 0)), batches(run, 3)
    for _ in run:
        pass
    for batch in drawn:
        trained = []
        for k, passes in enumerate((5, 2, 1)):
            client = copy.deepcopy(net)
            optimiser = adam_of(client, 0.02)
            live = [row for row in batch.live[k] if row.any()]
            assert len(live) == passes * epochs
            for t, row in enumerate(live):
                descend(client, optimiser, batch.x[k, t][row], batch.y[k, t][row])
            trained.append(parameters(client))
        mean = sum(size / sum(sizes) * each for size, each in zip(sizes, trained, strict=True))
        nn.utils.vector_to_parameters(mean, net.parameters())
    torch.testing.assert_close(flat(run.state["server"]["params"]), parameters(net), rtol=1e-4, atol=1e-5)
