"""The shapes everything hangs on: a method is an init, a cycle of phases and a predict.

Axes, always in this order: S seeds, K clients (C of them taking part), T local steps, B batch.
A state is a nested dict of tensors; the trainer turns the cycle and knows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

State = dict[str, "Tensor | State"]
Metrics = dict[str, Tensor]
Streams = Callable[[int, str], torch.Generator]  # (client, purpose) -> generator, of one seed


class Batch(NamedTuple):
    """What a phase receives, for one seed.

    clients: int64 [C], who takes part
    x:       uint8 or float [C, T, B, ...]
    y:       int64 [C, T, B]
    live:    bool [C, T, B], False where the row is padding
    noise:   float32 [m, B, dim], what generators start from; empty where the phase asks for none
    """

    clients: Tensor
    x: Tensor
    y: Tensor
    live: Tensor
    noise: Tensor = torch.empty(0)


@dataclass(frozen=True)
class Draw:
    """What a phase asks for: `steps` batches of `size` rows, or `epochs` passes, from some clients.

    A client's batches come from its endless shuffled stream, which drops the last partial batch of each pass.
    `epochs` takes that many passes (clients with fewer rows are padded, see `Batch.live`).
    `size=None` is the whole client in order, cut in steps of `chunk` rows.
    `clients` is "all", a number (sampled without replacement, each round anew) or the clients by index.
    `noise` = (m, dim) asks for m batches of `size` standard normal vectors, which all clients share.
    """

    size: int | None
    steps: int = 1
    epochs: int = 0
    chunk: int = 5000
    clients: str | int | tuple[int, ...] = "all"
    noise: tuple[int, int] | None = None


@dataclass(frozen=True)
class Phase:
    """One communication round: `step` (State, Batch) -> (State, Metrics), for one seed, clients stacked first.

    alone: whether seeds go one after another because `step` is no faster on a batch of them
    trains: whether clients train in it; that they are accepted in one where they do not is no sign of life
    """

    draw: Draw
    step: Callable[[State, Batch], tuple[State, Metrics]]
    alone: bool = False
    trains: bool = True


@dataclass(frozen=True)
class Members:
    """An ensemble whose prediction is a mean of members' logits, so that unchanged members need no new pass.

    logits:  (State, members, x [N, ...]) -> [C, N, classes]
    changed: for each phase of the cycle, the members whose logits it moves
    """

    logits: Callable[[State, tuple[int, ...], Tensor], Tensor]
    changed: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Method:
    """A federated method on one task.

    init:    (streams, sizes [K]) -> State of one seed
    phases:  the cycle; round t plays phases[t mod len]
    predict: (State, x [N, ...]) -> logits [N, classes]; None for a method that generates
    members: set where the prediction is an ensemble's
    gradient: set where one model predicts: (State, x [N, ...], y [N]) -> the gradient {params} of the sum of the rows'
              cross entropies at the server's parameters
    generate: set where samples are learnt: (State, z [N, noise]) -> images [N, C, H, W] in -1..1, or points [N, d], by
              running statistics
    noise:    the length of z
    """

    init: Callable[[Streams, tuple[int, ...]], State]
    phases: tuple[Phase, ...]
    predict: Callable[[State, Tensor], Tensor] | None
    members: Members | None = None
    gradient: Callable[[State, Tensor, Tensor], State] | None = None
    generate: Callable[[State, Tensor], Tensor] | None = None
    noise: int = 0


@dataclass(frozen=True)
class Task:
    """What a method's builder must know of the data: input shape, number of classes, rows per client [K]."""

    shape: tuple[int, ...]
    classes: int
    sizes: tuple[int, ...]

    @property
    def clients(self) -> int:
        return len(self.sizes)


class Rule(NamedTuple):
    """A pair of pure functions: `init(like) -> s`, `update(..., s) -> (..., s)`.

    optimiser  update(direction, s, params)       -> (step, s); parameters += step; only weight decay reads params;
                                                     clients make s anew in rounds: on the device of `like`
    weighting  update(risks [K], accepted [K], s) -> (weights [K], s); who is not accepted has the weight 0
    server     update(reports, weights, s)        -> (step, s)

    together:  of an optimiser that is faster on stacked networks at once than batched over them:
               (params {[K, ...]}, directions, s) -> (params, s), the steps taken
    """

    init: Callable
    update: Callable
    together: Callable | None = None


class Report(NamedTuple):
    """What clients hand to the server: delta {[K, ...]} (new minus old parameters), risk [K] (mean loss of the steps).

    note: {[K, ...]} whatever else the method's server rule reads; empty for most
    """

    delta: State
    risk: Tensor
    note: State


class Net(NamedTuple):
    """A network as functions: `init(generator) -> params`, `apply(params, x [B, ...]) -> [B, out]`.

    descend: where a network has a gradient of its own, faster than autograd's: (params {[K, ...]}, x [K, B, ...],
             y [K, B], live [K, B]) -> (gradient {[K, ...]}, risk [K]) of the mean cross entropy of the live rows
    alone:   whether clients, and seeds, are no faster batched than one after another, but for what `descend` does
    features, head: where the network says them: (params, x [B, ...]) -> the input [B, F] of the final linear layer, and
             the dotted name of that layer in params
    """

    init: Callable[[torch.Generator], State]
    apply: Callable[[State, Tensor], Tensor]
    descend: Callable[[State, Tensor, Tensor, Tensor], tuple[State, Tensor]] | None = None
    features: Callable[[State, Tensor], Tensor] | None = None
    head: str = ""
    alone: bool = False
