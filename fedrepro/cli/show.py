"""Lists of methods, datasets, papers, tables and runs, and how a run ended, as rich tables."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable
from itertools import chain, groupby
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedrepro.papers import load
from fedrepro.papers.load import Paper, load_papers
from fedrepro.records.curves import number
from fedrepro.records.record import Record
from fedrepro.results.listing import MAIN

if TYPE_CHECKING:
    from rich.console import Console

    from fedrepro.results.again import Pair
    from fedrepro.results.listing import Listed
    from fedrepro.results.runs import Run

WIDE = 8  # metrics that stand side by side
ENDINGS = {"diverged": "bold red", "cap": "yellow", "stopped": "green", "finished": "green"}


def listed(heads: Iterable[str], rows: Iterable[Iterable[str | Text]], title: str = "", first: int = 0) -> Table:
    """Rows as a table, with a rule below the `first` ones."""
    drawn = Table(title=title or None, title_justify="left")
    for head in heads:
        drawn.add_column(head, overflow="fold")
    for place, row in enumerate(rows, 1):
        drawn.add_row(*row, end_section=place == first)
    return drawn


def outcome(record: Record) -> Table:
    """How each seed of a record ended, then mean, standard deviation (population) and number for every metric.

    A row for each seed; where there are many metrics, a row for each of them.
    """
    seeds = record.seeds.values()
    metrics = list(dict.fromkeys(chain.from_iterable(seed.metrics for seed in seeds)))
    heads = [metric.replace("_", " ") + (" %" if metric.endswith("accuracy") else "") for metric in metrics]
    rows = [("seed", "status", "rounds", *heads)]
    for name, seed in record.seeds.items():
        values = (number(metric, seed.metrics.get(metric)) for metric in metrics)
        ended = Text(seed.ended, style="bold red" if seed.collapsed else ENDINGS[seed.status])
        rows.append((str(name), ended, str(seed.rounds), *values))
    columns = {metric: [seed.metrics[metric] for seed in seeds if metric in seed.metrics] for metric in metrics}
    for name, reduce in (("mean", fmean), ("spread", pstdev)) if metrics else ():
        rows.append((name, "", "", *(number(metric, reduce(values)) for metric, values in columns.items())))
    rows.append(("n", "", "", *(str(len(values)) for values in columns.values())))
    heads, *rows = zip(*rows, strict=True) if len(metrics) > WIDE else rows
    first = 2 if len(metrics) > WIDE else len(seeds)
    return listed(heads, rows, f"{record.config.method} on {record.config.dataset}", first)


def tested(title: str, found: dict[int, dict[str, float]]) -> Table:
    """The metrics of saved models, a row for each; columns are seeds, then mean and spread where there are several."""
    metrics = list(dict.fromkeys(chain.from_iterable(found.values())))
    several, rows = len(found) > 1, []
    for metric in metrics:
        values = [own[metric] for own in found.values()]
        reduced = [fmean(values), pstdev(values)] if several else []
        name = metric.replace("_", " ") + (" %" if metric.endswith("accuracy") else "")
        rows.append((name, *(number(metric, each) for each in [*values, *reduced])))
    heads = ("metric", *(f"seed {seed}" for seed in found), *(("mean", "spread") if several else ()))
    return listed(heads, rows, title)


def again(planned: Run, record: Record, console: Console) -> list[Pair]:
    """Print how far a run that was trained again is from its record, and return it."""
    from fedrepro.results.again import pairs

    console.print(compared(found := pairs(planned, record)))
    return found


def compared(pairs: list[Pair]) -> Table:
    """A run that was trained again beside its record: of each metric the largest difference of a seed."""
    rows = []
    for metric in dict.fromkeys(pair.metric for pair in pairs):
        own = [pair for pair in pairs if pair.metric == metric]
        most = max(own, key=lambda pair: abs(pair.again - pair.recorded))
        equal, far = most.again == most.recorded, not all(pair.within for pair in own)
        distance = number(metric, abs(most.again - most.recorded))
        verdict = Text("equal" if equal else "further" if far else "within", style="bold red" if far else "green")
        values = (number(metric, value) for value in (most.recorded, most.again))
        rows.append((metric, str(most.seed), *values, distance, number(metric, most.allowed), verdict))
    return listed(("metric", "seed", "recorded", "again", "apart", "expected", ""), rows)


def methods() -> Group:
    """All methods in a line each, with the plugins that are left out and why."""
    from fedrepro.methods import discover

    rows, faults = discover()
    named = ((name, row.family, row.dataset, row.summary) for name, row in rows.items())
    left_out = (Text(f"{name}: {fault}", style="yellow") for name, fault in faults.items())
    return Group(listed(("method", "family", "dataset", "what it is"), named), *left_out)


def method(name: str) -> Group:
    """One method in full: its documentation, what an ad hoc run of it does by default, and its settings."""
    from fedrepro.methods import check, find
    from fedrepro.methods.plugins import printable

    check(name, {})
    row = find(name)
    stop = f", until the training accuracy is below {row.stop.threshold:g}" if row.stop else ""
    types = get_type_hints(row.build)
    settings = ((key, str(value), _values(types.get(key, Any))) for key, value in row.hyper.items())
    usual = f"{name}, of the family {row.family}: by default {row.rounds} rounds on {row.dataset}{stop}."
    doc = "\n".join(map(printable, (inspect.getdoc(row.build) or "").splitlines()))
    said = Text(f"{doc}\n\n{usual}\n")
    return Group(said, listed(("setting", "default", "values"), settings))


def _values(allowed: Any) -> str:
    """The values that a type allows: its name, or what there is to choose from."""
    choices = [part if isinstance(part, str) else _values(part) for part in get_args(allowed)]
    return ", ".join(choices) or getattr(allowed, "__name__", str(allowed))


def datasets() -> Table:
    """All datasets and where their data are, a line each."""
    from fedrepro.data.manifests import list_datasets

    rows = ((row["name"], row["source"], row["where"], row["summary"]) for row in list_datasets())
    return listed(("dataset", "source", "where", "what it is"), rows)


def dataset(name: str) -> Group:
    """One dataset: how it is made, of which data, and its settings with their defaults."""
    from fedrepro.data import manifests, parameters

    settings = ((key, str(value)) for key, value in parameters(name).items())
    described = manifests.described(name)
    doc = described.pop("doc")
    told = "\n".join(f"{what}: {value}" for what, value in described.items())
    return Group(Text(f"{told}\n\n{doc}\n"), listed(("setting", "default"), settings))


def manifest(content: dict) -> Text:
    """One line on verified data; what is drawn when it is loaded has none."""
    if not content["files"]:
        return Text(f"{content['source']}: no files, nothing to verify")
    counts = (f"{content[split]['images']:,} {split}" for split in ("train", "test"))
    return Text(f"{content['source']}: {', '.join(counts)} images, checksums {content.get('checksums', 'right')}")


def papers() -> Table:
    """All papers with a spec, and the budget in use."""
    rows = (
        (each.name, each.budget, ", ".join(each.spec.budgets), str(len(each.spec.tables)), str(len(each.drafts())))
        + (each.spec.title,)
        for each in load_papers()
    )
    return listed(("paper", "budget", "budgets", "tables", "runs", "title"), rows)


def tables() -> Table:
    """All tables of all papers."""
    rows = (
        (paper.name, name, str(len(paper.cells(name))), str(len(paper.table_runs(name))), table.title)
        for paper in load_papers()
        for name, table in paper.spec.tables.items()
    )
    return listed(("paper", "table", "cells", "runs", "title"), rows)


def table(paper: str, table: str) -> Group:
    """One table of a paper; UsageError for an unknown one, FedreproError where its frames are missing or stale."""
    from fedrepro.report import layout
    from fedrepro.results.check import by_table
    from fedrepro.results.evaluate import read

    loaded = load.load_paper(paper)
    loaded.table(table)
    return layout.terminal(layout.sheet(loaded, table, by_table(loaded, read(loaded).cells)[table]))


def claims(papers: list[Paper]) -> Group:
    """The claims of papers; FedreproError where their frames are missing or stale."""
    from fedrepro.report import claims, layout
    from fedrepro.results.evaluate import read

    sheets = [claims.sheet(paper, read(paper).claims) for paper in papers if paper.spec.claims]
    return Group(*map(layout.terminal, sheets)) if sheets else Group(Text("there are no claims"))


def runs(found: list[Listed]) -> Group:
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


def runs_json(found: list[Listed]) -> list[dict[str, Any]]:
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
