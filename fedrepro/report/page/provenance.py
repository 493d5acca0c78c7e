"""Where the numbers of a run come from, for a reader: what its record says, once for each run."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from fedrepro.papers.paper import Paper
from fedrepro.records.config import RunConfig
from fedrepro.records.curves import number
from fedrepro.records.record import Data, Provenance, Record, Seed
from fedrepro.report.page.links import seen
from fedrepro.results.runs import Run, current


def runs(paper: Paper) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """ "<paper>/<run>" -> what a reader is shown of it, for every planned run, ready for JSON; and the runs' faults.

    `command` trains it, into a place of its own; `folder` has its record and curves, seen from the page; `facts` say
    how it was made; `seeds` has a row for each of them below `heads`; `config` is the whole configuration, `defaults`
    the hyper-parameters that it leaves at theirs.
    """
    found, faults = current(paper, paper.drafts)
    return {f"{paper.name}/{name}": _entry(paper, run) for name, run in found.items()}, faults


def _entry(paper: Paper, run: Run) -> dict[str, Any]:
    config, resolved = run.config, run.record.resolved
    seeds = {seed: run.record.seeds[seed] for seed in config.seeds}
    metrics = list(dict.fromkeys(chain.from_iterable(seed.metrics for seed in seeds.values())))
    return {
        "command": f"fedrepro train --paper {paper.name} --run {run.name} --out build/{run.name}",
        "folder": seen(paper, run.folder),
        "facts": _facts(config, run.record, [seed.provenance for seed in seeds.values()]),
        "heads": ["seed", "ended", "rounds", "seconds", *(metric.replace("_", " ") for metric in metrics)],
        "seeds": [_row(*each, metrics) for each in seeds.items()],
        "config": config.model_dump(mode="json"),
        "defaults": {key: value for key, value in resolved.items() if key not in config.hyper},
    }


def _facts(config: RunConfig, record: Record, made: list[Provenance]) -> list[tuple[str, str]]:
    """How a run was made, seeds that were made alike together; what does not hold for it is left out."""
    identity, data, judge = record.identity, record.data, record.extractor
    trained = (min(each.started for each in made), max(each.finished for each in made))
    facts = {
        "method": config.method,
        "dataset": config.dataset,
        "budget": record.budget,
        "seeds": ", ".join(map(str, config.seeds)),
        "rounds at most": f"{config.rounds:,}",
        "stopping rule": _stop(config),
        "device": _each(map(_device, made)),
        "precision": _each(each.precision for each in made),
        "trained": " to ".join(trained).replace("T", " ").replace("+00:00", " UTC"),
        "versions": _each(_pairs(each.versions) for each in made),
        "command": _each(each.command for each in made),
        "commit": _each(_commit(each.commit) for each in made),
        "source of the data": data.source,
        "licence of the data": data.licence,
        "in place of the paper's data": _substitute(data),
        "sha256 of the data": identity.data,
        "numerics": _pairs(dict(identity.numerics)),
        "sha256 of the settings": identity.config,
        "judged by": f"{judge}, sha256 {identity.extractor}" if judge else "",
    }
    return [fact for fact in facts.items() if fact[1]]


def _stop(config: RunConfig) -> str:
    stop = config.stop
    if stop is None:
        looked = "A table reports the round in which its own threshold is crossed; the list below has the last round"
        return f"none in training. {looked} of each seed." if config.watch.crossings else ""
    rule = f"training accuracy below {100 * stop.threshold:.2f}%, after {stop.warm_start} rounds"
    return f"{rule} and once above {100 * (stop.threshold + stop.margin):.2f}%"


def _device(made: Provenance) -> str:
    memory = "" if made.peak_rss_mb is None else f", {made.peak_rss_mb:,} MB"
    return f"{made.device}, {made.threads} thread{'s' * (made.threads != 1)}{memory}"


def _commit(name: str | None) -> str:
    return "none" if name is None else f"{name[:-1]}, with changes" if name.endswith("+") else name


def _substitute(data: Data) -> str:
    """The substitute for the paper's data; files that do have no public address (tests/test_data_sources.py)."""
    private = "; these files have no public address, docs/data.md says what to do without them"
    return f"{data.substitute or ''}{private if data.substitute and data.files else ''}"


def _row(seed: int, ended: Seed, metrics: list[str]) -> list[str]:
    values = (number(metric, ended.metrics.get(metric)) for metric in metrics)
    return [str(seed), ended.ended, str(ended.rounds), f"{ended.seconds:.0f}", *values]


def _pairs(values: dict[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _each(values: Iterable[str]) -> str:
    """Values that differ, in their order."""
    return "; ".join(dict.fromkeys(values))
