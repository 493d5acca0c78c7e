"""`fedrepro doctor`: what is wrong in the current folder and its environment, and how to mend it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from fedrepro import methods
from fedrepro.core.precision import has_units
from fedrepro.data import discover as discover_datasets
from fedrepro.data import manifests, sources
from fedrepro.errors import FedreproError
from fedrepro.files import held
from fedrepro.judges import extractors
from fedrepro.papers.load import load_paper, papers
from fedrepro.pipeline import run as pipeline
from fedrepro.records import paths, record
from fedrepro.training.checkpoints import DAMAGED, Checkpoints

LOCK = Path("requirements.lock")
RWLOCK = Path(".dvc/tmp/rwlock")  # the files that running stages read and write
STYLES = {"fine": "green", "note": "yellow", "wrong": "bold red"}


class Finding(NamedTuple):
    """One thing looked at. `state`: fine, note (works, but is worth knowing) or wrong (something will not work).

    `text` says what was found and, where it is not fine, how to mend it.
    """

    what: str
    state: str
    text: str


Findings = Iterator[Finding]


def examine(progress: Console) -> Findings:
    """Everything that is looked at, in an order in which one would mend it; `progress` shows what takes time."""
    for check in CHECKS:
        findings = check()
        while True:
            with progress.status(f"looking at {check.__name__}"):  # nothing is printed within
                finding = next(findings, None)
            if finding is None:
                break
            yield finding


def show(finding: Finding) -> Table:
    """A finding for a rich console: a row of a table that is printed row by row."""
    row = Table.grid(Column(width=5), Column(width=24, overflow="fold"), Column(overflow="fold"), padding=(0, 1))
    row.add_row(Text(finding.state, style=STYLES[finding.state]), finding.what, finding.text)
    return row


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
            yield Finding(
                name, "note", f"{found} where the lock has {wanted}: new results may differ from recorded ones"
            )
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
            first = "downloaded when first needed, or now" if source.torchvision else "downloaded"
            fetched = f"{first} by `fedrepro data fetch {name}`"
            hint = fetched if source.public else "there is no download of it, and only training on it needs it"
        elif missing and not paths.manifest(name).exists():
            hint = "no planned run needs it"
        note = Finding(f"data {name}", "note", f"not in {root}: {hint}")
        yield note if hint else _tried(f"data {name}", lambda name=name: manifests.intact(name), "verified")


def pipeline_state() -> Findings:
    """The files that DVC keeps here, read as it reads them: it says badly what is wrong, and not how to mend it."""
    if not Path(".dvc").is_dir():
        return
    from dvc.config import Config  # slow
    from dvc.rwlock import SCHEMA
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from dvc.utils.serialize import parse_yaml

    setting = lambda text, path: Config.validate(Config.load_file(path))  # noqa: E731
    readers = {
        ".dvc/config": (setting, "`git checkout HEAD -- .dvc/config`"),
        ".dvc/config.local": (setting, "mend or remove it"),
        "dvc.lock": (
            lambda text, path: COMPILED_LOCKFILE_SCHEMA(parse_yaml(text, path)),
            "`git checkout HEAD -- dvc.lock && dvc repro`, which trains nothing that is recorded",
        ),
        str(RWLOCK): (lambda text, path: SCHEMA(json.loads(text)), f"remove {RWLOCK} while no `dvc` runs"),
    }
    wrong = False
    for path, (reader, mend) in readers.items():
        try:
            if Path(path).exists():
                reader(Path(path).read_text(encoding="utf-8"), path)
        except Exception as error:  # DVC's own, those of its parsers, UnicodeDecodeError, OSError
            wrong = True
            yield Finding(path, "wrong", f"DVC cannot read it ({_short(error)}): {mend}")
    if not wrong:
        yield _busy() or Finding("dvc", "fine", "its configuration and its locks can be read")


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
    for lock in sorted(paths.STATE.glob("*.lock")):
        if held(lock):
            yield Finding(lock.stem, "note", "being trained by another process")
    for folder in sorted(path for path in paths.STATE.glob("*") if path.is_dir() and not held(Path(f"{path}.lock"))):
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
    folders = [*record.folders(Path("runs")), *record.folders(Path("studies"))]
    found = [_tried(str(record.path(each)), lambda each=each: record.read(each), "whole") for each in folders]
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
    """Methods and datasets of other packages that were left out."""
    for kind, discover in (("method", methods.discover), ("dataset", discover_datasets)):
        rows, faults = discover()
        for name, fault in faults.items():
            yield Finding(f"{kind} {name}", "note", f"{fault}; mend or remove that package")
        yield Finding(f"{kind}s", "fine", f"{len(rows)} usable")


CHECKS: tuple[Callable[[], Findings], ...] = (
    *(environment, data, pipeline_state, planned, checkpoints, records, judges, plugins),
)


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


def _short(error: Exception) -> str:
    """The first line of an error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


def _busy() -> Finding | None:
    """The process that DVC takes for the owner of a file; of one that is gone it frees the file itself."""
    held = json.loads(RWLOCK.read_text(encoding="utf-8")) if RWLOCK.exists() else {}
    owners = [*held.get("write", {}).values(), *(each for many in held.get("read", {}).values() for each in many)]
    for owner in owners:
        with contextlib.suppress(ProcessLookupError, OverflowError, PermissionError):
            os.kill(owner["pid"], 0)
            found = (
                f"process {owner['pid']} (`{owner['cmd']}`) holds files of the pipeline: wait for it or, if that is "
            )
            return Finding("dvc", "note", f"{found}no `dvc` any more, remove {RWLOCK}")
    return None


def _whole(kept: Checkpoints, path: Path) -> bool:
    try:
        kept.read(path)
    except DAMAGED:
        return False
    return True
