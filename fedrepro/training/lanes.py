"""A lane: one seed's place in a run, with its data, its streams and what it has shown so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from fedrepro.data import Federation
from fedrepro.data.draws import Feeder
from fedrepro.judges.classifier import Judge
from fedrepro.records.crossings import Passed
from fedrepro.records.curves import Curve


@dataclass
class Lane:
    """One seed's place in the run: its data, its streams and what it has shown so far.

    `status` is "running" until the seed ends as "finished", "stopped", "cap" or "diverged", after `rounds` rounds.
    `passed`: the levels of `watch.crossings` that the training accuracy fell below, if the run looks for these.
    `watched`: the rows on which a classifier is followed, None for a generator. `kept` [K, samples, classes] are the
    members' logits on them, `stale` the members that moved since. `samples`: the file that shows those of a generator,
    empty ones unless it is finished. `model`: the leaves of the model that `metrics` are of, if models are saved.
    """

    seed: int
    data: Federation
    feeder: Feeder
    judge: Judge
    watched: tuple[Tensor, Tensor] | None
    status: str = "running"
    rounds: int = 0
    rejected: int = 0
    idle: int = 0  # rounds without an accepted client since one was accepted in training
    seconds: float = 0.0
    armed: bool = False
    curve: list[Curve] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    kept: Tensor | None = None
    stale: set[int] = field(default_factory=set)
    passed: Passed | None = None
    samples: bytes | None = None
    model: dict[str, Tensor] = field(default_factory=dict)

    SAVED = ("seed", "status", "rounds", "rejected", "idle", "seconds", "armed", "curve", "metrics")

    def record(self, round: int, metric: str, value: float) -> None:
        """One point of the seed's curve."""
        self.curve.append((round, metric, value))
