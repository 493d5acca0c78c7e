"""The federated methods, and the games with one client, against plain torch.nn and torch.optim on the same batches."""

import copy
import inspect

import pytest
import torch
from torch import nn

from fedrepro import methods
from fedrepro.core import trees
from fedrepro.core.optim import sgd
from fedrepro.core.types import Batch, Draw, Net, Task
from fedrepro.data.draws import Feeder
from fedrepro.errors import UsageError
from fedrepro.methods import federated
from fedrepro.methods.federated import Recipe
from fedrepro.methods.parts import average
from fedrepro.nets.mlp import mlp

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
    net = mlp(18, HIDDEN, 2)
    local = federated.federated(net, Recipe(Draw(size=4, steps=1), client=sgd(0.3), server=average(sgd(1.0))))
    central = federated.federated(net, Recipe(Draw(size=4), client=sgd(1.0), server=average(sgd(0.3))))
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


# What a round of local training may be


def played(training, name, rounds, sizes=(20,), **hyper):
    run = training(name, sizes=sizes, rounds=rounds, hyper=hyper)
    for _ in run:
        pass
    return run


@pytest.mark.parametrize("sizes", [(20,), (21, 9)])
def test_steps_are_as_many_batches_as_epochs_have(training, same, sizes):
    passes = played(training, "fedavg", 2, sizes=(20, 20), epochs=2)
    steps = played(training, "fedavg", 2, sizes=(20, 20), steps=10)
    same(passes.state, steps.state)
    few = training("fedavg", sizes=sizes, hyper={"steps": 7})
    assert batches(few, 1)[0].live.shape == (len(sizes), 7, 4)
    assert batches(few, 1)[0].live.all()  # a small client takes as many steps as a large one


def test_a_kept_optimiser_is_one_long_adam(training):
    long = played(training, "fedavg", 1, epochs=3)
    kept = played(training, "fedavg", 3, keep_optimiser=True)
    fresh = played(training, "fedavg", 3)
    wanted = flat(long.state["server"]["params"])
    torch.testing.assert_close(flat(kept.state["server"]["params"]), wanted, rtol=1e-5, atol=1e-6)
    assert (flat(fresh.state["server"]["params"]) - wanted).abs().max() > 1e-3


def test_kept_optimisers_are_their_clients_own(training):
    run = training("fedavg", sizes=(20, 8), rounds=3, hyper={"steps": 3, "keep_optimiser": True})
    net, drawn = module(trees.one(run.state["server"]["params"], 0)), batches(run, 3)
    for _ in run:
        pass
    clients = [copy.deepcopy(net) for _ in range(2)]
    optimisers = [adam_of(client, 0.02) for client in clients]
    for batch in drawn:
        for k, client in enumerate(clients):
            client.load_state_dict(net.state_dict())
            for t in range(3):
                descend(client, optimisers[k], batch.x[k, t], batch.y[k, t])
        mean = sum(size / 28 * parameters(client) for size, client in zip((20, 8), clients, strict=True))
        nn.utils.vector_to_parameters(mean, net.parameters())
    torch.testing.assert_close(flat(run.state["server"]["params"]), parameters(net), rtol=1e-4, atol=1e-5)


def test_a_kept_optimiser_goes_with_scaffolds_memory(training):
    plain = played(training, "scaffold", 3, sizes=(20, 8))
    kept = played(training, "scaffold", 3, sizes=(20, 8), keep_optimiser=True)  # of plain descent: it has no state
    torch.testing.assert_close(flat(plain.state["server"]), flat(kept.state["server"]), rtol=0, atol=0)
    torch.testing.assert_close(flat(plain.state["clients"]), flat(kept.state["clients"]["drift"]), rtol=0, atol=0)


@pytest.mark.parametrize("form", ["plain", "release", "textbook"])
def test_the_forms_of_fedprox_by_hand(form):
    # One client, one parameter w, and the gradient 2 w - x; two rounds of three steps.
    lr, mu, rows = 0.1, 0.3, ((1.0, -2.0, 0.5), (3.0, 0.0, 1.0))
    scalar = Net(
        init=lambda generator: {"w": torch.tensor([0.7])},
        apply=lambda params, x: x,
        descend=lambda params, x, y, live: ({"w": 2 * params["w"] - x[..., 0]}, x[:, 0, 0]),
    )
    most = inspect.unwrap(federated.fedprox)(Task((1,), 1, (3,)), lr=lr, mu=mu, form=form)
    method = federated.federated(scalar, most(Draw(size=1, steps=3), sgd(lr)))
    state = method.init(lambda client, purpose: torch.Generator(), (3,))
    w, buf = 0.7, 0.0
    for row in rows:
        x = torch.tensor(row).view(1, 3, 1, 1)
        batch = Batch(torch.zeros(1, dtype=torch.int64), x, torch.zeros(1, 3, 1), torch.ones(1, 3, 1).bool())
        state, _ = method.phases[0].step(state, batch)
        start = w
        for each in row:
            gradient, pull = 2 * w - each, mu * (w - start)
            if form == "plain":
                w = w - lr * (gradient + pull)
                continue
            buf = 0.9 * buf + gradient + 0.001 * w
            if form == "release":
                buf = buf + pull
                w = w - lr * buf
            else:
                w = w - lr * (buf + pull)
        assert state["server"]["params"]["w"].item() == pytest.approx(w, abs=1e-6)


NETWORKS = {"mlp": {"hidden": 5}, "cnn": {}, "cnn-fair": {}}


@pytest.mark.parametrize("net", NETWORKS)
@pytest.mark.parametrize("name", ["fedavg", "erm"])
def test_the_gradient_is_that_of_the_summed_loss(name, net):
    task = Task((1, 28, 28), 3, (8, 8))
    method = methods.build(name, task, {"net": net} | NETWORKS[net])
    state = method.init(lambda client, purpose: torch.Generator().manual_seed(3), task.sizes)
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (11, 1, 28, 28), dtype=torch.uint8, generator=generator)
    y = torch.arange(11) % 3
    got = method.gradient(state, x, y)
    named = {name: leaf.clone().requires_grad_() for name, leaf in trees.leaves(state["server"]["params"])}
    params = trees.fill(state["server"]["params"], named)
    rows = [method.predict({"clients": {}, "server": {"params": params}}, row[None]) for row in x]
    loss = sum(nn.functional.cross_entropy(logits, y[[i]]) for i, logits in enumerate(rows))
    for (leaf, g), wanted in zip(trees.leaves(got), torch.autograd.grad(loss, list(named.values())), strict=True):
        torch.testing.assert_close(g, wanted, rtol=1e-4, atol=1e-4, msg=lambda m, leaf=leaf: f"{leaf}: {m}")


@pytest.mark.parametrize(
    ("name", "hyper", "message"),
    [
        ("fedavg", {"steps": -1}, "'steps' of fedavg cannot be -1: .*greater than or equal to 0"),
        ("fedavg", {"epochs": 0}, "'epochs' of fedavg cannot be 0"),
        ("fedavg", {"init": "imagenet"}, "init=imagenet is for net=resnet18 alone"),
        ("fedprox", {"form": "loose"}, "'form' of fedprox cannot be 'loose'"),
        ("fedgma", {"steps": 3}, "set epochs, or gradient=sum or last"),
    ],
)
def test_what_local_training_cannot_be(name, hyper, message):
    with pytest.raises(UsageError, match=message):
        methods.build(name, Task((1, 28, 28), 3, (8, 8)), hyper)
