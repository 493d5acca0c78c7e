"""Lists of methods, datasets, papers, tables and runs, and how a run ended, as rich tables."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from itertools import chain
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedrepro.papers.load import load_papers
from fedrepro.papers.paper import Paper
from fedrepro.records.curves import number, percent
from fedrepro.records.record import Record

if TYPE_CHECKING:
    from fedrepro.results.again import Pair

METHOD = "`fedrepro show method NAME` prints one in full, with its settings"
DATASET = "`fedrepro show dataset NAME` prints one in full, with its settings"
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


def index(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Group:
    """Rows in a line each, which is cut where the terminal ends."""
    rows = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return Group(
        *(Text(line, "" if at else "bold", no_wrap=True, overflow="ellipsis") for at, line in enumerate(lines))
    )


def head(metric: str) -> str:
    """A metric's name above or before its values, which for accuracies are in percent."""
    return metric.replace("_", " ") + (" %" if percent(metric) else "")


def outcome(record: Record) -> Table:
    """How each seed of a record ended; of several also mean, standard deviation (population) and number.

    A row for each seed; where there are many metrics, a row for each of them.
    """
    seeds = record.seeds.values()
    metrics = list(dict.fromkeys(chain.from_iterable(seed.metrics for seed in seeds)))
    heads = list(map(head, metrics))
    rows = [("seed", "status", "rounds", *heads)]
    for name, seed in record.seeds.items():
        values = (number(metric, seed.metrics.get(metric)) for metric in metrics)
        ended = Text(seed.ended, style="bold red" if seed.collapsed else ENDINGS[seed.status])
        rows.append((str(name), ended, str(seed.rounds), *values))
    columns = {metric: [seed.metrics[metric] for seed in seeds if metric in seed.metrics] for metric in metrics}
    for name, reduce in (("mean", fmean), ("spread", pstdev)) if metrics and len(seeds) > 1 else ():
        rows.append((name, "", "", *(number(metric, reduce(values)) for metric, values in columns.items())))
    if len(seeds) > 1:
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
    named = ((name, row.family, row.summary) for name, row in rows.items())
    left_out = (Text(f"{name}: {fault}", style="yellow") for name, fault in faults.items())
    return Group(index(("method", "family", "what it is"), named), *left_out, Text(METHOD, style="dim"))


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

    there, faults = discover()
    found = [(row, *row["where"].partition(": ")[::2]) for row in list_datasets(there)]
    rows = ((row["name"], row["source"], state, row["summary"]) for row, state, _ in found)
    folders = dict.fromkeys(folder for _, _, folder in found if folder)
    below = [Text(f"{name}: {fault}", style="yellow") for name, fault in faults.items()]
    below += [Text(f"data folder: {folder}", style="dim") for folder in folders]
    return Group(index(("dataset", "source", "data", "what it is"), rows), *below, Text(DATASET, style="dim"))


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


def papers() -> Group:
    """All papers with a spec, and the budget in use."""
    rows = (
        (each.name, each.budget, ", ".join(each.spec.budgets), str(len(each.spec.tables)), str(len(each.drafts)))
        + (each.spec.title,)
        for each in load_papers()
    )
    return index(("paper", "budget", "budgets", "tables", "runs", "title"), rows)


def tables() -> Group:
    """All tables of all papers."""
    rows = (
        (paper.name, name, str(len(paper.cells(name))), str(len(paper.table_runs(name))), table.title)
        for paper in load_papers()
        for name, table in paper.spec.tables.items()
    )
    return index(("paper", "table", "cells", "runs", "title"), rows)


def table(paper: Paper, table: str, width: int, wide: bool) -> Group | Text:
    """One table of a paper, short or `wide`.

    Raises UsageError for an unknown one, FedreproError where its frames are missing or stale.
    """
    from fedrepro.report import brief, layout
    from fedrepro.results.check import by_table
    from fedrepro.results.evaluate import reproduction

    paper.table(table)
    sheet = layout.sheet(paper, table, by_table(paper, reproduction(paper).cells)[table])
    return layout.terminal(sheet) if wide else brief.table(sheet, width)


def claims(papers: list[Paper], wide: bool) -> Group:
    """The claims of papers, short or `wide`; FedreproError where their frames are missing or stale."""
    from fedrepro.report import brief, claims, layout
    from fedrepro.results.evaluate import reproduction

    found = [(paper, reproduction(paper).claims) for paper in papers if paper.claims]
    drawn = (layout.terminal(claims.sheet(*each)) if wide else brief.claims(*each) for each in found)
    return Group(*drawn) if found else Group(Text("there are no claims"))
