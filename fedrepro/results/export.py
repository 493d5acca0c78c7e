"""All runs as tidy tables: what they are, how they were set, their final metrics and their curves."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from fedrepro.files import write_bytes
from fedrepro.records import record
from fedrepro.results.compare import settings
from fedrepro.results.listing import Listed
from fedrepro.results.runs import Run

KEYS = ["paper", "run"]  # of every table; an ad hoc run has no paper
COLUMNS = {
    "runs": [*KEYS, "folder", "budget", "method", "dataset", "substitute", "rounds", "precision", "config", "data"],
    "settings": [*KEYS, "setting", "value"],
    "metrics": [*KEYS, "seed", "status", "collapsed", "rounds", "seconds", "metric", "value"],
    "curves": [*KEYS, "seed", "round", "metric", "value"],
}


def tables(found: Iterable[Listed]) -> dict[str, pd.DataFrame]:
    """The tables of COLUMNS by name, of the runs that have a usable record.

    Values are as in the records, fractions for accuracies; those of `settings` are JSON, and a diverged seed has one
    row in `metrics`, without a metric.
    """
    rows = {name: [] for name in COLUMNS}
    for each in found:
        if each.record is None:
            continue
        key, own = (each.paper, each.run), each.record
        facts = (own.budget, own.config.method, own.config.dataset, own.data.substitute or "")
        facts += (own.config.rounds, own.config.precision, own.identity.config, own.identity.data)
        rows["runs"].append((*key, str(each.folder), *facts))
        set_ = settings(Run(each.run, each.folder, own.config, own))
        rows["settings"] += [(*key, name, json.dumps(value)) for name, value in set_.items()]
        for seed, end in own.seeds.items():
            ended = (seed, end.status, end.collapsed, end.rounds, end.seconds)
            rows["metrics"] += [(*key, *ended, *pair) for pair in end.metrics.items() or [("", None)]]
        for seed, curve in record.curves(each.folder).items():
            rows["curves"] += [(*key, seed, *point) for point in curve]
    return {name: pd.DataFrame(rows[name], columns=columns) for name, columns in COLUMNS.items()}


def write(made: dict[str, pd.DataFrame], folder: Path, kind: str) -> list[Path]:
    """Write tables to a folder, each as one file, "parquet" or "csv"."""
    return [write_bytes(folder / f"{name}.{kind}", _bytes(table, kind)) for name, table in made.items()]


def _bytes(table: pd.DataFrame, kind: str) -> bytes:
    if kind == "csv":
        return table.to_csv(index=False, lineterminator="\n").encode()
    out = io.BytesIO()
    table.to_parquet(out, index=False)
    return out.getvalue()
