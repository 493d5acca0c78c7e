"""Domain generalisation: each client is a domain, in federated training and in the centralized twins.

fedaug-2022, section 3 and appendix A. A twin's step is one mini-batch of every domain and one
step of the server's Adam along a weighted sum of their gradients; its state has, beside the family's (`federated`), the
number of `updates`. AFL, Gen-AFL and VM have a second phase each, in which the clients' risks are taken on all of their
training data; so a communication round of theirs is two rounds of the trainer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedrepro import optim, trees
from fedrepro.errors import UsageError
from fedrepro.methods import parts, weightings
from fedrepro.methods.federated import TYPES, Recipe, cook, network, training
from fedrepro.methods.local import descent, risks, shared_gradient
from fedrepro.methods.networks import Init, Nets, choose
from fedrepro.methods.options import options
from fedrepro.methods.parts import average
from fedrepro.methods.penalties import Kind, Penalty, penalised
from fedrepro.types import Batch, Draw, Method, Metrics, Net, Phase, Rule, State, Streams, Task

REPLACE = average(optim.sgd(1.0))  # the server takes the clients' weighted average
PIXELS = 200_000  # of one part of a whole-client pass: larger ones leave the cache

federated = options(training("cnn-fair"), TYPES, cook)


@federated
def afl(
    task: Task, *, lr: float = 1e-3, batch: int = 64, eps: float = 1e-8, epochs: int = 1, gamma: float = 0.1
) -> Recipe:
    """AFL: the server averages by weights that ascend along the clients' risks with rate gamma, within the simplex."""
    return _afl(task, Draw(size=batch, epochs=epochs), optim.adam(lr, eps=eps), gamma, 0.0)


@federated
def gen_afl(
    task: Task,
    *,
    lr: float = 1e-3,
    batch: int = 64,
    eps: float = 1e-8,
    epochs: int = 1,
    gamma: float = 0.1,
    alpha: float = -1.0,
) -> Recipe:
    """Gen-AFL: AFL whose weights are at least alpha each, which may be negative (fedaug-2022, Proposition 1)."""
    if alpha * task.clients >= 1:
        raise UsageError(
            f"alpha cannot be {alpha}: {task.clients} weights that sum to 1 need one below 1/{task.clients}."
        )
    return _afl(task, Draw(size=batch, epochs=epochs), optim.adam(lr, eps=eps), gamma, alpha)


def _afl(task: Task, draw: Draw, client: Rule, gamma: float, alpha: float) -> Recipe:
    def ascend(net: Net) -> Phase:
        def step(state: State, batch: Batch) -> tuple[State, Metrics]:
            server = state["server"]
            f = risks(net, trees.repeat(server["params"], len(batch.clients)), batch)
            y = server["weighting"]["lambda"] + gamma * f.nan_to_num(0, 0, 0)
            weighting = {"lambda": weightings.project(y, alpha)}
            new = {**state, "server": {**server, "weighting": weighting}}
            return new, {"loss": f.mean(), "accepted": f.isfinite()}

        return _whole(task, net, step)

    return Recipe(draw, client, REPLACE, weighting=weightings.held(), after=ascend)


@federated
def vm(
    task: Task,
    *,
    lr: float = 1e-3,
    batch: int = 64,
    eps: float = 1e-8,
    epochs: int = 1,
    beta: float = 10.0,
    scale: Literal["sum", "mean"] = "sum",
) -> Recipe:
    """VM: the server steps along the gradient of the mean risk and beta times the variance of the risks.

    The risks are those of the locally trained models. `mean`: 2 beta/n, as derived; `sum`: 2 beta (the authors' code).
    """

    def correct(net: Net) -> Phase:
        def step(state: State, batch: Batch) -> tuple[State, Metrics]:
            server, handed = state["server"], state["server"]["rule"]
            anchor = trees.map_tree(torch.sub, server["params"], trees.mean(handed["delta"], handed["weights"]))
            f = risks(net, trees.add(trees.repeat(anchor, len(batch.clients)), handed["delta"]), batch)
            accepted = f.isfinite()
            present = accepted & (handed["weights"] > 0)
            factor = beta * present.sum() if scale == "sum" else beta
            weights = weightings.by_variance(f.nan_to_num(0, 0, 0), present, factor)
            params = trees.add(server["params"], trees.mean(handed["delta"], weights - handed["weights"]))
            new = {**state, "server": {**server, "params": params}}
            return new, {"loss": f.mean(), "accepted": accepted}

        return _whole(task, net, step)

    draw, server = Draw(size=batch, epochs=epochs), parts.remembered(REPLACE, task.clients)
    return Recipe(draw, optim.adam(lr, eps=eps), server, weighting=weightings.equal(), after=correct)


@federated
def fed_irm(
    task: Task,
    *,
    lr: float = 1e-3,
    batch: int = 64,
    epochs: int = 1,
    optimiser: Literal["adam", "sgd"] = "adam",
    eps: float = 1e-8,
    penalty: Kind = "scalar",
    nu: float = 100.0,
    anneal: int = 500,
) -> Recipe:
    """Fed-IRM: FedAVG of steps on risk + nu times the penalty of IRM (see `penalties`).

    nu is 1 for a client's first `anneal` steps. The authors' code has `sgd` and the penalty on the `weights`.
    """
    draw = Draw(size=batch, epochs=epochs)
    client = optim.adam(lr, eps=eps) if optimiser == "adam" else optim.sgd(lr)
    return Recipe(draw, client, REPLACE, penalty=Penalty(penalty, nu, anneal))


