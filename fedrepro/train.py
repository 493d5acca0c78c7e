"""The one trainer: it turns a method's cycle of phases for stacked seeds, watches, stops, and can be resumed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedrepro import trees
from fedrepro.config import RunConfig
from fedrepro.data import Federation
from fedrepro.data.draws import Feeder
from fedrepro.lift import modes, over_seeds
from fedrepro.streams import stream, torch_stream
from fedrepro.types import Method, State

# Rows of one evaluation call: large enough for full-speed products, small enough for the cache.
EVALUATION_ROWS = 1000

Curve = tuple[int, str, float]  # round, metric, value


@dataclass
class Lane:
    """One seed's place in the run: its data, its streams and what it has shown so far.

    `status` is "running" until the seed ends as "finished", "stopped", "cap" or "diverged", after `rounds` rounds.
    `kept` [K, samples, classes] are the members' logits on the watched rows, `stale` the members that moved since.
    """

    seed: int
    data: Federation
    feeder: Feeder
    watched: tuple[Tensor, Tensor]
    status: str = "running"
    rounds: int = 0
    rejected: int = 0
    idle: int = 0  # rounds in a row in which no client's update was accepted
    seconds: float = 0.0
    armed: bool = False
    curve: list[Curve] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    kept: Tensor | None = None
    stale: set[int] = field(default_factory=set)

    SAVED = ("seed", "status", "rounds", "rejected", "idle", "seconds", "armed", "curve", "metrics")

    def record(self, metric: str, value: float) -> None:
        """One point of the seed's curve, at its present round."""
        self.curve.append((self.rounds, metric, value))


