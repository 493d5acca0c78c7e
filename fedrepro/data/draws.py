"""Batches: which rows each client brings to a round. One feeder serves one seed and remembers where its streams are."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from fedrepro.core.streams import stream, torch_stream
from fedrepro.core.types import Batch, Draw
from fedrepro.data.augment import Augment


class Feeder:
    """The clients' endless shuffled streams over the rows of one seed's training data.

    x [N, ...] and y [N] hold the clients' rows one client after another, `sizes` [K] of them each. A pass over a client
    is the permutation at address (seed, pass, client, "batches"); the last partial batch of a pass is dropped.
    `cursors` [K, 2] (pass, rows taken of it) is the whole state.
    augment: what the rows of every batch go through, in training and where a client is taken whole.
    """

    def __init__(
        self,
        seed: int,
        x: Tensor,
        y: Tensor,
        sizes: tuple[int, ...],
        augment: Augment | None = None,
    ):
        self.seed, self.x, self.y, self.sizes, self.augment = seed, x, y, sizes, augment
        self.starts = [0, *accumulate(sizes)]
        self.cursors = np.zeros((len(sizes), 2), dtype=np.int64)
        self._passes: dict[int, tuple[int, np.ndarray]] = {}

    def draw(self, want: Draw, round: int) -> Batch:
        """The batch of one round, [C, T, B, ...]: T is the largest that a client needs, shorter ones are padded."""
        clients = self.cohort(want.clients, round)
        rows = [self.rows(want, client) for client in clients]
        steps, size = max(len(r) for r in rows), max(r.shape[1] for r in rows)
        index = np.full((len(rows), steps, size), -1)
        for place, r in zip(index, rows, strict=True):
            place[: len(r), : r.shape[1]] = r
        live = torch.from_numpy(index >= 0).to(self.x.device)
        chosen = torch.from_numpy(index.clip(min=0)).to(self.x.device).flatten()
        # index_select copies rows, which indexing does ten times slower.
        x, y = (of.index_select(0, chosen).unflatten(0, index.shape) for of in (self.x, self.y))
        if self.augment:
            for client, own, mine in zip(clients, x, live, strict=True):
                self._augment(client, own, mine, round)
        return Batch(torch.tensor(clients, device=self.x.device), x, y, live, self.noise(want, round))

    def noise(self, want: Draw, round: int) -> Tensor:
        """Standard normal float32 [m, size, dim] from the stream at (seed, round, 0, "noise"); empty if not wanted."""
        if want.noise is None:
            return torch.empty(0, device=self.x.device)
        batches, dim = want.noise
        drawn = stream(self.seed, round, 0, "noise").standard_normal((batches, want.size, dim), dtype=np.float32)
        return torch.from_numpy(drawn).to(self.x.device)

    def _augment(self, client: int, x: Tensor, live: Tensor, round: int) -> None:
        """Change a client's freshly copied rows x [T, B, ...] by the stream at (seed, round, client, "augment").

        Only live rows draw from it, so that no client's images depend on the sizes of the others.
        """
        generator = torch_stream(self.seed, round, client, "augment")
        if live.all():
            x.copy_(self.augment(x.flatten(0, 1), generator).view_as(x))
        else:
            x[live] = self.augment(x[live], generator)

    def cohort(self, clients: str | int | tuple[int, ...], round: int) -> list[int]:
        """The clients of a round, in increasing order; a number is sampled at (seed, round, 0, "cohort")."""
        if clients == "all":
            return list(range(len(self.sizes)))
        if isinstance(clients, tuple):
            return list(clients)
        return sorted(stream(self.seed, round, 0, "cohort").choice(len(self.sizes), clients, replace=False).tolist())

    def rows(self, want: Draw, client: int) -> np.ndarray:
        """Row numbers [T, B] of a client's next batches, -1 where there is none."""
        count = self.sizes[client]
        if want.size is None:
            size = min(want.chunk, count)
            padded = np.full(math.ceil(count / size) * size, -1)
            padded[:count] = np.arange(count) + self.starts[client]
            return padded.reshape(-1, size)
        size = min(want.size, count)
        steps = want.epochs * (count // size) if want.epochs else want.steps
        return np.stack([self._take(client, size) for _ in range(steps)]) + self.starts[client]

    def _take(self, client: int, size: int) -> np.ndarray:
        lap, taken = self.cursors[client]
        if taken + size > self.sizes[client]:
            lap, taken = lap + 1, 0
        self.cursors[client] = lap, taken + size
        return self._pass(client, int(lap))[taken : taken + size]

    def _pass(self, client: int, lap: int) -> np.ndarray:
        if self._passes.get(client, (None,))[0] != lap:
            order = stream(self.seed, lap, client, "batches").permutation(self.sizes[client])
            self._passes[client] = (lap, order)
        return self._passes[client][1]
