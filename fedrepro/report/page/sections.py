"""The section of a paper on the page, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from fedrepro.papers.paper import Paper
from fedrepro.papers.schema.cells import facts, words
from fedrepro.records import paths
from fedrepro.report import claims, layout, plots, reasons
from fedrepro.report.page import bands, findings, grids, landing, notes, protocol
from fedrepro.report.page.align import MINUS, aligned, difference
from fedrepro.report.page.links import Site, anchor, seen
from fedrepro.report.reasons import Found, Reason
from fedrepro.results.check import by_table
from fedrepro.results.claims import verdicts
from fedrepro.results.frames import COMPARED, Reproduction, counts

SHOWN = (*COMPARED, "calibrated", "not-compared", "not-run")  # what a cell with all that it needs may be
Part = dict[str, Any]  # what a template is given of one
Draw = Callable[[Path], Callable[[], dict[str, Any]]]  # a picture's file -> what gives the attributes of its image


def section(paper: Paper, found: Reproduction, site: Site, draw: Draw) -> Part:
    """A paper as its page shows it. `gap`: as of `bands.gap`. `protocol`: HTML, empty where there is none."""
    deviating = found.cells[found.cells.status == "deviation"]
    tables = [_table(paper, name, own) for name, own in by_table(paper, found.cells).items()]
    deviations = _most_first([_deviation(paper, cell) for cell in deviating.itertuples()])
    not_run = _most_first(reasons.of_tables(paper, found.cells, "not-run") + reasons.of_figures(paper))
    sheets = [(table["short"], table["sheet"]) for table in tables]
    decided = Counter(verdicts(found.claims).values())
    return {
        **{"name": paper.name, "title": paper.spec.title, "budget": paper.spec.budgets[paper.budget].label},
        **{"counts": counts(found.cells), "gap": bands.gap(found.cells)},
        "bar": bands.bar(found.cells) or bands.judged(decided),
        **{"spots": landing.spots(paper, found), "findings": findings.findings(paper, found)},
        **{"tables": tables, "deviations": deviations, "not_run": not_run},
        "notes": notes.notes(sheets, deviations, not_run),
        "orders": Counter(
            ranking.verdict for table in tables for ranking in table["sheet"].rankings if not ranking.reading
        ),
        "figures": [
            *(_figure(paper, name, found.points, draw) for name in paper.figures),
            *(_surfaces(paper, name, draw) for name in paper.spec.surfaces),
        ],
        "sheets": [_sheet(paper, name, draw) for name in paper.sheets],
        "claims": list(_claims(paper, found.claims)),
        "verdicts": decided,
        "judged": claims.judged(paper, found.claims),
        "protocol": _protocol(paper, site),
    }


def _protocol(paper: Paper, site: Site) -> str:
    path = paper.folder / "PROTOCOL.md"
    folder = None if site.single else seen(paper, paper.folder)
    return protocol.html(path.read_text(encoding="utf-8"), folder) if path.exists() else ""


def _table(paper: Paper, name: str, cells: pd.DataFrame) -> Part:
    """A table. `run`: whether any of it is; `compared`: whether any of it is compared with the published numbers."""
    spec, sheet = paper.table(name), layout.sheet(paper, name, cells)
    run = bool((cells.status != "not-run").any())
    return {
        "id": f"{paper.name}.{name}",
        "name": spec.title,
        "short": reasons.short(paper, name),
        "run": run,
        "compared": bool(cells.status.isin(COMPARED).any()),
        **{"counts": counts(cells), "bar": bands.bar(cells), "gap": bands.gap(cells)},
        "budget": cells.label.iloc[0],
        "sheet": sheet,
        "grid": grids.grid(sheet, run),
        "cells": grids.traced(spec, sheet),
        "files": [seen(paper, path) for path in paths.table(paper.name, name, paper.root)],
    }


def _figure(paper: Paper, name: str, points: pd.DataFrame, draw: Draw) -> Part:
    spec, path = paper.figure(name), paths.figure(paper.name, name, paper.root)
    caption = plots.caption(paper, name, points[points.figure == name])
    return _drawn(paper, name, path, draw) | {"title": spec.title, "caption": caption, "runs": paper.figure_runs(name)}


def _surfaces(paper: Paper, name: str, draw: Draw) -> Part:
    """An illustration behind which there is no run."""
    spec, path = paper.spec.surfaces[name], paths.figure(paper.name, name, paper.root)
    return _drawn(paper, name, path, draw) | {"title": spec.title, "caption": spec.about, "runs": []}


def _sheet(paper: Paper, name: str, draw: Draw) -> Part:
    """A sample sheet of the clients' data."""
    spec, path = paper.spec.sheets[name], paths.sheet(paper.name, name, paper.root)
    caption = f"Sample sheet of {words(spec.cell)}: data of each client that is shown, seed 0."
    return _drawn(paper, f"sheet.{name}", path, draw) | {"title": spec.title, "caption": caption, "runs": []}


def _drawn(paper: Paper, name: str, path: Path, draw: Draw) -> Part:
    return {"id": f"{paper.name}.{name}", "image": draw(path), "file": seen(paper, path)}


def _deviation(paper: Paper, cell: Any) -> Found:
    """Where a number stands, how far it is from the published one, and why."""
    named = {"dataset": cell.dataset} | facts(cell)
    place = words({axis: value for axis, value in named.items() if axis != "metric" and value != "none"})
    metric = f"{cell.metric.replace('_', ' ')} {difference(cell) or 'diverged'}"
    return cell.reason, 1, f"{reasons.short(paper, cell.table)}: {place}, {metric}", anchor(cell)


def _most_first(found: list[Found]) -> list[Reason]:
    """The reason of most numbers first."""
    return sorted(reasons.collected(found), key=lambda reason: -reason.count)


def _claims(paper: Paper, frame: pd.DataFrame) -> Iterator[Part]:
    """The claims. `tally`: verdict -> number of pairs. `rows`: those of the frame, each with difference, interval and
    seeds under one another, and its footnotes."""
    sheet, decided, replaced = claims.sheet(paper, frame), verdicts(frame), claims.substitutes(paper)
    told = pd.Series(sheet.rows, frame.index, dtype=object)
    for name, own in frame.groupby("claim", sort=False):
        spec, entries = paper.claims[name], told[own.index]
        columns = [aligned([row[n].text.replace("-", MINUS) for row in entries]) for n in (2, 3, 4)]
        notes = [[sheet.notes[number - 1] for number in row[-1].notes] for row in entries]
        yield {
            "id": f"{paper.name}.claim.{name}",
            "name": name,
            "spec": spec,
            "measured": claims.measured(spec, replaced),
            "verdict": decided[name],
            "tally": Counter(own.verdict[own.kind != "count"]),
            "rows": list(zip(own.itertuples(), zip(*columns, strict=True), notes, strict=True)),
        }
