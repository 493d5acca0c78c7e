"""Time a round of W1 as work grows: ten to 100 clients with the same 60,000 images among them, and five seeds.

    python benchmarks/growth.py [--rounds 3]

Prints one JSON line for each (clients, seeds): seconds a round, the median, and its ratio to ten clients and one seed.
All take turns round by round, in one process. Draws the rounds of one seed in growth.svg, beside this file.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from itertools import islice
from pathlib import Path

import matplotlib

import bench
from bench import Workload
from fedrepro.core import lift
from fedrepro.training import runs

CLIENTS, SEEDS = (10, 20, 50, 100), 5
TOLERANCE = 0.2  # of the goal: the round of 100 clients takes at most so much more than that of ten


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    lift.keep_freed_memory()
    cases = [(clients, 1) for clients in CLIENTS] + [(CLIENTS[0], SEEDS)]
    played = {case: bench.timed(among(*case)) for case in cases}
    spent = {case: [] for case in cases}
    for _ in range(1 + rounds):
        for case, each in played.items():
            spent[case] += islice(each, 1)
    medians = {case: statistics.median(own[1:]) for case, own in spent.items()}  # in the first, things are loaded
    for (clients, seeds), median in medians.items():
        line = {"clients": clients, "seeds": seeds, "round_s": round(median, 4)}
        print(json.dumps(line | {"ratio": round(median / medians[cases[0]], 3)}))
    draw({clients: median for (clients, seeds), median in medians.items() if seeds == 1})


def among(clients: int, seeds: int):
    """The training of W1 with so many clients."""
    work: Workload = bench.find("W1")
    config = work.config.model_copy(update={"data": {**work.config.data, "n": clients}})
    return replace(work, config=config).training(tuple(range(seeds)), "fp32", runs.resolve("cpu"))


def draw(medians: dict[int, float]) -> None:
    """Seconds a round against clients, with the goal's band."""
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "growth"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    base = medians[CLIENTS[0]]
    axes.axhspan(base * (1 - TOLERANCE), base * (1 + TOLERANCE), color="0.9", label="within 20% of ten clients")
    axes.plot(list(medians), list(medians.values()), "o-", label="fedrepro, float32")
    axes.set(xlabel="clients, with 60,000 images among them", ylabel="seconds a round", ylim=(0, None))
    axes.legend(loc="lower right")
    figure.savefig(Path(__file__).with_name("growth.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
