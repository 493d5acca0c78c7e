"""The verdict on all results, made anew whenever something that it depends on has changed."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import version
from pathlib import Path

from fedrepro import kept, page, verdicts
from fedrepro.files import file_digest, write_text
from fedrepro.verdicts import Report

STAMP = Path(".fedrepro/checked")  # of what the verdict in reports/check.json is, on this machine
PACKAGE = Path(__file__).parent
DRAWN_BY = ("jinja2", "markdown-it-py", "matplotlib", "numpy")


def run(root: str | Path = ".") -> Report:
    """Check tables, figures and claims of every paper from the records; write reports/check.json and agreement/.

    Rendering everything takes seconds, so a verdict stands until any file of `inputs` has another content.
    `Report.enforce` raises. Raises UsageError where there are no papers.
    """
    root = Path(root)
    digest = _digest(root)
    report = _kept(root, digest)
    if report is None:
        from fedrepro import verify  # slow to import

        report = verify.everything(root)
    for path, text in report.files(root).items():
        if not path.exists() or path.read_bytes() != text.encode():
            write_text(path, text)
    if (stamp := _stamp(root, digest)) != _read(root / STAMP):
        write_text(root / STAMP, stamp)
    return report


def inputs(root: Path) -> list[Path]:
    """The files that a verdict depends on: papers, planned runs, what was rendered of them, and this package."""
    folders = [path for folder in ("papers", "runs", "reports") for path in sorted((root / folder).glob("*"))]
    apart = (root / "runs" / "adhoc", root / "reports" / "agreement", verdicts.path(root))
    found = [path for folder in folders if folder not in apart for path in kept.files(folder)]
    own = [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / source for source in page.sources())]
    return sorted({*found, *own, *(root / "docs").glob("protocol-*.md"), root / "params.yaml"})


def _digest(root: Path) -> str:
    """sha256 of the inputs' contents, and of the versions of what draws figures and resamples seeds.

    They are read anew where a file has another size or time than it had then.
    """
    files, versions = inputs(root), " ".join((sys.version, *map(version, DRAWN_BY)))
    return kept.value("inputs", kept.stamp(files, versions), lambda: _contents(files, versions), root)


def _contents(files: list[Path], versions: str) -> str:
    digest = hashlib.sha256(versions.encode())
    for path in files:
        content = path.read_bytes() if path.exists() else b""
        digest.update(f"\n{path} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _kept(root: Path, digest: str) -> Report | None:
    """The verdict of the last check if it still stands."""
    if not verdicts.path(root).exists() or _stamp(root, digest) != _read(root / STAMP):
        return None
    return verdicts.parse(verdicts.path(root).read_text(encoding="utf-8"))


def _stamp(root: Path, digest: str) -> str:
    """Which verdict was made of which inputs."""
    return f"{digest} {file_digest(verdicts.path(root))}\n"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
