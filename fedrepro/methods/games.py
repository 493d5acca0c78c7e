"""Games between clients: each answers its opponents with a predictor of its own, and the ensemble predicts.

flgames-2022, Algorithm 1 and section 4. The variants differ in three parts only: whether the
representation phi is learned (V) or the identity (F), whether clients also answer their opponents' past (Smooth),
and whether phi's gradient is taken over all data (Fast); the order of play is the tuple of phases.

State: {"clients": {"w": predictors [K, ...], "opt": their Adam [K, ...], "past": {slot: [K, ...]}, "plays": [K]},
"server": {"shares": N_k/N [K], "phi": ..., "opt": its Adam}}; "past" and "plays" are Smooth's, "phi" and its Adam V's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad_and_value

from fedrepro import optim, trees
from fedrepro.errors import unknown
from fedrepro.lift import over_clients
from fedrepro.nets import cross_entropy, mlp
from fedrepro.types import Batch, Draw, Members, Method, Metrics, Net, Phase, State, Streams, Task

Turn = tuple[int, ...]


@dataclass(frozen=True)
class Game:
    """What the phases of one game share."""

    n: int
    predictor: Net
    phi: Net | None
    opt: optim.Rule
    phi_opt: optim.Rule | None
    batch: int
    steps: int
    capacity: int  # of the buffer of past predictors; 0 is none
    response: str

    def represent(self, state: State, x: Tensor) -> Tensor:
        """phi(x); the identity for F."""
        return self.phi.apply(state["server"]["phi"], x) if self.phi else x


def f_irm(
    task: Task,
    *,
    order: str = "parallel",
    lr: float = 2.5e-4,
    batch: int = 256,
    hidden: int = 390,
    steps: int = 1,
    eps: float = 1e-7,
) -> Method:
    """F-IRM Games: the representation is fixed to the identity."""
    return play(task, order, lr=lr, batch=batch, hidden=hidden, steps=steps, eps=eps)


def f_fl_smooth(
    task: Task,
    *,
    order: str = "parallel",
    lr: float = 2.5e-4,
    batch: int = 256,
    hidden: int = 390,
    steps: int = 1,
    eps: float = 1e-7,
    capacity: int = 5,
    response: str = "buffer_only",
) -> Method:
    """F-FL Games (Smooth): F-IRM whose clients answer a buffer of their opponents' past predictors."""
    past = {"capacity": capacity, "response": response}
    return play(task, order, lr=lr, batch=batch, hidden=hidden, steps=steps, eps=eps, **past)


def v_irm(
    task: Task,
    *,
    order: str = "parallel",
    lr: float = 2.5e-4,
    phi_lr: float = 2.5e-5,
    batch: int = 256,
    hidden: int = 390,
    steps: int = 1,
    eps: float = 1e-7,
) -> Method:
    """V-IRM Games: a shared representation is learned on mini-batches, in rounds of its own."""
    return play(task, order, lr=lr, phi_lr=phi_lr, batch=batch, hidden=hidden, steps=steps, eps=eps)


def v_fl_smooth_fast(
    task: Task,
    *,
    order: str = "parallel",
    lr: float = 2.5e-4,
    phi_lr: float = 2.5e-5,
    batch: int = 256,
    hidden: int = 390,
    steps: int = 1,
    eps: float = 1e-7,
    capacity: int = 5,
    response: str = "buffer_only",
) -> Method:
    """V-FL Games (Smooth + Fast): V-IRM with buffers, phi stepping along the gradient over all data."""
    past = {"capacity": capacity, "response": response, "fast": True}
    return play(task, order, lr=lr, phi_lr=phi_lr, batch=batch, hidden=hidden, steps=steps, eps=eps, **past)


