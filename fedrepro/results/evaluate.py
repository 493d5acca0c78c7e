"""Evaluation: from the records of a paper to its reproduction, which is computed once, written and read again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.errors import FedreproError
from fedrepro.files import json_text, write_text
from fedrepro.papers.paper import Paper
from fedrepro.papers.published import KEYS
from fedrepro.records import paths
from fedrepro.results import cells, claims, frames, points, thresholds
from fedrepro.results.frames import COMPARED, VERDICTS, Reproduction
from fedrepro.results.runs import Run, current

DECIMALS = 4  # of a mean difference
PARTS = {"cells": cells, "points": points, "claims": claims}
NAMED = {"cells": KEYS, "points": ["figure"], "claims": ["claim"]}


def evaluate(paper: Paper) -> Reproduction:
    """The reproduction of a paper from its records; nothing is raised for a faulty record, which `faults` has.

    Raises UsageError where published.csv is not as it should be, or the spec names a metric that a run does not have.
    """
    chosen, faults = runs(paper, paper.drafts)
    made = {name: part.rows(paper, chosen, faults) for name, part in PARTS.items()}
    return Reproduction(*(frames.frame(name, rows) for name, rows in made.items()), faults)


def runs(paper: Paper, names: Iterable[str]) -> tuple[dict[str, Run], dict[str, str]]:
    """Planned runs with a usable record, each with its end, and the faults of the others."""
    found, faults = current(paper, names)
    wanted = thresholds.printed(paper, cells.compared(paper))
    return {name: replace(run, printed=wanted.get(name)) for name, run in found.items()}, faults


def enforce(paper: Paper, found: Reproduction) -> None:
    """Raise FedreproError with the first of the runs' faults, and the number of them, if there is any."""
    if found.faults:
        more = f" ({len(found.faults)} runs of {paper.name} lack a usable record)" if len(found.faults) > 1 else ""
        raise FedreproError(f"{next(iter(found.faults.values()))}{more}")


def write(paper: Paper, found: Reproduction) -> list[Path]:
    """Write the frames of a paper, and their counts for `dvc metrics`. Raises FedreproError as `enforce`."""
    enforce(paper, found)
    return [write_text(path, text) for path, text in texts(paper, found).items()]


def read(paper: Paper) -> Reproduction:
    """The written reproduction. Raises FedreproError where a frame is missing, broken, stale or of another budget."""
    remedy = f"run `fedrepro evaluate {paper.name}`"
    found = []
    for name in paths.FRAMES:
        path = paths.frame(paper.name, name, paper.root)
        try:
            frame = frames.parse(name, path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FedreproError(f"{path} is missing: {remedy}.") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FedreproError(f"{path} cannot be read ({error}): {remedy}.") from error
        if other := set(frame.budget) - {paper.budget}:
            raise FedreproError(f"{path} is of budget {min(other)!r} instead of {paper.budget!r}: {remedy}.")
        there = set(itertools.chain.from_iterable(frame.runs)) | set(map(" ".join, frame[NAMED[name]].values))
        if absent := [each for each in _expected(paper, name) if each not in there]:
            raise FedreproError(f"{path} lacks {absent[0]}: {remedy}.")
        found.append(frame)
    return Reproduction(*found, {})


def reproduction(paper: Paper) -> Reproduction:
    """The written reproduction, as `read`; that of a prepared budget, which is never written, as `evaluate`."""
    return evaluate(paper) if paper.prepared else read(paper)


def _expected(paper: Paper, name: str) -> list[str]:
    """The least that a frame of a paper must have: its rows or their parts by name, and their runs."""
    if name == "cells":
        every = [cell for table in paper.spec.tables for cell in paper.cells(table)]
        return [*(run for cell in every for run in cell.runs), *(" ".join(cell.key) for cell in every)]
    if name == "points":
        return [*(run for figure in paper.figures for run in paper.figure_runs(figure)), *paper.figures]
    compared = (each for claim in paper.claims for each in paper.comparisons(claim))
    return [*(run for each in compared for run in each.runs), *paper.claims]


def texts(paper: Paper, found: Reproduction) -> dict[Path, str]:
    """The files of a reproduction."""
    own = zip(paths.FRAMES, found, strict=False)
    files = {paths.frame(paper.name, name, paper.root): frames.text(name, frame) for name, frame in own}
    files |= {paths.metrics(paper.name, paper.root): json_text(metrics(found))}
    return files | {paths.compared(paper.name, paper.root): compared(found).to_csv(index=False)}


def compared(found: Reproduction) -> pd.DataFrame:
    """The numbers that are compared: their key, unit and status, the number compared with, and ours."""
    named = {"compared_with": "published", "reproduced": "reproduced"}
    columns = [*KEYS, "unit", "status", *named]
    return found.cells.loc[found.cells.difference.notna(), columns].rename(columns=named)


def metrics(found: Reproduction) -> dict[str, Any]:
    """Cells by status, claims by verdict, and the mean absolute difference in each unit."""
    verdicts = list(claims.verdicts(found.claims).values())
    compared = found.cells[found.cells.status.isin(COMPARED) & found.cells.difference.notna()]
    means = compared.difference.abs().groupby(compared.unit, sort=False).mean().round(DECIMALS)
    return {
        "cells": {"all": len(found.cells), **frames.counts(found.cells)},
        "claims": {verdict: verdicts.count(verdict) for verdict in VERDICTS},
        "mean_difference": means.to_dict(),
    }
