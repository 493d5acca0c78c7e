"""The pages as a whole: their parts put into the templates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from fedrepro.files import write_text
from fedrepro.papers.paper import Paper
from fedrepro.records import paths
from fedrepro.report.page import bands, grids, landing, links, pictures, provenance, sections
from fedrepro.report.page.sections import Draw, Part
from fedrepro.report.wording import environment
from fedrepro.results.evaluate import enforce
from fedrepro.results.frames import Reproduction

Made = tuple[list[Part], dict[str, Any]]  # the papers, and what is shown of their runs


def render(papers: list[Paper], found: Iterable[Reproduction], root: str | Path = ".") -> Iterator[Path]:
    """Write the page of each paper and then the one about all, from their frames, records and pictures.

    Equal inputs give equal bytes. Raises FedreproError as `texts`.
    """
    for path, text in texts(papers, found).items():
        yield write_text(Path(root) / path, text)


def render_single(papers: list[Paper], found: Iterable[Reproduction], root: str | Path = ".") -> Path:
    """Write all of it as one file. On one machine equal inputs give equal bytes: those of pictures depend on libraries.

    Raises FedreproError as `texts`.
    """
    return write_text(Path(root) / paths.SINGLE, single(papers, found))


def texts(papers: list[Paper], found: Iterable[Reproduction]) -> dict[Path, str]:
    """The text of each page. Raises FedreproError where a record is missing or stale, or a picture is missing."""
    site = links.Site(False)
    parts, runs = _made(papers, found, site, lambda path: partial(pictures.size, path))
    own = {paths.page(part["name"]): _page(site, parts, [part], runs) for part in parts}
    return own | {paths.PAGE: _page(site, parts, [], {}, landing=True)}


def single(papers: list[Paper], found: Iterable[Reproduction]) -> str:
    """The text of the single file. Raises FedreproError as `texts`."""
    site = links.Site(True)
    with ThreadPoolExecutor() as pool:  # half of the time is in the compression of pictures
        draw = lambda path: pool.submit(pictures.picture, path).result  # noqa: E731
        parts, runs = _made(papers, found, site, draw)
    return _page(site, parts, parts, runs, landing=True)


def _made(papers: list[Paper], found: Iterable[Reproduction], site: links.Site, draw: Draw) -> Made:
    parts, runs = [], {}
    for paper, own in zip(papers, found, strict=True):
        made, faults = provenance.runs(paper)
        enforce(paper, own._replace(faults=faults))
        parts, runs = [*parts, sections.section(paper, own, site, draw)], runs | made
    return landing.ordered(parts), runs


def _page(
    site: links.Site,
    every: list[Part],
    papers: list[Part],
    runs: dict[str, Any],
    landing: bool = False,
) -> str:
    """A page with some papers in full, beside links to all."""
    cells = {name: cell for part in papers for table in part["tables"] for name, cell in table["cells"].items()}
    own = {name: run for name, run in runs.items() if name.partition("/")[0] in {part["name"] for part in papers}}
    shown = {"papers": papers, "every": every, "site": site, "landing": landing, "data": {"cells": cells, "runs": own}}
    counts = sum((Counter(part["counts"]) for part in every), Counter())
    helpers = {"marks": grids.MARKS, "word": grids.word, "statuses": sections.SHOWN, "anchor": links.anchor}
    helpers |= {"band": bands.band, "short": bands.SHORT, "value": grids.value}
    return environment().get_template("page.html").render(shown | helpers | {"counts": counts})