def play(
    task: Task,
    order: str,
    *,
    lr: float,
    batch: int,
    hidden: int,
    steps: int,
    eps: float,
    phi_lr: float | None = None,
    capacity: int = 0,
    response: str = "buffer_only",
    fast: bool = False,
) -> Method:
    """The game on a task. `phi_lr` set learns phi (V); `capacity` > 0 keeps buffers (Smooth); `fast` is Fast."""
    if order not in ORDERS:
        raise unknown("order of play", order, ORDERS)
    if response not in RESPONSES:
        raise unknown("response", response, RESPONSES)
    flat = math.prod(task.shape)
    game = Game(
        n=task.clients,
        predictor=mlp(hidden if phi_lr else flat, hidden, hidden, task.classes),
        phi=mlp(flat, hidden, last=False) if phi_lr else None,
        opt=optim.adam(lr, eps=eps),
        phi_opt=optim.adam(phi_lr, eps=eps) if phi_lr else None,
        batch=batch,
        steps=steps,
        capacity=capacity,
        response=response,
    )
    everyone = tuple(range(game.n))
    turns = ORDERS[order](everyone)
    phases = tuple(respond(game, turn) for turn in turns)
    changed = turns
    if game.phi:
        phases, changed = (learn_phi(game, fast), *phases), (everyone, *changed)

    def members(state: State, chosen: Turn, x: Tensor) -> Tensor:
        w = trees.rows(state["clients"]["w"], chosen)
        return over_clients(game.predictor.apply, (0, None))(w, game.represent(state, x))

    def predict(state: State, x: Tensor) -> Tensor:
        return members(state, everyone, x).mean(0)

    return Method(start(game), phases, predict, Members(members, changed))


# Turns of one cycle: Algorithm 1 lines 20 and 26. Parallel clients answer predictors of the round's start.
ORDERS: dict[str, Callable[[Turn], tuple[Turn, ...]]] = {
    "sequential": lambda clients: tuple((k,) for k in clients),
    "parallel": lambda clients: (clients,),
}

# How a client answers the sum of its opponents now and in the mean of their past: the prose of section 4.2, Eq. 4 as
# printed (weights sum to (2n-1)/n; the loss grows without bound, docs/protocol-flgames-2022.md), and the mean of both.
RESPONSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "buffer_only": lambda now, past: past,
    "literal": torch.add,
    "mixed": lambda now, past: (now + past) / 2,
}


def start(game: Game) -> Callable[[Streams, tuple[int, ...]], State]:
    """Independent Glorot predictors; each buffer holds its client's initial predictor."""

    def init(streams: Streams, sizes: tuple[int, ...]) -> State:
        w = trees.stack([game.predictor.init(streams(k, "predictor")) for k in range(game.n)])
        clients: State = {"w": w, "opt": over_clients(game.opt.init)(w)}
        if game.capacity:
            clients["past"] = {str(slot): trees.map_tree(torch.clone, w) for slot in range(game.capacity)}
            clients["plays"] = torch.zeros(game.n, dtype=torch.int64)
        server: State = {"shares": torch.tensor(sizes) / sum(sizes)}
        if game.phi:
            phi = game.phi.init(streams(0, "representation"))
            server |= {"phi": phi, "opt": game.phi_opt.init(phi)}
        return {"clients": clients, "server": server}

    return init


def respond(game: Game, turn: Turn) -> Phase:
    """The clients of `turn` best-respond: `steps` Adam steps each against opponents fixed at the round's start."""

    def loss(w: State, z: Tensor, others: Tensor, y: Tensor, live: Tensor) -> Tensor:
        return cross_entropy((game.predictor.apply(w, z) + others) / game.n, y, live)

    def step(state: State, batch: Batch) -> tuple[State, Metrics]:
        clients = state["clients"]
        w, opt = trees.rows(clients["w"], turn), trees.rows(clients["opt"], turn)
        losses = []
        for t in range(game.steps):
            x, y, live = batch.x[:, t], batch.y[:, t], batch.live[:, t]
            z = over_clients(lambda x: game.represent(state, x))(x)
            gradient, risk = over_clients(grad_and_value(loss))(w, z, opposition(game, clients, turn, z), y, live)
            move, opt = over_clients(game.opt.update)(gradient, opt)
            w = trees.add(w, move)
            losses.append(risk)
        fresh = {"w": w, "opt": opt}
        if game.capacity:
            fresh |= remember(clients, turn, w)
        played = {key: trees.put(clients[key], turn, value) for key, value in fresh.items()}
        metrics = {"loss": torch.stack(losses).mean(), "accepted": trees.finite(opt)}
        return {"clients": played, "server": state["server"]}, metrics

    return Phase(Draw(size=game.batch, steps=game.steps, clients=turn), step)


