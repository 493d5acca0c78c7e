"""`fedrepro bench`: rounds per second of F-IRM Games, beside a plain PyTorch loop and the machine's own peak."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedrepro import lift, methods, runs
from fedrepro.config import RunConfig, Stop, Watch
from fedrepro.data import Federation
from fedrepro.data.draws import Feeder
from fedrepro.errors import UsageError
from fedrepro.streams import torch_stream
from fedrepro.train import Training
from fedrepro.types import Draw, State, Task

NEVER = 10**9  # a round that no benchmark reaches
LR, EPS = 2.5e-4, 1e-7

Shown = TypeVar("Shown")


@dataclass(frozen=True)
class Workload:
    """F-IRM Games, parallel, one Adam step per client and round, in the sizes of flgames-2022, Table 1.

    rows: training rows per client; checked: rows of the stopping check; square: side of a product that shows the peak.
    """

    name: str = "f-irm-parallel"
    n: int = 2
    batch: int = 256
    hidden: int = 390
    shape: tuple[int, ...] = (2, 28, 28)
    classes: int = 2
    rows: int = 30_000
    checked: int = 6000
    square: int = 2048

    @property
    def widths(self) -> tuple[int, ...]:
        """Input, hidden and output widths of one predictor."""
        return math.prod(self.shape), self.hidden, self.hidden, self.classes


@dataclass(frozen=True)
class Contestant:
    """What is timed. `play(count)` plays that many rounds (or products), `count` of them in each repetition.

    flops: operations of one round with all its seeds, None where they are not all in float32. seeds: 0 for a product.
    """

    name: str
    play: Callable[[int], None]
    count: int
    flops: int | None
    seeds: int
    check: bool = False


def run(work: Workload = Workload(), *, seeds: int = 5, rounds: int = 20, repeats: int = 7, device: str = "auto",
        quick: bool = False) -> list[dict]:  # fmt: skip
    """Time all contestants, turn about, and return one row for each; all times are in seconds.

    `round_s` has the mean time of a round in each repetition; the other numbers are of its median. `against_plain` is
    the median, over repetitions, of the plain loop's time by ours per seed; `of_peak` is of the fastest product.
    `quick` repeats little: it shows that everything works, and little more.
    """
    if min(seeds, rounds, repeats) < 1:
        raise UsageError("seeds, rounds and repeats are at least 1.")
    if quick:
        rounds, repeats = min(rounds, 3), min(repeats, 3)
    chosen = runs.resolve(device)
    # For the whole process, so the plain loop has it too, to its advantage.
    lift.keep_freed_memory()
    entered = contestants(work, seeds, rounds, chosen)
    times = timed(entered, repeats, chosen)
    plain = next(own for each, own in zip(entered, times, strict=True) if each.name == "plain")
    peak = max(each.flops / min(own) for each, own in zip(entered, times, strict=True) if not each.seeds)
    about = {"precision": "fp32", "device": chosen.type, "threads": torch.get_num_threads()}
    return [
        {"workload": work.name, **row(each, own, plain, peak), **about}
        for each, own in zip(entered, times, strict=True)
    ]


def goals(rows: list[dict]) -> list[dict]:
    """What is aimed at, and what `rows` reach: {"goal", "wanted", "reached", "met"}."""
    ours = [each for each in rows if each["contestant"] == "fedrepro" and not each["check"]]
    alone, together = (pick(ours, key=lambda each: each["seeds"]) for pick in (min, max))
    aims = (
        ("one seed: times as fast as the plain loop", 1.0, alone["against_plain"]),
        ("seeds together: times as fast per seed as the plain loop", 1.0, together["against_plain"]),
        ("seeds together: fraction of the machine's peak in fp32", 0.6, together["of_peak"]),
    )
    return [{"goal": goal, "wanted": least, "reached": got, "met": got >= least} for goal, least, got in aims]


def flops(work: Workload) -> int:
    """Floating-point operations of the matrix products of one round of one seed; a multiply and an add are two.

    With W the weights of all layers (1568 x 390 + 390 x 390 + 390 x 2) and V those of layers 2 and 3, each client has
    2 B W for its own forward pass, 2 B W for that of each of its n - 1 opponents, 2 B W for the gradient of the weights
    and 2 B V for that of the inputs of layers 2 and 3; the input of layer 1 is data and has none. Bias, ELU, softmax,
    Adam and the gathering of the batch are not counted, though they take time.
    """
    layers = [wide * narrow for wide, narrow in itertools.pairwise(work.widths)]
    own, opponents, weights, inputs = sum(layers), (work.n - 1) * sum(layers), sum(layers), sum(layers[1:])
    return 2 * work.batch * (own + opponents + weights + inputs) * work.n


def contestants(work: Workload, seeds: int, rounds: int, device: torch.device) -> list[Contestant]:
    """The products that show the peak, the plain loop, and ours with one seed and several, bare and with the check."""
    data = federation(work.shape, work.classes, (work.rows,) * work.n)
    alone = training(work, data, 1, False, device)
    plain = Plain(work, data, alone.state)
    entered = [*products(work, device), Contestant("plain", plain.play, rounds, flops(work), seeds=1)]
    for check, many in itertools.product((False, True), sorted({1, seeds})):
        ours = alone if many == 1 and not check else training(work, data, many, check, device)
        cost = None if check else many * flops(work)
        entered.append(Contestant("fedrepro", player(ours), rounds, cost, many, check))
    return entered


def federation(shape: tuple[int, ...], classes: int, sizes: tuple[int, ...]) -> Federation:
    """Random binary images with random labels: the speed of dense products does not depend on what is in them."""
    generator, rows = torch_stream(0, purpose="bench"), sum(sizes)
    x = torch.randint(2, (rows, *shape), dtype=torch.uint8, generator=generator) * 255
    y = torch.randint(classes, (rows,), generator=generator)
    return Federation(x, y, sizes, {}, classes, {})


def training(work: Workload, data: Federation, seeds: int, check: bool, device: torch.device) -> Training:
    """The project's own training of `seeds` seeds (which share the images), endless and with no other evaluation.

    `check`: the accuracy of the stopping rule is taken after every round, in bfloat16 as planned runs take it.
    """
    config = RunConfig(
        method="f-irm",
        dataset="colored-mnist",
        rounds=NEVER,
        stop=Stop(threshold=0),
        watch=Watch(samples=work.checked, train_every=1 if check else NEVER, test_every=NEVER, precision="bf16"),
        seeds=tuple(range(seeds)),
    )
    hyper = {"order": "parallel", "lr": LR, "eps": EPS, "batch": work.batch, "hidden": work.hidden}
    method = methods.build(config.method, Task(work.shape, work.classes, data.sizes), hyper)
    return Training(config, method, dict.fromkeys(config.seeds, data), device)


def player(training: Training) -> Callable[[int], None]:
    """Plays rounds of a training: gathering the batches, the step, and what the trainer does around them."""

    def play(count: int) -> None:
        for _ in itertools.islice(training, count):
            pass

    return play


class Plain:
    """The obvious PyTorch loop of the same arithmetic: modules, autograd, torch.optim.Adam, opponents under no_grad.

    It starts at seed 0 of `state` (F-IRM's, stacked) and takes the same batches, as indices into tensors on the device.
    """

    def __init__(self, work: Workload, data: Federation, state: State):
        predictors = state["clients"]["w"]
        self.device = predictors["fc1"]["weight"].device
        self.models = [sequential(work.widths).to(self.device) for _ in range(work.n)]
        for k, model in enumerate(self.models):
            linears = [layer for layer in model if isinstance(layer, nn.Linear)]
            for linear, layer in zip(linears, predictors.values(), strict=True):
                linear.load_state_dict({name: leaf[0, k] for name, leaf in layer.items()})
        self.optimisers = [torch.optim.Adam(model.parameters(), lr=LR, eps=EPS) for model in self.models]
        self.draw = Draw(size=work.batch)
        self.feeder = Feeder(0, data.x.to(self.device), data.y.to(self.device), data.sizes)

    def play(self, count: int) -> None:
        """Play rounds."""
        for _ in range(count):
            self.round()

    def round(self) -> None:
        """All clients answer the opponents of the round's start."""
        batches = [self.batch(k) for k in range(len(self.models))]
        with torch.no_grad():
            others = [self.opponents(k, x) for k, (x, _) in enumerate(batches)]
        for model, optimiser, (x, y), other in zip(self.models, self.optimisers, batches, others, strict=True):
            loss = F.cross_entropy((model(x) + other) / len(self.models), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    def batch(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's next images, flat and scaled to 0..1 [B, in], and their labels [B]."""
        rows = torch.from_numpy(self.feeder.rows(self.draw, client)[0]).to(self.device)
        return self.feeder.x[rows].flatten(1).float() / 255, self.feeder.y[rows]

    def opponents(self, client: int, x: Tensor) -> Tensor:
        """The summed logits of all other clients [B, classes]."""
        return sum(model(x) for k, model in enumerate(self.models) if k != client)


def sequential(widths: tuple[int, ...]) -> nn.Sequential:
    """Linear layers with ELU between them."""
    layers = [[nn.Linear(wide, narrow), nn.ELU()] for wide, narrow in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain.from_iterable(layers))[:-1]


def products(work: Workload, device: torch.device) -> list[Contestant]:
    """Plain matrix products: a large square one, and the largest one of the round (a batch through layer 1)."""
    sizes = ((work.square,) * 3, (work.batch, *work.widths[:2]))
    costs = [2 * math.prod(size) for size in sizes]
    # A small product is repeated until it takes as long as three of the large one.
    counts = [math.ceil(3 * max(costs) / cost) for cost in costs]
    return [
        Contestant("product {} x {} x {}".format(*size), multiplier(size, device), count, cost, seeds=0)
        for size, count, cost in zip(sizes, counts, costs, strict=True)
    ]


def multiplier(size: tuple[int, int, int], device: torch.device) -> Callable[[int], None]:
    """Multiplies [a, b] by [b, c], for size (a, b, c)."""
    a, b, c = size
    generator = torch_stream(0, purpose="bench")
    left, right = (torch.rand(shape, generator=generator).to(device) for shape in ((a, b), (b, c)))
    out = left @ right

    def play(count: int) -> None:
        for _ in range(count):
            torch.mm(left, right, out=out)

    return play


def timed(entered: list[Contestant], repeats: int, device: torch.device) -> list[list[float]]:
    """Seconds a round of each contestant in each repetition; every repetition times all of them, from another start."""
    for each in entered:
        each.play(min(each.count, 5))  # first calls allocate, and fill caches
    times: list[list[float]] = [[] for _ in entered]
    for repeat in range(repeats):
        for turn in range(len(entered)):
            place = (repeat + turn) % len(entered)
            times[place].append(stopwatch(entered[place], device))
    return times


def turns(
    contestants: dict[str, Callable[[int], Iterator[Shown]]], repeats: int, rounds: int
) -> tuple[dict[str, list[float]], dict[str, Shown]]:
    """Iterators that play a round whenever they are asked, in turn; `contestants` make them for a repetition's number.

    Returns by name the median seconds of a round in each repetition, and what the last round gave.
    """
    medians: dict[str, list[float]] = {name: [] for name in contestants}
    shown: dict[str, Shown] = {}
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


def stopwatch(contestant: Contestant, device: torch.device) -> float:
    """Seconds a round of one repetition."""
    settle(device)
    began = time.perf_counter()
    contestant.play(contestant.count)
    settle(device)
    return (time.perf_counter() - began) / contestant.count


def settle(device: torch.device) -> None:
    """Wait until the device has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def row(contestant: Contestant, times: list[float], plain: list[float], peak: float) -> dict:
    """What one contestant's times [repeats] say, beside those of the plain loop and the peak in operations a second."""
    seconds, seeds, cost = statistics.median(times), contestant.seeds, contestant.flops
    ratio = statistics.median(base * seeds / own for base, own in zip(plain, times, strict=True))
    return {
        "contestant": contestant.name,
        "seeds": seeds,
        "check": contestant.check,
        "round_s": [digits(value) for value in times],
        "rounds_per_s": digits(1 / seconds),
        "seed_rounds_per_s": digits(seeds / seconds) if seeds else None,
        "against_plain": digits(ratio) if seeds else None,
        "gflop": digits(cost / 1e9) if cost else None,
        "gflop_per_s": digits(cost / seconds / 1e9) if cost else None,
        "of_peak": digits(cost / seconds / peak) if cost else None,
    }


def digits(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")
