"""Time what the levers of the engine gain: a workload as it is, and without one of them.

    python benchmarks/levers.py [LEVER ...] [--rounds N]

The two are processes that take turns, as in loops.py. Prints one JSON line for each lever: the medians of the seconds a
round, and how many times as long a round is without it (the median over turns of the ratios). Without a name, all.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import loops

GAME = "colored-mnist-v-irm-sequential"  # of flgames-2022, with one seed: a game whose training accuracy is watched


class Lever(NamedTuple):
    """`where`: a workload or GAME. `without`: makes a context without the lever; `change`: the run's config without."""

    where: str
    without: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext
    change: Callable = lambda config: config
    precision: str = "fp32"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("levers", nargs="*", metavar="LEVER", help=f"of {', '.join(LEVERS)}")
    parser.add_argument("--rounds", type=int, help="the workload's own number without it")
    chosen = parser.parse_args()
    if unknown := set(chosen.levers) - set(LEVERS):
        parser.error(f"there is no lever {min(unknown)!r}")
    for name in chosen.levers or LEVERS:
        where = LEVERS[name].where
        turn = 2 if where == GAME else loops.TURN[where]
        spent, _ = loops.compare(name, ["with", "without"], chosen.rounds or ROUNDS[where], turn, played)
        kept, left = ([statistics.median(turn) for turn in spent[each]] for each in ("with", "without"))
        line = {"lever": name, "where": where, "precision": LEVERS[name].precision}
        line |= {"round_s": round(statistics.median(kept), 5), "without_s": round(statistics.median(left), 5)}
        ratios = [slow / fast for slow, fast in zip(left, kept, strict=True)]
        print(json.dumps(line | {"times_as_long": round(statistics.median(ratios), 3)}), flush=True)


def played(name: str, side: str) -> Iterator[float | None]:
    """The trainer on the workload of a lever, with it or without."""
    lever = LEVERS[name]
    with lever.without() if side == "without" else contextlib.nullcontext():
        import bench
        from fedrepro.core import lift
        from fedrepro.papers.load import load_paper
        from fedrepro.training import runs

        lift.keep_freed_memory()
        device = runs.resolve("cpu")
        if lever.where == GAME:
            config = load_paper("flgames-2022").run(GAME).model_copy(update={"seeds": (0,), "stop": None})
            training = runs.prepare(lever.change(config) if side == "without" else config, (0,), device)
        else:
            training = bench.find(lever.where).training((0,), lever.precision, device)
        for _ in training:
            yield bench.accuracy(training)


@contextlib.contextmanager
def torch_convolutions() -> Iterator[None]:
    from fedrepro.core import lift
    from fedrepro.nets import choose, cnn
    from fedrepro.nets.mlp import pixels

    compiled = cnn.cnn

    def plain(*asked, **settings):
        def apply(params, x):
            leaves = [layer[key] for layer in params.values() for key in ("weight", "bias")]
            return cnn._in_torch(settings.get("padding", (0, 0)), pixels(x), leaves)

        return compiled(*asked, **settings)._replace(apply=apply, descend=None)

    with lift.modes(clients="loop"), mock.patch.object(choose, "cnn", plain):
        yield


def batched() -> contextlib.AbstractContextManager:
    from fedrepro.core import lift

    return lift.modes(clients="vmap")


def freed_memory() -> contextlib.AbstractContextManager:
    from fedrepro.core import lift

    return mock.patch.object(lift, "keep_freed_memory")


def torch_elu() -> contextlib.AbstractContextManager:
    import torch.nn.functional as F

    from fedrepro.nets import mlp

    return mock.patch.object(mlp, "elu", F.elu)


def plain_adam() -> contextlib.AbstractContextManager:
    from fedrepro.core import optim
    from fedrepro.core.lift import over_clients

    def adam(*settings):
        rule = optim.adam(*settings)
        step = optim.step(rule.update)
        return rule._replace(together=lambda *given: (over_clients(step) if given[2]["t"].dim() else step)(*given))

    return mock.patch.object(optim, "fused", adam)


def channels_first() -> contextlib.AbstractContextManager:
    import torch.nn.functional as F

    from fedrepro.nets import gan

    def conv2d(x, weight, *rest, **options):
        return F.conv2d(x.contiguous(), weight.contiguous(), *rest, **options)

    names = {name: getattr(F, name) for name in dir(F) if not name.startswith("_")}
    return mock.patch.multiple(gan, channels_last=lambda x: x, F=SimpleNamespace(**names | {"conv2d": conv2d}))


def two_passes() -> contextlib.AbstractContextManager:
    import torch

    from fedrepro.nets import gan

    choose = gan.choose

    def apart(shape):
        generator, critic = choose(shape)

        def apply(params, x):  # what is longer than a batch is real and fake samples together
            return torch.cat([critic.apply(params, each) for each in x.split(32)])

        return generator, critic._replace(apply=apply)

    return mock.patch.object(gan, "choose", apart)


def no_members() -> contextlib.AbstractContextManager:
    from fedrepro import methods

    build = methods.build
    return mock.patch.object(methods, "build", lambda *asked: replace(build(*asked), members=None))


def all_rows(config):
    return config.model_copy(update={"watch": config.watch.model_copy(update={"samples": 10**9})})


def float32(config):
    return config.model_copy(update={"watch": config.watch.model_copy(update={"precision": "fp32"})})


LEVERS = {
    "compiled-loops-W1": Lever("W1", torch_convolutions),
    "compiled-loops-W2": Lever("W2", torch_convolutions),
    "kept-memory-W1": Lever("W1", freed_memory),
    "kept-memory-W3": Lever("W3", freed_memory),
    "kept-memory-W4": Lever("W4", freed_memory, precision="bf16"),
    "written-out": Lever("W3", batched),
    "own-elu": Lever("W3", torch_elu),
    "fused-adam": Lever("W4", plain_adam, precision="bf16"),
    "channels-last": Lever("W4", channels_first, precision="bf16"),
    "one-pass": Lever("W4", two_passes, precision="bf16"),
    "kept-logits": Lever(GAME, no_members),
    "watched-subset": Lever(GAME, change=all_rows),
    "watching-in-bf16": Lever(GAME, change=float32),
}
ROUNDS = {"W1": 3, "W2": 10, "W3": 120, "W4": 16, GAME: 12}


if __name__ == "__main__":
    main()
