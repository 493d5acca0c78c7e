"""`fedrepro doctor`: what is wrong in the current folder and its environment, and how to mend it."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import filelock
import torch
from rich.table import Table
from rich.text import Text

from fedrepro import methods
from fedrepro.cli.show import listed
from fedrepro.core.precision import has_units
from fedrepro.data import manifests, sources
from fedrepro.errors import FedreproError
from fedrepro.judges import extractors
from fedrepro.papers.load import load_paper, papers
from fedrepro.pipeline import run as pipeline
from fedrepro.records import record
from fedrepro.records.paths import STATE
from fedrepro.training.checkpoints import DAMAGED, Checkpoints

LOCK = Path("requirements.lock")
STYLES = {"fine": "green", "note": "yellow", "wrong": "bold red"}


class Finding(NamedTuple):
    """One thing looked at. `state`: fine, note (works, but is worth knowing) or wrong (something will not work).

    `text` says what was found and, where it is not fine, how to mend it.
    """

    what: str
    state: str
    text: str


Findings = Iterator[Finding]


def examine() -> list[Finding]:
    """Everything that is looked at, in an order in which one would mend it."""
    return [finding for check in CHECKS for finding in check()]


def show(findings: list[Finding]) -> Table:
    """The findings for a rich console."""
    return listed(("what", "state", "found"), ((w, Text(s, style=STYLES[s]), text) for w, s, text in findings))


def enforce(findings: list[Finding]) -> None:
    """Raise FedreproError if something is wrong."""
    if wrong := [finding.what for finding in findings if finding.state == "wrong"]:
        raise FedreproError(f"not in order: {', '.join(dict.fromkeys(wrong))}; the table says how to mend it.")


def environment() -> Findings:
    """The packages that fedrepro needs, against the lock where there is one. (An older Python cannot install it.)"""
    yield Finding("python", "fine", platform.python_version())
    locked, count = _locked(), 0
    for name in _required():
        found, wanted = _version(name), locked.get(name)
        if found is None:
            yield Finding(name, "wrong", f"not installed: install it, with `make setup` or `pip install {name}`")
        elif wanted not in (None, found):
            yield Finding(name, "note", f"{found} where the lock has {wanted}: results may differ in the last digits")
        else:
            count += 1
    against = f"as in {LOCK}" if locked else f"there is no {LOCK} here to compare with"
    yield Finding("packages", "fine", f"{count} installed, {against}")
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "none, so the CPU is used"
    units, threads = "with" if has_units() else "without", torch.get_num_threads()
    yield Finding("device", "fine", f"{threads} CPU thread{'s' * (threads != 1)}, {units} bfloat16 units; CUDA: {name}")


def data() -> Findings:
    """Each source: there and verified, or what to do."""
    root = sources.folder()
    for name, source in sources.SOURCES.items():
        missing, hint = sources.missing(source, root), ""
        if missing and not sources.lent():
            fetched = f"downloaded when first needed, or now by `fedrepro data fetch {name}`"
            hint = fetched if source.torchvision else "there is no download of it, and only training on it needs it"
        elif missing and not (manifests.FOLDER / f"{name}.json").exists():
            hint = "no planned run needs it"
        note = Finding(f"data {name}", "note", f"not in {root}: {hint}")
        yield note if hint else _tried(f"data {name}", lambda name=name: manifests.verify(name), "verified")


def planned() -> Findings:
    """The specs of all papers, and how many of their runs have a current record."""
    if not papers():
        yield Finding("papers", "note", "there is no papers/ here: planned runs need the project's folder")
        return
    for name in papers():
        try:
            runs = pipeline.planned([load_paper(name)])
            todo = [run for run in runs if not run.recorded]
        except FedreproError as error:
            yield Finding(name, "wrong", str(error))
            continue
        lacking = f"{len(todo)} of {len(runs)} runs have no current record: `fedrepro run {name}` trains them"
        yield Finding(name, "note" if todo else "fine", lacking if todo else f"{len(runs)} runs, all recorded")


def checkpoints() -> Findings:
    """Runs that are being trained, and the checkpoints of those that were interrupted."""
    for lock in sorted(STATE.glob("*.lock")):
        if _held(lock):
            yield Finding(lock.stem, "note", "being trained by another process")
    for folder in sorted(path for path in STATE.glob("*") if path.is_dir() and not _held(Path(f"{path}.lock"))):
        kept = Checkpoints(folder, {}, lambda line: None)
        damaged = [path for path in kept.paths() if not _whole(kept, path)]
        if damaged and len(damaged) == len(kept.paths()):
            yield Finding(folder.name, "wrong", f"no checkpoint can be read: remove {folder} to train anew")
        elif damaged:
            yield Finding(folder.name, "note", f"{damaged[0]} is damaged: the other checkpoint will be used")
        elif kept.paths():
            yield Finding(folder.name, "note", "interrupted: the same command goes on from its checkpoint")


def records() -> Findings:
    """The records under runs/ and studies/, each with its curves."""
    paths = sorted([*Path("runs").rglob("record.json"), *Path("studies").rglob("record.json")])
    found = [_tried(str(path), lambda path=path: record.read(path.parent), "whole") for path in paths]
    faulty = [each for each in found if each.state == "wrong"]
    yield from (e._replace(text=f"{e.text}: restore it from git, or remove it and train again") for e in faulty)
    yield Finding("records", "fine", f"{len(found) - len(faulty)} whole")


def judges() -> Findings:
    """The networks that generated images are judged by."""
    absent = "not at hand, so that no distance is a FID: `fedrepro extractor inception` downloads it"
    yield _tried("extractor inception", extractors.inception, "whole", absent)
    for source in sorted(said.stem.removesuffix("-cnn") for said in extractors.FOLDER.glob("*-cnn.json")):
        yield _tried(f"extractor {source}", lambda source=source: extractors.classifier(source), "whole")


def plugins() -> Findings:
    """Methods of other packages that were left out."""
    rows, faults = methods.discover()
    for name, fault in faults.items():
        yield Finding(f"method {name}", "note", f"{fault}; mend or remove that package")
    yield Finding("methods", "fine", f"{len(rows)} usable")


CHECKS: tuple[Callable[[], Findings], ...] = (environment, data, planned, checkpoints, records, judges, plugins)


def _tried(what: str, check: Callable[[], object], fine: str, absent: str = "") -> Finding:
    """What a check finds that raises FedreproError with what is wrong, and may return None for what is `absent`."""
    try:
        lacking = check() is None and absent
    except FedreproError as error:
        return Finding(what, "wrong", str(error))
    return Finding(what, "note", absent) if lacking else Finding(what, "fine", fine)


def _required() -> list[str]:
    """The names of the packages that fedrepro needs to run."""
    lines = metadata.distribution("fedrepro").requires or []
    return [re.match(r"[\w.-]+", line)[0].lower() for line in lines if "extra ==" not in line]


def _locked() -> dict[str, str]:
    """name -> version from the lock; empty without one."""
    text = LOCK.read_text(encoding="utf-8") if LOCK.exists() else ""
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.M))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _held(lock: Path) -> bool:
    """Whether another process holds a lock; the file itself outlives its holders."""
    try:
        with filelock.FileLock(lock, timeout=0):
            return False
    except filelock.Timeout:
        return True


def _whole(kept: Checkpoints, path: Path) -> bool:
    try:
        kept.read(path)
    except DAMAGED:
        return False
    return True
