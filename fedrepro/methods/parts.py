"""Parts of methods with one shared model: drifts, server rules, and the mask that goes around these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedrepro.core import trees
from fedrepro.core.types import Report, Rule, State

Mask = Literal["none", "soft", "hard"]
Signs = Literal["equal", "size"]


class Drift(NamedTuple):
    """A pull that keeps a client's local steps near the others': an addition to its gradients, and what it remembers.

    init:  parameters -> memory of one client; what all share begins as the same
    pull:  (params, anchor, memory, shared) -> addition to the gradient; the anchor is the model of the round's start
    close: (delta, steps, memory, shared) -> the memory after the round; the shared one moves by the mean change of all
    beside: where it is not 0, the pull is no part of the gradient: `beside` times it is subtracted from the parameters
    """

    init: Callable[[State], State]
    pull: Callable[[State, State, State, State], State]
    close: Callable[[State, Tensor, State, State], State]
    beside: float = 0.0


def proximal(mu: float, beside: float = 0.0) -> Drift:
    """FedProx: the gradient of mu/2 |w - anchor|^2 (Li et al. 2020, Eq. 2; papers/gma-2022/PROTOCOL.md)."""

    def pull(params: State, anchor: State, memory: State, shared: State) -> State:
        return trees.map_tree(lambda w, start: mu * (w - start), params, anchor)

    return Drift(lambda params: {}, pull, lambda delta, steps, memory, shared: memory, beside)


def control_variates(lr: float) -> Drift:
    """SCAFFOLD: gradients corrected by c - c_k (Karimireddy et al. 2020, Algorithm 1, option II).

    After T_k local steps c_k becomes c_k - c + (anchor - w) / (T_k lr), the mean gradient of plain steps of size lr.
    """

    def pull(params: State, anchor: State, memory: State, shared: State) -> State:
        return trees.map_tree(torch.sub, shared, memory)

    def close(delta: State, steps: Tensor, memory: State, shared: State) -> State:
        return trees.map_tree(lambda d, own, all: own - all - d / (steps * lr), delta, memory, shared)

    return Drift(lambda params: trees.map_tree(torch.zeros_like, params), pull, close)


def average(optimiser: Rule) -> Rule:
    """The server follows the weighted mean of the deltas: its optimiser's gradient is minus that mean.

    With `sgd(1.0)` it replaces the model by the clients' weighted average (FedAVG).
    """

    def update(reports: Report, weights: Tensor, s: State) -> tuple[State, State]:
        return optimiser.update(trees.map_tree(lambda d: -d, trees.mean(reports.delta, weights)), s)

    return Rule(optimiser.init, update)


def remembered(server: Rule, clients: int) -> Rule:
    """The server rule, for a later phase to know what the clients handed in.

    State: the rule's own (`inner`), the last deltas (`delta`, {[K, ...]}) and weights (`weights` [K]).
    """

    def init(params: State) -> State:
        none = trees.repeat(trees.map_tree(torch.zeros_like, params), clients)
        return {"inner": server.init(params), "delta": none, "weights": torch.zeros(clients)}

    def update(reports: Report, weights: Tensor, s: State) -> tuple[State, State]:
        step, inner = server.update(reports, weights, s["inner"])
        return step, {"inner": inner, "delta": reports.delta, "weights": weights}

    return Rule(init, update)


def adaptive(lr: float, b1: float, b2: float, eps: float, second: Callable[[Tensor, Tensor, float], Tensor]) -> Rule:
    """Adam and Yogi as servers have them (Reddi et al. 2021, Algorithm 2): no bias correction, v starts at eps^2.

    `second` (v, g^2, b2) -> the new second moment. State: moments `m`, `v` shaped like the parameters.
    """

    def init(params: State) -> State:
        zeros = trees.map_tree(torch.zeros_like, params)
        return {"m": zeros, "v": trees.map_tree(lambda p: torch.full_like(p, eps**2), params)}

    def update(gradient: State, s: State) -> tuple[State, State]:
        m = trees.map_tree(lambda m, g: b1 * m + (1 - b1) * g, s["m"], gradient)
        v = trees.map_tree(lambda v, g: second(v, g.square(), b2), s["v"], gradient)
        return trees.map_tree(lambda m, v: -lr * m / (v.sqrt() + eps), m, v), {"m": m, "v": v}

    return Rule(init, update)


def adam_moment(v: Tensor, square: Tensor, b2: float) -> Tensor:
    """FedAdam's: an exponential mean."""
    return b2 * v + (1 - b2) * square


