"""Where the page's links go: to files of the repository, as seen from reports/, and to places in the page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fedrepro import evaluate
from fedrepro.spec import Cell, Paper


@dataclass(frozen=True)
class Link:
    """A link; with `runs`, to the record of the first of them, and the page shows where their numbers come from.

    Without an address it is mere text.
    """

    text: str
    address: str
    runs: tuple[str, ...] = ()


def run_name(paper: str, run: str) -> str:
    """What the page calls a run."""
    return f"{paper}/{run}"


def run_link(paper: Paper, run: str, text: str = "") -> Link:
    """To a run, by its name unless there is another text."""
    return cell_link(paper, (run,), text or run)


def cell_link(paper: Paper, runs: tuple[str, ...], text: str) -> Link:
    """To the runs behind a number; without any, text."""
    record = seen(paper, evaluate.record_path(paper.name, runs[0], paper.root)) if runs else ""
    return Link(text, record, tuple(run_name(paper.name, run) for run in runs))


def seen(paper: Paper, path: Path) -> str:
    """The address of a file of the repository."""
    return f"../{path.relative_to(paper.root).as_posix()}".removeprefix("../reports/")


def anchor(cell: Cell) -> str:
    """The id of a cell's number in the page."""
    return ".".join((cell.paper, *("-".join(re.findall(r"[a-z0-9]+", part.lower())) for part in cell.key)))
