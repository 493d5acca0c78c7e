"""The files of a table: CSV, Markdown and LaTeX."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedrepro.papers.paper import Paper
from fedrepro.records import paths
from fedrepro.report import latex, layout
from fedrepro.results.cells import spread_out, with_readings

COLUMNS = (
    *("paper", "table", "dataset", "variant", "method", "metric", "published", "published_spread"),
    *("reproduced", "reproduced_spread", "n_seeds", "budget", "substitute", "status", "run"),
    *("compared_with", "threshold_raised", "threshold_lowered"),
)


def texts(paper: Paper, table: str, cells: pd.DataFrame) -> dict[Path, str]:
    """The texts of the files of a table, from its rows of the frame `cells`."""
    sheet = layout.sheet(paper, table, cells)
    drawn = (csv_text(cells), layout.markdown(sheet), latex.table(sheet))
    return dict(zip(paths.table(paper.name, table, paper.root), drawn, strict=True))


def csv_text(cells: pd.DataFrame) -> str:
    """One line for each published number; what one that was not run does not have is empty."""
    every = with_readings(cells)
    cells = pd.DataFrame(every, columns=cells.columns)
    others = (spread_out(each.compared_with, each.compared_with_spread) for each in every)
    told = cells.assign(
        budget=cells.label,
        substitute=["; ".join(sorted({each.substitute_metric, *each.substitute_data} - {""})) for each in every],
        run=cells.runs.map("; ".join),
        compared_with=[other if each.compared_because else "" for each, other in zip(every, others, strict=True)],
        threshold_raised=cells.raised,
        threshold_lowered=cells.lowered,
    )
    return told[list(COLUMNS)].to_csv(index=False, lineterminator="\n")
