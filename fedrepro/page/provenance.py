"""Where the numbers of a run come from, for a reader: what its record says, once for each run."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

from fedrepro import evaluate
from fedrepro.config import RunConfig
from fedrepro.evaluate import Watched
from fedrepro.page.links import run_name, seen
from fedrepro.show import number
from fedrepro.spec import Paper

Fact = tuple[str, str]  # what it is, and what it is here


def runs(paper: Paper) -> dict[str, dict[str, Any]]:
    """ "<paper>/<run>" -> what a reader is shown of it, for every planned run, ready for JSON.

    `command` trains it, into a place of its own; `record` and `curves` are its files, seen from the page; `facts` say
    how it was made; `seeds` has a row for each of them below `heads`; `config` is the whole configuration.
    Raises FedreproError where a record is missing, incomplete or of other settings than the spec's.
    """
    found, faults = evaluate.watched(paper, paper.drafts(), curves=False)
    evaluate.enforce(faults, paper.name)
    return {run_name(paper.name, run): _entry(paper, run, each) for run, each in found.items()}


def _entry(paper: Paper, run: str, watched: Watched) -> dict[str, Any]:
    record, whole = seen(paper, watched.place), json.loads(watched.place.read_bytes())
    seeds = [whole["seeds"][str(seed)] for seed in watched.config.seeds]
    metrics = list(dict.fromkeys(chain.from_iterable(seed["metrics"] for seed in seeds)))
    return {
        "command": f"fedrepro train --paper {paper.name} --run {run} --out build/{run}",
        "record": record,
        "curves": record.replace("record.json", "curves.csv"),
        "facts": _facts(watched.config, whole, [seed["provenance"] for seed in seeds]),
        "heads": ["seed", "ended", "rounds", "seconds", *(metric.replace("_", " ") for metric in metrics)],
        "seeds": [_row(seed, each, metrics) for seed, each in zip(watched.config.seeds, seeds, strict=True)],
        "config": watched.config.model_dump(mode="json"),
    }


def _facts(config: RunConfig, whole: dict[str, Any], made: list[dict[str, Any]]) -> list[Fact]:
    """How a run was made, seeds that were made alike together; what does not hold for it is left out."""
    data = whole["data"]
    facts = [
        ("method", config.method),
        ("dataset", config.dataset),
        ("budget", whole["budget"]),
        ("seeds", ", ".join(map(str, config.seeds))),
        ("rounds at most", f"{config.rounds:,}"),
        ("stopping rule", _stop(config)),
        ("device", _each(_device(each) for each in made)),
        ("precision", _each(each["precision"] for each in made)),
        (
            "trained",
            f"{min(_time(each['started']) for each in made)} to {max(_time(each['finished']) for each in made)}",
        ),
        ("versions", _each(", ".join(f"{k} {v}" for k, v in each["versions"].items()) for each in made)),
        ("command", _each(str(each["command"]) for each in made)),
        ("commit", _each(_commit(each["commit"]) for each in made)),
        ("source of the data", data["source"]),
        ("licence of the data", data.get("licence") or ""),
        ("in place of the paper's data", _substitute(data)),
        ("sha256 of the data", data["fingerprint"]),
        ("sha256 of the code", whole["code"]),
        ("sha256 of the settings", whole["digest"]),
        ("judged by", _judge(whole.get("extractor"))),
    ]
    return [fact for fact in facts if fact[1]]


def _stop(config: RunConfig) -> str:
    stop = config.stop
    if stop is None:
        return ""
    moved = f"; shown with it moved by {' and '.join(f'{100 * shift:+g}' for shift in stop.shifts)} points"
    rule = f"training accuracy below {100 * stop.threshold:.2f}%, after {stop.warm_start} rounds"
    return f"{rule} and once above {100 * (stop.threshold + stop.margin):.2f}%{moved if stop.shifts else ''}"


def _time(text: str) -> str:
    return text.replace("T", " ").replace("+00:00", " UTC")


def _device(made: dict[str, Any]) -> str:
    threads = f"{made['threads']} thread{'s' * (made['threads'] != 1)}"
    memory = f", {made['peak_rss_mb']:,} MB" if "peak_rss_mb" in made else ""
    return f"{made['device']}, {threads}{memory}"


def _commit(name: str | None) -> str:
    return "none" if name is None else f"{name[:-1]}, with changes" if name.endswith("+") else name


def _substitute(data: dict[str, Any]) -> str:
    """What stands in for the paper's data; files that do have no public address (tests/test_data_sources.py)."""
    private = "; these files have no public address, README.md says under Data what to do without them"
    return f"{data['substitute'] or ''}{private if data['substitute'] and data['files'] else ''}"


def _judge(extractor: dict[str, str] | None) -> str:
    return f"{extractor['name']}, sha256 {extractor['sha256']}" if extractor else ""


def _row(seed: int, entry: dict[str, Any], metrics: list[str]) -> list[str]:
    values = (number(metric, entry["metrics"].get(metric)) for metric in metrics)
    return [str(seed), entry["status"], str(entry["rounds"]), f"{entry['seconds']:.0f}", *values]


def _each(values: Any) -> str:
    """Values that differ, in their order."""
    return "; ".join(dict.fromkeys(values))
