"""Reproduced against published: what is outside its tolerance, what is missing, and what is no longer true."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from fedrepro import claims, evaluate, figures, page, quantities, tables
from fedrepro.errors import FedreproError, OutsideTolerance
from fedrepro.files import write_json
from fedrepro.layout import STYLES
from fedrepro.results import STATUSES, Result, join
from fedrepro.schema import Gallery, Remark, Table
from fedrepro.spec import Paper, load_papers


@dataclass(frozen=True)
class Report:
    """The verdict on every cell, and one sentence for each thing that must be mended or declared.

    `claims`: paper -> claim -> verdict; one that fails is a finding about the paper and no problem.
    """

    results: list[Result]
    claims: dict[str, dict[str, str]]
    problems: list[str]

    def enforce(self) -> None:
        """Raise OutsideTolerance with the first problem and their number, if there is any."""
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            raise OutsideTolerance(f"{self.problems[0]}{more}")


def run(root: str | Path = ".") -> Report:
    """Check tables, figures and claims of every paper, from the records, and the page; write reports/check.json.

    `Report.enforce` raises.
    """
    root = Path(root)
    report = Report([], {}, [])
    for paper in load_papers(root):
        for table in paper.spec.tables:
            results, problems = _table(paper, table)
            report.results.extend(results)
            report.problems.extend(problems)
        for figure in paper.figures:
            report.problems.extend(_figure(paper, figure))
        if paper.spec.claims:
            report.claims[paper.name], problems = _claims(paper)
            report.problems.extend(problems)
    report.problems.extend(_page(root))
    report.problems[:] = dict.fromkeys(report.problems)  # a run may be missing in several places
    write_json(root / "reports" / "check.json", _summary(report))
    return report


def show(report: Report) -> Group:
    """For a rich console: the counts, the cells that are not simply within tolerance, and the problems."""
    drawn = RichTable()
    for head in ("cell", "published", "reproduced", "difference", "allowed", "status", "reason"):
        drawn.add_column(head, justify="right" if head in ("published", "difference", "allowed") else "left")
    for result in report.results:
        if result.reason:
            gap = "–" if result.difference is None else f"{result.difference:+.{result.decimals}f}"
            status = Text(result.status, style=STYLES[result.status])
            allowed = result.allowed if result.room else f"{result.limit:.{result.decimals}f}"
            allowed = "–" if result.cell.read.substitute else allowed
            numbers = (str(result.reference), str(result), gap, allowed)
            drawn.add_row(Text(str(result.cell)), *numbers, status, Text(result.reason))
    counts = ", ".join(f"{number} {status}" for status, number in _counts(report.results).items() if number)
    cells = Text(f"{len(report.results)} cells: {counts or 'none'}")
    found = [Text(f"claims of {paper}: {_tally(verdicts)}") for paper, verdicts in report.claims.items()]
    problems = [Text(problem, style="bold red") for problem in report.problems]
    return Group(*([drawn] if drawn.row_count else []), cells, *found, *problems)


def _table(paper: Paper, table: str) -> tuple[list[Result], list[str]]:
    """The results of a table, and what is wrong with them."""
    found = evaluate.collect(paper, table)
    results = join(paper, table, found)
    problems = list(found.faults.values())
    problems += [_outside(result) for result in results if result.status == "outside"]
    problems += [_vain(result) for result in results if result.status == "within" and result.deviation]
    problems += [_idle(paper, table, remark) for remark in _unused(paper.table(table), results)]
    if not found.faults:
        problems += _stale(paper, table, found, results)
    return results, problems


def _figure(paper: Paper, figure: str) -> list[str]:
    """What is wrong with a figure. Its PNG is not compared: its bytes depend on the machine's compression library."""
    from fedrepro import plot  # slow to import, and not every paper has figures

    found = figures.collect(paper, figure)
    if found.faults:
        return list(found.faults.values())
    points, (svg, _) = (each(paper.name, figure, paper.root) for each in (figures.path, figures.pictures))
    if isinstance(paper.figure(figure), Gallery):  # its SVG has pictures in it, so likewise
        texts = {points: figures.text(found.points).encode()}
        return _unequal(texts | {svg: svg.read_bytes() if svg.exists() else b""})
    drawn = plot.picture(paper, figure, found.points, "svg")
    return _unequal({points: figures.text(found.points).encode(), svg: drawn})


