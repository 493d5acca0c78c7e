"""Games between clients: each answers its opponents with a predictor of its own, and the ensemble predicts.

flgames-2022, Algorithm 1 and section 4. The variants differ in three parts only: whether the
representation phi is learned (V) or the identity (F), whether clients also answer their opponents' past (Smooth),
and whether phi's gradient is taken over all data (Fast); the order of play is the tuple of phases.

State: {"clients": {"w": predictors [K, ...], "opt": their Adam [K, ...], "past": {slot: [K, ...]}, "plays": [K]},
"server": {"shares": N_k/N [K], "phi": ..., "opt": its Adam}}; "past" and "plays" are Smooth's, "phi" and its Adam V's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad_and_value

from fedrepro.core import optim, trees
from fedrepro.core.lift import over_clients
from fedrepro.core.parameters import completed_by
from fedrepro.core.types import Batch, Draw, Members, Method, Metrics, Net, Phase, Rule, State, Streams, Task
from fedrepro.nets.mlp import cross_entropy, mlp

Turn = tuple[int, ...]
Those = Callable[[Sequence[int]], State]  # clients in increasing order -> their rows

# The rounds of one cycle, each of clients that answer predictors of its start: Algorithm 1 lines 20 and 26. The others
# are readings: the order of the code of IRM Games, and a parallel round that a loop over the clients makes in place, in
# that order, so that each answers those that have answered before it.
Order = Literal["parallel", "sequential", "last-first", "in-turn"]
ORDERS: dict[Order, Callable[[Turn], tuple[Turn, ...]]] = {
    "sequential": lambda clients: tuple((k,) for k in clients),
    "last-first": lambda clients: tuple((k,) for k in reversed(clients)),
    "parallel": lambda clients: (clients,),
    "in-turn": lambda clients: (clients,),
}

# How a client answers the sum of its opponents now and in the mean of their past: the prose of section 4.2, Eq. 4 as
# printed (weights sum to (2n-1)/n; the loss grows without bound: papers/flgames-2022/PROTOCOL.md), and both's mean.
Response = Literal["buffer_only", "literal", "mixed"]
RESPONSES: dict[Response, Callable[[Tensor, Tensor], Tensor]] = {
    "buffer_only": lambda now, past: past,
    "literal": torch.add,
    "mixed": lambda now, past: (now + past) / 2,
}


# Rows of one gradient of phi: of all of a client's, what is made of them would leave the cache.
PHI_ROWS = 1000


@dataclass(frozen=True)
class Variant:
    """How the games differ.

    phi_lr:   the step size of the representation (V); without one, it is the identity (F)
    phi_optimiser: of the server; Adam by section 7.3.2, SGD by line 23 of Algorithm 1
    capacity: of each buffer of past predictors (Smooth); 0 is none
    response: how clients answer these
    newest:   whether a predictor enters its buffer as soon as it has played, or when it is replaced
    fast:     whether phi steps along the gradient over all data
    """

    phi_lr: float | None = None
    phi_optimiser: optim.Optimiser = "adam"
    capacity: int = 0
    response: Response = "buffer_only"
    newest: bool = True
    fast: bool = False


@dataclass(frozen=True)
class Game:
    """What the phases of one game share; phi and its optimiser are V's."""

    n: int
    variant: Variant
    predictor: Net
    opt: Rule
    phi: Net | None
    phi_opt: Rule | None

    def represent(self, state: State, x: Tensor) -> Tensor:
        """phi(x); the identity for F."""
        return self.phi.apply(state["server"]["phi"], x) if self.phi else x


def start(game: Game, streams: Streams, sizes: tuple[int, ...]) -> State:
    """Independent Glorot predictors; each buffer holds its client's initial predictor."""
    w = trees.stack([game.predictor.init(streams(k, "predictor")) for k in range(game.n)])
    clients: State = {"w": w, "opt": over_clients(game.opt.init)(w)}
    if game.variant.capacity:
        clients["past"] = {str(slot): trees.map_tree(torch.clone, w) for slot in range(game.variant.capacity)}
        clients["plays"] = torch.zeros(game.n, dtype=torch.int64)
    server: State = {"shares": torch.tensor(sizes) / sum(sizes)}
    if game.phi:
        phi = game.phi.init(streams(0, "representation"))
        server |= {"phi": phi, "opt": game.phi_opt.init(phi)}
    return {"clients": clients, "server": server}