def yogi_moment(v: Tensor, square: Tensor, b2: float) -> Tensor:
    """FedYogi's: v moves towards the square by a step of the square's size."""
    return v - (1 - b2) * square * torch.sign(v - square)


def masked(server: Rule, mask: Mask, tau: float, signs: Signs, rescale: bool = False) -> Rule:
    """Gradient-masked averaging around any server rule (gma-2022, Algorithm 1; papers/gma-2022/PROTOCOL.md).

    Each coordinate of the server's step is multiplied by 1 where the clients' agreement on its sign is at least tau,
    and elsewhere by the agreement (`soft`) or by 0 (`hard`). With `rescale` the mask of each tensor is divided by its
    mean, as in the code of Parascandolo et al. 2021, so that its steps are as long as without a mask. State: the rule's
    own, and the surviving fraction of the coordinates of each layer (`survival`).
    """
    if mask == "none":
        return server

    def init(params: State) -> State:
        return {"inner": server.init(params), "survival": {name: torch.ones(()) for name in ("all", *params)}}

    def update(reports: Report, weights: Tensor, s: State) -> tuple[State, State]:
        step, inner = server.update(reports, weights, s["inner"])
        agreed = agreement(reports.delta, weights, signs)
        weigh = (lambda a: torch.where(a >= tau, 1.0, a)) if mask == "soft" else (lambda a: (a >= tau).float())
        passing = trees.map_tree(weigh, agreed)
        if rescale:
            passing = trees.map_tree(lambda m: m / m.mean().clamp(min=1e-12), passing)
        step = trees.map_tree(torch.mul, step, passing)
        return step, {"inner": inner, "survival": survival(trees.map_tree(lambda a: a >= tau, agreed))}

    return Rule(init, update)


def gradient_masked(lr: float, threshold: float) -> Rule:
    """FedGMA (fedgma-2021, Algorithm 1): the clients' average, less lr times their masked mean gradient.

    A coordinate survives where the agreement on the sign of the reported gradients (`note`) is at least `threshold`.
    """

    def init(params: State) -> State:
        return {"survival": {name: torch.ones(()) for name in ("all", *params)}}

    def update(reports: Report, weights: Tensor, s: State) -> tuple[State, State]:
        kept = trees.map_tree(lambda a: a >= threshold, agreement(reports.note, weights))
        gradient = trees.mean(reports.note, weights)
        step = trees.map_tree(lambda d, g, i: d - lr * (g * i), trees.mean(reports.delta, weights), gradient, kept)
        return step, {"survival": survival(kept)}

    return Rule(init, update)


def agreement(updates: State, weights: Tensor, signs: Signs = "equal") -> State:
    """How far clients agree on each coordinate's sign: |mean_k sgn(u_k)| of updates {[C, ...]}, in [0, 1].

    Over the clients with a weight, each with the same vote (`equal`) or with its weight (`size`). A zero abstains, and
    a tie has agreement 0 (gma-2022, Eq. 3, with the absolute value of its first version; papers/gma-2022/PROTOCOL.md).
    """
    votes, total = (weights, weights.sum()) if signs == "size" else ((weights > 0).float(), (weights > 0).sum())
    # Votes of 1 and one division: 7 against 3 clients are then exactly 0.4.
    balance = trees.mean(trees.map_tree(torch.sign, updates), votes)
    return trees.map_tree(lambda each: each.abs() / total.clamp(min=1e-12), balance)


def survival(kept: State) -> State:
    """The fraction of coordinates kept: of each top-level part of the parameters, and of `all`."""
    counts = {name: [(leaf.sum(), leaf.numel()) for _, leaf in trees.leaves(part)] for name, part in kept.items()}
    counts["all"] = [each for part in counts.values() for each in part]
    return {name: sum(kept for kept, _ in part) / sum(size for _, size in part) for name, part in counts.items()}
