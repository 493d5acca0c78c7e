"""The obvious PyTorch loops of the workloads W1 to W4, as one writes them first. They know nothing of fedrepro.

Data in a TensorDataset, batches from a DataLoader, a deep copy of the model for each client; for GANs a module with
torch's spectral norm and an optimiser for each critic. W1 as well with images that torchvision makes tensors of.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision.transforms import ToTensor
from torchvision.transforms.functional import to_pil_image

Batches = Iterable[tuple[Tensor, Tensor]]
Optimiser = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
ADAM = {"lr": 2e-4, "betas": (0.5, 0.999), "eps": 1e-7}  # of GANs


def lenet() -> nn.Sequential:
    """The network of W1 and W2."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def mlp() -> nn.Sequential:
    """The network of W3."""
    return nn.Sequential(nn.Linear(1568, 390), nn.ELU(), nn.Linear(390, 390), nn.ELU(), nn.Linear(390, 2))


def average(model: nn.Module, clients: list[Batches], sizes: list[int], optimiser: Optimiser) -> None:
    """A round of FedAVG: each client trains a copy on its batches, then the model is their mean, weighted by size."""
    states = []
    for batches in clients:
        client = copy.deepcopy(model)
        opt = optimiser(client.parameters())
        for x, y in batches:
            opt.zero_grad()
            F.cross_entropy(client(x), y).backward()
            opt.step()
        states.append(client.state_dict())
    shares = [size / sum(sizes) for size in sizes]
    model.load_state_dict({key: sum(w * s[key] for w, s in zip(shares, states, strict=True)) for key in states[0]})


@torch.no_grad()
def accuracy(model: nn.Module, batches: Batches) -> float:
    """On all test images, which come 1,000 at a time."""
    right = [model(x).argmax(1) == y for x, y in batches]
    return torch.cat(right).float().mean().item()


def loaders(
    x: Tensor, y: Tensor, sizes: list[int], batch: int, kind: Callable[..., Dataset] = TensorDataset
) -> list[DataLoader]:
    """One for each client; x [N, ...] and y [N] hold their rows one client after another."""
    parts = zip(x.split(sizes), y.split(sizes), strict=True)
    return [DataLoader(kind(*own), batch, shuffle=True, drop_last=True) for own in parts]


class Images(Dataset):
    """Bytes [N, C, H, W] as torchvision's datasets have them: each a PIL image, of which reading makes a tensor."""

    def __init__(self, x: Tensor, y: Tensor):
        self.images, self.labels, self.transform = [to_pil_image(each) for each in x], y.tolist(), ToTensor()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        return self.transform(self.images[number]), self.labels[number]


