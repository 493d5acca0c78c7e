"""The page as a whole: its parts put into the templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from fedrepro.files import write_text
from fedrepro.papers.load import Paper
from fedrepro.records import paths
from fedrepro.report.page import grids, links, provenance, sections
from fedrepro.report.page.pictures import picture
from fedrepro.report.wording import environment
from fedrepro.results.evaluate import enforce
from fedrepro.results.frames import Reproduction


def render(papers: list[Paper], found: Iterable[Reproduction], root: str | Path = ".") -> Path:
    """Write the page of papers from their frames, records and pictures.

    Equal inputs give equal bytes, on one machine: those of pictures depend on its libraries. Raises FedreproError as
    `text`.
    """
    return write_text(Path(root) / paths.PAGE, text(papers, found))


def text(papers: list[Paper], found: Iterable[Reproduction]) -> str:
    """The text of the page. Raises FedreproError where a record is missing or stale, or a picture is missing."""
    parts, runs = [], {}
    with ThreadPoolExecutor() as pool:  # half of the page's time is in the compression of pictures
        for paper, own in zip(papers, found, strict=True):
            made, faults = provenance.runs(paper)
            enforce(paper, own._replace(faults=faults))
            parts, runs = [*parts, sections.section(paper, own, partial(pool.submit, picture))], runs | made
    cells = {name: cell for part in parts for table in part["tables"] for name, cell in table["cells"].items()}
    counts = sum((Counter(part["counts"]) for part in parts), Counter())
    shown = {"papers": parts, "counts": counts, "data": {"cells": cells, "runs": runs}}
    helpers = {"marks": grids.MARKS, "word": grids.word, "statuses": sections.SHOWN, "anchor": links.anchor}
    return environment().get_template("page.html").render(shown | helpers)
