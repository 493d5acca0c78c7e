"""Writing files so that a reader finds the old content or the new, never a part of either."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from fedrepro.errors import FedreproError, UsageError

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
        raise FedreproError(f"writing {path} failed: {error.strerror}.") from error
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


def file_digest(path: Path) -> str:
    """sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
