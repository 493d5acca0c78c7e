"""What `fedrepro evaluate` and `fedrepro report` write: tables, figures and claims."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from pathlib import Path

from fedrepro import claims, figures, quantities, summary, tables
from fedrepro import evaluate as measures
from fedrepro.errors import UsageError
from fedrepro.spec import load_paper, load_papers


def evaluate(
    paper: str | None = None,
    table: str | None = None,
    figure: str | None = None,
    only_claims: bool = False,
    root: str | Path = ".",
) -> Iterator[Path]:
    """Write what is read off the records for a table, a figure or the claims of a paper; without any, for all.

    Yields each file once it is written. Raises UsageError for unknown names, FedreproError for a faulty record.
    """
    for kind, name in (("table", table), ("figure", figure)):
        if name is not None and paper is None:
            raise UsageError(f"a {kind} is one of a paper's: name the paper too.")
    everything = table is None and figure is None and not only_claims
    for each in [load_paper(paper, root)] if paper is not None else load_papers(root):
        for name in each.spec.tables if everything else filter(None, [table]):
            yield measures.table(each.name, name, root)
        for name in each.figures if everything else filter(None, [figure]):
            yield figures.figure(each, name)
        if each.spec.claims and (everything or only_claims):
            yield quantities.claims(each)


def render(root: str | Path = ".") -> list[Path]:
    """Write all tables, figures and claims from what `evaluate` wrote, and the page that shows them with their runs."""
    from fedrepro import plot  # slow to import, and `evaluate` needs none of it
    from fedrepro.page import build

    papers = load_papers(root)
    made = [*tables.render(papers), *plot.render(papers), *claims.render(papers), *summary.render(papers, root)]
    return [*made, build.render(papers, root)]


def browse(page: Path) -> None:
    """Show a page in the user's browser. Raises UsageError where there is none."""
    if not webbrowser.open(page.resolve().as_uri()):
        raise UsageError(f"no browser was found: open {page} in one yourself.")