def _claims(paper: Paper) -> tuple[dict[str, str], list[str]]:
    """The verdicts on a paper's claims, and what is wrong with its files."""
    found = quantities.collect(paper)
    evidence = claims.weigh(paper, found.readings)
    verdicts = claims.verdicts(evidence)
    if found.faults:
        return verdicts, list(found.faults.values())
    texts = {quantities.path(paper.name, paper.root): quantities.text(found.readings)}
    texts |= claims.texts(paper, found.readings, evidence)
    return verdicts, _unequal({path: text.encode() for path, text in texts.items()})


def _page(root: Path) -> list[str]:
    """What is wrong with the page; its pictures are compared by their sources, as their bytes depend on the machine."""
    from fedrepro.page import build, pictures  # slow to import

    path = page.path(root)
    try:
        wanted = pictures.unpictured(build.text(root))
    except FedreproError as error:
        return [str(error)]
    fresh = path.exists() and pictures.unpictured(path.read_text(encoding="utf-8")) == wanted
    return [] if fresh else [_stale_file(path)]


def _outside(result: Result) -> str:
    ours = f"reproduced {result}, published {result.reference}, allowed {result.allowed}"
    return f"{result.cell}: {ours}; look for the cause, or declare the deviation in paper.toml with its reason."


def _vain(result: Result) -> str:
    return f"{result.cell}: the declared deviation is none any more ({result} against {result.reference}); remove it."


def _unused(table: Table, results: list[Result]) -> list[Remark]:
    used = [result.deviation for result in results]
    return [remark for remark in table.deviations if remark not in used and "budget" not in remark.when]


def _idle(paper: Paper, table: str, remark: Remark) -> str:
    return f"{paper.name}, {table}: the deviation declared for {remark.when} is about no cell of its own; remove it."


def _stale(paper: Paper, table: str, found: evaluate.Evaluation, results: list[Result]) -> list[str]:
    """The files that do not say what the records give."""
    texts = {evaluate.path(paper.name, table, paper.root): evaluate.text(found.measures)}
    texts |= tables.texts(paper, table, results)
    return _unequal({path: text.encode() for path, text in texts.items()})


def _unequal(files: dict[Path, bytes]) -> list[str]:
    return [_stale_file(path) for path, content in files.items() if not path.exists() or path.read_bytes() != content]


def _stale_file(path: Path) -> str:
    return f"{path} does not equal what its records render: run `dvc repro`."


def _tally(verdicts: dict[str, str]) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in Counter(verdicts.values()).items())


def _counts(results: list[Result]) -> dict[str, int]:
    counts = Counter(result.status for result in results)
    return {status: counts[status] for status in STATUSES}


def _summary(report: Report) -> dict[str, object]:
    """reports/check.json: counts per paper and table, then the cells with a reason, then the problems."""
    grouped: dict[str, dict[str, list[Result]]] = {}
    for result in report.results:
        grouped.setdefault(result.cell.paper, {}).setdefault(result.cell.table, []).append(result)
    return {
        "format": 1,
        "counts": {name: {table: _counts(rows) for table, rows in each.items()} for name, each in grouped.items()},
        "claims": report.claims,
        "cells": [_entry(result) for result in report.results if result.reason],
        "problems": report.problems,
    }


def _entry(result: Result) -> dict[str, object]:
    return {
        "cell": str(result.cell),
        "published": str(result.published),
        "compared_with": str(result.reference),
        "reproduced": str(result),
        "difference": result.difference,
        "allowed": list(result.room) if result.room else result.limit,
        "status": result.status,
        "reason": result.reason,
    }