def opposition(game: Game, clients: State, turn: Turn, z: Tensor) -> Tensor:
    """What each client of the turn answers: z [C, B, ...] -> summed logits [C, B, classes] (Eq. 4 without w_k)."""
    now = past = torch.zeros(len(turn), 1, 1, device=z.device)
    for ahead in range(1, game.n):
        rivals = [(k + ahead) % game.n for k in turn]
        # The batches come to the rivals in the order of these, since batches are smaller than predictors.
        order = sorted(range(len(turn)), key=rivals.__getitem__)
        back = sorted(range(len(turn)), key=order.__getitem__)
        there, faced = trees.rows(clients, sorted(rivals)), trees.rows(z, order)
        if game.response != "buffer_only" or not game.capacity:
            now = now + trees.rows(over_clients(game.predictor.apply)(there["w"], faced), back)
        if game.capacity:
            past = past + trees.rows(history(game, there["past"], there["plays"], faced), back)
    return RESPONSES[game.response](now, past) if game.capacity else now


def history(game: Game, past: State, plays: Tensor, z: Tensor) -> Tensor:
    """The mean prediction of each buffer: past {slot: [C, ...]}, plays [C], z [C, B, ...] -> [C, B, classes].

    A buffer holds the initial predictor and then the last `capacity` plays, so min(plays + 1, capacity) entries;
    slot 0 is the newest.
    """
    filled = (plays + 1).clamp(max=game.capacity)
    total = torch.zeros(())
    for slot in range(game.capacity):
        share = (slot < filled) / filled
        total = total + share[:, None, None] * over_clients(game.predictor.apply)(past[str(slot)], z)
    return total


def remember(clients: State, turn: Turn, w: State) -> State:
    """The turn's buffers with `w` as the newest entry and the oldest gone (Algorithm 1, line 5)."""
    past = trees.rows(clients["past"], turn)
    slots = [w, *past.values()]
    return {"past": dict(zip(past, slots, strict=False)), "plays": trees.rows(clients["plays"], turn) + 1}


def learn_phi(game: Game, fast: bool) -> Phase:
    """The server steps phi along the clients' gradients weighted by N_k/N (Algorithm 1, lines 7-10 and 22-24)."""

    def ensemble_loss(phi: State, w: State, x: Tensor, y: Tensor, live: Tensor) -> Tensor:
        logits = over_clients(game.predictor.apply, (0, None))(w, game.phi.apply(phi, x)).mean(0)
        return cross_entropy(logits, y, live) * live.sum()

    def step(state: State, batch: Batch) -> tuple[State, Metrics]:
        server, w = state["server"], state["clients"]["w"]
        sums = over_clients(grad_and_value(ensemble_loss), (None, None, 0, 0, 0))
        total = None
        for t in range(batch.x.shape[1]):
            part = sums(server["phi"], w, batch.x[:, t], batch.y[:, t], batch.live[:, t])
            total = part if total is None else tuple(trees.add(a, b) for a, b in zip(total, part, strict=True))
        gradient, risk = total
        rows = batch.live.sum((1, 2))
        accepted = trees.finite(gradient)
        shares = server["shares"] * accepted
        weights = shares / shares.sum().clamp(min=1e-12) / rows
        gradient = trees.map_tree(lambda g: g.nan_to_num(0, 0, 0), gradient)
        move, opt = game.phi_opt.update(trees.mean(gradient, weights), server["opt"])
        stepped = {**server, "phi": trees.add(server["phi"], move), "opt": opt}
        return {"clients": state["clients"], "server": stepped}, {"loss": (risk / rows).mean(), "accepted": accepted}

    return Phase(Draw(size=None if fast else game.batch), step)
