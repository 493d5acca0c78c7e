"""Time FedAVG on Rotated MNIST with random rotations beside the obvious loop, which turns image after image.

    python benchmarks/augment.py [--rounds 1] [--steps 200] [--repeats 3] [--precision fp32|bf16]

Five clients at five angles, 200 steps of 64 images a round, each image turned anew by up to 45 degrees, the CNN of
fedaug-2022 (28,938 parameters), Adam 0.001 whose moments stay with the client. Contestants take turns round by round;
prints one JSON line for each: images a second (the median of its rounds, for each repetition), how many times as fast
fedrepro is (the median over repetitions), and the accuracy at the unseen angle after the last round.

    loop       a TensorDataset whose images go through torchvision's RandomRotation, in a DataLoader; a module and an
               optimiser for each client
    fedrepro   the project's trainer
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import accumulate, islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.transforms import RandomRotation

from fedrepro import methods
from fedrepro.core import lift, trees
from fedrepro.core.types import Task
from fedrepro.data import Federation, load
from fedrepro.judges.scoring import in_parts, score
from fedrepro.records.config import RunConfig
from fedrepro.training.train import Training

LR, BATCH, DEGREES = 1e-3, 64, 45
NEVER = 10**6

Predict = Callable[[Tensor], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    chosen = parser.parse_args()
    lift.keep_freed_memory()
    data = load("rotated-mnist", 0, {"augmentation": "rotation", "degrees": DEGREES})
    images = chosen.steps * BATCH * len(data.sizes)
    makers = {name: lambda repeat, make=make: make(data, chosen) for name, make in CONTESTANTS.items()}
    seconds, predicts = turns(makers, chosen.repeats, chosen.rounds)
    speeds = {name: [round(images / each) for each in own] for name, own in seconds.items()}
    for name, each in speeds.items():
        ratios = [own / other for other, own in zip(each, speeds["fedrepro"], strict=True)]
        line = {"contestant": name, "images_per_s": each, "fedrepro_is_faster": round(statistics.median(ratios), 2)}
        about = {"accuracy": round(accuracy(predicts[name], data), 3), "threads": torch.get_num_threads()}
        print(json.dumps(line | about | {"precision": chosen.precision if name == "fedrepro" else "fp32"}), flush=True)


def turns(
    contestants: dict[str, Callable[[int], Iterator[Predict]]], repeats: int, rounds: int
) -> tuple[dict[str, list[float]], dict[str, Predict]]:
    """Iterators that play a round whenever they are asked, in turn; `contestants` make them for a repetition's number.

    Returns by name the median seconds of a round in each repetition, and what the last round gave.
    """
    medians: dict[str, list[float]] = {name: [] for name in contestants}
    shown: dict[str, Predict] = {}
    for repeat in range(repeats):
        running = {name: make(repeat) for name, make in contestants.items()}
        times: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(rounds):
            for name, played in running.items():
                began = time.perf_counter()
                shown[name] = next(played)
                times[name].append(time.perf_counter() - began)
        for name, own in times.items():
            medians[name].append(statistics.median(own))
    return medians, shown


def accuracy(predict: Predict, data: Federation) -> float:
    """On the images at the angle that no client has."""
    x, y = data.tests["75"]
    with torch.no_grad():
        return score(in_parts(predict, x), y)[0]


class Turned(TensorDataset):
    """Images and labels, each image turned when it is asked for."""

    turn = RandomRotation(DEGREES)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = super().__getitem__(index)
        return self.turn(x), y


def convnet() -> nn.Sequential:
    """The network as modules."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1568, 10)),
    )


def loop(data: Federation, chosen: argparse.Namespace) -> Iterator[Predict]:
    """The obvious rounds; yields the model after each."""
    ends = list(accumulate(data.sizes))
    rows = [slice(end - size, end) for size, end in zip(data.sizes, ends, strict=True)]
    loaders = [DataLoader(Turned(data.x[own] / 255, data.y[own]), BATCH, shuffle=True) for own in rows]
    model, clients = convnet(), [convnet() for _ in rows]
    optimisers = [torch.optim.Adam(client.parameters(), LR) for client in clients]
    shares = [size / sum(data.sizes) for size in data.sizes]
    while True:
        for client, optimiser, loader in zip(clients, optimisers, loaders, strict=True):
            client.load_state_dict(model.state_dict())
            for x, y in islice(endless(loader), chosen.steps):
                optimiser.zero_grad()
                F.cross_entropy(client(x), y).backward()
                optimiser.step()
        states = [client.state_dict() for client in clients]
        mean = {key: sum(w * state[key] for w, state in zip(shares, states, strict=True)) for key in states[0]}
        model.load_state_dict(mean)
        yield lambda x: model(x / 255)


def endless(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass after another."""
    while True:
        yield from loader


def ours(data: Federation, chosen: argparse.Namespace) -> Iterator[Predict]:
    hyper = {"net": "cnn-fair", "optimiser": "adam", "lr": LR, "eps": 1e-8, "batch": BATCH}
    hyper |= {"steps": chosen.steps, "keep_optimiser": True}
    method = methods.build("fedavg", Task(tuple(data.x.shape[1:]), data.classes, data.sizes), hyper)
    watch = {"samples": 1, "train_every": NEVER, "test_every": NEVER}
    config = RunConfig(method="fedavg", dataset="made", rounds=NEVER, watch=watch, precision=chosen.precision)
    training = Training(config, method, {0: data}, torch.device("cpu"))
    for _ in training:
        yield lambda x: method.predict(trees.one(training.state, 0), x)


CONTESTANTS: dict[str, Callable[[Federation, argparse.Namespace], Iterator[Predict]]] = {"loop": loop, "fedrepro": ours}


if __name__ == "__main__":
    main()
