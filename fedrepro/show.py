"""What there is, and how a run ended, as rich tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from statistics import fmean, pstdev

from rich.console import Group
from rich.table import Table
from rich.text import Text

from fedrepro import spec
from fedrepro.evaluate import ADHOC, record_path
from fedrepro.spec import load_papers

METRIC = {"accuracy": (100.0, ".2f"), "loss": (1.0, ".4f")}  # last word of a metric -> scale, format


def outcome(record: dict) -> Table:
    """How each seed of a record ended, then mean, standard deviation (population) and number for every metric.

    A row for each seed; where there are many metrics, a row for each of them.
    """
    entries = record["seeds"].values()
    metrics = list(dict.fromkeys(chain.from_iterable(entry["metrics"] for entry in entries)))
    names = [metric.replace("_", " ") + (" %" if metric.endswith("accuracy") else "") for metric in metrics]
    heads = [("seed", "status", "rounds", *names)]
    rows: list[tuple[str | Text, ...]] = []
    for seed, entry in record["seeds"].items():
        values = (number(metric, entry["metrics"].get(metric)) for metric in metrics)
        rows.append((seed, Text(entry["status"], style=ENDINGS[entry["status"]]), str(entry["rounds"]), *values))
    columns = {
        metric: [entry["metrics"][metric] for entry in entries if metric in entry["metrics"]] for metric in metrics
    }
    last = [
        (name, "", "", *(number(metric, reduce(values)) for metric, values in columns.items()))
        for name, reduce in ((("mean", fmean), ("spread", pstdev)) if metrics else ())
    ]
    last.append(("n", "", "", *(str(len(values)) for values in columns.values())))
    config = record["config"]
    title = f"{config['method']} on {config['dataset']}"
    if len(metrics) <= WIDE:
        drawn = _table(heads[0], title=title)
        sections = [rows, last]
    else:
        head, *turned = zip(*heads, *rows, *last, strict=True)
        drawn = _table(head, title=title)
        sections = [turned[:2], turned[2:]]
    for section in sections:
        for row in section:
            drawn.add_row(*row)
        drawn.add_section()
    return drawn


WIDE = 8  # metrics that stand side by side
ENDINGS = {"diverged": "bold red", "cap": "yellow", "stopped": "green", "finished": "green"}


def methods() -> Group:
    """All methods, with the plugins that are left out and why."""
    from fedrepro.methods import discover

    rows, faults = discover()
    drawn = _table(("method", "dataset", "rounds", "what it is", "settings"))
    for name, row in rows.items():
        settings = ", ".join(f"{key}={value}" for key, value in row.hyper.items())
        drawn.add_row(name, row.dataset, str(row.rounds), row.summary, settings)
    return Group(drawn, *(Text(f"{name}: {fault}", style="yellow") for name, fault in faults.items()))


def datasets() -> Table:
    """All datasets and where their data are."""
    from fedrepro.data import parameters
    from fedrepro.data.manifests import list_datasets

    drawn = _table(("dataset", "source", "where", "what it is", "settings"))
    for row in list_datasets():
        settings = ", ".join(f"{key}={value}" for key, value in parameters(row["name"]).items())
        drawn.add_row(row["name"], row["source"], row["where"], row["summary"], settings)
    return drawn


def manifest(content: dict) -> Text:
    """One line on verified data; what is drawn when it is loaded has none."""
    if not content["files"]:
        return Text(f"{content['source']}: no files, nothing to verify")
    counts = (f"{content[split]['images']:,} {split}" for split in ("train", "test"))
    return Text(f"{content['source']}: {', '.join(counts)} images, checksums {content.get('checksums', 'right')}")


def papers() -> Table:
    """All papers with a spec, and the budget in use."""
    drawn = _table(("paper", "budget", "budgets", "tables", "runs", "title"))
    for paper in load_papers():
        counts = (str(len(paper.spec.tables)), str(len(paper.drafts())))
        drawn.add_row(paper.name, paper.budget, ", ".join(paper.spec.budgets), *counts, paper.spec.title)
    return drawn


def tables() -> Table:
    """All tables of all papers."""
    drawn = _table(("paper", "table", "cells", "runs", "title"))
    for paper in load_papers():
        for name, table in paper.spec.tables.items():
            counts = (str(len(paper.cells(name))), str(len(paper.table_runs(name))))
            drawn.add_row(paper.name, name, *counts, table.title)
    return drawn


def runs() -> Table:
    """The planned runs of all papers, if there are any, then the ad hoc ones, with what their records say."""
    drawn = _table(("paper", "run", "seeds", "record"))
    for paper in map(spec.load_paper, spec.papers()):
        for run, draft in paper.drafts().items():
            seeds = ",".join(map(str, draft.config.seeds))
            drawn.add_row(paper.name, run, seeds, _recorded(record_path(paper.name, run)))
    for record in sorted(ADHOC.glob("*/record.json")):
        drawn.add_row("–", record.parent.name, "", _recorded(record))
    return drawn


def _recorded(path: Path) -> Text:
    """A record in a few words: how its seeds ended."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        ended = [entry["status"] for entry in record["seeds"].values()]
    except FileNotFoundError:
        return Text("none", style="dim")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Text("damaged", style="bold red")
    counts = ", ".join(f"{ended.count(status)} {status}" for status in dict.fromkeys(ended))
    return Text(f"{counts} ({record.get('budget')})")


def number(metric: str, value: float | None) -> str:
    """A metric's value for a reader, accuracies in percent."""
    scale, form = METRIC.get(metric.rpartition("_")[2], (1.0, ".4g"))
    return "–" if value is None else f"{scale * value:{form}}"


def _table(heads: Iterable[str], title: str | None = None) -> Table:
    drawn = Table(title=title, title_justify="left")
    for head in heads:
        drawn.add_column(head, overflow="fold")
    return drawn
