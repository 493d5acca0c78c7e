"""The files of a source: which they are, what they must be, and the ways out where they are not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedrepro.data.sources.catalogue import File, Source
from fedrepro.downloads import FOLDER_VARIABLE, folder, lent, wrong_checksum
from fedrepro.errors import UsageError
from fedrepro.files import sha256

LISTED = 100  # files that a record names one by one
PICTURES = {".jpg", ".jpeg", ".png"}  # of a pattern that leaves the suffix open


def files_of(source: Source, root: Path) -> tuple[File, ...]:
    """The source's files as they must be: its pins or, for a source without, those that are under root now.

    UsageError where there is nothing.
    """
    if source.pinned:
        return source.files
    require(source, root)
    with _readable(source):
        seen = [(path, (root / path).stat()) for path in found(source, root)]
        return tuple(_seen(root, path, stat.st_size, stat.st_mtime_ns) for path, stat in seen)


def found(source: Source, root: Path) -> list[str]:
    """The paths under root of the files of a source without pins: those of its first layout that is there."""
    for patterns in source.patterns:
        matches = [
            [path for path in root.glob(each) if Path(each).suffix or path.suffix.lower() in PICTURES]
            for each in patterns
        ]
        if all(matches):
            return [path for each in matches for path in sorted(path.relative_to(root).as_posix() for path in each)]
    return []


@lru_cache(maxsize=1 << 19)  # CINIC-10 has 270,000 files
def _seen(root: Path, path: str, bytes: int, modified: int) -> File:
    """A file as it is; hashed again only when its size or time has changed."""
    return File(sha256(np.fromfile(root / path, np.uint8)), bytes, path)


def listed(files: tuple[File, ...]) -> tuple[File, ...]:
    """Files as a record lists them: thousands are one entry for each folder below the first, of all that it holds.

    Its sha256 is that of the lines "sha256 path" of its files, in their order.
    """
    if len(files) <= LISTED:
        return files
    folders: dict[str, list[File]] = {}
    for file in files:
        folders.setdefault("/".join(Path(file.path).parts[:2]) + "/", []).append(file)
    return tuple(
        File(
            sha256("".join(f"{file.sha256} {file.path}\n" for file in held).encode()),
            sum(file.bytes for file in held),
            folder,
        )
        for folder, held in folders.items()
    )


def held(source: Source) -> tuple[File, ...]:
    """The source's files in the folder in use, as records list them; UsageError where there are none."""
    return listed(files_of(source, folder()))


def digests(source: Source) -> dict[str, str]:
    """path -> sha256 of what `held` lists."""
    return {file.path: file.sha256 for file in held(source)}


def fingerprint(digests: dict[str, str]) -> str:
    """sha256 of a source's digests, which stands for them."""
    return sha256(json.dumps(digests, sort_keys=True).encode())


def missing(source: Source, root: Path) -> list[str]:
    """The paths of the source's files that are not under root; none for an embedded source."""
    if not source.pinned:
        return [] if found(source, root) else [source.sought]
    return [file.path for file in source.files if not source.embedded and not (root / file.path).is_file()]


def contents(source: Source, root: Path) -> Iterator[tuple[str, np.ndarray]]:
    """The path and the bytes of each file, uint8, read once and verified in memory: what is used is what was verified.

    UsageError where they are not what was pinned or, without pins, not what they were when they were found.
    """
    with _readable(source):
        for file in files_of(source, root):
            content = np.fromfile(root / file.path, np.uint8)
            check(root / file.path, content, file)
            yield file.path, content


def check(path: str | Path, data: np.ndarray | bytes, file: File) -> None:
    """Raise OSError, which names the path, for content that is not what was pinned."""
    if len(data) != file.bytes:
        raise OSError(f"{path} has {len(data):,} bytes instead of {file.bytes:,}")
    if (digest := sha256(data)) != file.sha256:
        raise wrong_checksum(path, file.sha256, digest)


def require(source: Source, root: Path) -> None:
    """UsageError, with the ways out, where a file of the source is not under root."""
    if not (lacking := missing(source, root)):
        return
    wrong = f"has no {lacking[0]}" if root.is_dir() else f"is not a folder, and should have {lacking[0]}"
    where, address = f"{root}", "it has no public address"
    if lent():
        where = f"{FOLDER_VARIABLE} is {root}, which"
    if source.public:
        address = f"unset {FOLDER_VARIABLE} to download it" if lent() else f"run `fedrepro data fetch {source.name}`"
    if source.layout:
        copy = f"put a copy into {source.name}/ ({source.layout})"
        address = f"{address}, {copy}" if source.public else copy
    raise UsageError(f"{where} {wrong}: {address}, {elsewhere(source)}.")


@contextmanager
def _readable(source: Source) -> Iterator[None]:
    """An OSError becomes a UsageError, with the ways out."""
    try:
        yield
    except OSError as error:
        mend = "put the original there" if lent() else f"run `fedrepro data fetch {source.name}`"
        raise UsageError(f"{error}: {mend}, {elsewhere(source)}.") from error


def elsewhere(source: Source) -> str:
    """The ways out that always exist."""
    first = Path(source.files[0].path) if source.pinned else Path(source.name, "any")
    held = first if first.parent == Path() else first.parent
    return f"set {FOLDER_VARIABLE} to a folder that holds {held}, or take an embedded dataset of `fedrepro data list`"
