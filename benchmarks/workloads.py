"""The workloads by which the engine is measured: W1 to W3 train classifiers by FedAVG, W4 a generator by F2U."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedrepro import methods
from fedrepro.core.streams import torch_stream
from fedrepro.core.types import Task
from fedrepro.data import Federation, load
from fedrepro.records.config import Precision, RunConfig, Watch
from fedrepro.training.train import Training

NEVER = 10**9  # a round that no workload reaches: nothing but what it measures is evaluated
RANDOM = "random"  # in place of a dataset's name: float samples with random labels, since dense products ignore values


@dataclass(frozen=True)
class Workload:
    """What is measured: `rounds` rounds of a run.

    shape, classes, sizes: of the samples, where they are random; iterates: a round is an iteration of a GAN
    """

    name: str
    summary: str
    config: RunConfig
    rounds: int
    shape: tuple[int, ...] = ()
    classes: int = 10
    sizes: tuple[int, ...] = ()
    iterates: bool = False

    def data(self, seed: int) -> Federation:
        """One seed's federation. UsageError where the dataset's files are missing."""
        if self.config.dataset == RANDOM:
            return noise(self.shape, self.classes, self.sizes, seed)
        return load(self.config.dataset, seed, self.config.data)

    def training(self, seeds: tuple[int, ...], precision: Precision, device: torch.device) -> Training:
        """The run at round 0, as `runs.prepare` makes that of a planned one."""
        data = {seed: self.data(seed) for seed in seeds}
        first = data[seeds[0]]
        task = Task(tuple(first.x.shape[1:]), first.classes, first.sizes)
        config = self.config.model_copy(update={"precision": precision, "seeds": seeds})
        return Training(config, methods.build(config.method, task, config.hyper), data, device)


def noise(shape: tuple[int, ...], classes: int, sizes: tuple[int, ...], seed: int) -> Federation:
    """Clients of standard normal samples float32 [N, ...] with random labels, and no test."""
    generator, rows = torch_stream(seed, purpose="bench"), sum(sizes)
    x = torch.randn(rows, *shape, generator=generator)
    return Federation(x, torch.randint(classes, (rows,), generator=generator), sizes, {}, classes, {})


def _run(method: str, dataset: str, data: dict, hyper: dict, *, tests: bool = False, **watch) -> RunConfig:
    seen = {"samples": 1, "train_every": NEVER, "test_every": 1 if tests else NEVER, "step_every": NEVER, **watch}
    return RunConfig(method=method, dataset=dataset, data=data, hyper=hyper, rounds=NEVER, watch=Watch(**seen))


_ADAM = {"optimiser": "adam", "lr": 2.5e-4}
_LENET = {"net": "lenet", "optimiser": "sgd", "lr": 0.01, "epochs": 1}

WORKLOADS = {
    work.name: work
    for work in (
        Workload(
            name="W1",
            summary="LeNet on MNIST, ten clients of two label shards, all take part, one epoch in batches of 64",
            config=_run("fedavg", "mnist", {"partition": "shards", "n": 10}, {**_LENET, "batch": 64}, tests=True),
            rounds=5,
        ),
        Workload(
            name="W2",
            summary="LeNet on MNIST, 100 clients of 600 images, ten sampled a round, one epoch in batches of 10",
            config=_run(
                "fedavg", "mnist", {"partition": "iid", "n": 100}, {**_LENET, "batch": 10, "cohort": 10}, tests=True
            ),
            rounds=20,
        ),
        Workload(
            name="W3",
            summary="an MLP 1568-390-390-2 with ELU, two clients, each one Adam step on a batch of 256 a round",
            config=_run(
                "fedavg", RANDOM, {}, {"net": "mlp", "optimiser": "adam", "lr": 2.5e-4, "batch": 256, "steps": 1}
            ),
            rounds=300,
            shape=(1568,),
            classes=2,
            sizes=(30_000, 30_000),
        ),
        Workload(
            name="W4",
            summary="F2U's networks on MNIST, five critics one step each on 32 real and 32 fake, one of the generator",
            config=_run("f2u", "gan-mnist", {"overlap": "non", "n": 5}, {"batch": 32}, judged=100, extractor="cnn"),
            rounds=20,
            iterates=True,
        ),
    )
}
