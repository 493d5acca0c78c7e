"""What critics' judgements are worth: their losses, and how the generator's loss combines those of a panel of critics.

f2u-2019, sections 3 and 4; papers/f2u-2019/PROTOCOL.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro.core.types import Metrics

Kind = Literal["mse", "bce", "bce-linear"]
CLAMP = 1e-7  # of a probability whose logarithm is taken


class Loss(NamedTuple):
    """How critics' linear outputs d are scored, entry by entry.

    real, fake: the critic's loss on real and on fake samples; fool: the generator's on d
    output, persuade: what of d may be averaged, and the generator's loss on that
    """

    real: Callable[[Tensor], Tensor]
    fake: Callable[[Tensor], Tensor]
    fool: Callable[[Tensor], Tensor]
    output: Callable[[Tensor], Tensor]
    persuade: Callable[[Tensor], Tensor]


def short_of_one(d: Tensor) -> Tensor:
    """(d - 1)^2"""
    return (d - 1).square()


def unlikely(d: Tensor) -> Tensor:
    """-log sigmoid(d)"""
    return F.softplus(-d)


def clipped(d: Tensor) -> Tensor:
    """-log p for p = d clipped to [1e-7, 1 - 1e-7]: Keras's binary cross entropy of an output that is taken as p."""
    return -d.clamp(CLAMP, 1 - CLAMP).log()


# Least squares (Eq. 4 without 1/2); the non-saturating loss of the standard GAN; and the same on the linear output
# itself, without a sigmoid, as the code of SpectralNormalizationKeras has it, whose networks the paper's follow.
LOSSES = {
    "mse": Loss(short_of_one, torch.square, short_of_one, lambda d: d, short_of_one),
    "bce": Loss(unlikely, F.softplus, unlikely, torch.sigmoid, lambda p: -p.clamp(CLAMP, 1).log()),
    "bce-linear": Loss(clipped, lambda d: clipped(1 - d), clipped, lambda d: d, clipped),
}


def crossed(critics: Kind, generator: Kind) -> Loss:
    """The loss of one name for the critics, and that of another for the generator."""
    one = LOSSES[critics]
    return LOSSES[generator]._replace(real=one.real, fake=one.fake)


# (loss, judgements d [k, B] of a panel, strength) -> (the generator's loss, {curve: value})
Combine = Callable[[Loss, Tensor, Tensor | None], tuple[Tensor, Metrics]]


def mean_loss(loss: Loss, d: Tensor, strength: Tensor | None) -> tuple[Tensor, Metrics]:
    """The mean over critics of the generator's losses (GMAN-0; the backbone and a turn of MD-GAN with one critic)."""
    return loss.fool(d).mean(), {}


def highest(loss: Loss, d: Tensor, strength: Tensor | None) -> tuple[Tensor, Metrics]:
    """The loss on the highest judgement of each sample; only its critic has a gradient (F2U, Eq. 11)."""
    return loss.fool(d.max(0).values).mean(), {}


def soft_worst(price: float) -> Combine:
    """Losses L_i weighted by their softmax at lambda = softplus(strength), less price lambda (GMAN*, Eq. 7 of GMAN)."""

    def combine(loss: Loss, d: Tensor, strength: Tensor) -> tuple[Tensor, Metrics]:
        own, sharpness = loss.fool(d).mean(1), F.softplus(strength)
        return (torch.softmax(sharpness * own, 0) * own).sum() - price * sharpness, {"lambda": sharpness}

    return combine


def aggregated(beta: float, fixed: float | None) -> Combine:
    """The loss on outputs averaged by their softmax at lambda = ReLU(strength) (F2A, Eqs. 18-22).

    beta strength^2 is added, the regulariser on lambda* itself: on lambda it could not pull lambda* back above 0.
    A fixed lambda has none. The curve `weighted_variance` is the derivative of the average by lambda (Eq. 22), the mean
    over samples.
    """

    def combine(loss: Loss, d: Tensor, strength: Tensor | None) -> tuple[Tensor, Metrics]:
        sharpness = F.relu(strength) if fixed is None else torch.tensor(fixed, device=d.device)
        outputs = loss.output(d)
        weights = torch.softmax(sharpness * outputs, 0)
        agreed = (weights * outputs).sum(0)
        variance = (weights * outputs.square()).sum(0) - agreed.square()
        total = loss.persuade(agreed).mean()
        curves = {"lambda": sharpness, "weighted_variance": variance.mean()}
        return (total + beta * strength.square(), curves) if fixed is None else (total, curves)

    return combine
