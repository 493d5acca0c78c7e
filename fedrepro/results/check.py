"""The verdict: whether every published number is met, declared or explained, and every frame is what its records give.

It writes nothing, and nothing is rendered for it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from fedrepro.errors import OutsideTolerance
from fedrepro.papers.paper import Paper
from fedrepro.papers.published import KEYS
from fedrepro.papers.schema.cells import remark_on
from fedrepro.papers.schema.tables import Table, Tolerance
from fedrepro.results import claims, frames
from fedrepro.results.cells import limits, reproduced, spread_out
from fedrepro.results.evaluate import evaluate, texts
from fedrepro.results.frames import Reproduction, counts

FORMAT = 2  # of `as_json`
KEY = ["paper", *KEYS]


class Check(NamedTuple):
    """The findings, and one sentence for each thing that must be mended or declared.

    `counts`: paper -> table -> status -> cells. `tolerances`: paper -> table -> what it is and why. `claims`: paper ->
    claim -> verdict; one that fails is a finding about the paper and no problem. `cells`: those of all papers.
    """

    counts: dict[str, dict[str, dict[str, int]]]
    tolerances: dict[str, dict[str, str]]
    claims: dict[str, dict[str, str]]
    cells: pd.DataFrame
    problems: list[str]

    def enforce(self) -> None:
        """Raise OutsideTolerance with the first problem and their number, if there is any."""
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            raise OutsideTolerance(f"{self.problems[0]}{more}")

    def as_json(self) -> dict[str, Any]:
        """For `check --json`, and whoever reads it: docs/reference.md has its format."""
        own = [_verdict(cell) for cell in self.cells.itertuples()]
        return {"format": FORMAT, **self._asdict(), "cells": own}


def check(papers: list[Paper]) -> Check:
    """Evaluate papers afresh from their records, and judge. UsageError as of `evaluate`."""
    found = Check({}, {}, {}, frames.frame("cells", []), [])
    every = []
    for paper in papers:
        fresh = evaluate(paper)
        every.append(fresh.cells)
        found.counts[paper.name] = {table: counts(own) for table, own in by_table(paper, fresh.cells).items()}
        specs = paper.spec.tables.items()
        found.tolerances[paper.name] = {table: tolerated(spec.tolerance) for table, spec in specs}
        if paper.claims:
            found.claims[paper.name] = claims.verdicts(fresh.claims)
        found.problems.extend(problems(paper, fresh))
    return found._replace(cells=pd.concat(every, ignore_index=True))


def problems(paper: Paper, fresh: Reproduction) -> list[str]:
    """The problems of a paper, whose records give `fresh`."""
    found = list(fresh.faults.values())
    for table, own in by_table(paper, fresh.cells).items():
        found += [_outside(cell) for cell in own[own.status == "outside"].itertuples()]
        found += [_vain(cell) for cell in own[(own.status == "within") & (own.deviation != "")].itertuples()]
        found += _idle(paper, table, paper.table(table))
    files = {} if fresh.faults or paper.prepared else texts(paper, fresh)
    return found + [_unlike(path, paper) for path, text in files.items() if not _equals(path, text)]


def by_table(paper: Paper, cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The cells of a paper, table by table."""
    return {table: cells[cells.table == table] for table in paper.spec.tables}


def allowed(tolerance: Tolerance) -> str:
    """How far a number may be from the published one, for a reader."""
    if tolerance.widened is not None:
        return f"in the published range, each end moved outwards by {100 * tolerance.widened:g}% of itself"
    spreads, points = f"{tolerance.spreads:g} published standard deviations", f"{tolerance.points:g} points"
    if not tolerance.share:
        return f"the larger of {spreads} and {points}"
    share = f"{100 * tolerance.share:g}% of the published number"
    own = [*([spreads] if tolerance.spreads else []), *([points] if tolerance.points else []), share]
    return f"the largest of {', '.join(own)}" if len(own) > 1 else share


def tolerated(tolerance: Tolerance) -> str:
    """The tolerance, and its reason."""
    return f"{allowed(tolerance)}, because {tolerance.reason}"


def _place(cell: Any) -> str:
    return ", ".join(getattr(cell, key) for key in KEY)


def _against(cell: Any) -> str:
    return spread_out(cell.compared_with, cell.compared_with_spread)


def _outside(cell: Any) -> str:
    ours = f"reproduced {reproduced(cell)}, published {_against(cell)}, allowed {limits(cell)}"
    return f"{_place(cell)}: {ours}; look for the cause, or declare the deviation in paper.toml with its reason."


def _vain(cell: Any) -> str:
    both = f"({reproduced(cell)} against {_against(cell)})"
    return f"{_place(cell)}: its declared deviation is within tolerance now {both}; remove it from paper.toml."


def _idle(paper: Paper, name: str, table: Table) -> list[str]:
    """The declared deviations that are about no cell, but for those of another budget."""
    used = [remark_on(table.deviations, cell.facts | {"budget": paper.budget}) for cell in paper.cells(name)]
    idle = [remark for remark in table.deviations if remark not in used and "budget" not in remark.when]
    said = f"{paper.name}, {name}: the deviation declared for"
    return [f"{said} {remark.when} is about no cell of its own; remove it." for remark in idle]


def _equals(path: Path, text: str) -> bool:
    return path.exists() and path.read_bytes() == text.encode()


def _unlike(path: Path, paper: Paper) -> str:
    return f"{path} does not equal what its records give: run `fedrepro evaluate {paper.name}`."


def _verdict(cell: Any) -> dict[str, Any]:
    """One cell in the format of `as_json`."""
    room = None if math.isnan(cell.least) else [cell.least, cell.greatest]
    return {
        **{key: getattr(cell, key) for key in (*KEY, "unit")},
        "published": spread_out(cell.published, cell.published_spread),
        "compared_with": _against(cell),
        "reproduced": reproduced(cell),
        "expected": float(cell.compared_with),
        "value": float(cell.reproduced) if cell.reproduced else None,
        "difference": None if math.isnan(cell.difference) else cell.difference,
        "allowed": room or (None if math.isnan(cell.limit) else cell.limit),
        "status": cell.status,
        "reason": cell.reason,
    }
