"""Where the links of a page lead: to other pages, to files of the repository, as seen from reports/, and to places."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, NamedTuple

from fedrepro.papers.paper import Paper
from fedrepro.papers.published import KEYS
from fedrepro.records import paths


class Site(NamedTuple):
    """The addresses of the pages. `single`: all are parts of one file, which has no links to other files."""

    single: bool

    @property
    def home(self) -> str:
        """The page about all papers."""
        return "#top" if self.single else paths.PAGE.name

    def page(self, paper: str) -> str:
        """The page of a paper."""
        return f"#{paper}" if self.single else paths.page(paper).name


def seen(paper: Paper, path: Path) -> str:
    """The address of a file of the repository."""
    return posixpath.relpath(path.relative_to(paper.root).as_posix(), paths.PAGE.parent.as_posix())


def anchor(cell: Any) -> str:
    """The id of a number in the page: that of a row of `cells`, or of a paper's cell."""
    return ".".join((cell.paper, *("-".join(re.findall("[a-z0-9]+", getattr(cell, key).lower())) for key in KEYS)))
