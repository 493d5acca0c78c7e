"""Methods with one shared model: clients train it locally, the server steps it along their reports.

State: {"clients": each one's memory of the drift [K, ...], "server": {"params": ..., "rule": server state,
"shares": N_k/N [K], "shared": what the drift shares}}; methods without a drift have no memory and nothing shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrepro.core import optim, trees
from fedrepro.core.lift import surely
from fedrepro.core.parameters import completed_by
from fedrepro.core.types import Batch, Draw, Method, Metrics, Net, Phase, Report, Rule, State, Streams, Task
from fedrepro.errors import UsageError
from fedrepro.methods import parts
from fedrepro.methods.local import Local, Note, one_model
from fedrepro.methods.parts import Drift, Mask, Signs, average
from fedrepro.methods.penalties import Penalty, penalised
from fedrepro.nets.choose import Init, Nets, choose


@dataclass(frozen=True)
class Recipe:
    """A method but for its network.

    draw:      the batches of a round
    client:    each client's optimiser, fresh in each round unless it is to `keep`
    server:    the rule that steps along the clients' reports
    drift:     what is added to the clients' gradients
    note:      what they report beside their changes
    weighting: of the reports, in place of N_k/N
    penalty:   what is added to the clients' risk
    after:     a network -> the phase that follows each round of training
    """

    draw: Draw
    client: Rule
    server: Rule
    drift: Drift | None = None
    note: Note = "none"
    weighting: Rule | None = None
    penalty: Penalty | None = None
    keep: bool = False
    after: Callable[[Net], Phase] | None = None


def federated(net: Net, recipe: Recipe) -> Method:
    """Local training with the client's optimiser, then one step of the server's rule on the clients' reports."""
    weighting, drift = recipe.weighting, recipe.drift
    slope = penalised(net, recipe.penalty) if recipe.penalty else None
    local = Local(net, recipe.client, drift, recipe.note, recipe.draw.epochs or 1, recipe.keep, slope)

    def init(streams: Streams, sizes: tuple[int, ...]) -> State:
        params, shares = net.init(streams(0, "model")), torch.tensor(sizes) / sum(sizes)
        state = {"params": params, "rule": recipe.server.init(params), "shares": shares}
        state |= {"weighting": weighting.init(shares)} if weighting else {}
        state |= {"shared": drift.init(params)} if drift else {}
        return {"clients": local.memory(params, len(sizes)), "server": state}

    after = [recipe.after(net)] if recipe.after else []
    return one_model(net, init, Phase(recipe.draw, partial(train_round, recipe, local), alone=net.alone), *after)


def train_round(recipe: Recipe, local: Local, state: State, batch: Batch) -> tuple[State, Metrics]:
    """One round: what clients report that is not finite counts as zero, with the weight 0."""
    old, clients = state["server"], state["clients"]
    everyone = recipe.draw.clients == "all"
    memory = clients if everyone else trees.take(clients, batch.clients)
    reports, remembered = local.train(old["params"], memory, old.get("shared", {}), batch)
    accepted = trees.finite(reports.delta)
    weights, weighed = weigh(recipe.weighting, old, reports.risk, accepted, batch.clients)
    if not surely(accepted):
        reports = Report(trees.cleared(reports.delta), reports.risk, trees.cleared(reports.note))
    move, rule = recipe.server.update(reports, weights, old["rule"])
    new = {**old, "params": trees.add(old["params"], move), "rule": rule, **weighed}
    if recipe.drift is not None:
        part = accepted / len(old["shares"])
        now, then = local.drifts(remembered), local.drifts(memory)
        change = trees.cleared(trees.map_tree(torch.sub, now, then))
        new["shared"] = trees.add(old["shared"], trees.mean(change, part))
    clients = remembered if everyone else trees.give(clients, batch.clients, remembered)
    survival = {f"mask_survival_{name}": fraction for name, fraction in rule.get("survival", {}).items()}
    return {"clients": clients, "server": new}, {"loss": reports.risk.mean(), "accepted": accepted, **survival}


def weigh(
    weighting: Rule | None, server: State, risk: Tensor, accepted: Tensor, clients: Tensor
) -> tuple[Tensor, State]:
    """The clients' weights [C], and the weighting's new state where there is one."""
    if weighting is None:
        weights = server["shares"][clients] * accepted
        return weights / weights.sum().clamp(min=1e-12), {}
    weights, s = weighting.update(trees.cleared(risk), accepted, server["weighting"])
    return weights, {"weighting": s}


# What builders have in common

LR, BATCH = 0.05, 10  # by default, for all, so that methods are compared and not optimisers


def trained(
    task: Task,
    recipe: Recipe,
    *,
    net: Nets,
    hidden: int = 390,
    init: Init = "scratch",
    steps: Annotated[int, Field(ge=0)] = 0,
    keep_optimiser: bool = False,
) -> Method:
    """The method of a recipe.

    net:            "mlp" (with `hidden` units in two layers), "cnn", "lenet", "cnn-large", "cnn-fair" or "resnet18"
    init:           "scratch", or for resnet18 "imagenet": pretrained convolutions
    steps:          so many mini-batch steps a round in place of `epochs`; 0 is none
    keep_optimiser: whether a client's optimiser goes on where it was in the last round

    UsageError where the network does not fit the task.
    """
    if steps and recipe.note == "initial":
        raise UsageError("the gradient at the round's start is of whole epochs: set epochs, or gradient=sum or last.")
    if steps:
        recipe = replace(recipe, draw=replace(recipe.draw, steps=steps, epochs=0))
    return federated(choose(task, net, hidden, init), replace(recipe, keep=recipe.keep or keep_optimiser))