def respond(game: Game, turn: Turn, state: State, batch: Batch) -> tuple[State, Metrics]:
    """The clients of `turn` best-respond: some Adam steps each against opponents fixed at the round's start."""
    clients = state["clients"]
    fresh, loss = answer(game, turn, state, partial(trees.rows, clients), batch)
    played = {key: trees.put(clients[key], turn, value) for key, value in fresh.items()}
    metrics = {"loss": loss, "accepted": trees.finite(fresh["opt"])}
    return {"clients": played, "server": state["server"]}, metrics


def respond_in_turn(game: Game, state: State, batch: Batch) -> tuple[State, Metrics]:
    """All clients best-respond, the last one first, each to the others as they are by then."""
    own = [trees.rows(state["clients"], (k,)) for k in range(game.n)]
    losses, accepted = [], []
    for k in reversed(range(game.n)):
        part = batch._replace(**{name: getattr(batch, name)[k : k + 1] for name in ("clients", "x", "y", "live")})
        fresh, loss = answer(game, (k,), state, lambda chosen: own[chosen[0]], part)
        sound = trees.finite(fresh["opt"])
        own[k] = trees.map_tree(partial(torch.where, sound[0]), fresh, own[k])
        losses.append(loss)
        accepted.append(sound)
    played = trees.map_tree(lambda *leaf: torch.cat(leaf), *own)
    metrics = {"loss": torch.stack(losses).mean(), "accepted": torch.cat(accepted[::-1])}
    return {"clients": played, "server": state["server"]}, metrics


def answer(game: Game, turn: Turn, state: State, those: Those, batch: Batch) -> tuple[State, Tensor]:
    """The new rows of the clients of `turn`, after some Adam steps each against `those`, and their mean loss."""

    def loss(w: State, z: Tensor, others: Tensor, y: Tensor, live: Tensor) -> Tensor:
        return cross_entropy((game.predictor.apply(w, z) + others) / game.n, y, live)

    before, losses = those(turn), []
    w, opt = before["w"], before["opt"]
    for t in range(batch.x.shape[1]):
        x, y, live = batch.x[:, t], batch.y[:, t], batch.live[:, t]
        z = over_clients(lambda x: game.represent(state, x))(x)
        gradient, risk = over_clients(grad_and_value(loss))(w, z, opposition(game, those, turn, z), y, live)
        move, opt = over_clients(game.opt.update)(gradient, opt)
        w = trees.add(w, move)
        losses.append(risk)
    fresh = {"w": w, "opt": opt}
    if game.variant.capacity:
        fresh |= remember(before, w if game.variant.newest else before["w"])
    return fresh, torch.stack(losses).mean()


def opposition(game: Game, those: Those, turn: Turn, z: Tensor) -> Tensor:
    """What each client of the turn answers: z [C, B, ...] -> summed logits [C, B, classes] (Eq. 4 without w_k)."""
    now = past = torch.zeros(len(turn), 1, 1, device=z.device)
    for ahead in range(1, game.n):
        rivals = [(k + ahead) % game.n for k in turn]
        # The batches come to the rivals in the order of these, since batches are smaller than predictors.
        order = sorted(range(len(turn)), key=rivals.__getitem__)
        back = sorted(range(len(turn)), key=order.__getitem__)
        there, faced = those(sorted(rivals)), trees.rows(z, order)
        if game.variant.response != "buffer_only" or not game.variant.capacity:
            now = now + trees.rows(over_clients(game.predictor.apply)(there["w"], faced), back)
        if game.variant.capacity:
            past = past + trees.rows(history(game, there["past"], there["plays"], faced), back)
    return RESPONSES[game.variant.response](now, past) if game.variant.capacity else now


def history(game: Game, past: State, plays: Tensor, z: Tensor) -> Tensor:
    """The mean prediction of each buffer: past {slot: [C, ...]}, plays [C], z [C, B, ...] -> [C, B, classes].

    A buffer holds the initial predictor and then the last `capacity` plays, so min(plays + 1, capacity) entries;
    slot 0 is the newest.
    """
    filled = (plays + 1).clamp(max=game.variant.capacity)
    total = torch.zeros(())
    for slot in range(game.variant.capacity):
        share = (slot < filled) / filled
        total = total + share[:, None, None] * over_clients(game.predictor.apply)(past[str(slot)], z)
    return total


def remember(before: State, entering: State) -> State:
    """The buffers of some clients with a newest entry and the oldest one gone (Algorithm 1, line 5)."""
    slots = [entering, *before["past"].values()]
    return {"past": dict(zip(before["past"], slots, strict=False)), "plays": before["plays"] + 1}


