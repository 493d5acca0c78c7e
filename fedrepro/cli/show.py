"""Lists of methods, datasets, papers, tables and runs, and how a run ended, as rich tables."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedrepro.errors import FedreproError
from fedrepro.papers import load
from fedrepro.papers.load import Paper, load_papers
from fedrepro.records import paths, record
from fedrepro.records.curves import number
from fedrepro.records.record import Record

if TYPE_CHECKING:
    from fedrepro.results.again import Pair

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
    from fedrepro.plugins import printable

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


def datasets() -> Group:
    """All datasets and where their data are, a line each, with the plugins that are left out and why."""
    from fedrepro.data import discover
    from fedrepro.data.manifests import list_datasets

    found, faults = discover()
    rows = ((row["name"], row["source"], row["where"], row["summary"]) for row in list_datasets(found))
    left_out = (Text(f"{name}: {fault}", style="yellow") for name, fault in faults.items())
    return Group(listed(("dataset", "source", "where", "what it is"), rows), *left_out)


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


def runs() -> Table:
    """The planned runs of all papers, if there are any, then the ad hoc ones, with what their records say."""
    rows = []
    for paper in map(load.load_paper, load.papers()):
        for run, draft in paper.drafts().items():
            folder = paths.run(paper.name, draft.config.method, run, paper.root)
            rows.append((paper.name, run, ",".join(map(str, draft.config.seeds)), _recorded(folder)))
    adhoc = sorted(place.parent for place in paths.ADHOC.glob("*/record.json"))
    rows += [("–", folder.name, "", _recorded(folder)) for folder in adhoc]
    return listed(("paper", "run", "seeds", "record"), rows)


def _recorded(folder: Path) -> Text:
    """The record of a folder in a few words: how its seeds ended."""
    if not record.path(folder).exists():
        return Text("none", style="dim")
    try:
        found = record.read(folder)
    except FedreproError:
        return Text("damaged", style="bold red")
    ended = [seed.ended for seed in found.seeds.values()]
    counts = ", ".join(f"{ended.count(status)} {status}" for status in dict.fromkeys(ended))
    return Text(f"{counts} ({found.budget})")
