"""Time one iteration of F2U on images like MNIST beside the obvious loop: a module and an optimiser for each critic.

    python benchmarks/gan.py [--iterations 20] [--repeats 3] [--critics 5] [--batch 32]

One iteration: each critic one Adam step on 32 real and 32 fake images, then one of the generator; the networks of
f2u-2019 for MNIST with spectral norm. Contestants take turns in every repetition, each with torch's own number of
threads; pixels are random, since convolutions take the same time whatever they see. Prints one JSON line for each:
milliseconds an iteration (the median of each repetition), and how many times as fast as the loop (the median over
repetitions of their ratios).

    loop            nn.Sequential networks, torch.nn.utils' spectral norm and torch.optim.Adam, critic by critic
    fedrepro-fp32   the project's trainer step
    fedrepro-bf16   the same under autocast
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from fedrepro import bench, lift, methods, trees
from fedrepro.data.draws import Feeder
from fedrepro.lift import over_seeds
from fedrepro.streams import torch_stream
from fedrepro.types import Method, State, Task

ADAM = {"lr": 2e-4, "betas": (0.5, 0.999), "eps": 1e-7}
ROWS = 1000  # of each client


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--critics", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    chosen = parser.parse_args()
    lift.keep_freed_memory()
    makers = {
        name: lambda repeat, make=make: make(chosen.critics, chosen.batch, repeat) for name, make in CONTESTANTS.items()
    }
    times, _ = bench.turns(makers, chosen.repeats, chosen.iterations)
    for name, own in times.items():
        ratio = statistics.median(loop / mine for loop, mine in zip(times["loop"], own, strict=True))
        line = {
            "contestant": name,
            "iteration_ms": [round(1000 * each, 1) for each in own],
            "times_as_fast": round(ratio, 2),
        }
        print(json.dumps(line | {"threads": torch.get_num_threads()}), flush=True)


def generator(first: int, side: int, widths: tuple[int, ...], channels: int) -> nn.Sequential:
    """A generator of f2u-2019 as modules."""
    layers = [nn.Linear(128, first * side**2), nn.ReLU(), nn.Unflatten(1, (first, side, side))]
    for inner, outer in zip((first, *widths), widths, strict=False):
        layers += [nn.ConvTranspose2d(inner, outer, 4, 2, padding=1), nn.BatchNorm2d(outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(widths[-1], channels, 3, padding=1), nn.Tanh())


def critic(normal: bool = True) -> nn.Sequential:
    """The critic for 1x28x28 as modules."""
    sn = spectral_norm if normal else lambda layer: layer
    return nn.Sequential(
        *(sn(nn.Conv2d(1, 32, 3, 2, padding=1)), nn.LeakyReLU(0.2), nn.ZeroPad2d((0, 1, 0, 1))),
        *(sn(nn.Conv2d(32, 64, 3, 2, padding=1)), nn.LeakyReLU(0.2)),
        *(sn(nn.Conv2d(64, 128, 3, 2, padding=1)), nn.LeakyReLU(0.2)),
        *(sn(nn.Conv2d(128, 256, 3, 2, padding=1)), nn.LeakyReLU(0.2), nn.Flatten(), sn(nn.Linear(1024, 1))),
    )


class Loop:
    """The obvious iteration with least squares. `turns`: for each step of the generator, its loss of judgements [K, B].

    learnt: what the generator's optimiser has beside the generator
    """

    def __init__(self, generator: nn.Module, critics: list[nn.Module], turns: tuple[Callable, ...], learnt=(), **adam):
        self.generator, self.critics, self.turns = generator, critics, turns
        self.generator_opt = torch.optim.Adam([*generator.parameters(), *learnt], **(ADAM | adam))
        self.critic_opts = [torch.optim.Adam(each.parameters(), **(ADAM | adam)) for each in critics]

    def iterate(self, real: Tensor, noise: Tensor) -> None:
        """real [K, B, ...] in -1..1; noise [1 + turns, B, dim], for the critics and then for the generator."""
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


def feeder(critics: int, seed: int) -> Feeder:
    """Random bytes as images."""
    x = torch.randint(0, 256, (critics * ROWS, 1, 28, 28), dtype=torch.uint8, generator=torch_stream(seed))
    return Feeder(seed, x, torch.zeros(len(x), dtype=torch.int64), (ROWS,) * critics)


def start(critics: int, batch: int, seed: int) -> tuple[Method, State]:
    method = methods.build("f2u", Task((1, 28, 28), 10, (ROWS,) * critics), {"batch": batch})
    return method, method.init(lambda client, purpose: torch_stream(seed, 0, client, purpose), (ROWS,) * critics)


def loop(critics: int, batch: int, seed: int) -> Iterator[None]:
    data, draw = feeder(critics, seed), start(critics, batch, seed)[0].phases[0].draw
    judges = [critic() for _ in range(critics)]
    plain = Loop(generator(256, 7, (128, 64), 1), judges, (most_forgiving,))
    round = 0
    while True:
        drawn = data.draw(draw, round)
        plain.iterate(drawn.x[:, 0] / 127.5 - 1, drawn.noise)
        round += 1
        yield


def ours(precision: torch.dtype) -> Callable[[int, int, int], Iterator[None]]:
    def iterations(critics: int, batch: int, seed: int) -> Iterator[None]:
        data, (method, state) = feeder(critics, seed), start(critics, batch, seed)
        (phase,), state, round = method.phases, trees.stack([state]), 0
        while True:
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
                new, _ = over_seeds(phase.step, phase.alone)(state, [data.draw(phase.draw, round)])
            state = trees.map_tree(Tensor.contiguous, new)
            round += 1
            yield

    return iterations


CONTESTANTS: dict[str, Callable[[int, int, int], Iterator[None]]] = {
    "loop": loop,
    "fedrepro-fp32": ours(torch.float32),
    "fedrepro-bf16": ours(torch.bfloat16),
}


if __name__ == "__main__":
    main()