def _whole(task: Task, net: Net, step: Callable[[State, Batch], tuple[State, Metrics]]) -> Phase:
    """A phase in which clients look at all of their training data."""
    chunk = max(32, PIXELS // math.prod(task.shape))
    return Phase(Draw(size=None, chunk=chunk), step, alone=net.alone, trains=False)


@dataclass(frozen=True)
class Twin:
    """A centralized method but for its network: how the domains' risks weigh, and the server's optimiser."""

    batch: int
    weighting: Rule
    server: Rule
    penalty: Penalty | None = None


def centralized(task: Task, recipe: Twin, *, net: Nets, hidden: int, init: Init) -> Method:
    """The method of a recipe: the server steps along the weighted sum of the domains' mini-batch gradients."""
    chosen = choose(task, net, hidden, init)
    plain = descent(chosen)
    slope = penalised(chosen, recipe.penalty) if recipe.penalty else lambda *batch, updates: plain(*batch)

    def start(streams: Streams, sizes: tuple[int, ...]) -> State:
        params, shares = chosen.init(streams(0, "model")), torch.tensor(sizes) / sum(sizes)
        rules = {"rule": recipe.server.init(params), "weighting": recipe.weighting.init(shares)}
        return {"clients": {}, "server": {"params": params, **rules, "updates": torch.zeros((), dtype=torch.int64)}}

    def step(state: State, batch: Batch) -> tuple[State, Metrics]:
        old, domains = state["server"], len(batch.clients)
        each = trees.repeat(old["params"], domains)
        updates = old["updates"].expand(domains)
        gradient, risk = slope(each, batch.x[:, 0], batch.y[:, 0], batch.live[:, 0], updates=updates)
        accepted = trees.finite(gradient)
        weights, weighting = recipe.weighting.update(risk.nan_to_num(0, 0, 0), accepted, old["weighting"])
        gradient = trees.mean(trees.map_tree(lambda g: g.nan_to_num(0, 0, 0), gradient), weights)
        move, rule = recipe.server.update(gradient, old["rule"])
        params, rules = trees.add(old["params"], move), {"rule": rule, "weighting": weighting}
        server = {"params": params, **rules, "updates": old["updates"] + 1}
        return {"clients": {}, "server": server}, {"loss": risk.mean(), "accepted": accepted}

    def predict(state: State, x: Tensor) -> Tensor:
        return chosen.apply(state["server"]["params"], x)

    phase = Phase(Draw(size=recipe.batch), step, alone=chosen.alone)
    return Method(start, (phase,), predict, gradient=shared_gradient(chosen))


twin = options(network("cnn-fair"), TYPES, centralized)


@twin
def erm(task: Task, *, lr: float = 1e-3, batch: int = 64, eps: float = 1e-8) -> Twin:
    """ERM: Adam on the mean of the domains' risks, with a mini-batch of each domain a step."""
    return Twin(batch, weightings.equal(), optim.adam(lr, eps=eps))


@twin
def groupdro(task: Task, *, lr: float = 1e-3, batch: int = 64, eps: float = 1e-8, eta: float = 0.01) -> Twin:
    """GroupDRO: Adam on the risks weighted by q, which grows by exp(eta risk) where the risk is high."""
    return Twin(batch, weightings.group_dro(eta), optim.adam(lr, eps=eps))


@twin
def mm_rex(task: Task, *, lr: float = 1e-3, batch: int = 64, eps: float = 1e-8, lmin: float = -1.0) -> Twin:
    """MM-REx: Adam on the worst mixture of the domains' risks whose weights sum to 1 and are at least lmin each."""
    if lmin * task.clients > 1:
        raise UsageError(
            f"lmin cannot be {lmin}: {task.clients} weights that sum to 1 are not all above 1/{task.clients}."
        )
    return Twin(batch, weightings.mm_rex(lmin), optim.adam(lr, eps=eps))


@twin
def v_rex(
    task: Task, *, lr: float = 1e-3, batch: int = 64, eps: float = 1e-8, v: float = 10.0, anneal: int = 500
) -> Twin:
    """V-REx: Adam on the mean of the domains' risks and v times their variance; before `anneal` steps v is 1.

    Adam is re-created at step `anneal`.
    """
    return Twin(batch, weightings.v_rex(v, anneal), optim.restarted(optim.adam(lr, eps=eps), anneal))


@twin
def irm(
    task: Task,
    *,
    lr: float = 1e-3,
    batch: int = 64,
    eps: float = 1e-8,
    penalty: Kind = "weights",
    nu: float = 100.0,
    anneal: int = 500,
    domains: Literal["average", "last"] = "average",
) -> Twin:
    """IRM: Adam on the mean over domains of risk + nu times the penalty, divided by nu; before `anneal` steps nu is 1.

    Adam is re-created at step `anneal`. `last`: only the last domain has a penalty (a slip of the authors' code).
    """
    penalised = Penalty(penalty, nu, anneal, scaled=True, last=domains == "last")
    return Twin(batch, weightings.equal(), optim.restarted(optim.adam(lr, eps=eps), anneal), penalised)
