"""How compared runs look, in a terminal or as Markdown: which they are, what differs, and their metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from rich.console import Group
from rich.text import Text

from fedrepro.records.curves import form
from fedrepro.report import layout
from fedrepro.report.layout import Column, Entry, Sheet
from fedrepro.results.cells import spread_out
from fedrepro.results.claims import LEVEL
from fedrepro.results.compare import Compared
from fedrepro.results.runs import Run


def sheets(runs: Sequence[Run], found: Compared) -> list[Sheet]:
    """The tables of a comparison: its runs, the settings in which they differ, their metrics."""
    names = dict(zip((run.name for run in runs), labels(len(runs)), strict=True))
    return [_runs(runs, names), _settings(found, names), _metrics(found, names)]


def terminal(runs: Sequence[Run], found: Compared) -> Group:
    """The tables for a rich console, with a warning where not only the method differs."""
    *others, metrics = map(layout.terminal, sheets(runs, found))
    return Group(*others, *(Text(f"{line}\n", style="yellow") for line in warnings(runs, found)), metrics)


def markdown(runs: Sequence[Run], found: Compared) -> str:
    """The tables as Markdown, with the same warning."""
    *others, metrics = (f"#{layout.markdown(sheet)}" for sheet in sheets(runs, found))
    return "\n".join([*others, *(f"**{line}**\n" for line in warnings(runs, found)), metrics])


def as_json(runs: Sequence[Run], found: Compared) -> dict[str, Any]:
    """The same for a machine; what a run does not have is null."""
    rows = found.metrics.to_dict("records")
    told = [{key: None if value != value else value for key, value in row.items()} for row in rows]
    return {
        "format": 1,
        "runs": [about(run) for run in runs],
        "settings": found.settings,
        "unfair": found.unfair,
        "metrics": told,
    }


def about(run: Run) -> dict[str, Any]:
    """A run in short: its name, folder, method, dataset and how its seeds ended."""
    ended = {str(seed): run.record.seeds[seed].ended for seed in run.config.seeds}
    own = {"run": run.name, "folder": str(run.folder), "method": run.config.method, "dataset": run.config.dataset}
    return own | {"seeds": ended}


def labels(count: int) -> list[str]:
    """Short names of runs: letters, then numbers."""
    return [ascii_uppercase[place] if place < len(ascii_uppercase) else str(place + 1) for place in range(count)]


def warnings(runs: Sequence[Run], found: Compared) -> list[str]:
    """Why a difference may have another cause than the method, a sentence each."""
    told = []
    if found.unfair:
        what = "Not only the method differs" if "method" in found.settings else "More than one setting differs"
        told.append(f"Warning: {what}. A difference may come from: {', '.join(found.unfair)}.")
    if not found.metrics.pairs.any():
        told.append("Warning: the runs have no common seed, so there are no paired differences.")
    elif found.metrics.pairs.max() < 2:
        told.append("Warning: one common seed gives no interval: train more seeds with --seeds 0,1,2.")
    for run in runs:
        lost = [f"seed {seed} {run.record.seeds[seed].ended}" for seed in {*run.diverged, *run.collapsed}]
        told += [f"Warning: {run.name}: {'; '.join(sorted(lost))}."] if lost else []
    return told


def value(metric: str, number: float, sign: str = "") -> str:
    """A metric in the unit of a reader; empty where there is none."""
    return "" if math.isnan(number) else f"{number:{sign}{form(metric)}}"


def _runs(runs: Sequence[Run], names: dict[str, str]) -> Sheet:
    columns = [Column(head, "key") for head in ("run", "name", "method", "dataset", "seeds")]
    drawn = Sheet("Runs", [], columns)
    for run in runs:
        seeds = ", ".join(map(str, run.config.seeds))
        row = (names[run.name], run.name, run.config.method, run.config.dataset, seeds)
        drawn.rows.append([Entry(each) for each in row])
    return drawn


def _settings(found: Compared, names: dict[str, str]) -> Sheet:
    columns = [Column("setting", "key"), *(Column(label, "key") for label in names.values())]
    drawn = Sheet("Settings that differ", [], columns)
    for setting, row in found.settings.items():
        told = (_setting(row[name]) if name in row else "–" for name in names)
        drawn.rows.append([Entry(setting), *map(Entry, told)])
    return drawn


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _metrics(found: Compared, names: dict[str, str]) -> Sheet:
    first = next(iter(names.values()))
    heads = ("metric", "run", "mean ± spread", f"less {first}", f"{LEVEL:.0%} interval")
    drawn, before = Sheet("Final metrics", [], [Column(head, "key") for head in heads]), ""
    for row in found.metrics.itertuples():
        mean, spread, difference, lo, hi = (
            value(row.metric, number, sign)
            for number, sign in ((row.mean, ""), (row.spread, ""), (row.difference, "+"), (row.lo, "+"), (row.hi, "+"))
        )
        interval = f"{lo} to {hi}{' *' * (row.lo > 0 or row.hi < 0)}" if lo else ""
        name = row.metric.replace("_", " ") if row.metric != before else ""
        drawn.rows.append(
            [Entry(each) for each in (name, names[row.run], spread_out(mean or "–", spread), difference, interval)]
        )
        before = row.metric
    pairs = found.metrics.groupby("run").pairs.max()
    common = ", ".join(f"{label} {pairs[name]}" for name, label in list(names.items())[1:])
    drawn.legend.append(
        "Accuracies in percent. Spread: standard deviation over the seeds (population). "
        f"less {first}: mean difference over the common seeds ({common}), with its {LEVEL:.0%} t interval; "
        "*: it excludes 0."
    )
    return drawn
