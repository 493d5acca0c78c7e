"""Computation of the clients: local training from the model of the round, gradients and risks of their whole data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import grad_and_value

from fedrepro.core import trees
from fedrepro.core.lift import modes, over_clients, over_steps
from fedrepro.core.optim import step
from fedrepro.core.types import Batch, Method, Net, Phase, Report, Rule, State
from fedrepro.methods.parts import Drift
from fedrepro.nets.mlp import cross_entropy

Note = Literal["none", "initial", "sum", "last"]


@dataclass(frozen=True)
class Local:
    """How each client trains: `rule` is its optimiser, `drift` what is added to its gradients.

    note:     the gradient that it reports beside its delta; `initial` is of its rows in the first of `epochs`
    keep:     whether the optimiser's state outlives the round
    penalised: in place of the network's own gradient, one that depends on how many updates the client has made
    """

    net: Net
    rule: Rule
    drift: Drift | None = None
    note: Note = "none"
    epochs: int = 1
    keep: bool = False
    penalised: Callable | None = None

    @property
    def kept(self) -> tuple[str, ...]:
        """The memory of clients beside the drift's memory."""
        return ("opt",) * self.keep + ("updates",) * (self.penalised is not None)

    def memory(self, params: State, clients: int) -> State:
        """The first memory of the clients [K, ...]: the drift's memory, and what else they keep beside it."""
        drift = trees.repeat(self.drift.init(params), clients) if self.drift else {}
        first = {"opt": trees.repeat(self.rule.init(params), clients), "updates": torch.zeros(clients).long()}
        return {"drift": drift, **{name: first[name] for name in self.kept}} if self.kept else drift

    def drifts(self, memory: State) -> State:
        """The drift's part of a memory."""
        return memory["drift"] if self.kept else memory

    def train(self, params: State, memory: State, shared: State, batch: Batch) -> tuple[Report, State]:
        """Every client trains from `params`: memories [C, ...], shared (the drift's) -> (report, memories)."""
        clients, drift, own = len(batch.clients), self.drift, self.drifts(memory)
        anchor = trees.repeat(params, clients)
        opt = trees.repeat(self.rule.init(params), clients)
        carry = {"params": anchor, "opt": opt, "risk": torch.zeros(clients, device=batch.live.device)}
        carry |= {"last": anchor} if self.note == "last" else {}
        carry |= {name: memory[name] for name in self.kept}
        fixed = {"anchor": anchor, "memory": own, "shared": trees.repeat(shared, clients)} if drift else {}
        recorded = self.penalised is None  # a penalty looks at how many updates there were
        carry = over_steps(self._advance, carry, fixed, (batch.x, batch.y), batch.live, recorded)
        delta, steps = trees.map_tree(torch.sub, carry["params"], anchor), batch.live.any(-1).sum(-1)
        if drift:
            own = over_clients(drift.close)(delta, steps, own, fixed["shared"])
        report = Report(delta, carry["risk"] / steps, self._noted(carry, anchor, delta, batch))
        return report, {"drift": own, **{name: carry[name] for name in self.kept}} if self.kept else own

    def _advance(self, carry: State, fixed: State, x: Tensor, y: Tensor, live: Tensor) -> State:
        """One step of every client."""
        params, new = carry["params"], {}
        if self.penalised:
            gradient, risk = self.penalised(params, x, y, live, carry["updates"])
            new["updates"] = carry["updates"] + 1
        else:
            gradient, risk = descent(self.net)(params, x, y, live)
        if self.note == "last":
            new["last"] = gradient
        pull = {}
        if self.drift is not None:
            pull = over_clients(self.drift.pull)(params, fixed["anchor"], fixed["memory"], fixed["shared"])
        if pull and not self.drift.beside:
            gradient = trees.add(gradient, pull)
        moved, opt = stepped(self.rule)(params, gradient, carry["opt"])
        if pull and self.drift.beside:
            moved = trees.map_tree(lambda w, p: w - self.drift.beside * p, moved, pull)
        return {"params": moved, "opt": opt, "risk": carry["risk"] + risk, **new}

    def _noted(self, carry: State, anchor: State, delta: State, batch: Batch) -> State:
        if self.note == "initial":
            return whole_gradient(descent(self.net), anchor, batch, self.epochs)
        if self.note == "sum":
            return trees.map_tree(torch.neg, delta)
        return carry["last"] if self.note == "last" else {}


def descent(net: Net) -> Callable:
    """The network's gradient of stacked clients, as `Net.descend` has it, whether the network brings one or not."""
    lifted = grad_and_value(lambda p, x, y, live: cross_entropy(net.apply(p, x), y, live))
    return over_clients(lifted, own=net.descend)


def stepped(rule: Rule) -> Callable:
    """A step of stacked clients, as `Rule.together` has it, whether the optimiser brings one or not."""
    return over_clients(step(rule.update), own=rule.together)


def singly(net: Net) -> contextlib.AbstractContextManager:
    """Clients one after another inside the block where the network is no faster on a batch of them."""
    return modes(clients="loop") if net.alone else contextlib.nullcontext()


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


def risks(net: Net, params: State, batch: Batch) -> Tensor:
    """The mean cross entropy [C] of each client's model {[C, ...]} over all live rows of its batches."""

    def add(carry: State, params: State, x: Tensor, y: Tensor, live: Tensor) -> State:
        mean = over_clients(lambda p, x, y, live: cross_entropy(net.apply(p, x), y, live))(params, x, y, live)
        rows = live.sum(-1)
        return {"sum": carry["sum"] + mean * rows, "rows": carry["rows"] + rows}

    start = torch.zeros(len(batch.live), device=batch.live.device)
    with singly(net):
        found = over_steps(add, {"sum": start, "rows": start}, params, (batch.x, batch.y), batch.live)
    return found["sum"] / found["rows"]


def one_model(net: Net, init: Callable, *phases: Phase) -> Method:
    """The method whose state has one model at ["server"]["params"], which predicts."""

    def predict(state: State, x: Tensor) -> Tensor:
        return net.apply(state["server"]["params"], x)

    def gradient(state: State, x: Tensor, y: Tensor) -> State:
        params = state["server"]["params"]
        every = torch.ones(1, len(y), dtype=torch.bool, device=y.device)
        mean, _ = descent(net)(trees.repeat(params, 1), x[None], y[None], every)
        return trees.map_tree(lambda g: g[0] * len(y), mean)

    return Method(init, phases, predict, gradient=gradient)