def learn_phi(game: Game, state: State, batch: Batch) -> tuple[State, Metrics]:
    """The server steps phi along the clients' gradients weighted by N_k/N (Algorithm 1, lines 7-10 and 22-24)."""

    def ensemble_loss(phi: State, w: State, x: Tensor, y: Tensor, live: Tensor) -> Tensor:
        logits = over_clients(game.predictor.apply, (0, None))(w, game.phi.apply(phi, x)).mean(0)
        return cross_entropy(logits, y, live) * live.sum()

    server, w = state["server"], state["clients"]["w"]
    sums = over_clients(grad_and_value(ensemble_loss), (None, None, 0, 0, 0))
    parts = (leaf.flatten(1, 2).split(PHI_ROWS, 1) for leaf in (batch.x, batch.y, batch.live))
    found = (sums(server["phi"], w, *part) for part in zip(*parts, strict=True))
    gradient, risk = reduce(lambda total, each: tuple(map(trees.add, total, each)), found)
    rows = batch.live.sum((1, 2))
    accepted = trees.finite(gradient)
    shares = server["shares"] * accepted
    weights = shares / shares.sum().clamp(min=1e-12) / rows
    gradient = trees.mean(trees.cleared(gradient), weights)
    phi, opt = optim.step(game.phi_opt.update)(server["phi"], gradient, server["opt"])
    new = {"clients": state["clients"], "server": {**server, "phi": phi, "opt": opt}}
    return new, {"loss": (risk / rows).mean(), "accepted": accepted}


# The methods


def play(
    task: Task,
    variant: Variant,
    *,
    order: Order = "parallel",
    lr: float = 2.5e-4,
    batch: int = 256,
    hidden: int = 390,
    steps: int = 1,
    repeat: int = 1,
    eps: float = 1e-7,
) -> Method:
    """The game on a task. With `repeat` each client's turn takes as many rounds in a row, which can be looked at."""
    everyone, flat, learnt = tuple(range(task.clients)), math.prod(task.shape), variant.phi_lr
    game = Game(
        n=task.clients,
        variant=variant,
        predictor=mlp(hidden if learnt else flat, hidden, hidden, task.classes),
        opt=optim.adam(lr, eps=eps),
        phi=mlp(flat, hidden, last=False) if learnt else None,
        phi_opt=optim.by(variant.phi_optimiser, learnt, eps) if learnt else None,
    )
    changed = tuple(turn for turn in ORDERS[order](everyone) for _ in range(repeat))
    step = partial(respond_in_turn, game) if order == "in-turn" else None
    phases = tuple(Phase(Draw(batch, steps, clients=turn), step or partial(respond, game, turn)) for turn in changed)
    if learnt:
        changed = everyone, *changed
        phases = Phase(Draw(None if variant.fast else batch), partial(learn_phi, game)), *phases

    def members(state: State, chosen: Turn, x: Tensor) -> Tensor:
        w = trees.rows(state["clients"]["w"], chosen)
        return over_clients(game.predictor.apply, (0, None))(w, game.represent(state, x))

    def predict(state: State, x: Tensor) -> Tensor:
        return members(state, everyone, x).mean(0)

    return Method(partial(start, game), phases, predict, Members(members, changed))


played = completed_by(play)


@played
def f_irm(task: Task) -> Variant:
    """F-IRM Games: the representation is fixed to the identity."""
    return Variant()


@played
def f_fl_smooth(task: Task, *, capacity: int = 5, response: Response = "buffer_only", newest: bool = True) -> Variant:
    """F-FL Games (Smooth): F-IRM whose clients answer a buffer of their opponents' past predictors."""
    return Variant(capacity=capacity, response=response, newest=newest)


@played
def v_irm(task: Task, *, phi_lr: float = 2.5e-5, phi_optimiser: optim.Optimiser = "adam") -> Variant:
    """V-IRM Games: a shared representation is learned on mini-batches, in rounds of its own."""
    return Variant(phi_lr, phi_optimiser)


@played
def v_fl_smooth_fast(
    task: Task,
    *,
    phi_lr: float = 2.5e-5,
    phi_optimiser: optim.Optimiser = "adam",
    capacity: int = 5,
    response: Response = "buffer_only",
    newest: bool = True,
) -> Variant:
    """V-FL Games (Smooth + Fast): V-IRM with buffers, phi stepping along the gradient over all data."""
    return Variant(phi_lr, phi_optimiser, capacity, response, newest, fast=True)
