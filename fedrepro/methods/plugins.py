"""Methods of other packages, as entry points: found here, and tried in processes of their own.

A plugin may fail, hang or exit where it is imported. So a process for each package imports what it adds, and tells in a
line of JSON for each entry point what a listing needs. Nothing is started where no package adds a method.
"""

from __future__ import annotations

import inspect
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Container
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn

from pydantic import PositiveInt, TypeAdapter, ValidationError

from fedrepro import PLUGINS
from fedrepro.core import parameters
from fedrepro.errors import FedreproError, UsageError
from fedrepro.records.config import NAME, NAMED, Stop, Strict, Value, first_fault

LISTING, RUN = 4.0, 60.0  # seconds that plugins have to be imported, for a list and before a run
PROBE = "import json, sys; sys.path[:], *asked = json.loads(sys.argv[1]); from fedrepro.methods import plugins; "
Points = dict[str, EntryPoint]


class Card(Strict):
    """The fields of a plugin's `Row` that need no import: a list shows them, and a plan needs them."""

    about: str
    dataset: str
    rounds: PositiveInt
    stop: Stop | None
    generates: bool
    optimiser: str
    network: str
    numerics: int


def entries(taken: Container[str]) -> tuple[Points, dict[str, str]]:
    """The entry points by name, and the faults of those that are left out for their names; nothing is imported."""
    try:
        points = sorted(entry_points(group=PLUGINS), key=lambda point: (point.name, point.value))
    except Exception as error:  # the metadata of some package are damaged
        return {}, {"of plugins": f"no plugin can be found: {told(error)}"}
    found, faults = {}, {}
    for point in points:
        if not NAME.fullmatch(point.name):
            faults[plain(point.name, 100)] = f"{_origin(point)} is left out: names have {NAMED}"
        elif point.name in taken or point.name in found:
            faults[point.name] = f"{_origin(point)} is left out: the name is taken"
        else:
            found[point.name] = point
    return found, faults


def tried(points: Points, seconds: float) -> tuple[dict[str, dict], dict[str, str]]:
    """The fields of a `Row` for each entry point, and the faults of those that have none within so many seconds."""
    packages: dict[str, Points] = {}
    for name, point in points.items():
        packages.setdefault(_package(point), {})[name] = point
    rows, faults = {}, {}
    for names, answers, ending in _asked(list(packages.values()), seconds):
        missing = [name for name in names if name not in answers]
        for name in names:
            if "card" in (answer := answers.get(name, {})):
                builder = f"{points[name].module}:{points[name].attr}"
                rows[name] = {"builder": builder, **Card.model_validate(answer["card"]).__dict__}
                continue
            first = name == next(iter(missing), name)
            fault = answer.get("fault", ending if first else f"is not tried: {missing[0]}, of its package, {ending}")
            faults[name] = f"{_origin(points[name])} {fault}"
    return rows, faults


def load(reference: str) -> Callable:
    """The builder of a plugin that was tried before, imported into this process."""
    from fedrepro.methods import Row

    try:
        found = EntryPoint("", reference, PLUGINS).load()
        return found.build if isinstance(found, Row) else found
    except (Exception, SystemExit) as error:
        raise FedreproError(f"the plugin {reference} cannot be loaded: {told(error)}.") from error


def told(error: BaseException) -> str:
    """An exception of a plugin as a part of a line."""
    try:
        return plain(f"{type(error).__name__}: {error}")
    except Exception:
        return plain(type(error).__name__)


def plain(text: str, most: int = 160) -> str:
    """Text of a plugin as a part of a line, without what would move a terminal's cursor."""
    line = " ".join(text[: 4 * most].split())
    return printable(line[:most]) + "…" * (len(line) > most)