def sampled(
    task: Task,
    recipe: Recipe,
    *,
    cohort: int = 0,
    mask: Mask = "none",
    tau: float = 0.4,
    sign_weighting: Signs = "equal",
    rescale: bool = False,
) -> Recipe:
    """The recipe for some of the clients, and with a mask.

    cohort: the number of clients sampled each round; 0 is all of them
    mask:   "none", "soft" or "hard", masked averaging around the method's own server rule (see `parts.masked`), with
            the threshold `tau`, `sign_weighting` "equal" or "size", and steps as long as without it by `rescale`
    """
    if cohort > task.clients:
        raise UsageError(f"cohort={cohort} is more than the {task.clients} clients: take that many, or 0 for all.")
    draw = replace(recipe.draw, clients=cohort if 0 < cohort < task.clients else "all")
    return replace(recipe, draw=draw, server=parts.masked(recipe.server, mask, tau, sign_weighting, rescale))


def family(net: Nets) -> Callable[[Callable[..., Recipe]], Callable[..., Method]]:
    """What methods that average have in common: the arguments of `trained` and `sampled`, with these defaults."""
    return lambda parts: completed_by(trained, net=net)(completed_by(sampled)(parts))


Most = Callable[[Draw, Rule], Recipe]  # a recipe but for its draw and the clients' optimiser


def locally(
    task: Task,
    most: Most,
    *,
    lr: float = LR,
    batch: int = BATCH,
    eps: float = 1e-7,
    epochs: int = 1,
    optimiser: optim.Optimiser = "sgd",
) -> Recipe:
    """Clients train some epochs by the optimiser; `eps` is Adam's."""
    return most(Draw(size=batch, epochs=epochs), optim.by(optimiser, lr, eps))


def plainly(task: Task, most: Most, *, lr: float = LR, batch: int = BATCH, epochs: int = 1) -> Recipe:
    """Clients train some epochs by plain gradient steps."""
    return most(Draw(size=batch, epochs=epochs), optim.sgd(lr))


# The methods


@family(net="cnn")
def fedsgd(
    task: Task, *, lr: float = LR, batch: int = BATCH, eps: float = 1e-7, optimiser: optim.Optimiser = "sgd"
) -> Recipe:
    """FedSGD: the server takes one step along the mean of the clients' mini-batch gradients."""
    return Recipe(Draw(size=batch), client=optim.sgd(1.0), server=average(optim.by(optimiser, lr, eps)))


@family(net="cnn")
@completed_by(locally)
def fedavg(task: Task, *, server_lr: float = 1.0) -> Most:
    """FedAVG: clients train `epochs` passes with a fresh optimiser, the server averages weights by N_k/N."""
    return partial(Recipe, server=average(optim.sgd(server_lr)))


@family(net="cnn")
@completed_by(plainly)
def fedprox(
    task: Task,
    *,
    lr: float,
    mu: float = 0.01,
    server_lr: float = 1.0,
    form: Literal["plain", "release", "textbook"] = "plain",
) -> Most:
    """FedProx: FedAVG with gradient steps that a quadratic of weight mu pulls back to the round's start.

    `plain`: plain descent (Li et al. 2022). `release` and `textbook`: with momentum 0.9, kept over rounds, and weight
    decay 0.001; the pull enters the momentum (the code of fedaug-2022), or stays outside it.
    """
    server, drift = average(optim.sgd(server_lr)), parts.proximal(mu, beside=lr if form == "textbook" else 0.0)
    if form == "plain":
        return partial(Recipe, server=server, drift=drift)
    heavy = optim.sgd(lr, momentum=0.9, weight_decay=1e-3)
    return lambda draw, plain: Recipe(draw, heavy, server, drift, keep=True)


@family(net="cnn")
@completed_by(plainly)
def scaffold(task: Task, *, lr: float, server_lr: float = 1.0) -> Most:
    """SCAFFOLD: FedAVG with plain gradient steps, corrected by control variates of client and server."""
    return partial(Recipe, server=average(optim.sgd(server_lr)), drift=parts.control_variates(lr))


@family(net="cnn")
@completed_by(plainly)
def fedadam(
    task: Task, *, server_lr: float = 0.01, b1: float = 0.9, b2: float = 0.99, server_eps: float = 1e-3
) -> Most:
    """FedAdam: plain local gradient steps, and an Adam step of the server along their mean."""
    return partial(Recipe, server=average(parts.adaptive(server_lr, b1, b2, server_eps, parts.adam_moment)))


@family(net="cnn")
@completed_by(plainly)
def fedyogi(
    task: Task, *, server_lr: float = 0.01, b1: float = 0.9, b2: float = 0.99, server_eps: float = 1e-3
) -> Most:
    """FedYogi: plain local gradient steps, and a Yogi step of the server along their mean."""
    return partial(Recipe, server=average(parts.adaptive(server_lr, b1, b2, server_eps, parts.yogi_moment)))


@family(net="cnn")
@completed_by(plainly)
def fedgma(
    task: Task,
    *,
    lr: float,
    server_lr: float = 0.05,
    threshold: float = 0.8,
    mask_rule: Literal["formula", "fraction"] = "formula",
    gradient: Literal["initial", "sum", "last"] = "initial",
) -> Most:
    """FedGMA: FedAVG, and on top of it a server step along the gradients on whose sign the clients agree.

    fedgma-2021, Algorithm 1. `formula`: |2f - 1| >= threshold for the fraction f of clients that agree,
    as printed; `fraction`: f >= threshold, as its prose has it. `gradient`: of the whole client at the round's start
    (`initial`, the prose), summed over the local steps (`sum`), or of the last one (`last`, the listing).
    """
    needed = threshold if mask_rule == "formula" else 2 * threshold - 1
    server = parts.gradient_masked(server_lr / lr if gradient == "sum" else server_lr, needed)
    return partial(Recipe, server=server, note=gradient)
