"""What the tests of the engine share: a toy federation of few rows, and the training of any method on it."""

import numpy as np
import pytest
import torch

from fedrepro import methods
from fedrepro.config import RunConfig
from fedrepro.data import Federation
from fedrepro.train import Training
from fedrepro.types import Task

# Batches this small are computed faster by one thread, and its sums have one order.
torch.set_num_threads(1)

SHAPE, CLASSES = (2, 3, 3), 2


@pytest.fixture(scope="session")
def toy():
    """toy(seed, sizes) -> Federation: learnable labels on random bytes."""

    def make(seed=0, sizes=(20, 20)):
        rng = np.random.default_rng(seed)

        def rows(count):
            x = rng.integers(0, 256, (count, *SHAPE), dtype=np.uint8)
            return torch.from_numpy(x), torch.from_numpy((x[:, 0].mean((1, 2)) > x[:, 1].mean((1, 2))).astype(np.int64))

        x, y = rows(sum(sizes))
        return Federation(x, y, tuple(sizes), {"test": rows(15)}, CLASSES, {"rows": len(y)})

    return make


@pytest.fixture(scope="session")
def training(toy):
    """training(method, ...) -> a Training at round 0 on toy federations; `method` is a name or a Method."""

    def make(method, sizes=(20, 20), seeds=(0,), data=None, **settings):
        hyper = {"batch": 4, "hidden": 6, "lr": 0.02} | settings.pop("hyper", {})
        name = method if isinstance(method, str) else "made"
        if name in methods.REGISTRY:
            method = methods.build(name, Task(SHAPE, CLASSES, tuple(sizes)), hyper)
        config = RunConfig(method=name, dataset="toy", hyper=hyper, seeds=seeds, **({"rounds": 5} | settings))
        data = data or {seed: toy(seed, sizes) for seed in seeds}
        return Training(config, method, data, torch.device("cpu"))

    return make
