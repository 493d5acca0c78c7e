"""The judge of a seed's model: a classifier is tested by accuracy and loss on the test sets.

That of a method which generates is in `generator.py`.
"""

from __future__ import annotations

import statistics
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedrepro.core.types import Method, State
from fedrepro.data import Federation
from fedrepro.judges.scoring import by_colour, in_parts, norm, score
from fedrepro.records.curves import Curve

ABOVE, ROOM = 0.1, 0.02  # of accuracies: what is surely above chance, and what is at it


def finite(metrics: dict[str, float]) -> bool:
    """Whether all are numbers; one that is not says that training diverged."""
    return bool(np.isfinite(list(metrics.values())).all())


class Judge(Protocol):
    """Says how good a seed's model is; each `state` is that of one seed."""

    def tests(self, method: Method, state: State) -> dict[str, float]:
        """The values of the test curves; one that is not finite says that training diverged."""

    def metrics(self, method: Method, state: State, tested: dict[str, float]) -> dict[str, float]:
        """The values that are reported; `tested`: those of `tests`."""

    def samples(self, method: Method, state: State | None) -> bytes | None:
        """The file with samples of a generator, as it is; None of a classifier."""

    def collapsed(self, curve: list[Curve]) -> bool:
        """Whether a classifier with this curve was above chance and ends at it; False of a generator."""


class Classified:
    """The judge of a method that predicts; `grad_norm` as in `config.Watch`."""

    def __init__(self, data: Federation, device: torch.device, grad_norm: bool):
        self.data, self.device, self.grad_norm = data, device, grad_norm
        self.sets = {name: by_colour(x, y) for name, (x, y) in data.tests.items()}

    def tests(self, method: Method, state: State) -> dict[str, float]:
        """Accuracy and loss on every test set, and their plain means over the sets of each group."""
        metrics = {}
        for name, (x, y) in self.sets.items():
            metrics[f"{name}_accuracy"], metrics[f"{name}_loss"] = self._score(method, state, x, y)
        for group, names in self.data.groups.items():
            for what in ("accuracy", "loss"):
                metrics[f"{group}_{what}"] = statistics.fmean(metrics[f"{name}_{what}"] for name in names)
        return metrics

    def metrics(self, method: Method, state: State, tested: dict[str, float]) -> dict[str, float]:
        """Accuracy and loss on all clients' training rows pooled, and whatever tests show."""
        accuracy, loss = self._score(method, state, self.data.x, self.data.y)
        metrics = {"train_accuracy": accuracy, "train_loss": loss, **tested}
        return metrics | (self._grad_norms(method, state) if self.grad_norm else {})

    def samples(self, method: Method, state: State | None) -> None:
        """There are none."""

    def collapsed(self, curve: list[Curve]) -> bool:
        """Whether some accuracy was above chance, and all end at it: as if one class were predicted for all rows.

        Chance lies between the shares of the rarest and of the commonest class of a set, with `ROOM` on both sides.
        """
        shares = {name: y.bincount(minlength=self.data.classes) / len(y) for name, y in self._labels().items()}
        chance = {f"{name}_accuracy": (each.min().item(), each.max().item()) for name, each in shares.items()}
        seen = {metric: [value for _, each, value in curve if each == metric] for metric in chance}
        seen = {metric: values for metric, values in seen.items() if values}
        learnt = any(max(values) > chance[metric][1] + ABOVE for metric, values in seen.items())
        lost = all(chance[m][0] - ROOM <= values[-1] <= chance[m][1] + ROOM for m, values in seen.items())
        return learnt and lost

    def _labels(self) -> dict[str, Tensor]:
        """The labels of all clients' training rows, and of each test set."""
        return {"train": self.data.y} | {name: y for name, (_, y) in self.data.tests.items()}

    def _grad_norms(self, method: Method, state: State) -> dict[str, float]:
        """Norms of the gradient of the mean cross entropy on every test set (fedaug-2022, B.3).

        Their mean is `grad_norm_all`, their sample standard deviation (ddof 1), where there are two, `grad_norm_std`.
        """
        gradient = lambda x, y: method.gradient(state, x.to(self.device), y.to(self.device))  # noqa: E731
        norms = {f"grad_norm_{name}": norm(gradient, x, y) for name, (x, y) in self.data.tests.items()}
        found = list(norms.values())
        spread = {"grad_norm_std": statistics.stdev(found)} if len(found) > 1 else {}
        return norms | {"grad_norm_all": statistics.fmean(found)} | spread

    def _score(self, method: Method, state: State, x: Tensor, y: Tensor) -> tuple[float, float]:
        logits = in_parts(lambda part: method.predict(state, part.to(self.device)), x)
        return score(logits, y.to(self.device))
