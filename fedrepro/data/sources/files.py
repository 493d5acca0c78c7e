"""The files of a source: which they are, what they must be, and the ways out where they are not."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedrepro.data.sources.kinds import FOLDER_VARIABLE, File, Source, folder, lent
from fedrepro.errors import UsageError

LISTED = 100  # files that a record names one by one


def files_of(source: Source, root: Path) -> tuple[File, ...]:
    """What the source's files must be: its pins or, for a source without, what is under root now.

    UsageError where there is nothing.
    """
    if source.pinned:
        return source.files
    if lacking := missing(source, root):
        raise absent(source, root, lacking[0])
    try:
        seen = [(path, (root / path).stat()) for path in source.find(root)]
        return tuple(_seen(root, path, stat.st_size, stat.st_mtime_ns) for path, stat in seen)
    except OSError as error:
        raise UsageError(f"{source.name} cannot be read ({error}): {elsewhere(source)}.") from error


def held(source: Source) -> tuple[File, ...]:
    """The source's files in the folder in use, as records list them; UsageError where there are none."""
    return listed(files_of(source, folder()))


def digests(source: Source) -> dict[str, str]:
    """path -> sha256 of what `held` lists."""
    return {file.path: file.sha256 for file in held(source)}


def fingerprint(digests: dict[str, str]) -> str:
    """sha256 of a source's digests, which stands for them."""
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


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
            hashlib.sha256("".join(f"{file.sha256} {file.path}\n" for file in held).encode()).hexdigest(),
            sum(file.bytes for file in held),
            folder,
        )
        for folder, held in folders.items()
    )


@lru_cache(maxsize=1 << 19)  # CINIC-10 has 270,000 files
def _seen(root: Path, path: str, bytes: int, modified: int) -> File:
    """A file as it is; hashed again only when its size or time has changed."""
    return File(sha256(np.fromfile(root / path, np.uint8)), bytes, path)


def missing(source: Source, root: Path) -> list[str]:
    """The paths of the source's files that are not under root; none for an embedded source."""
    if not source.pinned:
        return [] if source.find(root) else [source.sought]
    return [file.path for file in source.files if not source.embedded and not (root / file.path).is_file()]


def verified(path: Path, file: File) -> np.ndarray:
    """The bytes of the file at path, uint8; an OSError says why they are not what was pinned.

    They are read once and hashed in memory, so that what is used is what was verified.
    """
    data = np.fromfile(path, np.uint8)
    if len(data) != file.bytes:
        raise OSError(f"{path} has {len(data):,} bytes instead of {file.bytes:,}")
    if sha256(data) != file.sha256:
        raise OSError(f"{path} has the wrong checksum")
    return data


def sha256(data: np.ndarray) -> str:
    return hashlib.sha256(data).hexdigest()


def absent(source: Source, root: Path, lacking: str) -> UsageError:
    """What to say where a file of the source is not under root."""
    wrong = f"has no {lacking}" if root.is_dir() else f"is not a folder, and should have {lacking}"
    where = f"{FOLDER_VARIABLE} is {root}, which" if lent() else f"{root}"
    return UsageError(f"{where} {wrong}: {_address(source)}{elsewhere(source)}.")


def _address(source: Source) -> str:
    """How the source may be downloaded, or why it cannot be."""
    if source.download:
        return f"unset {FOLDER_VARIABLE} to download it, " if lent() else f"run `fedrepro data fetch {source.name}`, "
    if source.layout:
        return f"no copy of it is pinned, so put one into {source.name}/ ({source.layout}), "
    return "it has no public address, "


def elsewhere(source: Source) -> str:
    """The ways out that always exist."""
    first = Path(source.files[0].path) if source.pinned else Path(source.name, "any")
    held = first if first.parent == Path() else first.parent
    return f"set {FOLDER_VARIABLE} to a folder that holds {held}, or take an embedded dataset of `fedrepro data list`"
