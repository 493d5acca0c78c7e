"""Methods with one shared model: clients train it locally, the server steps it along their reports.

State: {"clients": each one's memory of the drift [K, ...], "server": {"params": ..., "rule": server state,
"shares": N_k/N [K], "shared": what the drift shares}}; methods without a drift have no memory and nothing shared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedrepro import optim, trees
from fedrepro.errors import UsageError
from fedrepro.lift import surely
from fedrepro.methods import parts
from fedrepro.methods.local import Local, Note, shared_gradient
from fedrepro.methods.networks import Init, Nets, choose
from fedrepro.methods.networks import shared_mlp as shared_mlp  # plugins have it from here
from fedrepro.methods.options import options
from fedrepro.methods.parts import Drift, Mask, Signs, average
from fedrepro.methods.penalties import Penalty, penalised
from fedrepro.types import Batch, Draw, Method, Metrics, Net, Phase, Report, Rule, State, Streams, Task


@dataclass(frozen=True)
class Recipe:
    """A method but for its network, its cohort and its mask; the parts are those of `federated`.

    after: a network -> the phase that follows each round of training
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


TYPES = {"net": Nets, "hidden": int, "init": Init, "cohort": int, "mask": Mask, "tau": float, "sign_weighting": Signs}
TYPES |= {"steps": Annotated[int, Field(ge=0)], "keep_optimiser": bool}


def network(net: Nets) -> dict:
    """The hyper-parameters of the network, with their defaults.

    net:  "mlp" (with `hidden` units in two layers), "cnn", "lenet", "cnn-large", "cnn-fair" or "resnet18"
    init: "scratch", or for resnet18 "imagenet": pretrained convolutions
    """
    return {"net": net, "hidden": 390, "init": "scratch"}


def training(net: Nets) -> dict:
    """These, and the hyper-parameters of local training.

    steps:          so many mini-batch steps a round in place of `epochs`; 0 is none
    keep_optimiser: whether a client's optimiser goes on where it was in the last round
    """
    return network(net) | {"steps": 0, "keep_optimiser": False}


def family(net: Nets, cohort: int = 0) -> Callable[[Callable[..., Recipe]], Callable[..., Method]]:
    """What methods that average have in common: all of these, a cohort and a mask.

    cohort: the number of clients sampled each round where there are more; 0 is all of them
    mask:   "none", "soft" or "hard", masked averaging around the method's own server rule (see `parts.masked`), with
            the threshold `tau` and `sign_weighting` "equal" or "size"
    """
    masks = {"cohort": cohort, "mask": "none", "tau": 0.4, "sign_weighting": "equal"}
    return options(training(net) | masks, TYPES, cook)


def cook(
    task: Task,
    recipe: Recipe,
    *,
    net: Nets,
    hidden: int,
    init: Init,
    steps: int,
    keep_optimiser: bool,
    cohort: int = 0,
    mask: Mask = "none",
    tau: float = 0.4,
    sign_weighting: Signs = "equal",
) -> Method:
    """The method of a recipe. UsageError where the network does not fit the task."""
    draw = replace(recipe.draw, clients=cohort if 0 < cohort < task.clients else "all")
    if steps and recipe.note == "initial":
        raise UsageError("the gradient at the round's start is of whole epochs: set epochs, or gradient=sum or last.")
    if steps:
        draw = replace(draw, steps=steps, epochs=0)
    chosen = choose(task, net, hidden, init)
    method = federated(
        task,
        chosen,
        draw,
        client=recipe.client,
        server=parts.masked(recipe.server, mask, tau, sign_weighting),
        drift=recipe.drift,
        note=recipe.note,
        weighting=recipe.weighting,
        penalty=recipe.penalty,
        keep=recipe.keep or keep_optimiser,
    )
    return replace(method, phases=(*method.phases, recipe.after(chosen))) if recipe.after else method


