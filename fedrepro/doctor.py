"""`fedrepro doctor`: what is wrong in the current folder and its environment, and how to mend it."""

from __future__ import annotations

import contextlib
import json
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import filelock
import torch
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from fedrepro import extractors, methods, plan
from fedrepro.checkpoints import DAMAGED, Checkpoints
from fedrepro.data import manifests, sources
from fedrepro.errors import FedreproError
from fedrepro.evaluate import Record
from fedrepro.products import has_units
from fedrepro.runs import STATE, file_digest
from fedrepro.schema import first_fault
from fedrepro.spec import papers

LOCK = Path("requirements.lock")
STYLES = {"fine": "green", "note": "yellow", "wrong": "bold red"}


@dataclass(frozen=True)
class Finding:
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
    drawn = Table()
    for head in ("what", "state", "found"):
        drawn.add_column(head, overflow="fold")
    for finding in findings:
        drawn.add_row(finding.what, Text(finding.state, style=STYLES[finding.state]), finding.text)
    return drawn


def enforce(findings: list[Finding]) -> None:
    """Raise FedreproError if something is wrong."""
    wrong = [finding.what for finding in findings if finding.state == "wrong"]
    if wrong:
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
    for source in sources.SOURCES.values():
        missing = sources.missing(source, root)
        if missing and not sources.lent():
            fetched = f"downloaded when first needed, or now by `fedrepro data fetch {source.name}`"
            hint = fetched if source.download else "there is no download of it, and only training on it needs it"
            yield Finding(f"data {source.name}", "note", f"not in {root}: {hint}")
            continue
        if missing and not (manifests.FOLDER / f"{source.name}.json").exists():
            yield Finding(f"data {source.name}", "note", f"not in {root}: no planned run needs it")
            continue
        try:
            manifests.verify(source.name)
        except FedreproError as error:
            yield Finding(f"data {source.name}", "wrong", str(error))
        else:
            yield Finding(f"data {source.name}", "fine", "verified")


def generated() -> Findings:
    """The generated files of all papers."""
    if not papers():
        yield Finding("generated files", "note", "there is no papers/ here: planned runs need the project's folder")
        return
    try:
        plan.check()
    except FedreproError as error:
        yield Finding("generated files", "wrong", str(error))
    else:
        yield Finding("generated files", "fine", "as the specs say")


def checkpoints() -> Findings:
    """Runs that are being trained, and the checkpoints of those that were interrupted."""
    for lock in sorted(STATE.glob("*.lock")):
        if _held(lock):
            yield Finding(lock.stem, "note", "being trained by another process")
    for folder in sorted(path for path in STATE.glob("*") if path.is_dir() and not _held(Path(f"{path}.lock"))):
        kept = Checkpoints(folder, {}, lambda line: None)
        damaged = [path for path in kept.proofs() if not _whole(kept, path)]
        if damaged and len(damaged) == len(kept.proofs()):
            yield Finding(folder.name, "wrong", f"no checkpoint can be read: remove {folder} to train anew")
        elif damaged:
            yield Finding(folder.name, "note", f"{damaged[0]} is damaged: the other checkpoint will be used")
        elif kept.proofs():
            yield Finding(folder.name, "note", "interrupted: the same command goes on from its checkpoint")


def records() -> Findings:
    """The records under runs/, each with its curves."""
    whole = 0
    for path in sorted(Path("runs").rglob("record.json")):
        if fault := _fault(path):
            yield Finding(str(path), "wrong", f"{fault}: restore it from git, or remove it and train again")
        else:
            whole += 1
    yield Finding("records", "fine", f"{whole} whole")


def judges() -> Findings:
    """The networks that generated images are judged by."""
    try:
        found = extractors.inception()
    except FedreproError as error:
        yield Finding("extractor inception", "wrong", str(error))
    else:
        absent = "not at hand, so that no distance is a FID: `fedrepro extractor inception` downloads it"
        yield Finding("extractor inception", "fine" if found else "note", "whole" if found else absent)
    for said in sorted(extractors.FOLDER.glob("*-cnn.json")):
        source = said.stem.removesuffix("-cnn")
        try:
            extractors.classifier(source)
        except FedreproError as error:
            yield Finding(f"extractor {source}", "wrong", str(error))
        else:
            yield Finding(f"extractor {source}", "fine", "whole")


def plugins() -> Findings:
    """Methods of other packages that were left out."""
    rows, faults = methods.discover()
    for name, fault in faults.items():
        yield Finding(f"method {name}", "note", f"{fault}; mend or remove that package")
    yield Finding("methods", "fine", f"{len(rows)} usable")


CHECKS: tuple[Callable[[], Findings], ...] = (environment, data, generated, checkpoints, records, judges, plugins)


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


def _whole(kept: Checkpoints, proof: Path) -> bool:
    with contextlib.suppress(*DAMAGED):
        kept.read(proof)
        return True
    return False


def _fault(path: Path) -> str:
    """What is wrong with a record; empty if nothing is."""
    try:
        content = path.read_bytes()
        Record.model_validate_json(content)
        if json.loads(content).get("curves") != file_digest(path.with_name("curves.csv")):
            return "does not belong to the curves.csv beside it"
        for shown in path.parent.glob("samples.*"):
            if json.loads(content).get("samples") != file_digest(shown):
                return f"does not belong to the {shown.name} beside it"
    except ValidationError as error:
        return f"is damaged ({first_fault(error).rstrip('.')})"
    except OSError as error:
        return f"cannot be read ({error.strerror}: {Path(error.filename).name})"
    return ""
