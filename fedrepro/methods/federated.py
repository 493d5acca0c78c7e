"""Methods with one shared model: clients train it locally, the server steps it along their reports.

State: {"clients": {}, "server": {"params": ..., "rule": server state, "shares": N_k/N [K]}}.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad_and_value

from fedrepro import optim, trees
from fedrepro.lift import over_clients
from fedrepro.methods.parts import average
from fedrepro.nets import cross_entropy, mlp
from fedrepro.types import Batch, Draw, Method, Metrics, Net, Phase, Report, Rule, State, Streams, Task


def fedsgd(task: Task, *, lr: float = 2.5e-4, batch: int = 256, hidden: int = 390, eps: float = 1e-7) -> Method:
    """FedSGD: the server takes one Adam step along the mean of the clients' mini-batch gradients (protocols 1.6)."""
    net = shared_mlp(task, hidden)
    return federated(task, net, Draw(size=batch), client=optim.sgd(1.0), server=average(optim.adam(lr, eps=eps)))


def fedavg(
    task: Task, *, lr: float = 2.5e-4, batch: int = 256, hidden: int = 390, eps: float = 1e-7, epochs: int = 1
) -> Method:
    """FedAVG: clients train `epochs` passes with a fresh Adam, the server averages weights by N_k/N (protocols 1.6)."""
    net = shared_mlp(task, hidden)
    draw = Draw(size=batch, epochs=epochs)
    return federated(task, net, draw, client=optim.adam(lr, eps=eps), server=average(optim.sgd(1.0)))


def shared_mlp(task: Task, hidden: int) -> Net:
    """The predictor of flgames-2022, section 7.3.1, as a single model."""
    return mlp(math.prod(task.shape), hidden, hidden, task.classes)


def federated(task: Task, net: Net, draw: Draw, *, client: Rule, server: Rule) -> Method:
    """Local training with the optimiser `client`, then one step of the rule `server` on the clients' reports."""
    padded = (draw.epochs > 0 or draw.size is None) and len(set(task.sizes)) > 1

    train = local_training(net, client, padded=padded)

    def init(streams: Streams, sizes: tuple[int, ...]) -> State:
        params = net.init(streams(0, "model"))
        shares = torch.tensor(sizes) / sum(sizes)
        return {"clients": {}, "server": {"params": params, "rule": server.init(params), "shares": shares}}

    def step(state: State, batch: Batch) -> tuple[State, Metrics]:
        old = state["server"]
        reports = over_clients(train, (None, 0, 0, 0))(old["params"], *batch[1:])
        accepted = over_clients(trees.finite)(reports.delta)
        weights = old["shares"][batch.clients] * accepted
        reports = reports._replace(delta=trees.map_tree(lambda d: d.nan_to_num(0, 0, 0), reports.delta))
        move, rule = server.update(reports, weights / weights.sum().clamp(min=1e-12), old["rule"])
        new = {"params": trees.add(old["params"], move), "rule": rule, "shares": old["shares"]}
        return {"clients": {}, "server": new}, {"loss": reports.risk.mean(), "accepted": accepted}

    def predict(state: State, x: Tensor) -> Tensor:
        return net.apply(state["server"]["params"], x)

    return Method(init, (Phase(draw, step),), predict)


def local_training(net: Net, rule: Rule, *, padded: bool) -> Callable[[State, Tensor, Tensor, Tensor], Report]:
    """One client's training from the shared parameters: (params, x [T,B,...], y [T,B], live [T,B]) -> Report.

    `padded` clients may have steps without a live row, which move nothing: they wait for those with more batches.
    """

    def loss(params: State, x: Tensor, y: Tensor, live: Tensor) -> Tensor:
        return cross_entropy(net.apply(params, x), y, live)

    def advance(params: State, s: State, x: Tensor, y: Tensor, live: Tensor) -> tuple[State, State, Tensor]:
        gradient, risk = grad_and_value(loss)(params, x, y, live)
        move, new = rule.update(gradient, s)
        moved = trees.add(params, move)
        if padded:
            some = live.any()
            moved = trees.map_tree(lambda a, b: torch.where(some, a, b), moved, params)
            new = trees.map_tree(lambda a, b: torch.where(some, a, b), new, s)
        return moved, new, risk

    def train(anchor: State, x: Tensor, y: Tensor, live: Tensor) -> Report:
        params, s = anchor, rule.init(anchor)
        risks = []
        for t in range(len(x)):
            params, s, risk = advance(params, s, x[t], y[t], live[t])
            risks.append(risk)
        # A step without live rows has risk 0 and does not count.
        risk = torch.stack(risks).sum() / live.any(1).sum()
        return Report(trees.map_tree(torch.sub, params, anchor), risk)

    return train
