"""Optimisers as rules: `init(params) -> s`, `update(gradient, s, params) -> (step, s)`; parameters += step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.optim.adam import adam as torch_adam

from fedrepro.core.trees import add, device, leaves, map_tree
from fedrepro.core.types import Rule, State

Optimiser = Literal["sgd", "adam"]


def by(optimiser: Optimiser, lr: float, eps: float) -> Rule:
    """The optimiser by name; `eps` is Adam's."""
    return adam(lr, eps=eps) if optimiser == "adam" else sgd(lr)


def step(update: Callable) -> Callable[[State, State, State], tuple[State, State]]:
    """(params, gradient, s) -> (params, s): the update made."""

    def taken(params: State, gradient: State, s: State) -> tuple[State, State]:
        move, s = update(gradient, s, params)
        return add(params, move), s

    return taken


def sgd(lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> Rule:
    """Gradient descent with a fixed step size, as torch.optim.SGD has it: buf = momentum buf + (gradient + decay w).

    State: the momentum buffer `buf` shaped like the parameters; none without momentum.
    """

    def init(params: State) -> State:
        return {"buf": map_tree(torch.zeros_like, params)} if momentum else {}

    def update(gradient: State, s: State, params: State | None = None) -> tuple[State, State]:
        if weight_decay:
            gradient = map_tree(lambda g, w: g + weight_decay * w, gradient, params)
        if momentum:
            gradient = map_tree(lambda buf, g: momentum * buf + g, s["buf"], gradient)
            s = {"buf": gradient}
        return map_tree(lambda g: g * -lr, gradient), s

    def together(params: State, gradient: State, s: State) -> tuple[State, State]:
        # Every number goes its own way, whatever network it is of.
        if momentum or weight_decay:
            return step(update)(params, gradient, s)
        return map_tree(lambda w, g: torch.add(w, g, alpha=-lr), params, gradient), s

    return Rule(init, update, together)


def adam(lr: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-7) -> Rule:
    """Adam with bias correction (Kingma and Ba 2015, Algorithm 1); eps of Keras's size, beside the corrected root.

    State: first and second moments `m`, `v` shaped like the parameters, step counter `t` (scalar; of stacked networks
    that take a step together, [K]).
    """

    def init(params: State) -> State:
        zeros = map_tree(torch.zeros_like, params)
        return {"m": zeros, "v": zeros, "t": torch.zeros((), device=device(zeros))}

    def update(gradient: State, s: State, params: State | None = None) -> tuple[State, State]:
        t = s["t"] + 1
        m = map_tree(lambda m, g: torch.lerp(m, g, 1 - b1), s["m"], gradient)
        v = map_tree(lambda v, g: torch.lerp(v, g.square(), 1 - b2), s["v"], gradient)
        # 1 - b^t as expm1: the plain form loses four digits in float32 at the first steps.
        first, second = -torch.expm1(t * math.log(b1)), (-torch.expm1(t * math.log(b2))).sqrt()
        # The corrections multiply eps and the step rather than m and v: fewer passes over memory.
        floor, scale = eps * second, -lr * second / first
        move = map_tree(lambda m, v: torch.div(m, v.sqrt().add_(beside(floor, m))).mul_(beside(scale, m)), m, v)
        return move, {"m": m, "v": v, "t": t}

    def together(params: State, gradient: State, s: State) -> tuple[State, State]:
        move, s = update(gradient, s)
        return map_tree(lambda w, new: new.add_(w), params, move), s  # nobody else has the step, so it is changed

    return Rule(init, update, together)


def fused(lr: float, b1: float, b2: float, eps: float) -> Rule:
    """Adam whose `together` is torch's, equal up to rounding, in one pass over memory.

    For networks with small convolutions, whose optimiser would else take as long as these.
    """

    def together(params: State, gradient: State, s: State) -> tuple[State, State]:
        fresh = lambda leaf: leaf.detach().clone(memory_format=torch.contiguous_format)  # noqa: E731
        new, m, v = (map_tree(fresh, tree) for tree in (params, s["m"], s["v"]))
        # The compiled loop goes through memory in order, whatever the strides.
        rows = [_rows(tree, s["t"]) for tree in (new, map_tree(Tensor.contiguous, gradient), m, v)]
        counts = [t.clone() for _ in leaves(params) for t in s["t"].reshape(-1)]
        options = {"lr": lr, "beta1": b1, "beta2": b2, "eps": eps, "weight_decay": 0.0}
        torch_adam(*rows, [], counts, fused=True, amsgrad=False, maximize=False, **options)
        return new, {"m": m, "v": v, "t": s["t"] + 1}

    return adam(lr, b1, b2, eps)._replace(together=together)


def _rows(tree: State, counter: Tensor) -> list[Tensor]:
    """The leaves one after another, those of stacked networks, with a counter each, row by row (views)."""
    return [row for _, leaf in leaves(tree) for row in (leaf.unbind() if counter.dim() else (leaf,))]


def beside(scalars: Tensor, leaf: Tensor) -> Tensor:
    """A scalar, or one for each network [K], as a factor of a leaf [K, ...]."""
    return scalars.view(scalars.shape + (1,) * (leaf.dim() - scalars.dim()))


def restarted(rule: Rule, at: int) -> Rule:
    """The rule, re-created before its update number `at`, counted from 0.

    State: the rule's own (`inner`) and the number of updates (`updates`, scalar).
    """

    def init(params: State) -> State:
        return {"inner": rule.init(params), "updates": torch.zeros((), dtype=torch.int64, device=device(params))}

    def update(gradient: State, s: State, params: State | None = None) -> tuple[State, State]:
        fresh = s["updates"] == at
        inner = map_tree(lambda old, new: torch.where(fresh, new, old), s["inner"], rule.init(gradient))
        step, inner = rule.update(gradient, inner, params)
        return step, {"inner": inner, "updates": s["updates"] + 1}

    return Rule(init, update)
