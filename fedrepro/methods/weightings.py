"""Weights of clients by their risks, as rules: `init(shares N_k/N [K]) -> s`, `update(risks, accepted, s) -> (w, s)`.

A loss that combines the clients' risks has as gradient a weighted sum of theirs. Whoever is not accepted has weight 0,
and the others' weights are those of a federation without it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedrepro.core.types import Rule, State


def equal() -> Rule:
    """The mean risk (ERM): 1/m each."""
    return Rule(lambda shares: {}, lambda risks, accepted, s: (_equal(accepted), s))


def held() -> Rule:
    """The weights that its state `lambda` [K] holds, at first N_k/N; somebody else moves them (AFL).

    Weights that may be negative cannot be scaled to sum to one, so what an absent client leaves is shared equally.
    """

    def update(risks: Tensor, accepted: Tensor, s: State) -> tuple[Tensor, State]:
        kept = s["lambda"] * accepted
        return kept + (1 - kept.sum()) * _equal(accepted), s

    return Rule(lambda shares: {"lambda": shares}, update)


def group_dro(eta: float) -> Rule:
    """GroupDRO: q_e grows by exp(eta l_e), is normalised, and weighs domain e (Sagawa et al. 2020).

    State: `q` [K], uniform at first.
    """

    def update(risks: Tensor, accepted: Tensor, s: State) -> tuple[Tensor, State]:
        q = (s["q"].log() + eta * risks * accepted).softmax(0)
        present = q * accepted
        return present / present.sum().clamp(min=1e-12), {"q": q}

    return Rule(lambda shares: {"q": torch.full_like(shares, 1 / len(shares))}, update)


def mm_rex(lmin: float) -> Rule:
    """MM-REx: the gradient of (1 - m lmin) max_e l_e + lmin sum_e l_e (Krueger et al. 2021, Eq. 7).

    Of equal maxima the first counts, which gives a subgradient.
    """

    def update(risks: Tensor, accepted: Tensor, s: State) -> tuple[Tensor, State]:
        worst = torch.where(accepted, risks, -torch.inf).argmax()
        is_worst = torch.arange(len(risks), device=risks.device) == worst
        return accepted * (lmin + (1 - accepted.sum() * lmin) * is_worst), s

    return Rule(lambda shares: {}, update)


def v_rex(v: float, anneal: int) -> Rule:
    """V-REx: the gradient of mean_e l_e + v Var_e l_e, with 1/m in both (Krueger et al. 2021, Eq. 8).

    v is 1 for the first `anneal` updates. State: their number `updates` (scalar).
    """

    def update(risks: Tensor, accepted: Tensor, s: State) -> tuple[Tensor, State]:
        now = torch.where(s["updates"] < anneal, 1.0, v)
        return by_variance(risks, accepted, now), {"updates": s["updates"] + 1}

    return Rule(lambda shares: {"updates": torch.zeros((), dtype=torch.int64)}, update)


def by_variance(risks: Tensor, accepted: Tensor, v: Tensor | float) -> Tensor:
    """What weighs the gradients in that of mean_e l_e + v Var_e l_e: (1 + 2 v (l_e - mean)) / m."""
    even = _equal(accepted)
    return even * (1 + 2 * v * (risks - (risks * even).sum()))


def project(y: Tensor, alpha: float = 0.0) -> Tensor:
    """The point of {x : sum x = 1, x_i >= alpha} nearest to y [n], for alpha < 1/n (fedaug-2022, Proposition 1).

    With x = alpha + (1 - n alpha) z it is the projection z onto the simplex: z_i = max(y_i - theta, 0), where theta is
    the largest of (u_1 + ... + u_j - 1) / j over the sorted u (papers/fedaug-2022/PROTOCOL.md).
    """
    free = 1 - len(y) * alpha
    z = (y.double() - alpha) / free
    counts = torch.arange(1, len(y) + 1, device=y.device)
    theta = ((z.sort(descending=True).values.cumsum(0) - 1) / counts).amax()
    return (alpha + free * (z - theta).clamp(min=0)).to(y.dtype)


def _equal(accepted: Tensor) -> Tensor:
    return accepted / accepted.sum().clamp(min=1)