def endless(loader: DataLoader) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass after another."""
    while True:
        yield from loader


def generator(first: int, side: int, widths: tuple[int, ...], channels: int) -> nn.Sequential:
    """A generator of f2u-2019."""
    layers = [nn.Linear(128, first * side**2), nn.ReLU(), nn.Unflatten(1, (first, side, side))]
    for inner, outer in zip((first, *widths), widths, strict=False):
        layers += [nn.ConvTranspose2d(inner, outer, 4, 2, padding=1), nn.BatchNorm2d(outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(widths[-1], channels, 3, padding=1), nn.Tanh())


def critic(normal: bool = True) -> nn.Sequential:
    """The critic for 1x28x28."""
    sn = spectral_norm if normal else lambda layer: layer
    return nn.Sequential(
        *(sn(nn.Conv2d(1, 32, 3, 2, padding=1)), nn.LeakyReLU(0.2), nn.ZeroPad2d((0, 1, 0, 1))),
        *(sn(nn.Conv2d(32, 64, 3, 2, padding=1)), nn.LeakyReLU(0.2)),
        *(sn(nn.Conv2d(64, 128, 3, 2, padding=1)), nn.LeakyReLU(0.2)),
        *(sn(nn.Conv2d(128, 256, 3, 2, padding=1)), nn.LeakyReLU(0.2), nn.Flatten(), sn(nn.Linear(1024, 1))),
    )


class Adversaries:
    """A generator and its critics, by least squares. `turns`: for each step of the generator, its loss of what the
    critics say [K, B]; learnt: what its optimiser has beside the generator.
    """

    def __init__(self, generator: nn.Module, critics: list[nn.Module], turns: tuple[Callable, ...], learnt=(), **adam):
        self.generator, self.critics, self.turns = generator, critics, turns
        self.generator_opt = torch.optim.Adam([*generator.parameters(), *learnt], **(ADAM | adam))
        self.critic_opts = [torch.optim.Adam(each.parameters(), **(ADAM | adam)) for each in critics]

    def iterate(self, real: Iterable[Tensor], noise: Tensor) -> None:
        """real: for each critic [B, ...] in -1..1; noise [1 + turns, B, dim], for the critics, then the generator."""
        with torch.no_grad():
            fake = self.generator(noise[0])
        for own, judge, opt in zip(real, self.critics, self.critic_opts, strict=True):
            opt.zero_grad()
            judged = judge(torch.cat((own, fake)))
            loss = (judged[: len(own)] - 1).square().mean() + judged[len(own) :].square().mean()
            loss.backward()
            opt.step()
        for z, combine in zip(noise[1:], self.turns, strict=True):
            self.generator_opt.zero_grad()
            fake = self.generator(z)
            combine(torch.stack([judge(fake)[:, 0] for judge in self.critics])).backward()
            self.generator_opt.step()


def most_forgiving(d: Tensor) -> Tensor:
    """F2U's loss of the generator."""
    return (d.max(0).values - 1).square().mean()


# The workloads: data as `fedrepro.data.Federation` has them -> the accuracy after each round, None where none is tested


def w1(data) -> Iterator[float]:
    return shards(data.sizes, loaders(data.x / 255, data.y, data.sizes, 64), tested(data))


def w1_images(data) -> Iterator[float]:
    test = DataLoader(Images(*data.tests["test"]), 1000)
    return shards(data.sizes, loaders(data.x, data.y, data.sizes, 64, Images), test)


def shards(sizes: list[int], clients: list[Batches], test: Batches) -> Iterator[float]:
    model = lenet()
    while True:
        average(model, clients, sizes, lambda weights: torch.optim.SGD(weights, lr=0.01))
        yield accuracy(model, test)


def w2(data) -> Iterator[float]:
    clients, model, test = loaders(data.x / 255, data.y, data.sizes, 10), lenet(), tested(data)
    while True:
        chosen = torch.randperm(len(clients))[:10].tolist()
        some, sizes = [clients[k] for k in chosen], [data.sizes[k] for k in chosen]
        average(model, some, sizes, lambda weights: torch.optim.SGD(weights, lr=0.01))
        yield accuracy(model, test)


def tested(data) -> list[tuple[Tensor, Tensor]]:
    x, y = data.tests["test"]
    return list(zip((x / 255).split(1000), y.split(1000), strict=True))


def w3(data) -> Iterator[None]:
    streams = [endless(loader) for loader in loaders(data.x, data.y, data.sizes, 256)]
    model = mlp()
    while True:
        steps = [islice(stream, 1) for stream in streams]
        average(model, steps, data.sizes, lambda weights: torch.optim.Adam(weights, lr=2.5e-4, eps=1e-7))
        yield None


def w4(data) -> Iterator[None]:
    streams = [endless(loader) for loader in loaders(data.x / 127.5 - 1, data.y, data.sizes, 32)]
    game = Adversaries(generator(256, 7, (128, 64), 1), [critic() for _ in streams], (most_forgiving,))
    while True:
        game.iterate([next(stream)[0] for stream in streams], torch.randn(2, 32, 128))
        yield None


LOOPS = {
    "W1": {"loop": w1, "images": w1_images},
    "W2": {"loop": w2},
    "W3": {"loop": w3},
    "W4": {"loop": w4},
}