@family(net="mlp")
def fedsgd(task: Task, *, lr: float = 2.5e-4, batch: int = 256, eps: float = 1e-7) -> Recipe:
    """FedSGD: the server takes one Adam step along the mean of the clients' mini-batch gradients."""
    return Recipe(Draw(size=batch), client=optim.sgd(1.0), server=average(optim.adam(lr, eps=eps)))


@family(net="mlp")
def fedavg(
    task: Task,
    *,
    lr: float = 2.5e-4,
    batch: int = 256,
    eps: float = 1e-7,
    epochs: int = 1,
    optimiser: Literal["adam", "sgd"] = "adam",
    server_lr: float = 1.0,
) -> Recipe:
    """FedAVG: clients train `epochs` passes with a fresh optimiser, the server averages weights by N_k/N."""
    client = optim.adam(lr, eps=eps) if optimiser == "adam" else optim.sgd(lr)
    return Recipe(Draw(size=batch, epochs=epochs), client, average(optim.sgd(server_lr)))


@family(net="cnn")
def fedprox(
    task: Task,
    *,
    lr: float = 0.01,
    batch: int = 64,
    epochs: int = 1,
    mu: float = 0.01,
    server_lr: float = 1.0,
    form: Literal["plain", "release", "textbook"] = "plain",
) -> Recipe:
    """FedProx: FedAVG with gradient steps that a quadratic of weight mu pulls back to the round's start.

    `plain`: plain descent (Li et al. 2022). `release` and `textbook`: with momentum 0.9, kept over rounds, and weight
    decay 0.001; the pull enters the momentum (the code of fedaug-2022), or stays outside it.
    """
    client = optim.sgd(lr) if form == "plain" else optim.sgd(lr, momentum=0.9, weight_decay=1e-3)
    drift = parts.proximal(mu, beside=lr if form == "textbook" else 0.0)
    draw, server = Draw(size=batch, epochs=epochs), average(optim.sgd(server_lr))
    return Recipe(draw, client, server, drift=drift, keep=form != "plain")


@family(net="cnn")
def scaffold(task: Task, *, lr: float = 0.01, batch: int = 64, epochs: int = 1, server_lr: float = 1.0) -> Recipe:
    """SCAFFOLD: FedAVG with plain gradient steps, corrected by control variates of client and server."""
    draw = Draw(size=batch, epochs=epochs)
    return Recipe(draw, optim.sgd(lr), average(optim.sgd(server_lr)), drift=parts.control_variates(lr))


@family(net="cnn")
def fedadam(
    task: Task,
    *,
    lr: float = 0.01,
    batch: int = 64,
    epochs: int = 1,
    server_lr: float = 0.01,
    b1: float = 0.9,
    b2: float = 0.99,
    server_eps: float = 1e-3,
) -> Recipe:
    """FedAdam: plain local gradient steps, and an Adam step of the server along their mean."""
    server = parts.adaptive(server_lr, b1, b2, server_eps, parts.adam_moment)
    return Recipe(Draw(size=batch, epochs=epochs), optim.sgd(lr), average(server))


@family(net="cnn")
def fedyogi(
    task: Task,
    *,
    lr: float = 0.01,
    batch: int = 64,
    epochs: int = 1,
    server_lr: float = 0.01,
    b1: float = 0.9,
    b2: float = 0.99,
    server_eps: float = 1e-3,
) -> Recipe:
    """FedYogi: plain local gradient steps, and a Yogi step of the server along their mean."""
    server = parts.adaptive(server_lr, b1, b2, server_eps, parts.yogi_moment)
    return Recipe(Draw(size=batch, epochs=epochs), optim.sgd(lr), average(server))