class Training:
    """One run's seeds, trained together: `for round in training` plays them until every seed has ended.

    `state` stacks the seeds that still run, in the order of `running`; an ended seed leaves the stack, so nothing that
    happens later can move its numbers.
    """

    def __init__(self, config: RunConfig, method: Method, data: dict[int, Federation], device: torch.device):
        self.config, self.method, self.device = config, method, device
        self.round = 0
        self.lanes = [self._lane(seed, federation) for seed, federation in data.items()]
        self.state: State = trees.stack([self._start(lane) for lane in self.lanes])

    def _lane(self, seed: int, data: Federation) -> Lane:
        x, y = data.x.to(self.device), data.y.to(self.device)
        samples = min(self.config.watch.samples, len(y))
        rows = np.sort(stream(seed, purpose="watch").choice(len(y), samples, replace=False))
        chosen = torch.from_numpy(rows).to(self.device)
        members = set(range(len(data.sizes))) if self.method.members else set()
        return Lane(seed, data, Feeder(seed, x, y, data.sizes), (x[chosen], y[chosen]), stale=members)

    def _start(self, lane: Lane) -> State:
        state = self.method.init(lambda client, part: torch_stream(lane.seed, 0, client, part), lane.data.sizes)
        return trees.map_tree(lambda leaf: leaf.to(self.device), state)

    @property
    def running(self) -> list[Lane]:
        """The lanes behind the rows of `state`."""
        return [lane for lane in self.lanes if lane.status == "running"]

    def __iter__(self) -> Iterator[int]:
        """Play rounds; yields the number of rounds played after each one."""
        while self.running:
            began = time.perf_counter()
            ended = self._play()
            self._leave(ended, (time.perf_counter() - began) / len(self.running))
            yield self.round

    def _in(self, precision: str) -> contextlib.AbstractContextManager:
        """Products in that precision inside the block."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "bf16")

    def _play(self) -> dict[int, str]:
        """One round of every running seed; returns how seeds end: {row of the stack: status}."""
        place = self.round % len(self.method.phases)
        phase = self.method.phases[place]
        batches = [lane.feeder.draw(phase.draw, self.round) for lane in self.running]
        with self._in(self.config.precision):
            new, shown = over_seeds(phase.step)(self.state, batches)
        accepted = shown["accepted"]
        if not accepted.all():
            new = without_rejected(self.state, new, torch.stack([batch.clients for batch in batches]), accepted)
        # One memory layout whatever came before, so that a resumed run computes the same bits.
        self.state = trees.map_tree(Tensor.contiguous, new)
        self.round += 1
        ended = {}
        for row, lane in enumerate(self.running):
            lane.rounds = self.round
            lane.rejected += int((~accepted[row]).sum())
            lane.idle = 0 if accepted[row].any() else lane.idle + 1
            if self.method.members:
                lane.stale |= set(self.method.members.changed[place])
            if status := self._watch(lane, row):
                ended[row] = status
        return ended

    def _watch(self, lane: Lane, row: int) -> str | None:
        """Extend the seed's curves where they are due and say whether, and how, the seed ends here."""
        last = self.round == self.config.rounds
        lost = lane.idle >= len(self.method.phases)
        accuracy = None
        if last or lost or self.round % self.config.watch.train_every == 0:
            with self._in(self.config.watch.precision):
                logits = self._watched_logits(lane, row)
            accuracy, loss = score(logits, lane.watched[1])
            lane.record("train_accuracy", accuracy)
            lane.record("train_loss", loss)
            if lost or not np.isfinite(loss):
                return "diverged"
        status = self._stopping(lane, accuracy) or (last and ("cap" if self.config.stop else "finished")) or None
        if status or self.round % self.config.watch.test_every == 0:
            self._test(lane, row)
        if status:
            self._final(lane, row)
        return status

    def _stopping(self, lane: Lane, accuracy: float | None) -> str | None:
        """The rule of flgames-2022, section 7.3.2, with the arming condition of `config.Stop`."""
        stop = self.config.stop
        if stop is None or accuracy is None:
            return None
        lane.armed |= accuracy > stop.threshold + stop.margin
        return "stopped" if lane.armed and self.round >= stop.warm_start and accuracy < stop.threshold else None

    def _watched_logits(self, lane: Lane, row: int) -> Tensor:
        x, state = lane.watched[0], trees.one(self.state, row)
        if not self.method.members:
            return in_parts(lambda part: self.method.predict(state, part), x)
        moved = tuple(sorted(lane.stale))
        fresh = in_parts(lambda part: self.method.members.logits(state, moved, part), x, dim=1)
        if lane.kept is None:
            lane.kept = fresh
        else:
            lane.kept[list(moved)] = fresh
        lane.stale = set()
        return lane.kept.mean(0)

    def _test(self, lane: Lane, row: int) -> None:
        for name, (x, y) in lane.data.tests.items():
            accuracy, loss = self._score(row, x, y)
            lane.record(f"{name}_accuracy", accuracy)
            lane.record(f"{name}_loss", loss)

    def _final(self, lane: Lane, row: int) -> None:
        """The reported metrics: all training rows of all clients pooled, and every test set."""
        sets = {"train": (lane.feeder.x, lane.feeder.y), **lane.data.tests}
        for name, (x, y) in sets.items():
            lane.metrics[f"{name}_accuracy"], lane.metrics[f"{name}_loss"] = self._score(row, x, y)

    def _score(self, row: int, x: Tensor, y: Tensor) -> tuple[float, float]:
        state = trees.one(self.state, row)
        logits = in_parts(lambda part: self.method.predict(state, part.to(self.device)), x)
        return score(logits, y.to(self.device))

    def _leave(self, ended: dict[int, str], seconds: float) -> None:
        """Take ended seeds off the stack."""
        lanes = self.running
        for lane in lanes:
            lane.seconds += seconds
        for row, status in ended.items():
            lanes[row].status = status
        staying = [row for row in range(len(lanes)) if row not in ended]
        if ended and staying:
            self.state = trees.map_tree(torch.clone, trees.rows(self.state, staying))

    def snapshot(self) -> tuple[dict[str, Tensor], dict]:
        """Everything a resumed run needs: named tensors and JSON."""
        tensors = {f"state.{name}": leaf for name, leaf in trees.leaves(self.state)}
        for lane in self.lanes:
            tensors[f"cursors.{lane.seed}"] = torch.from_numpy(lane.feeder.cursors)
            if lane.kept is not None:
                tensors[f"kept.{lane.seed}"] = lane.kept
        lanes = [{key: getattr(lane, key) for key in Lane.SAVED} | {"stale": sorted(lane.stale)} for lane in self.lanes]
        return tensors, {"round": self.round, "lanes": lanes}

    def restore(self, tensors: dict[str, Tensor], notes: dict) -> None:
        """Continue from a snapshot of the same configuration, seeds and data."""
        state = {name.removeprefix("state."): leaf for name, leaf in tensors.items() if name.startswith("state.")}
        self.state = trees.map_tree(lambda leaf: leaf.to(self.device, copy=True), trees.fill(self.state, state))
        self.round = notes["round"]
        for lane, saved in zip(self.lanes, notes["lanes"], strict=True):
            for key in Lane.SAVED:
                setattr(lane, key, saved[key])
            lane.curve = [tuple(point) for point in saved["curve"]]
            lane.stale = set(saved["stale"])
            lane.feeder.cursors[:] = tensors[f"cursors.{lane.seed}"].numpy()
            if f"kept.{lane.seed}" in tensors:
                lane.kept = tensors[f"kept.{lane.seed}"].to(self.device, copy=True)


def without_rejected(old: State, new: State, clients: Tensor, accepted: Tensor) -> State:
    """The new states [S, ...] in which rejected clients keep their own old rows; clients, accepted [S, C].

    Server state needs no mending: a phase leaves rejected clients out of every aggregate.
    """
    states = []
    for row in range(len(accepted)):
        lost = clients[row][~accepted[row]]
        before, after = trees.one(old, row), trees.one(new, row)
        mend = lambda a, b, lost=lost: a.index_copy(0, lost, b[lost])  # noqa: E731
        states.append({**after, "clients": trees.map_tree(mend, after["clients"], before["clients"])})
    return trees.stack(states)


def in_parts(logits: Callable[[Tensor], Tensor], x: Tensor, dim: int = 0) -> Tensor:
    """`logits` of x [N, ...] in parts of EVALUATION_ROWS, joined along their row axis `dim`."""
    # Clients one after another: a batched product would copy the shared rows once for each of them.
    with modes(clients="loop"):
        return torch.cat([logits(part).float() for part in x.split(EVALUATION_ROWS)], dim)


def score(logits: Tensor, y: Tensor) -> tuple[float, float]:
    """Accuracy (a fraction) and mean cross entropy of logits [N, classes] against y [N]."""
    return (logits.argmax(1) == y).double().mean().item(), F.cross_entropy(logits, y).item()
