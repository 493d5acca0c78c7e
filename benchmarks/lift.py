"""Time the modes of fedrepro/core/lift.py on the paper's MLP by batch size: which should be the default, from where on.

    python benchmarks/lift.py [--quick]

Prints one JSON line for each (work, rows, clients, seeds): milliseconds a seed and round, the median over repetitions
in which all modes take turns. `rows` are those of one seed's batch, all its clients together, which is what `_TOGETHER`
in lift.py is compared with. Three kinds of round share that number: "step" is one step on one batch (F-IRM), "pass"
many steps on batches of 256 (FedAVG, one local epoch), "fast" one gradient over all data (V-FL, Smooth + Fast).
All of it takes some minutes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable

import torch

from fedrepro import methods
from fedrepro.core import lift, trees
from fedrepro.core.streams import torch_stream
from fedrepro.core.types import Task
from fedrepro.data.draws import Feeder
from workloads import noise

N, SHAPE, CLASSES = 2, (2, 28, 28), 2
SIZES = (128, 512, 2048, 8192, 16_384, 24_576, 59_904)
MODES = ("vmap", "loop")
METHODS = {"step": "f-irm", "pass": "fedavg", "fast": "v-fl-smooth-fast"}
LARGEST = {"step": 8192}  # larger single steps occur in no experiment, and take gigabytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small batches, few repetitions: shows that it works")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=390)
    chosen = parser.parse_args()
    sizes, repeats = (SIZES[:2], 2) if chosen.quick else (SIZES, chosen.repeats)
    lift.keep_freed_memory()
    for work, rows in itertools.product(METHODS, sizes):
        if rows <= LARGEST.get(work, rows):
            for line in compare(work, rows, chosen.seeds, repeats, chosen.hidden):
                print(json.dumps(line), flush=True)


def compare(work: str, rows: int, seeds: int, repeats: int, hidden: int) -> list[dict]:
    """All modes on one kind of work with `rows` rows a seed."""
    play = rounds(work, rows, seeds, hidden)
    modes = list(itertools.product(MODES, MODES))
    times: dict[tuple[str, str], list[float]] = {mode: [] for mode in modes}
    for repeat in range(repeats + 1):
        for clients, together in modes:
            with lift.modes(clients=clients, seeds=together):
                began = time.perf_counter()
                play()
            if repeat:  # the first one warms up
                times[clients, together].append(1e3 * (time.perf_counter() - began) / seeds)
    about = {"work": work, "rows": rows, "n_seeds": seeds, "threads": torch.get_num_threads()}
    return [
        {**about, "clients": clients, "seeds": together, "ms": round(statistics.median(own), 3)}
        for (clients, together), own in times.items()
    ]


def rounds(work: str, rows: int, seeds: int, hidden: int) -> Callable[[], None]:
    """One round of all seeds, always from the same states and batches."""
    data = noise(SHAPE, CLASSES, (rows // N,) * N, seed=0)
    hyper = {"hidden": hidden, "batch": rows // N if work == "step" else min(256, rows // N)}
    hyper |= {"net": "mlp", "optimiser": "adam"} if work == "pass" else {}
    method = methods.build(METHODS[work], Task(SHAPE, CLASSES, data.sizes), hyper)
    phase, numbers = method.phases[0], range(seeds)
    batches = [Feeder(seed, data.x, data.y, data.sizes).draw(phase.draw, 0) for seed in numbers]
    starts = (lambda client, part, seed=seed: torch_stream(seed, 0, client, part) for seed in numbers)
    state = trees.stack([method.init(start, data.sizes) for start in starts])
    # Not played where it is made: over_seeds looks up its mode when it is called.
    return lambda: lift.over_seeds(phase.step)(state, batches)


if __name__ == "__main__":
    main()
