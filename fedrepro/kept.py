"""What takes long to find, kept in .fedrepro/ for as long as every file behind it has the size and time that it had."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

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

    `make` gives a Table, a Text or a Group of them. Nothing is kept beside plugins, which may change anywhere.
    """
    if not _project(".") or _plugins():
        return make()
    made = []

    def plain() -> object:
        made.append(make())
        return _plain(made[0])

    found = value(name, _behind_all(), plain)
    return made[0] if made else _drawn(found)


def value(name: str, stamp: str, find: Callable[[], Any], root: str | Path = ".") -> Any:
    """What `find()` gives, which is JSON, or what it gave the last time, if that was with the same stamp.

    Nothing is kept outside of a project.
    """
    if not _project(root):
        return find()
    path = Path(root) / FOLDER / f"{name}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):  # nothing is kept, or it is damaged
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["stamp"] == stamp:
            return kept["value"]
    found = find()
    with suppress(FedreproError):  # a folder that nobody may write to keeps nothing
        write_text(path, json.dumps({"stamp": stamp, "value": found}))
    return found


def files(place: Path) -> list[Path]:
    """The files in a folder and below, also where a folder is a link; a file itself."""
    below = [Path(folder, name) for folder, _, names in os.walk(place, followlinks=True) for name in names]
    return below if place.is_dir() else [place]


def stamp(paths: Iterable[Path], *more: str) -> str:
    """sha256 of the names, sizes and times of files, in whatever order, and of what else matters."""
    digest = hashlib.sha256("\n".join(more).encode())
    for path in sorted(paths):
        with suppress(OSError):  # it is gone by now
            found = path.stat()
            digest.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _project(root: str | Path) -> bool:
    return (Path(root) / "params.yaml").exists()


def _plugins() -> bool:
    try:
        return bool(entry_points(group=PLUGINS))
    except Exception:  # the metadata of some package are damaged, which the listing of methods says
        return True


def _behind_all() -> str:
    """The stamp of all that any listing may show."""
    variable, cache = DATA
    lent = os.environ.get(variable, "")
    places = Path("params.yaml"), Path("papers"), Path("runs"), Path(lent or cache).expanduser()
    found = (path for place in places for path in files(place))
    return stamp([*PACKAGE.rglob("*.py"), *found], sys.version, version("numpy"), lent)


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
