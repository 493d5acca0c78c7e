"""Writing files so that a reader finds the old content or the new, never a part of either."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path

from typing_extensions import Buffer

from fedrepro.errors import FedreproError, UsageError

PARTS = ".*.part"  # what is being written, or was when its process was killed
MISPLACED = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError, FileNotFoundError)


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Replace a file by `content`: temporary file beside it, flush, fsync, rename.

    Makes the folders that are missing. Raises UsageError where the path cannot be written at all, FedreproError where
    writing failed (a full disk); the old file is then as it was.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(part, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        _sync(path.parent)
    except MISPLACED as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place.") from error
    except OSError as error:
        full = _room(path, len(content)) if error.errno == errno.ENOSPC else ""
        raise FedreproError(f"writing {path} failed: {error.strerror}{full}.") from error
    return path


def write_text(path: str | Path, text: str) -> Path:
    """`write_bytes` for text, as UTF-8 with the line ends that it has."""
    return write_bytes(path, text.encode())


def write_json(path: str | Path, value: object) -> Path:
    """`write_bytes` for JSON that git can compare line by line; NaN is refused, since it is no JSON."""
    return write_text(path, json_text(value))


def json_text(value: object) -> str:
    """The text that `write_json` writes: keys in the order given, so equal values give equal bytes."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sha256(content: str | Buffer) -> str:
    """sha256 of bytes, of an array's, or of a text as UTF-8."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def file_digest(path: Path) -> str:
    """sha256 of a file."""
    return sha256(path.read_bytes())


def sealed(value: dict) -> dict:
    """The value with `seal`, the sha256 of its JSON, as its last key."""
    return value | {"seal": sha256(json_text(value))}


def unsealed(content: bytes) -> dict:
    """The value of a file that `sealed` wrote; ValueError where it is no JSON, or was changed since."""
    try:
        value = json.loads(content)
        whole = isinstance(value, dict) and value.pop("seal", "") == sha256(json_text(value))
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not whole:
        raise ValueError("it was changed after it was written")
    return value


def held(lock: Path) -> bool:
    """Whether another process holds a lock; nothing is written to find out."""
    if not lock.exists():
        return False
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _room(path: Path, needed: int) -> str:
    """The room on the full disk of a path, where not even its folder may be, and what to do."""
    folder = next(each for each in path.absolute().parents if each.exists())
    free = shutil.disk_usage(folder).free
    return f", {free:,} bytes are free and {needed:,} needed; make room, then give the same command again"


def _sync(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
