"""Penalties of invariant risk minimisation: how far a client's risk is from its least in a classifier shared by all.

Each is the gradient of the mean cross entropy with respect to a classifier, and is written out here, so that no second
derivative is taken: with r = softmax(logits) - onehot(y), a row's gradient is r h' for the weights of the last layer
with input h, and r . logits for a scalar factor of the logits (at 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad_and_value

from fedrepro.core.lift import over_clients
from fedrepro.core.types import Net, State
from fedrepro.errors import UsageError
from fedrepro.methods.local import singly
from fedrepro.nets.mlp import cross_entropy

Kind = Literal["weights", "scalar"]


@dataclass(frozen=True)
class Penalty:
    """A client's objective f + nu P, where nu is 1 for its first `anneal` updates.

    kind:   P of the last layer's `weights` or of the `scalar` factor
    scaled: whether the objective is divided by nu, where nu > 1
    last:   whether only the last client has a penalty
    """

    kind: Kind
    nu: float
    anneal: int
    scaled: bool = False
    last: bool = False


def penalised(net: Net, penalty: Penalty) -> Callable:
    """The gradient of the objective: (params {[C, ...]}, x, y, live [C, B, ...], updates so far [C]) -> (gradient, f).

    f [C] is the mean cross entropy alone. UsageError where the network does not say its last layer.
    """
    if penalty.kind == "weights" and net.features is None:
        raise UsageError(
            "a penalty on the last layer's weights needs net=mlp, cnn-fair or resnet18, or penalty=scalar."
        )
    measure = on_weights if penalty.kind == "weights" else on_scalar

    def objective(params: State, x: Tensor, y: Tensor, live: Tensor, nu: Tensor, scale: Tensor) -> tuple:
        logits, missed = measure(net, params, x, y, live)
        risk = cross_entropy(logits, y, live)
        return (risk + nu * missed) / scale, risk.detach()

    def descend(params: State, x: Tensor, y: Tensor, live: Tensor, updates: Tensor) -> tuple[State, Tensor]:
        nu = torch.where(updates < penalty.anneal, 1.0, penalty.nu)
        scale = nu.clamp(min=1) if penalty.scaled else torch.ones_like(nu)
        if penalty.last:
            nu = nu * (torch.arange(len(nu), device=nu.device) == len(nu) - 1)
        with singly(net):
            gradient, (_, risk) = over_clients(grad_and_value(objective, has_aux=True))(params, x, y, live, nu, scale)
        return gradient, risk

    return descend


def on_weights(net: Net, params: State, x: Tensor, y: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [B, classes], and the squared norm of the mean loss's gradient for the last layer's weights."""
    h = net.features(params, x)
    last = reduce(dict.__getitem__, net.head.split("."), params)
    logits = F.linear(h, last["weight"], last["bias"])
    r = residual(logits, y) * live[:, None] / live.sum().clamp(min=1)
    return logits, (r.T @ h).float().square().sum()


def on_scalar(net: Net, params: State, x: Tensor, y: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [B, classes], and the product of the scalar's gradients on the even and on the odd rows.

    As the rows are in random order, that estimates the square of the whole gradient without bias.
    """
    logits = net.apply(params, x)
    slopes = (residual(logits, y) * logits).sum(-1) * live
    even, odd = (slopes[i::2].sum() / live[i::2].sum().clamp(min=1) for i in (0, 1))
    return logits, even * odd


def residual(logits: Tensor, y: Tensor) -> Tensor:
    """softmax(logits) - onehot(y), [B, classes]: the slope of each row's cross entropy."""
    return logits.float().softmax(-1) - (y[:, None] == torch.arange(logits.shape[-1], device=y.device)).float()
