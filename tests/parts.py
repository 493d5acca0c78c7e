"""Parts of the reproduction of a real paper of which a test has made only a few records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import pandas as pd

from fedrepro.papers.paper import Paper
from fedrepro.results import evaluate, frames
from fedrepro.results.runs import current


def frame(paper: Paper, name: str, **wanted: Any) -> pd.DataFrame:
    """The rows of a frame with these values; of a `figure` or a `claim`, whatever the others lack."""
    for kind, of in (("figure", paper.spec.figures), ("claim", paper.claims)):
        if kind in wanted:
            spec = paper.spec.model_copy(update={f"{kind}s": {wanted[kind]: of[wanted[kind]]}})
            paper = replace(paper, spec=spec)
    found = _part(paper, name)[0]
    return found[[all(getattr(row, key) == value for key, value in wanted.items()) for row in found.itertuples()]]


def part(paper: Paper, name: str, **wanted: Any) -> list[Any]:
    """The rows of `frame`, one by one."""
    return list(frame(paper, name, **wanted).itertuples())


def faults(paper: Paper, name: str) -> dict[str, str]:
    """What is wrong with runs, as far as a frame needs them."""
    return _part(paper, name)[1]


def only(paper: Paper, table: str, **wanted: str) -> list[Any]:
    """The cells of a table with these facts."""
    rows = part(paper, "cells", table=table)
    return [row for row, cell in zip(rows, paper.cells(table), strict=True) if wanted.items() <= cell.facts.items()]


def folder(paper: Paper, run: str) -> Path:
    """The folder of a run."""
    return paper.home(run, paper.drafts[run].config.method)


def write(
    paper: Paper, run: str, record: dict, curves: str = made.UNWATCHED, samples: tuple[str, bytes] | None = None
) -> None:
    """Write a record as of `made.record`, with its curves and samples (name, content)."""
    made.put(folder(paper, run), record | {"paper": paper.name}, curves, samples)


def _part(paper: Paper, name: str) -> tuple[Any, dict[str, str]]:
    runs, found = current(paper, paper.drafts)
    return frames.frame(name, evaluate.PARTS[name].rows(paper, runs, found)), found