def printable(text: str) -> str:
    """Text in which every character that is not printable is written as its escape."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _origin(point: EntryPoint) -> str:
    return plain(f"{point.value} of {_package(point)}")


def _package(point: EntryPoint) -> str:
    return point.dist and point.dist.name or "no package"


# The processes


def _asked(packages: list[Points], seconds: float) -> list[tuple[list[str], dict[str, dict], str]]:
    """Of each package the names, what its process told of them in time, and how that ended: a part of a sentence."""
    began, said, found = time.monotonic(), {}, []
    left = lambda: max(0.0, began + seconds - time.monotonic())  # noqa: E731
    with selectors.DefaultSelector() as telling:
        try:
            for points in packages:
                said[_start(points, seconds)] = b""
            for process in said:
                telling.register(process.stdout, selectors.EVENT_READ, process)
            while telling.get_map() and left():
                for key, _ in telling.select(left()):
                    said[key.data] += (more := os.read(key.fd, 1 << 16))
                    if not more:
                        telling.unregister(key.fileobj)
            for points, (process, text) in zip(packages, said.items(), strict=True):
                found.append((list(points), _answers(text), _ending(process, left(), seconds)))
        finally:
            for process in said:
                _end(process)
    return found


def _start(points: Points, seconds: float) -> subprocess.Popen:
    """A process that tells of the entry points of a package. It finds modules where this one does."""
    path = [each or os.getcwd() for each in sys.path]
    asked = json.dumps([path, *([name, point.value] for name, point in points.items())])
    code = f"{PROBE}plugins.answer(asked, {int(seconds) + 2})"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-P", "-c", code, asked], start_new_session=True, **quiet)


def _end(process: subprocess.Popen) -> None:
    """End a process, and what it has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def _answers(text: bytes) -> dict[str, dict]:
    """name -> what a process told of it; a last line may be cut off."""
    answers = {}
    for line in text.splitlines():
        with suppress(ValueError):
            answers |= json.loads(line)
    return answers


def _ending(process: subprocess.Popen, left: float, seconds: float) -> str:
    try:
        code = process.wait(max(left, 0.1))
    except subprocess.TimeoutExpired:
        return f"gives no answer in {seconds:g} seconds when it is imported: it hangs, or this machine is busy"
    how = f"is killed by {signal.Signals(-code).name}" if code < 0 else f"ends Python with exit status {code}"
    return f"{how} when it is imported"


# Inside such a process


def answer(asked: list[tuple[str, str]], seconds: int) -> NoReturn:
    """Tell of each entry point (name, value), then end, whatever threads and exit handlers there are by then."""
    signal.alarm(seconds)  # nobody may be left to end this process
    out = os.dup(1)
    os.dup2(2, 1)  # what plugins print is of no concern
    for name, value in asked:
        os.write(out, json.dumps({name: _told_of(EntryPoint(name, value, PLUGINS))}).encode() + b"\n")
    os._exit(0)


def _told_of(point: EntryPoint) -> dict:
    """{"card": ...}, or {"fault": ...}."""
    try:
        found = point.load()
    except BaseException as error:
        return {"fault": f"cannot be loaded: {told(error)}"}
    try:
        return {"card": _card(point, found).model_dump(mode="json")}
    except UsageError as error:
        return {"fault": plain(str(error))}
    except BaseException as error:
        return {"fault": f"cannot be read as the builder of a method: {told(error)}"}


def _card(point: EntryPoint, row: object) -> Card:
    """The card of what an entry point names; UsageError for what no run could be made with."""
    from fedrepro.data import DATASETS
    from fedrepro.methods import Row

    if not isinstance(row, Row):
        row = Row(row, numerics=getattr(sys.modules[point.module], "NUMERICS", 0))
    if not isinstance(row.builder, str) and (not callable(row.builder) or inspect.isbuiltin(row.builder)):
        raise UsageError(f"is a {type(row.builder).__name__}, not a builder of a method")
    inspect.signature(row.build).bind("task")
    parameters.check(row.build, {}, "")
    for name, default in row.hyper.items():
        try:
            json.dumps(TypeAdapter(Value | None).validate_python(default), allow_nan=False)
        except ValueError as error:
            raise UsageError(f"has a default of {name} that no record can hold: {default!r}") from error
        with suppress(UsageError):
            parameters.check(row.build, {name: default}, "")
    if row.dataset not in DATASETS:
        raise UsageError(f"names a dataset that does not exist: {row.dataset!r}")
    fields = {name: getattr(row, name) for name in Card.model_fields}
    try:
        return Card.model_validate(fields | {"about": plain(row.summary)}, strict=True)
    except ValidationError as error:
        raise UsageError(f"has a wrong row: {first_fault(error)}") from error
