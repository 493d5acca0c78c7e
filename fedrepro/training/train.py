"""The one trainer: it turns a method's cycle of phases for stacked seeds, watches, stops, and can be resumed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fedrepro.core import trees
from fedrepro.core.lift import over_seeds
from fedrepro.core.precision import PRECISIONS, products
from fedrepro.core.streams import stream, torch_stream
from fedrepro.core.types import Method, State
from fedrepro.data import Federation
from fedrepro.data.draws import Feeder
from fedrepro.errors import UsageError
from fedrepro.judges.choose import judge
from fedrepro.judges.classifier import finite
from fedrepro.judges.scoring import by_colour, in_parts, score
from fedrepro.nets.mlp import pixels
from fedrepro.records.config import RunConfig
from fedrepro.records.crossings import Passed
from fedrepro.training import models
from fedrepro.training.lanes import Lane


class Training:
    """One run's seeds, trained together: `for round in training` plays them until every seed has ended.

    `state` stacks the seeds that still run, in the order of `running`; an ended seed leaves the stack, so nothing that
    happens later can move its numbers. With `saving` each lane keeps the model that its metrics are of.
    """

    def __init__(
        self,
        config: RunConfig,
        method: Method,
        data: dict[int, Federation],
        device: torch.device,
        saving: bool = False,
    ):
        if config.watch.grad_norm and method.gradient is None:
            raise UsageError(f"{config.method} has no single model whose gradient could be taken: unset grad_norm.")
        if (config.stop or config.watch.crossings) and method.generate:
            setting = "stop" if config.stop else "watch.crossings"
            raise UsageError(f"{config.method} has no training accuracy to look at: leave {setting} out.")
        self.config, self.method, self.device, self.saving = config, method, device, saving
        self.round = 0
        self.lanes = [self._lane(seed, federation) for seed, federation in data.items()]
        self.state: State = trees.stack([self._start(lane) for lane in self.lanes])
        self.full = self._full()

    def _lane(self, seed: int, data: Federation) -> Lane:
        x, y = data.x.to(self.device), data.y.to(self.device)
        feeder = Feeder(seed, x, y, data.sizes, augment=data.augment)
        judged = judge(self.config, self.method, data, seed, self.device)
        if self.method.generate:
            return Lane(seed, data, feeder, judged, watched=None, samples=judged.samples(self.method, None))
        samples = min(self.config.watch.samples, len(y))
        rows = np.sort(stream(seed, purpose="watch").choice(len(y), samples, replace=False))
        chosen = torch.from_numpy(rows).to(self.device)
        members = set(range(len(data.sizes))) if self.method.members else set()
        # Decoded once, and as autocast would round it every time.
        seen, y = by_colour(x[chosen], y[chosen])
        seen = pixels(seen).to(PRECISIONS[self.config.watch.precision])
        rule = self.config.watch.crossings
        passed = Passed(rule) if rule else None
        return Lane(seed, data, feeder, judged, (seen, y), stale=members, passed=passed)

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
            self.full = self._full()
            yield self.round

    def _play(self) -> dict[int, str]:
        """One round of every running seed; returns how seeds end: {row of the stack: status}."""
        place = self.round % len(self.method.phases)
        phase = self.method.phases[place]
        batches = [lane.feeder.draw(phase.draw, self.round) for lane in self.running]
        with products(self.device.type, self.config.precision):
            new, shown = over_seeds(phase.step, phase.alone)(self.state, batches)
        accepted = shown["accepted"]
        if not accepted.all():
            new = without_rejected(self.state, new, torch.stack([batch.clients for batch in batches]), accepted)
        # One memory layout whatever came before, so that a resumed run computes the same bits.
        self.state = trees.map_tree(Tensor.contiguous, new)
        self.round += 1
        ended = {}
        due = self.round % self.config.watch.step_every == 0 or self.round == self.config.rounds
        for row, lane in enumerate(self.running):
            for name, values in shown.items() if due else ():
                if name == "loss" and self.method.generate:
                    lane.record(self.round, "generator_loss", values[row].item())
                elif name not in ("loss", "accepted"):
                    lane.record(self.round, name, values[row].item())
            if not accepted[row].any():
                lane.idle += 1
            elif phase.trains:
                lane.idle = 0
            lane.rounds = self.round
            lane.rejected += int((~accepted[row]).sum())
            if self.method.members:
                lane.stale |= set(self.method.members.changed[place])
            if status := self._watch(lane, row, shown["loss"][row]):
                ended[row] = status
        return ended

    def _watch(self, lane: Lane, row: int, loss: Tensor) -> str | None:
        """Extend the seed's curves where they are due and say whether, and how, the seed ends here."""
        last = self.round == self.config.rounds
        lost, stops = lane.idle >= len(self.method.phases), False
        if last or lost or self.round % self.config.watch.train_every == 0:
            if self.method.generate:
                lost |= not loss.isfinite()
            else:
                accuracy, seen = self._look(lane, row)
                lost |= not np.isfinite(seen)
                stops = self._stops(lane, accuracy)
        if lost:
            return "diverged"
        ends = last or stops or (lane.passed is not None and lane.passed.over)
        crossing = lane.passed is not None and lane.passed.newest == self.round
        if not (ends or crossing or self.round % self.config.watch.test_every == 0):
            return None
        state = trees.one(self.state, row)
        tested = lane.judge.tests(self.method, state)
        if not finite(tested):
            return "diverged"
        for metric, value in tested.items():
            lane.record(self.round, metric, value)
        if not ends:
            return None
        lane.metrics = lane.judge.metrics(self.method, state, tested)
        if not finite(lane.metrics):
            return "diverged"
        self._keep(lane, row)
        lane.samples = lane.judge.samples(self.method, state)
        return "stopped" if stops else "cap" if self.config.stop else "finished"

    def _stops(self, lane: Lane, accuracy: float) -> bool:
        """The rule of flgames-2022, section 7.3.2, with the arming condition of `config.Stop`."""
        stop = self.config.stop
        if stop is None:
            return False
        lane.armed |= accuracy > stop.threshold + stop.margin
        return lane.armed and self.round >= stop.warm_start and accuracy < stop.threshold

    def _keep(self, lane: Lane, row: int) -> None:
        """Keep the model that a seed's metrics are of, if models are saved."""
        if self.saving:
            z = torch.zeros(2, self.method.noise, device=self.device)
            x = z if self.method.generate else lane.data.x[:2].to(self.device)
            lane.model = models.model(self.method, trees.one(self.state, row), x)

    def _look(self, lane: Lane, row: int) -> tuple[float, float]:
        """A classifier's accuracy and loss on the watched rows, which enter the seed's curves."""
        with products(self.device.type, self.config.watch.precision):
            accuracy, loss = score(self._watched_logits(lane, row), lane.watched[1])
        lane.record(self.round, "train_accuracy", accuracy)
        lane.record(self.round, "train_loss", loss)
        if lane.passed:
            lane.passed.new(self.round, accuracy)
        return accuracy, loss

    def _watched_logits(self, lane: Lane, row: int) -> Tensor:
        x, state = lane.watched[0], trees.one(self.state, row)
        if not self.method.members:
            return in_parts(lambda part: self.method.predict(state, part), x)
        if moved := tuple(sorted(lane.stale)):
            fresh = in_parts(lambda part: self.method.members.logits(state, moved, part), x, dim=1)
            if lane.kept is None:
                lane.kept = fresh
            else:
                lane.kept = lane.kept.index_copy(0, torch.tensor(moved, device=self.device), fresh)
            lane.stale = set()
        return lane.kept.mean(0)

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
        """Everything a resumed run needs after the last full round, in the midst of the next one too: tensors, JSON."""
        tensors, notes = self.full
        until = [[point for point in lane["curve"] if point[0] <= notes["round"]] for lane in notes["lanes"]]
        lanes = [lane | {"curve": curve} for lane, curve in zip(notes["lanes"], until, strict=True)]
        return tensors, notes | {"lanes": lanes}

    def _full(self) -> tuple[dict[str, Tensor], dict]:
        """The snapshot of now. Only the curves in it still grow: a round makes new states, and changes none."""
        tensors = {f"state.{name}": leaf for name, leaf in trees.leaves(self.state)}
        for lane in self.lanes:
            tensors[f"cursors.{lane.seed}"] = torch.from_numpy(lane.feeder.cursors.copy())
            tensors |= {f"model.{lane.seed}.{name}": leaf for name, leaf in lane.model.items()}
        lanes = [{key: getattr(lane, key) for key in Lane.SAVED} for lane in self.lanes]
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
            for round, metric, value in lane.curve if lane.passed else ():
                if metric == "train_accuracy":
                    lane.passed.new(round, value)
            lane.feeder.cursors[:] = tensors[f"cursors.{lane.seed}"].numpy()
            own = f"model.{lane.seed}."
            lane.model = {name.removeprefix(own): leaf for name, leaf in tensors.items() if name.startswith(own)}
        self.full = self._full()


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
