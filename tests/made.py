"""A made paper for the tests of spec, plan, evaluate, tables and check: one small table, its records, no training."""

from __future__ import annotations

import json
from pathlib import Path

from fedrepro.files import sealed, sha256
from fedrepro.papers.load import load_paper
from fedrepro.papers.paper import Paper
from fedrepro.papers.published import KEYS, read
from fedrepro.records import paths
from fedrepro.records.record import UNWATCHED as NEVER_WATCHED

NAME = "toy-2022"
SPEC = """
title = "A toy"

[defaults]
rounds = 100
seeds = [0, 1, 2]
hyper = { lr = 0.1, batch = 8 }

[axes.dataset.Toys]
dataset = "toys"
data = { n = 2 }

[axes.method.Plain]
method = "plain"

[axes.method."Game (Smooth)"]
run = "game"
method = "game"
hyper = { capacity = 5 }
stop = { threshold = 0.575, warm_start = 10 }

[axes.type.none]
run = ""

[axes.type.sequential]
hyper = { order = "sequential" }

[axes.type.parallel]
hyper = { order = "parallel" }

[budgets.paper]
label = "paper"

[[budgets.paper.rules]]
when = { type = "sequential" }
settings = { rounds = 200 }

[budgets.smoke]
label = "smoke"
compare = false

[[budgets.smoke.rules]]
settings = { rounds = 5, seeds = [0], hyper = { batch = 2 } }

[[budgets.smoke.rules]]
when = { type = ["sequential", "parallel"] }
settings = { stop = { threshold = 0.6 } }

[tables.t1]
title = "Table 1: toys"
metrics = ["train_accuracy", "test_accuracy"]
reduction = "final"
tolerance = { spreads = 2, points = 3, reason = "the toy says little" }

[[tables.t1.cells]]
dataset = ["Toys"]
type = ["none"]
method = ["Plain"]

[[tables.t1.cells]]
dataset = ["Toys"]
type = ["sequential", "parallel"]
method = ["Game (Smooth)"]
"""
PUBLISHED = """\
paper,table,dataset,variant,method,metric,mean,std,unit,note
toy-2022,t1,Toys,type=none,Plain,train_accuracy,84.88,0.16,percent,
toy-2022,t1,Toys,type=none,Plain,test_accuracy,10.4,,percent,printed with one decimal
toy-2022,t1,Toys,type=sequential,Game (Smooth),train_accuracy,55.76,2.03,percent,
toy-2022,t1,Toys,type=sequential,Game (Smooth),test_accuracy,66.56,1.58,percent,
toy-2022,t1,Toys,type=parallel,Game (Smooth),train_accuracy,58.03,6.22,percent,
toy-2022,t1,Toys,type=parallel,Game (Smooth),test_accuracy,67.14,2.95,percent,
"""
UNWATCHED = "seed,round,metric,value\n"  # the curves of a run that nobody watched
RUNS = ("toys-plain", "toys-game-sequential", "toys-game-parallel")
ACCURACIES = {  # run -> per seed (train, test), all within tolerance
    "toys-plain": [(0.84, 0.10), (0.85, 0.11), (0.86, 0.12)],
    "toys-game-sequential": [(0.55, 0.66), (0.56, 0.67), (0.57, 0.68)],
    "toys-game-parallel": [(0.58, 0.67), (0.60, 0.69), (0.62, 0.71)],
}


def bare(spec: str) -> Path:
    """Write a paper "toy" of that spec, without anything published, into the working folder; returns its folder."""
    folder = Path("papers/toy")
    folder.mkdir(parents=True)
    (folder / "paper.toml").write_text(spec)
    Path("params.yaml").write_text("toy:\n  budget: paper\n")
    return folder


def paper(root: Path, spec: str = SPEC, published: str = PUBLISHED, budget: str = "paper") -> Path:
    """Write the toy paper under `root`, and read it for its faults; returns the root."""
    folder = root / "papers" / NAME
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "paper.toml").write_text(spec)
    (folder / "published.csv").write_text(published)
    (root / "params.yaml").write_text(f"{NAME}:\n  budget: {budget}\n")
    load_paper(NAME, root)
    return root


def printed(loaded: Paper) -> dict[tuple[str, ...], tuple]:
    """The rows of published.csv by the keys of their cells, with the fields `mean`, `spread`, `unit` and `note`."""
    return {row[: len(KEYS)]: row for row in read(loaded).itertuples(index=False)}


def records(root: Path, **changed: list[tuple[float, float]]) -> Paper:
    """Write the records of all runs; `changed`: run (with _ for -) -> accuracies in place of ACCURACIES."""
    loaded = load_paper(NAME, root)
    accuracies = ACCURACIES | {run.replace("_", "-"): values for run, values in changed.items()}
    for run in loaded.runs():
        write(root, run, record(loaded, run, accuracies[run]))
    return loaded