@family(net="cnn", cohort=10)
def fedgma(
    task: Task,
    *,
    lr: float = 0.05,
    batch: int = 10,
    epochs: int = 1,
    server_lr: float = 0.05,
    threshold: float = 0.8,
    mask_rule: Literal["formula", "fraction"] = "formula",
    gradient: Literal["initial", "sum", "last"] = "initial",
) -> Recipe:
    """FedGMA: FedAVG, and on top of it a server step along the gradients on whose sign the clients agree.

    fedgma-2021, Algorithm 1. `formula`: |2f - 1| >= threshold for the fraction f of clients that agree,
    as printed; `fraction`: f >= threshold, as its prose has it. `gradient`: of the whole client at the round's start
    (`initial`, the prose), summed over the local steps (`sum`), or of the last one (`last`, the listing).
    """
    needed = threshold if mask_rule == "formula" else 2 * threshold - 1
    server = parts.gradient_masked(server_lr / lr if gradient == "sum" else server_lr, needed)
    return Recipe(Draw(size=batch, epochs=epochs), optim.sgd(lr), server, note=gradient)


def federated(
    task: Task,
    net: Net,
    draw: Draw,
    *,
    client: Rule,
    server: Rule,
    drift: Drift | None = None,
    note: Note = "none",
    weighting: Rule | None = None,
    penalty: Penalty | None = None,
    keep: bool = False,
) -> Method:
    """Local training with the optimiser `client`, then one step of the rule `server` on the clients' reports.

    The reports have the weights N_k/N, or those of `weighting`. `keep`: each client's optimiser outlives the round.
    """
    slope = penalised(net, penalty) if penalty else None
    local = Local(net, client, drift, note, draw.epochs or 1, keep, slope)

    def init(streams: Streams, sizes: tuple[int, ...]) -> State:
        params, shares = net.init(streams(0, "model")), torch.tensor(sizes) / sum(sizes)
        state = {"params": params, "rule": server.init(params), "shares": shares}
        state |= {"weighting": weighting.init(shares)} if weighting else {}
        state |= {"shared": drift.init(params)} if drift else {}
        return {"clients": local.memory(params, len(sizes)), "server": state}

    def step(state: State, batch: Batch) -> tuple[State, Metrics]:
        old = state["server"]
        everyone = draw.clients == "all"
        memory = state["clients"] if everyone else trees.take(state["clients"], batch.clients)
        reports, remembered = local.train(old["params"], memory, old.get("shared", {}), batch)
        accepted = trees.finite(reports.delta)
        weights, weighed = weigh(old, reports.risk, accepted, batch.clients)
        if not surely(accepted):
            delta, note = (
                trees.map_tree(lambda d: d.nan_to_num(0, 0, 0), each) for each in (reports.delta, reports.note)
            )
            reports = Report(delta, reports.risk, note)
        move, rule = server.update(reports, weights, old["rule"])
        new = {**old, "params": trees.add(old["params"], move), "rule": rule, **weighed}
        if drift is not None:
            part = accepted / len(old["shares"])
            now, then = local.drifts(remembered), local.drifts(memory)
            change = trees.map_tree(lambda a, b: (a - b).nan_to_num(0, 0, 0), now, then)
            new["shared"] = trees.add(old["shared"], trees.mean(change, part))
        clients = remembered if everyone else trees.give(state["clients"], batch.clients, remembered)
        metrics = {"loss": reports.risk.mean(), "accepted": accepted}
        survival = rule.get("survival", {})
        metrics |= {f"mask_survival_{name}": fraction for name, fraction in survival.items()}
        return {"clients": clients, "server": new}, metrics

    def weigh(server: State, risk: Tensor, accepted: Tensor, clients: Tensor) -> tuple[Tensor, State]:
        """The clients' weights [C], and the weighting's new state where there is one."""
        if weighting is None:
            weights = server["shares"][clients] * accepted
            return weights / weights.sum().clamp(min=1e-12), {}
        weights, s = weighting.update(risk.nan_to_num(0, 0, 0), accepted, server["weighting"])
        return weights, {"weighting": s}

    def predict(state: State, x: Tensor) -> Tensor:
        return net.apply(state["server"]["params"], x)

    phase = Phase(draw, step, alone=net.alone)
    return Method(init, (phase,), predict, gradient=shared_gradient(net))
