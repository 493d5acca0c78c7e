"""Optimisers as rules: `init(params) -> s`, `update(gradient, s) -> (step, s)`; parameters += step."""

from __future__ import annotations

import math

import torch

from fedrepro.trees import map_tree
from fedrepro.types import Rule, State


def sgd(lr: float) -> Rule:
    """Plain gradient descent with a fixed step size."""

    def init(params: State) -> State:
        return {}

    def update(gradient: State, s: State) -> tuple[State, State]:
        return map_tree(lambda g: g * -lr, gradient), s

    return Rule(init, update)


def adam(lr: float, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-7) -> Rule:
    """Adam with bias correction (Kingma and Ba 2015, Algorithm 1); eps as Keras has it.

    State: first and second moments `m`, `v` shaped like the parameters, step counter `t` (scalar).
    """

    def init(params: State) -> State:
        zeros = map_tree(torch.zeros_like, params)
        return {"m": zeros, "v": map_tree(torch.clone, zeros), "t": torch.zeros(())}

    def update(gradient: State, s: State) -> tuple[State, State]:
        t = s["t"] + 1
        m = map_tree(lambda m, g: torch.lerp(m, g, 1 - b1), s["m"], gradient)
        v = map_tree(lambda v, g: torch.lerp(v, g.square(), 1 - b2), s["v"], gradient)
        # 1 - b^t as expm1: the plain form loses four digits in float32 at the first steps.
        first, second = -torch.expm1(t * math.log(b1)), (-torch.expm1(t * math.log(b2))).sqrt()
        # The corrections multiply eps and the step rather than m and v: fewer passes over memory.
        floor, scale = eps * second, -lr * second / first
        step = map_tree(lambda m, v: torch.div(m, v.sqrt().add_(floor)).mul_(scale), m, v)
        return step, {"m": m, "v": v, "t": t}

    return Rule(init, update)