def record(loaded: Paper, run: str, accuracies: list[tuple[float, float]]) -> dict:
    """A record of a run as the trainer writes it; `accuracies`: (train, test) for each of its seeds, fractions."""
    config = loaded.run(run)
    provenance = {
        "command": "fedrepro train", "versions": {"python": "3.11"}, "device": "cpu", "threads": 1, "precision": "fp32",
        "started": "2024-01-01T00:00:00Z", "finished": "2024-01-01T00:00:01Z", "commit": None,
    }  # fmt: skip
    seeds = {
        str(seed): {
            "status": "stopped" if config.stop else "finished",
            "rounds": 40 + 10 * seed if config.stop else config.rounds,
            "metrics": {"train_accuracy": train, "test_accuracy": test, "train_loss": 0.5, "test_loss": 0.7},
            "rejected": 0,
            "seconds": 1.5,
            "provenance": provenance,
        }
        for seed, (train, test) in zip(config.seeds, accuracies, strict=False)
    }
    return {
        "format": 4,
        "paper": NAME,
        "run": run,
        "budget": loaded.budget,
        "config": config.model_dump(mode="json"),
        "resolved": config.hyper,
        "identity": {
            "config": config.digest(),
            "data": "f00d",
            "numerics": {"engine": 1, "method": 1, "data": 1},
            "extractor": "",
        },
        "data": {"dataset": "toys", "source": "toys", "substitute": None, "licence": "", "files": {}, "facts": {}},
        "extractor": "",
        "seeds": seeds,
    }


def write(root: Path, run: str, content: dict, curves: str = UNWATCHED) -> Path:
    """Put a record and its curves where its run's belong."""
    return put(paths.run(NAME, content["config"]["method"], run, root), content, curves)


def put(folder: Path, content: dict, curves: str = UNWATCHED, samples: tuple[str, bytes] | None = None) -> Path:
    """Write a record, its curves and its samples (name, content), made to agree; returns the record's path."""
    folder.mkdir(parents=True, exist_ok=True)
    curves = ended(curves, content["seeds"])
    (folder / "curves.csv").write_text(curves)
    sums = {"curves": sha256(curves), "samples": ""}
    if samples:
        (folder / samples[0]).write_bytes(samples[1])
        sums["samples"] = sha256(samples[1])
    own = {"config": content["config"] | {"seeds": [int(seed) for seed in content["seeds"]]}}
    own["data"] = content["data"] | {"facts": {seed: {} for seed in content["seeds"]}}
    path = folder / "record.json"
    path.write_text(json.dumps(sealed(content | own | sums)))
    return path


def ended(curves: str, seeds: dict[str, dict]) -> str:
    """Curves that end in the metrics of the seeds, which become what the curves have already."""
    points = dict(line.rsplit(",", 1) for line in curves.splitlines())
    for seed, each in seeds.items():
        for name in [name for name in each["metrics"] if not name.startswith(NEVER_WATCHED)]:
            last = points.setdefault(f"{seed},{each['rounds']},{name}", f"{each['metrics'][name]:.6g}")
            each["metrics"][name] = float(last)
    return "\n".join([*(f"{key},{value}" for key, value in points.items()), ""])


def watch(loaded: Paper, run: str, curves: dict[int, dict[str, dict[int, float]]], **entries: dict) -> None:
    """Write the curves of a run, seed -> metric -> round -> value, and its record; `entries`: seed_0=what differs."""
    points = ((s, t, m, v) for s, each in curves.items() for m, curve in each.items() for t, v in curve.items())
    text = UNWATCHED + "".join(f"{seed},{round},{metric},{value:.6g}\n" for seed, round, metric, value in points)
    content = record(loaded, run, ACCURACIES[run])
    for seed, entry in entries.items():
        content["seeds"][seed.removeprefix("seed_")] |= entry
    write(loaded.root, run, content, text)


REMARKS = """
[[tables.t1.deviations]]
when = { method = "Plain", metric = "train_accuracy" }
reason = "the toy's budget is unknown"

[[tables.t1.not_run]]
when = { type = "parallel", metric = "test_accuracy" }
reason = "there was no time"
"""


def motley(root: Path) -> Paper:
    """A table with every status and every footnote, as records."""
    paper(root, spec=SPEC + REMARKS)
    toy = records(root, toys_plain=[(0.70, 0.10), (0.71, 0.11), (0.72, 0.15)])
    content = record(toy, "toys-game-parallel", ACCURACIES["toys-game-parallel"])
    content["seeds"]["0"] |= {"status": "diverged", "metrics": {}, "rounds": 12}
    content["seeds"]["1"] |= {"status": "cap", "rounds": 100}
    write(root, "toys-game-parallel", content)
    content = record(toy, "toys-game-sequential", [(0.50, 0.66), (0.51, 0.67), (0.52, 0.68)])
    content["data"]["substitute"] = "other toys"
    write(root, "toys-game-sequential", content)
    return toy
