"""Methods with one shared model: clients train it locally, the server steps it along their reports.

State: {"clients": each one's memory of the drift [K, ...], "server": {"params": ..., "rule": server state,
"shares": N_k/N [K], "shared": what the drift shares}}; methods without a drift have no memory and nothing shared.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Literal, get_type_hints

import torch
from torch import Tensor
from torch.func import grad_and_value

from fedrepro import optim, trees
from fedrepro.convnets import cnn
from fedrepro.lift import over_clients, over_steps
from fedrepro.methods import parts
from fedrepro.methods.parts import Drift, Mask, Signs, average
from fedrepro.nets import cross_entropy, mlp
from fedrepro.types import Batch, Draw, Method, Metrics, Net, Phase, Report, Rule, State, Streams, Task

Nets = Literal["mlp", "cnn", "cnn-large"]
Note = Literal["none", "initial", "sum", "last"]


@dataclass(frozen=True)
class Recipe:
    """A method but for its network, its cohort and its mask. `note`: the gradient that clients report beside deltas."""

    draw: Draw
    client: Rule
    server: Rule
    drift: Drift | None = None
    note: Note = "none"


def family(net: Nets, cohort: int = 0) -> Callable[[Callable[..., Recipe]], Callable[..., Method]]:
    """What all methods of the family have in common: the hyper-parameters below, in this order, with these defaults.

    net:    "mlp" (with `hidden` units in two layers), "cnn" or "cnn-large"
    cohort: the number of clients sampled each round where there are more; 0 is all of them
    mask:   "none", "soft" or "hard", masked averaging around the method's own server rule (see `parts.masked`), with
            the threshold `tau` and `sign_weighting` "equal" or "size"
    """
    defaults = {"net": net, "hidden": 390, "cohort": cohort, "mask": "none", "tau": 0.4, "sign_weighting": "equal"}
    types = {"net": Nets, "hidden": int, "cohort": int, "mask": Mask, "tau": float, "sign_weighting": Signs}

    def decorate(recipe: Callable[..., Recipe]) -> Callable[..., Method]:
        @wraps(recipe)
        def build(task: Task, **hyper) -> Method:
            common = {name: hyper.pop(name, value) for name, value in defaults.items()}
            return cook(task, recipe(task, **hyper), **common)

        signature = inspect.signature(recipe)
        added = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=v) for n, v in defaults.items()]
        build.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])
        build.__annotations__ = get_type_hints(recipe) | types | {"return": Method}
        return build

    return decorate


def cook(
    task: Task, recipe: Recipe, *, net: Nets, hidden: int, cohort: int, mask: Mask, tau: float, sign_weighting: Signs
) -> Method:
    """The method of a recipe. UsageError where the network does not fit the task."""
    draw = replace(recipe.draw, clients=cohort if 0 < cohort < task.clients else "all")
    server = parts.masked(recipe.server, mask, tau, sign_weighting)
    chosen = NETS[net](task, hidden)
    return federated(task, chosen, draw, client=recipe.client, server=server, drift=recipe.drift, note=recipe.note)


def shared_mlp(task: Task, hidden: int) -> Net:
    """The predictor of flgames-2022, section 7.3.1, as a single model."""
    return mlp(math.prod(task.shape), hidden, hidden, task.classes)


# Small: Li et al. 2022 (protocols 2.3). Large: McMahan et al. 2017 (protocols 3.2).
NETS: dict[str, Callable[[Task, int], Net]] = {
    "mlp": shared_mlp,
    "cnn": lambda task, hidden: cnn(task.shape, task.classes),
    "cnn-large": lambda task, hidden: cnn(task.shape, task.classes, filters=(32, 64), hidden=(512,), padding=(2, 2)),
}


@family(net="mlp")
def fedsgd(task: Task, *, lr: float = 2.5e-4, batch: int = 256, eps: float = 1e-7) -> Recipe:
    """FedSGD: the server takes one Adam step along the mean of the clients' mini-batch gradients (protocols 1.6)."""
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
    task: Task, *, lr: float = 0.01, batch: int = 64, epochs: int = 1, mu: float = 0.01, server_lr: float = 1.0
) -> Recipe:
    """FedProx: FedAVG with plain gradient steps that a quadratic of weight mu pulls back to the round's start."""
    draw = Draw(size=batch, epochs=epochs)
    return Recipe(draw, optim.sgd(lr), average(optim.sgd(server_lr)), drift=parts.proximal(mu))


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

    fedgma-2021, Algorithm 1; protocols 3.3. `formula`: |2f - 1| >= threshold for the fraction f of clients that agree,
    as printed; `fraction`: f >= threshold, as its prose has it. `gradient`: of the whole client at the round's start
    (`initial`, the prose), summed over the local steps (`sum`), or of the last one (`last`, the listing).
    """
    needed = threshold if mask_rule == "formula" else 2 * threshold - 1
    server = parts.gradient_masked(server_lr / lr if gradient == "sum" else server_lr, needed)
    return Recipe(Draw(size=batch, epochs=epochs), optim.sgd(lr), server, note=gradient)


def federated(
    task: Task, net: Net, draw: Draw, *, client: Rule, server: Rule, drift: Drift | None = None, note: Note = "none"
) -> Method:
    """Local training with the optimiser `client`, then one step of the rule `server` on the clients' reports."""
    train = local_training(net, client, drift, note, draw.epochs or 1)

    def init(streams: Streams, sizes: tuple[int, ...]) -> State:
        params = net.init(streams(0, "model"))
        state = {"params": params, "rule": server.init(params), "shares": torch.tensor(sizes) / sum(sizes)}
        if drift is None:
            return {"clients": {}, "server": state}
        shared = drift.init(params)
        return {"clients": trees.repeat(shared, len(sizes)), "server": state | {"shared": shared}}

    def step(state: State, batch: Batch) -> tuple[State, Metrics]:
        old = state["server"]
        everyone = draw.clients == "all"
        memory = state["clients"] if everyone else trees.take(state["clients"], batch.clients)
        reports, remembered = train(old["params"], memory, old.get("shared", {}), batch)
        accepted = over_clients(trees.finite)(reports.delta)
        weights = old["shares"][batch.clients] * accepted
        delta, given = (trees.map_tree(lambda d: d.nan_to_num(0, 0, 0), each) for each in (reports.delta, reports.note))
        reports = Report(delta, reports.risk, given)
        move, rule = server.update(reports, weights / weights.sum().clamp(min=1e-12), old["rule"])
        new = {**old, "params": trees.add(old["params"], move), "rule": rule}
        if drift is not None:
            part = accepted / len(old["shares"])
            change = trees.map_tree(lambda a, b: (a - b).nan_to_num(0, 0, 0), remembered, memory)
            new["shared"] = trees.add(old["shared"], trees.mean(change, part))
        clients = remembered if everyone else trees.give(state["clients"], batch.clients, remembered)
        metrics = {"loss": reports.risk.mean(), "accepted": accepted}
        survival = rule.get("survival", {})
        metrics |= {f"mask_survival_{name}": fraction for name, fraction in survival.items()}
        return {"clients": clients, "server": new}, metrics

    def predict(state: State, x: Tensor) -> Tensor:
        return net.apply(state["server"]["params"], x)

    return Method(init, (Phase(draw, step, alone=net.descend is not None),), predict)


