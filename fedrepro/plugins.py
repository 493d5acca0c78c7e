"""Methods and datasets of other packages, as entry points: found here, and tried in processes of their own.

A plugin may fail, hang or exit where it is imported. So a process for each package imports what it adds, and tells in a
line of JSON for each entry point what a listing needs. Nothing is started where no package adds anything.
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
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

from pydantic import TypeAdapter

from fedrepro.core import parameters
from fedrepro.errors import FedreproError, UsageError, same, unknown
from fedrepro.records.config import NAME, NAMED, Value

LISTING, RUN = 4.0, 60.0  # seconds that plugins have to be imported, for a list and before a run
PROBE = "import json, sys; sys.path[:], *asked = json.loads(sys.argv[1]); from fedrepro import plugins; "
Points = dict[str, EntryPoint]


@dataclass(frozen=True)
class Kind:
    """One kind of plugin.

    group: of its entry points; named: the thing that one names, for a sentence.
    cards: the module that has `Card`, the model of the fields that need no import, and `card(point, found)`, which
    makes it of an entry point and what that names, or raises UsageError.
    """

    group: str
    named: str
    cards: str


def entries(kind: Kind, taken: Container[str]) -> tuple[Points, dict[str, str]]:
    """The entry points by name, and the faults of those that are left out for their names; nothing is imported."""
    try:
        points = sorted(entry_points(group=kind.group), key=lambda point: (point.name, point.value))
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


def tried(kind: Kind, points: Points, seconds: float) -> tuple[dict[str, dict], dict[str, str]]:
    """The fields of each entry point's card, with `builder`, and the faults of those without one in so many seconds."""
    model = import_module(kind.cards).Card
    packages: dict[str, Points] = {}
    for name, point in points.items():
        packages.setdefault(_package(point), {})[name] = point
    rows, faults = {}, {}
    for names, answers, ending in _asked(kind, list(packages.values()), seconds):
        missing = [name for name in names if name not in answers]
        for name in names:
            if "card" in (answer := answers.get(name, {})):
                builder = f"{points[name].module}:{points[name].attr}"
                rows[name] = {"builder": builder, **model.model_validate_json(json.dumps(answer["card"])).__dict__}
                continue
            first = name == next(iter(missing), name)
            fault = answer.get("fault", ending if first else f"is not tried: {missing[0]}, of its package, {ending}")
            faults[name] = f"{_origin(points[name])} {fault}"
    return rows, faults


def listed(kind: Kind, taken: Container[str]) -> tuple[dict[str, dict], dict[str, str]]:
    """The fields of all plugins of a kind by name, for a list, and the faults {name: reason} of those left out."""
    points, faults = entries(kind, taken)
    found, broken = tried(kind, points, LISTING)
    return found, faults | broken


def wanted(kind: Kind, taken: Collection[str], name: str, what: str) -> dict:
    """The fields of the plugin of that name, for a run.

    UsageError, about a `what`, with the fault of the plugin that has the name, or with the closest name.
    """
    points, faults = entries(kind, taken)
    found, broken = tried(kind, {name: points[name]} if name in points else {}, RUN)
    if name in found:
        return found[name]
    if fault := (faults | broken).get(plain(name, 100)):
        raise UsageError(f"{what} {plain(name, 100)!r} is broken: {fault}.")
    raise unknown(what, name, {*taken, *points})


def spelled(kind: Kind, taken: Collection[str], text: str) -> str:
    """The name of that kind, taken or a plugin's, that differs in spelling alone; else the text as it is."""
    return text if text in taken else same(text, [*taken, *entries(kind, taken)[0]])


@contextmanager
def blamed(where: str) -> Iterator[None]:
    """A block in which whatever fails is a FedreproError that names the place; one that is raised is passed on."""
    try:
        yield
    except FedreproError:
        raise
    except (Exception, SystemExit) as error:
        raise FedreproError(f"{where} raises {told(error)}.") from error


def load(reference: str) -> Any:
    """The object "module:name" of a plugin that was tried before, imported into this process."""
    try:
        return EntryPoint("", reference, "").load()
    except (Exception, SystemExit) as error:
        raise FedreproError(f"the plugin {reference} cannot be loaded: {told(error)}.") from error


def told(error: BaseException) -> str:
    """An exception of a plugin as a part of a line."""
    try:
        return plain(f"{type(error).__name__}: {error}".rstrip("."))
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


def _asked(kind: Kind, packages: list[Points], seconds: float) -> list[tuple[list[str], dict[str, dict], str]]:
    """Of each package the names, what its process told of them in time, and how that ended: a part of a sentence."""
    began, said, found = time.monotonic(), {}, []
    left = lambda: max(0.0, began + seconds - time.monotonic())  # noqa: E731
    with selectors.DefaultSelector() as telling:
        try:
            for points in packages:
                said[_start(kind, points, seconds)] = b""
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


def _start(kind: Kind, points: Points, seconds: float) -> subprocess.Popen:
    """A process that tells of the entry points of a package. It finds modules where this one does."""
    path = [each or os.getcwd() for each in sys.path]
    asked = json.dumps([path, *([name, point.value] for name, point in points.items())])
    code = f"{PROBE}plugins.answer(plugins.Kind{kind.group, kind.named, kind.cards}, asked, {int(seconds) + 2})"
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


def answer(kind: Kind, asked: list[tuple[str, str]], seconds: int) -> NoReturn:
    """Tell of each entry point (name, value), then end, whatever threads and exit handlers there are by then."""
    signal.alarm(seconds)  # nobody may be left to end this process
    out = os.dup(1)
    os.dup2(2, 1)  # what plugins print is of no concern
    for name, value in asked:
        os.write(out, json.dumps({name: _told_of(kind, EntryPoint(name, value, kind.group))}).encode() + b"\n")
    os._exit(0)


def _told_of(kind: Kind, point: EntryPoint) -> dict:
    """{"card": ...}, or {"fault": ...}."""
    try:
        found = point.load()
    except BaseException as error:
        return {"fault": f"cannot be loaded: {told(error)}"}
    try:
        return {"card": import_module(kind.cards).card(point, found).model_dump(mode="json")}
    except UsageError as error:
        return {"fault": plain(str(error)).rstrip(".")}
    except BaseException as error:
        return {"fault": f"cannot be read as a {kind.named}: {told(error)}"}


def check_builder(build: Callable, named: str, given: tuple[str, ...]) -> None:
    """UsageError, for a card, unless a builder can be called and its defaults can be recorded.

    named: as in a sentence, such as "builder of a method"; given: its positional arguments.
    """
    if not callable(build) or inspect.isbuiltin(build):
        raise UsageError(f"is a {type(build).__name__}, not a {named}")
    inspect.signature(build).bind(*given)
    parameters.check(build, {}, "")
    for name, default in parameters.defaults(build).items():
        try:
            json.dumps(TypeAdapter(Value | None).validate_python(default), allow_nan=False)
        except ValueError as error:
            raise UsageError(f"has a default of {name} that no record can hold: {default!r}") from error
        with suppress(UsageError):
            parameters.check(build, {name: default}, "")
