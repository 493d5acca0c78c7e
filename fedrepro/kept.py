"""Listings that take seconds to make, kept in .fedrepro/ for as long as every file that they may show is as it was."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import entry_points, version
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedrepro import PLUGINS
from fedrepro.errors import FedreproError
from fedrepro.files import write_text

FOLDER = Path(".fedrepro/kept")
PACKAGE = Path(__file__).parent
DATA = ("FEDREPRO_DATA_DIR", "data/cache")  # the variable and the folder of data/sources/kinds.py


def listing(name: str, make: Callable[[], RenderableType]) -> RenderableType:
    """What `make()` gives, or what it gave when all files had the same sizes and times as now.

    `make` gives a Table, a Text or a Group of them. Nothing is kept outside of a project, nor beside plugins, which
    may change anywhere.
    """
    if not Path("params.yaml").exists() or _plugins():
        return make()
    path, stamp = FOLDER / f"{name}.json", _stamp()
    with suppress(OSError, ValueError, KeyError, TypeError):  # nothing is kept, or it is damaged
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["stamp"] == stamp:
            return _drawn(kept["listing"])
    made = make()
    with suppress(FedreproError):  # a folder that nobody may write to keeps nothing
        write_text(path, json.dumps({"stamp": stamp, "listing": _plain(made)}))
    return made


def _plugins() -> bool:
    try:
        return bool(entry_points(group=PLUGINS))
    except Exception:  # the metadata of some package are damaged, which the listing of methods says
        return True


def _stamp() -> str:
    """sha256 of the sizes and times of the files behind all listings, and of what else these depend on."""
    variable, cache = DATA
    digest = hashlib.sha256(" ".join((sys.version, version("numpy"), os.environ.get(variable, ""))).encode())
    for place in (PACKAGE, Path("params.yaml"), Path("papers"), Path("runs"), Path(os.environ.get(variable) or cache)):
        for path in _below(place.expanduser()):
            with suppress(OSError):  # it is gone by now
                found = path.stat()
                digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _below(place: Path) -> Iterator[Path]:
    """A file, or those in a folder and below, in order."""
    if place.is_file():
        yield place
    for folder, folders, names in os.walk(place, followlinks=True):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        yield from (Path(folder, name) for name in sorted(names))


def _plain(drawn: RenderableType) -> object:
    """A renderable as JSON."""
    if isinstance(drawn, str):
        return drawn
    if isinstance(drawn, Text) and not drawn.spans and isinstance(drawn.style, str):
        return {"text": drawn.plain, "style": drawn.style}
    if isinstance(drawn, Group):
        return [_plain(each) for each in drawn.renderables]
    if isinstance(drawn, Table):
        return {
            "title": drawn.title and _plain(drawn.title),
            "columns": [{key: getattr(column, key) for key in ("header", *COLUMN)} for column in drawn.columns],
            "rows": [
                [_plain(cell) for cell in row] for row in zip(*(column.cells for column in drawn.columns), strict=True)
            ],
        }
    raise TypeError(f"{drawn!r} cannot be kept")


COLUMN = ("justify", "style", "vertical", "overflow")


def _drawn(plain: object) -> RenderableType:
    """Undo `_plain`."""
    if isinstance(plain, str):
        return plain
    if isinstance(plain, list):
        return Group(*map(_drawn, plain))
    if "text" in plain:
        return Text(plain["text"], style=plain["style"])
    table = Table(title=plain["title"] and _drawn(plain["title"]), title_justify="left")
    for column in plain["columns"]:
        table.add_column(column["header"], **{key: column[key] for key in COLUMN})
    for row in plain["rows"]:
        table.add_row(*map(_drawn, row))
    return table
