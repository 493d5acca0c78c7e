"""How a list of runs looks, and the metrics of saved models, as rich tables."""

from __future__ import annotations

import json
import math
from itertools import chain, groupby
from statistics import fmean, pstdev
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedrepro.cli.show import head, listed
from fedrepro.records.curves import number
from fedrepro.results.listing import MAIN, Listed


def table(found: list[Listed]) -> Group:
    """Runs and how they ended, those of each paper under its name, and ad hoc ones last, with their settings."""
    drawn = []
    for paper, group in groupby(found, key=lambda each: each.paper):
        own = list(group)
        budgets = sorted({each.record.budget for each in own if each.record})
        title = f"{paper} ({', '.join(budgets)})" if paper and budgets else paper or "ad hoc"
        last = "test accuracy %" if any(each.metric in ("", MAIN) for each in own) else "final metric"
        heads = ("run", *(() if paper else ("settings",)), "record", last)
        rows = ((each.run, *(() if paper else (_settings(each),)), _ended(each), _final(each)) for each in own)
        drawn.append(listed(heads, rows, title))
        drawn[-1].columns[0].no_wrap = True
    return Group(*drawn) if drawn else Group(Text("there is no such run"))


def _settings(each: Listed) -> str:
    return " ".join(f"{key}={json.dumps(value)}" for key, value in each.settings.items()).replace('"', "")


def _final(each: Listed) -> str:
    """The metric by which the run is shown, with its spread, and its name where it is not the test accuracy."""
    mean, spread = each.final
    if math.isnan(mean):
        return ""
    own = number(each.metric, mean) + ("" if math.isnan(spread) else f" ± {number(each.metric, spread)}")
    return own if each.metric == MAIN else f"{each.metric.replace('_', ' ')} {own}"


def _ended(each: Listed) -> Text:
    """The record in a few words: how its seeds ended."""
    if each.record is None:
        return Text("damaged", style="bold red") if each.fault else Text("none", style="dim")
    seeds = each.record.seeds.values()
    ended, collapsed = [seed.status for seed in seeds], sum(seed.collapsed for seed in seeds)
    counts = [f"{ended.count(status)} {status}" for status in dict.fromkeys(ended)]
    return Text(", ".join([*counts, *([f"{collapsed} collapsed"] if collapsed else [])]))


def as_json(found: list[Listed]) -> list[dict[str, Any]]:
    """The same for a machine: settings, and for each seed how it ended and its final metrics."""
    told = []
    for each in found:
        config, seeds = each.config, each.record.seeds if each.record else {}
        about = {"method": config.method, "dataset": config.dataset} if config else {}
        ended = {str(seed): {"ended": own.ended, "metrics": own.metrics} for seed, own in seeds.items()}
        told.append(
            {"paper": each.paper or None, "run": each.run, "folder": str(each.folder), **about}
            | {"settings": each.settings, "status": sorted(each.statuses), "seeds": ended, "fault": each.fault or None}
        )
    return told


def tested(title: str, found: dict[int, dict[str, float]]) -> Table:
    """The metrics of saved models, a row for each; columns are seeds, then mean and spread where there are several."""
    metrics = list(dict.fromkeys(chain.from_iterable(found.values())))
    several, rows = len(found) > 1, []
    for metric in metrics:
        values = [own[metric] for own in found.values()]
        reduced = [fmean(values), pstdev(values)] if several else []
        rows.append((head(metric), *(number(metric, each) for each in [*values, *reduced])))
    heads = ("metric", *(f"seed {seed}" for seed in found), *(("mean", "spread") if several else ()))
    return listed(heads, rows, title)
