"""The files of the report: what is rendered of each paper, the overview of all, and the pages that show everything."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedrepro.errors import UsageError
from fedrepro.files import write_text
from fedrepro.papers.load import load_papers
from fedrepro.papers.paper import Paper
from fedrepro.records import paths
from fedrepro.report import claims, layout, summary, tables
from fedrepro.results.check import by_table
from fedrepro.results.evaluate import read
from fedrepro.results.frames import Reproduction


def render_all(root: str | Path = ".") -> Iterator[Path]:
    """Write everything, the page about all papers last; yields each file once it is written.

    Raises FedreproError as `render`.
    """
    from fedrepro.report.page import build

    papers = load_papers(root)
    found = list(map(read, papers))
    for paper, own in zip(papers, found, strict=True):
        yield from _render(paper, own)
    yield _overview(papers, found)
    yield from build.render(papers, found, root)


def single(papers: list[Paper]) -> Path:
    """Write the pages as one file, from the frames, records and pictures. Raises FedreproError as `render`."""
    from fedrepro.report.page import build

    return build.render_single(papers, map(read, papers), papers[0].root)


def render(paper: Paper) -> Iterator[Path]:
    """Write tables, figures, claims and summary of a paper from its frames; what else lies beside them is removed.

    Equal frames give equal bytes. Raises FedreproError where a frame is missing, stale or broken.
    """
    yield from _render(paper, read(paper))


def overview(papers: list[Paper]) -> Path:
    """Write the counts of all papers from their frames. Raises FedreproError as `render`."""
    return _overview(papers, map(read, papers))


def browse(page: Path) -> None:
    """Show a page in the user's browser. Raises UsageError where there is none."""
    if not webbrowser.open(page.resolve().as_uri()):
        raise UsageError(f"no browser was found: open {page} in one yourself.")


def _render(paper: Paper, found: Reproduction) -> Iterator[Path]:
    made = []
    for path, text in _texts(paper, found):
        made.append(write_text(path, text))
        yield path
    folders = paths.rendered(paper.name, paper.root), paths.figure(paper.name, "", paper.root).parent
    for path in {path for folder in folders for path in folder.glob("*")} - set(made):
        path.unlink()


def _overview(papers: list[Paper], found: Iterable[Reproduction]) -> Path:
    return write_text(papers[0].root / paths.OVERVIEW, summary.overview(zip(papers, found, strict=True)))


def _texts(paper: Paper, found: Reproduction) -> Iterator[tuple[Path, str]]:
    """The files of a paper, one after another."""
    from fedrepro.report import plots, surfaces  # slow to import

    for table, cells in by_table(paper, found.cells).items():
        yield from tables.texts(paper, table, cells).items()
    for figure in paper.figures:
        points = found.points[found.points.figure == figure]
        yield paths.figure(paper.name, figure, paper.root), plots.svg(paper, figure, points)
    for name in paper.spec.surfaces:
        yield paths.figure(paper.name, name, paper.root), surfaces.svg(paper, name)
    if paper.claims:
        yield paths.claims(paper.name, paper.root), layout.markdown(claims.sheet(paper, found.claims))
    yield paths.summary(paper.name, paper.root), summary.text(paper, found)
