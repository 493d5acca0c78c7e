"""Time FedAVG with ten clients on MNIST beside the obvious loops: a model, a DataLoader and a copy for each client.

    python benchmarks/clients.py [--rounds 5] [--repeats 3] [--precision fp32|bf16]

Ten clients, two label shards each, all take part, one local epoch, batch 64, SGD 0.01, the small CNN with 61,706
parameters (conv 6@5x5 pad 2, pool, conv 16@5x5, pool, 120, 84, 10), test on all 10,000 images after every round.
Contestants take turns round by round; prints one JSON line for each: seconds a round (the median of its rounds, for
each repetition), how many times as fast fedrepro is (the median over repetitions), and the last test accuracy.

    transforms   torchvision's MNIST with ToTensor in a DataLoader
    tensors      float images in a TensorDataset in a DataLoader
    fedrepro     the project's trainer
"""

from __future__ import annotations

import fedrepro  # isort: skip  # noqa: F401  (before torch: it says how long torch's threads spin)

import argparse
import copy
import json
import statistics
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset
from torchvision.datasets import MNIST
from torchvision.transforms import ToTensor

from fedrepro import bench, lift, optim
from fedrepro.config import RunConfig
from fedrepro.convnets import cnn
from fedrepro.data import Federation, load, sources
from fedrepro.methods.federated import federated
from fedrepro.methods.parts import average
from fedrepro.train import Training
from fedrepro.types import Draw, Task

LR, BATCH = 0.01, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    chosen = parser.parse_args()
    lift.keep_freed_memory()
    data = load("mnist", 0, {"partition": "shards"})
    makers = {name: lambda repeat, make=make: make(data, chosen) for name, make in CONTESTANTS.items()}
    seconds, accuracy = bench.turns(makers, chosen.repeats, chosen.rounds)
    for name, each in seconds.items():
        ratios = [loop / own for loop, own in zip(each, seconds["fedrepro"], strict=True)]
        line = {"contestant": name, "round_s": each, "fedrepro_is_faster": round(statistics.median(ratios), 2)}
        about = {"accuracy": accuracy[name], "precision": chosen.precision if name == "fedrepro" else "fp32"}
        print(json.dumps(line | about | {"threads": torch.get_num_threads()}), flush=True)


def lenet() -> nn.Sequential:
    """The network as modules."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def loop(loaders: list[DataLoader], sizes: list[int], test: tuple[Tensor, Tensor]) -> Iterator[float]:
    """The obvious rounds; yields the test accuracy after each."""
    model = lenet()
    while True:
        states = []
        for loader in loaders:
            client = copy.deepcopy(model)
            optimiser = torch.optim.SGD(client.parameters(), lr=LR)
            for x, y in loader:
                optimiser.zero_grad()
                F.cross_entropy(client(x), y).backward()
                optimiser.step()
            states.append(client.state_dict())
        shares = [size / sum(sizes) for size in sizes]
        mean = {key: sum(w * state[key] for w, state in zip(shares, states, strict=True)) for key in states[0]}
        model.load_state_dict(mean)
        with torch.no_grad():
            right = sum(
                (model(x).argmax(1) == y).sum().item() for x, y in zip(*(t.split(1000) for t in test), strict=True)
            )
        yield right / len(test[1])


def rows(data: Federation) -> list[range]:
    """The rows of each client."""
    ends = torch.tensor(data.sizes).cumsum(0).tolist()
    return [range(end - size, end) for size, end in zip(data.sizes, ends, strict=True)]


def loaded(whole: Dataset, data: Federation, parts: list) -> Iterator[float]:
    loaders = [DataLoader(Subset(whole, list(part)), BATCH, shuffle=True, drop_last=True) for part in parts]
    x, y = data.tests["test"]
    return loop(loaders, list(data.sizes), (x / 255, y))


def transforms(data: Federation, chosen: argparse.Namespace) -> Iterator[float]:
    """From the dataset's own images: its rows in the order of the labels, two shards for each client."""
    whole = MNIST(sources.folder(), train=True, transform=ToTensor())
    order = whole.targets.argsort(stable=True).split(3000)
    parts = [torch.cat((order[k], order[k + 10])).tolist() for k in range(10)]
    return loaded(whole, data, parts)


def tensors(data: Federation, chosen: argparse.Namespace) -> Iterator[float]:
    return loaded(TensorDataset(data.x / 255, data.y), data, rows(data))


def ours(data: Federation, chosen: argparse.Namespace) -> Iterator[float]:
    task = Task(tuple(data.x.shape[1:]), data.classes, data.sizes)
    net = cnn(task.shape, task.classes, padding=(2, 0))
    draw = Draw(size=BATCH, epochs=1)
    method = federated(task, net, draw, client=optim.sgd(LR), server=average(optim.sgd(1.0)))
    watch = {"samples": 1, "train_every": 10**6, "test_every": 1}
    config = RunConfig(method="fedavg", dataset="mnist", rounds=10**6, watch=watch, precision=chosen.precision)
    training = Training(config, method, {0: data}, torch.device("cpu"))
    for _ in training:
        yield next(value for _, name, value in reversed(training.lanes[0].curve) if name == "test_accuracy")


CONTESTANTS: dict[str, Callable[[Federation, argparse.Namespace], Iterator[float]]] = {
    "transforms": transforms,
    "tensors": tensors,
    "fedrepro": ours,
}


if __name__ == "__main__":
    main()
