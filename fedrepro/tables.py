"""The files of reports/tables, and a table for the terminal."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from rich.console import Group

from fedrepro import evaluate, latex, layout
from fedrepro.evaluate import Evaluation
from fedrepro.files import write_text
from fedrepro.results import Result, join, mean
from fedrepro.spec import Paper, load_paper

COLUMNS = (
    *("paper", "table", "dataset", "variant", "method", "metric", "published", "published_spread"),
    *("reproduced", "reproduced_spread", "n_seeds", "budget", "substitute", "status", "run"),
    *("compared_with", "threshold_raised", "threshold_lowered"),
)


def render(papers: list[Paper]) -> list[Path]:
    """Write every table of papers as .csv, .md and .tex, from the measures in reports/metrics.

    Equal inputs give equal bytes. Raises FedreproError where a table has no measures yet.
    """
    files: dict[Path, str] = {}
    for paper in papers:
        for table in paper.spec.tables:
            files |= texts(paper, table, join(paper, table, stored(paper, table)))
    return [write_text(path, text) for path, text in files.items()]


def show(paper: str, table: str, root: str | Path = ".") -> Group:
    """One table for a rich console, straight from the records; runs that have none yet are `missing`."""
    spec = load_paper(paper, root)
    results = join(spec, table, evaluate.collect(spec, table))
    return layout.terminal(layout.sheet(spec.table(table), results))


def stored(paper: Paper, table: str) -> Evaluation:
    """The measures that `fedrepro evaluate` wrote. Raises FedreproError where they are missing or stale."""
    path, runs = evaluate.path(paper.name, table, paper.root), paper.table_runs(table)
    command = f"fedrepro evaluate --paper {paper.name} --table {table}"
    return Evaluation(evaluate.stored(path, evaluate.parse, paper, runs, command), {})


def paths(paper: str, table: str, root: str | Path = ".") -> list[Path]:
    """Where a table's files are."""
    return [Path(root) / "reports" / "tables" / paper / f"{table}.{kind}" for kind in ("csv", "md", "tex")]


def texts(paper: Paper, table: str, results: list[Result]) -> dict[Path, str]:
    """What a table's files say."""
    sheet = layout.sheet(paper.table(table), results)
    drawn = (csv_text(results), layout.markdown(sheet), latex.table(sheet))
    return dict(zip(paths(paper.name, table, paper.root), drawn, strict=True))


def csv_text(results: list[Result]) -> str:
    """One line per published cell (DESIGN section 4); what a cell that was not run does not have is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in results:
        cell, printed = result.cell, result.published
        substitutes = "; ".join(sorted({cell.read.substitute, *(m.substitute for m in result.measures)} - {""}))
        ours = (result.mean, result.spread, result.n_seeds, result.budget.label, substitutes)
        other = str(result.reference) if result.instead else ""
        moved = (mean(values) for values in result.sensitivity)
        row = [
            cell.paper,
            *cell.key,
            printed.mean,
            printed.spread,
            *ours,
            result.status,
            "; ".join(cell.runs),
            other,
            *moved,
        ]
        writer.writerow(row)
    return out.getvalue()
