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
from functools import partial
from typing import Literal

import torch

from fedrepro.core import optim, trees
from fedrepro.core.parameters import completed_by
from fedrepro.core.types import Batch, Draw, Method, Metrics, Net, Phase, Rule, State, Streams, Task
from fedrepro.errors import UsageError
from fedrepro.methods import parts, weightings
from fedrepro.methods.federated import Most, Recipe, locally, trained
from fedrepro.methods.local import descent, one_model, risks
from fedrepro.methods.parts import average
from fedrepro.methods.penalties import Kind, Penalty, penalised
from fedrepro.nets.choose import Init, Nets, choose

REPLACE = average(optim.sgd(1.0))  # the server takes the clients' weighted average
PIXELS = 200_000  # of one part of a whole-client pass: larger ones leave the cache


def adam_clients(
    task: Task, most: Most, *, lr: float = 1e-3, batch: int = 64, eps: float = 1e-8, epochs: int = 1
) -> Recipe:
    """Clients train by Adam."""
    return most(Draw(size=batch, epochs=epochs), optim.adam(lr, eps=eps))


def whole(task: Task, net: Net, step: Callable[[State, Batch], tuple[State, Metrics]]) -> Phase:
    """A phase in which clients look at all of their training data."""
    chunk = max(32, PIXELS // math.prod(task.shape))
    return Phase(Draw(size=None, chunk=chunk), step, alone=net.alone, trains=False)


federated = completed_by(trained, net="cnn-fair")
by_adam = completed_by(adam_clients)


@federated
@by_adam
def afl(task: Task, *, gamma: float = 0.1) -> Most:
    """AFL: the server averages by weights that ascend along the clients' risks at rate gamma, within the simplex."""
    return ascending(task, gamma, 0.0)


@federated
@by_adam
def gen_afl(task: Task, *, gamma: float = 0.1, alpha: float = -1.0) -> Most:
    """Gen-AFL: AFL whose weights are at least alpha each, which may be negative (fedaug-2022, Proposition 1)."""
    if alpha * task.clients >= 1:
        raise UsageError(
            f"alpha cannot be {alpha}: {task.clients} weights that sum to 1 need one below 1/{task.clients}."
        )
    return ascending(task, gamma, alpha)


def ascending(task: Task, gamma: float, alpha: float) -> Most:
    """Weights lambda >= alpha that sum to 1 and go up by gamma times the clients' risks after each round."""

    def step(net: Net, state: State, batch: Batch) -> tuple[State, Metrics]:
        server = state["server"]
        f = risks(net, trees.repeat(server["params"], len(batch.clients)), batch)
        y = server["weighting"]["lambda"] + gamma * trees.cleared(f)
        weighting = {"lambda": weightings.project(y, alpha)}
        return {**state, "server": {**server, "weighting": weighting}}, {"loss": f.mean(), "accepted": f.isfinite()}

    after = lambda net: whole(task, net, partial(step, net))  # noqa: E731
    return partial(Recipe, server=REPLACE, weighting=weightings.held(), after=after)


@federated
@by_adam
def vm(task: Task, *, beta: float = 10.0, scale: Literal["sum", "mean"] = "sum") -> Most:
    """VM: the server steps along the gradient of the mean risk and beta times the variance of the risks.

    The risks are those of the locally trained models. `mean`: 2 beta/n, as derived; `sum`: 2 beta (the authors' code).
    """

    def step(net: Net, state: State, batch: Batch) -> tuple[State, Metrics]:
        server, handed = state["server"], state["server"]["rule"]
        anchor = trees.map_tree(torch.sub, server["params"], trees.mean(handed["delta"], handed["weights"]))
        f = risks(net, trees.add(trees.repeat(anchor, len(batch.clients)), handed["delta"]), batch)
        accepted = f.isfinite()
        present = accepted & (handed["weights"] > 0)
        factor = beta * present.sum() if scale == "sum" else beta
        weights = weightings.by_variance(trees.cleared(f), present, factor)
        params = trees.add(server["params"], trees.mean(handed["delta"], weights - handed["weights"]))
        return {**state, "server": {**server, "params": params}}, {"loss": f.mean(), "accepted": accepted}

    after = lambda net: whole(task, net, partial(step, net))  # noqa: E731
    server = parts.remembered(REPLACE, task.clients)
    return partial(Recipe, server=server, weighting=weightings.equal(), after=after)


@federated
@completed_by(locally, lr=1e-3, batch=64, eps=1e-8, optimiser="adam")
def fed_irm(
    task: Task,
    *,
    penalty: Kind = "scalar",
    nu: float = 100.0,
    anneal: int = 500,
    form: Literal["plain", "release"] = "plain",
) -> Most:
    """Fed-IRM: FedAVG of steps on risk + nu times the penalty of IRM (see `penalties`).

    nu is 1 for a client's first `anneal` steps. `release`, as in the authors' code: from then on the loss is divided by
    nu, and the optimiser is made anew there. That code has `sgd` and the penalty on the `weights`, too.
    """
    released = form == "release"
    own = Penalty(penalty, nu, anneal, scaled=released)

    def most(draw: Draw, client: Rule) -> Recipe:
        return Recipe(draw, optim.restarted(client, anneal) if released else client, server=REPLACE, penalty=own)

    return most


# The centralized twins


@dataclass(frozen=True)
class Twin:
    """A centralized method but for its network and its Adam.

    weighting: of the domains' risks
    penalty:   what is added to each
    restart:   the step at which Adam is re-created, if it is
    """

    weighting: Rule
    penalty: Penalty | None = None
    restart: int | None = None


def centralized(
    task: Task,
    twin: Twin,
    *,
    net: Nets = "cnn-fair",
    hidden: int = 390,
    init: Init = "scratch",
    lr: float = 1e-3,
    batch: int = 64,
    eps: float = 1e-8,
) -> Method:
    """The method of a twin: the server steps along the weighted sum of the domains' mini-batch gradients."""
    chosen, server = choose(task, net, hidden, init), optim.adam(lr, eps=eps)
    server = server if twin.restart is None else optim.restarted(server, twin.restart)
    plain = descent(chosen)
    slope = penalised(chosen, twin.penalty) if twin.penalty else lambda *batch, updates: plain(*batch)

    def start(streams: Streams, sizes: tuple[int, ...]) -> State:
        params, shares = chosen.init(streams(0, "model")), torch.tensor(sizes) / sum(sizes)
        rules = {"rule": server.init(params), "weighting": twin.weighting.init(shares)}
        return {"clients": {}, "server": {"params": params, **rules, "updates": torch.zeros((), dtype=torch.int64)}}

    def step(state: State, batch: Batch) -> tuple[State, Metrics]:
        old, domains = state["server"], len(batch.clients)
        each = trees.repeat(old["params"], domains)
        updates = old["updates"].expand(domains)
        gradient, risk = slope(each, batch.x[:, 0], batch.y[:, 0], batch.live[:, 0], updates=updates)
        accepted = trees.finite(gradient)
        weights, weighting = twin.weighting.update(trees.cleared(risk), accepted, old["weighting"])
        gradient = trees.mean(trees.cleared(gradient), weights)
        params, rule = optim.step(server.update)(old["params"], gradient, old["rule"])
        new = {"params": params, "rule": rule, "weighting": weighting, "updates": old["updates"] + 1}
        return {"clients": {}, "server": new}, {"loss": risk.mean(), "accepted": accepted}

    return one_model(chosen, start, Phase(Draw(size=batch), step, alone=chosen.alone))


central = completed_by(centralized)


@central
def erm(task: Task) -> Twin:
    """ERM: Adam on the mean of the domains' risks, with a mini-batch of each domain a step."""
    return Twin(weightings.equal())


@central
def groupdro(task: Task, *, eta: float = 0.01) -> Twin:
    """GroupDRO: Adam on the risks weighted by q, which grows by exp(eta risk) where the risk is high."""
    return Twin(weightings.group_dro(eta))


@central
def mm_rex(task: Task, *, lmin: float = -1.0) -> Twin:
    """MM-REx: Adam on the worst mixture of the domains' risks whose weights sum to 1 and are at least lmin each."""
    if lmin * task.clients > 1:
        raise UsageError(
            f"lmin cannot be {lmin}: {task.clients} weights that sum to 1 are not all above 1/{task.clients}."
        )
    return Twin(weightings.mm_rex(lmin))


@central
def v_rex(task: Task, *, v: float = 10.0, anneal: int = 500) -> Twin:
    """V-REx: Adam on the mean of the domains' risks and v times their variance; before `anneal` steps v is 1.

    Adam is re-created at step `anneal`.
    """
    return Twin(weightings.v_rex(v, anneal), restart=anneal)


@central
def irm(
    task: Task,
    *,
    penalty: Kind = "weights",
    nu: float = 100.0,
    anneal: int = 500,
    domains: Literal["average", "last"] = "average",
) -> Twin:
    """IRM: Adam on the mean over domains of (risk + nu times the penalty) / nu; before `anneal` steps nu is 1.

    Adam is re-created at step `anneal`. `last`: only the last domain has a penalty (a slip of the authors' code).
    """
    penalised = Penalty(penalty, nu, anneal, scaled=True, last=domains == "last")
    return Twin(weightings.equal(), penalised, restart=anneal)
