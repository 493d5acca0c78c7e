"""What the tests of the engine share: a toy federation of few rows, and the training of any method on it."""

import copy
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedrepro import methods, plugins
from fedrepro.core import trees
from fedrepro.core.types import Task
from fedrepro.data import Federation
from fedrepro.methods import games
from fedrepro.records.config import RunConfig
from fedrepro.training.train import Training

# Batches this small are computed faster by one thread, and its sums have one order.
torch.set_num_threads(1)
# The width of the terminal around the tests, which workers are told, is not that of what the tests capture.
os.environ.pop("COLUMNS", None)

SHAPE, CLASSES = (2, 3, 3), 2
HYPER = {"batch": 4, "hidden": 6, "lr": 0.02, "phi_lr": 0.02, "net": "mlp", "optimiser": "adam"}

VARIANTS = [
    (name, {"order": order} if order else {})
    for name, row in methods.REGISTRY.items()  # and not those of packages that happen to be installed
    if not row.generates  # tests/test_gans.py has those
    for order in (games.ORDERS if "order" in row.hyper else (None,))
]

GANS = {  # label -> (name, hyper)
    "gan-backbone": ("gan-backbone", {}),
    "f2u": ("f2u", {}),
    "f2u-bce": ("f2u", {"loss": "bce", "spectral": False}),
    "f2u-norm": ("f2u", {"norm": True}),
    "f2a": ("f2a", {}),
    "f2a-bce": ("f2a", {"loss": "bce"}),
    "f2a-bce-linear": ("f2a", {"loss": "bce-linear"}),
    "f2a-fixed": ("f2a", {"strength": 3.65}),
    "gman": ("gman", {}),
    "gman-0": ("gman-0", {}),
    "md-gan": ("md-gan", {}),
    "md-gan-round-robin": ("md-gan", {"mode": "round_robin"}),
    "md-gan-average": ("md-gan", {"mode": "average"}),
}


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="the first case of each test that is not marked slow")


def pytest_collection_modifyitems(config, items):
    """Slow ones first: where workers share the files, none begins them at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    if config.getoption("--quick"):
        firsts = {}  # a function -> its first case
        for item in items:
            if item.get_closest_marker("slow") is None:
                firsts.setdefault(item.nodeid.partition("[")[0], item)
        chosen = set(firsts.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = firsts.values()


@pytest.fixture(scope="session", autouse=True)
def nothing_installed(tmp_path_factory):
    """Plugins are found that a test puts into a folder of its own, and none that happen to be installed."""
    base, found = tmp_path_factory.getbasetemp(), plugins.entry_points
    own = lambda point: Path(point.dist.locate_file("")).resolve().is_relative_to(base)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "entry_points", lambda group: [point for point in found(group=group) if own(point)])
        yield


@pytest.fixture
def threads():
    """The number of threads is what it was, after the test."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=VARIANTS, ids=lambda variant: "-".join([variant[0], *variant[1].values()]))
def variant(request):
    """(name, hyper) of every method that predicts classes, games in every order: a new row is tested by being there."""
    return request.param


@pytest.fixture(scope="session")
def same():
    """same(tree, tree): both have the same leaves, bit for bit (NaN where the other has NaN)."""

    def check(left, right):
        left, right = dict(trees.leaves(left)), dict(trees.leaves(right))
        assert left.keys() == right.keys()
        for name, leaf in left.items():
            torch.testing.assert_close(leaf, right[name], rtol=0, atol=0, equal_nan=True, msg=lambda m, n=name: n + m)

    return check


@pytest.fixture
def broken_off(same, monkeypatch):
    """broken_off(training): play all rounds, each of them twice, since the first time it is broken off at its end."""

    def stop(*args):
        raise KeyboardInterrupt

    def play(run):
        while run.running:
            tensors, notes = copy.deepcopy(run.snapshot())
            with monkeypatch.context() as patch:
                patch.setattr(Training, "_leave", stop)
                with pytest.raises(KeyboardInterrupt):
                    next(iter(run))
            assert run.round == notes["round"] + 1
            same(run.snapshot()[0], tensors)
            assert run.snapshot()[1] == notes
            run.restore(*run.snapshot())
            next(iter(run))

    return play


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

    def make(method, sizes=(20, 20), seeds=(0,), data=None, device="cpu", **settings):
        name = method if isinstance(method, str) else "made"
        hyper = settings.pop("hyper", {})
        if isinstance(method, str):
            hyper = {key: value for key, value in HYPER.items() if key in methods.find(name).hyper} | hyper
            method = methods.build(name, Task(SHAPE, CLASSES, tuple(sizes)), hyper)
        config = RunConfig(method=name, dataset="toy", hyper=hyper, seeds=seeds, **({"rounds": 5} | settings))
        data = data or {seed: toy(seed, sizes) for seed in seeds}
        return Training(config, method, data, torch.device(device))

    return make
