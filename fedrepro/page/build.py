"""The page as a whole: its parts put into the templates."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedrepro.files import write_text
from fedrepro.page import grids, path, provenance, sections
from fedrepro.spec import Paper


def render(papers: list[Paper], root: str | Path = ".") -> Path:
    """Write the page of papers.

    Equal inputs give equal bytes, on one machine: those of pictures depend on its libraries. Raises FedreproError where
    what it is made of is missing, or a record is not the one that was asked for.
    """
    return write_text(path(root), text(papers))


def text(papers: list[Paper]) -> str:
    """What the page says. Raises FedreproError as `render`."""
    parts = [sections.section(paper) for paper in papers]
    runs = {name: run for paper in papers for name, run in provenance.runs(paper).items()}
    ran = [(part, table) for part in parts for table in part.tables if table.run]
    tables = {table.id: {"paper": part.title, "title": table.title, "again": table.again} for part, table in ran}
    cells = {name: cell for _, table in ran for name, cell in table.grid.cells.items()}
    data = {"tables": tables, "cells": cells, "runs": runs}
    shown = {"papers": parts, "summary": sections.summary(parts), "data": data}
    return _environment().get_template("page.html").render(shown)


def _environment() -> Environment:
    """Everything that is not a template's own is escaped; JSON keeps its order and cannot end its element."""
    found = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "sort_keys": False}
    found.globals |= {"marks": grids.MARKS, "word": grids.word, "shown": sections.SHOWN, "headings": sections.HEADINGS}
    found.globals["sentences"] = sections.sentences
    return found
