"""Time a workload of `fedrepro bench` beside the obvious loop of plain.py.

    python benchmarks/loops.py W1 [--rounds N] [--precision fp32,bf16]

Each contestant is a process of its own, so that its peak memory and its threads are its own, and waits while another
plays: they take turns of some rounds each. Prints one JSON line for each: its seconds a round, the median of them, its
last accuracy, its peak memory, and of ours how many times as fast as each loop it is (the median over turns of the
ratios), with the goal for the first. The first turn is left out: in it things are loaded.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

GOALS = {"W1": (2.5, 4.0), "W2": (3.0, 3.5), "W3": (1.8, 3.0), "W4": (1.25, 2.0)}  # times the loop: fp32, bf16
PRECISIONS = ("fp32", "bf16")
Play = Callable[[str, str], Iterator[float | None]]
TURN = {"W1": 1, "W2": 2, "W3": 20, "W4": 4}  # rounds


def main() -> None:
    import plain

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("workload", choices=GOALS)
    parser.add_argument("--rounds", type=int, help="the workload's own number without it")
    parser.add_argument("--precision", type=precisions, default=list(PRECISIONS), help="fp32, bf16 or fp32,bf16")
    chosen = parser.parse_args()
    names = [*plain.LOOPS[chosen.workload], *chosen.precision]
    spent, ended = compare(chosen.workload, names, chosen.rounds, TURN[chosen.workload], contest)
    for line in lines(chosen.workload, spent, ended):
        print(json.dumps(line), flush=True)


def precisions(text: str) -> list[str]:
    """What is typed for `--precision`."""
    if not set(text.split(",")) <= set(PRECISIONS):
        raise argparse.ArgumentTypeError(f"there is {' and '.join(PRECISIONS)}, and not {text!r}")
    return text.split(",")


def compare(
    workload: str, names: list[str], rounds: int | None, turn: int, play: Play
) -> tuple[dict[str, list[list[float]]], dict[str, dict]]:
    """Seconds a round by contestant and turn, and by contestant what it says in the end.

    rounds: None for the workload's own. turn: the rounds of a turn. play: (workload, name) -> the rounds, as they are
    played, each with an accuracy. Ends the script where a contestant fails.
    """
    context = multiprocessing.get_context("spawn")
    ours, spent = {}, {name: [] for name in names}
    for name in names:
        here, there = context.Pipe()
        context.Process(target=contestant, args=(play, workload, name, there), daemon=True).start()
        there.close()  # so that the end of a contestant that fails is seen
        ours[name] = here
        heard(here)  # it is ready
    import bench

    rounds = rounds or bench.find(workload).rounds
    for _ in range(1 + max(1, rounds // turn)):
        for name, pipe in ours.items():
            pipe.send(turn)
            spent[name].append(heard(pipe))
    for pipe in ours.values():
        pipe.send(0)
    return {name: turns[1:] for name, turns in spent.items()}, {name: heard(pipe) for name, pipe in ours.items()}


def heard(pipe: Connection) -> Any:
    """What a contestant says; the script ends where it has failed."""
    try:
        return pipe.recv()
    except EOFError:
        sys.exit("a contestant has failed: what it said stands above.")


def contestant(play: Play, workload: str, name: str, pipe: Connection) -> None:
    """The process of one: plays as many rounds as it is told, and says how long each took; told 0, it ends."""
    played, shown = play(workload, name), None
    pipe.send("ready")
    while turn := pipe.recv():
        spent = []
        for _ in range(turn):
            began = time.perf_counter()
            shown = next(played)
            spent.append(time.perf_counter() - began)
        pipe.send(spent)
    import resource

    pipe.send({"accuracy": shown, "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024})


def contest(workload: str, name: str) -> Iterator[float | None]:
    """Ours in a precision, or a loop by its name."""
    return ours(workload, name) if name in PRECISIONS else loop(workload, name)


def loop(workload: str, name: str) -> Iterator[float | None]:
    """An obvious loop, with torch as it comes."""
    import plain

    import bench

    return plain.LOOPS[workload][name](bench.find(workload).data(0))


def ours(workload: str, precision: str) -> Iterator[float | None]:
    """The project's trainer."""
    import bench
    from fedrepro.core import lift

    lift.keep_freed_memory()
    training = bench.find(workload).training((0,), precision, bench.runs.resolve("cpu"))
    for _ in training:
        yield bench.accuracy(training)


def lines(workload: str, spent: dict[str, list[list[float]]], ended: dict[str, dict]) -> Iterator[dict]:
    """What is printed."""
    medians = {name: [statistics.median(turn) for turn in turns] for name, turns in spent.items()}
    for name, own in medians.items():
        line = {"workload": workload, "contestant": name, "round_s": [round(each, 5) for each in own]}
        line |= {"median_s": round(statistics.median(own), 5), **ended[name], "threads": os.cpu_count()}
        if name in PRECISIONS:
            faster = {
                other: round(statistics.median(a / b for a, b in zip(theirs, own, strict=True)), 2)
                for other, theirs in medians.items()
                if other not in PRECISIONS
            }
            line |= {"contestant": "fedrepro", "precision": name, "times_as_fast": faster}
            line["goal"] = GOALS[workload][PRECISIONS.index(name)]  # in bf16, of processors with matrix units
        yield line


if __name__ == "__main__":
    main()
