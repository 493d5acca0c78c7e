"""Where the page's links go: to files of the repository, as seen from reports/, and to places in the page."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from fedrepro.papers.load import Paper
from fedrepro.papers.published import KEYS
from fedrepro.records import paths


def seen(paper: Paper, path: Path) -> str:
    """The address of a file of the repository."""
    return posixpath.relpath(path.relative_to(paper.root).as_posix(), paths.PAGE.parent.as_posix())


def anchor(cell: Any) -> str:
    """The id of a number in the page: that of a row of `cells`, or of a paper's cell."""
    return ".".join((cell.paper, *("-".join(re.findall("[a-z0-9]+", getattr(cell, key).lower())) for key in KEYS)))