def local_training(net: Net, rule: Rule, drift: Drift | None, note: Note, epochs: int) -> Callable:
    """The clients' training: (params, memories [C, ...], shared, batch) -> (Report [C, ...], memories [C, ...])."""

    descend = net.descend or over_clients(grad_and_value(lambda p, x, y, live: cross_entropy(net.apply(p, x), y, live)))

    def advance(carry: State, fixed: State, x: Tensor, y: Tensor, live: Tensor) -> State:
        params = carry["params"]
        gradient, risk = descend(params, x, y, live)
        last = {"last": gradient} if note == "last" else {}
        if drift is not None:
            pull = over_clients(drift.pull)(params, fixed["anchor"], fixed["memory"], fixed["shared"])
            gradient = trees.add(gradient, pull)
        move, opt = over_clients(rule.update)(gradient, carry["opt"])
        return {"params": trees.add(params, move), "opt": opt, "risk": carry["risk"] + risk, **last}

    def train(params: State, memory: State, shared: State, batch: Batch) -> tuple[Report, State]:
        clients = len(batch.clients)
        anchor = trees.repeat(params, clients)
        risk = torch.zeros(clients, device=batch.live.device)
        carry = {"params": anchor, "opt": over_clients(rule.init)(anchor), "risk": risk}
        if note == "last":
            carry["last"] = anchor
        fixed = {}
        if drift is not None:
            fixed = {"anchor": anchor, "memory": memory, "shared": trees.repeat(shared, clients)}
        carry = over_steps(advance, carry, fixed, (batch.x, batch.y), batch.live)
        delta, steps = trees.map_tree(torch.sub, carry["params"], anchor), batch.live.any(-1).sum(-1)
        if drift is not None:
            memory = over_clients(drift.close)(delta, steps, memory, fixed["shared"])
        notes = {
            "none": lambda: {},
            "initial": lambda: whole_gradient(descend, anchor, batch, epochs),
            "sum": lambda: trees.map_tree(torch.neg, delta),
            "last": lambda: carry["last"],
        }
        return Report(delta, carry["risk"] / steps, notes[note]()), memory

    return train


def whole_gradient(descend: Callable, anchor: State, batch: Batch, epochs: int) -> State:
    """Each client's gradient [C, ...] of its mean loss over the rows of its first pass, at the round's start."""
    first = batch.live.shape[1] // epochs
    own = torch.arange(first, device=batch.live.device) < (batch.live.any(-1).sum(-1) // epochs)[:, None]
    live = batch.live[:, :first] & own[..., None]
    # Tiny batches are joined, since the sum is the same: equally many in each part, of 128 rows at most.
    join = max(d for d in range(1, first + 1) if first % d == 0 and (d == 1 or d * live.shape[-1] <= 128))
    x, y, live = (each[:, :first].unflatten(1, (-1, join)).flatten(2, 3) for each in (batch.x, batch.y, live))

    def add(carry: State, anchor: State, x: Tensor, y: Tensor, live: Tensor) -> State:
        gradient, rows = descend(anchor, x, y, live)[0], live.sum(-1)
        weigh = over_clients(lambda g, rows: trees.map_tree(lambda leaf: leaf * rows, g))
        return {"sum": trees.add(carry["sum"], weigh(gradient, rows)), "rows": carry["rows"] + rows}

    start = {"sum": trees.map_tree(torch.zeros_like, anchor), "rows": live.new_zeros(len(live)).float()}
    found = over_steps(add, start, anchor, (x, y), live)
    return over_clients(lambda total, rows: trees.map_tree(lambda g: g / rows, total))(found["sum"], found["rows"])
