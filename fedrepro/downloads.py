"""Downloads: the folder that files are read from, and how those that are missing come into the cache, verified."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from fedrepro.errors import UsageError
from fedrepro.files import sha256, write_bytes

FOLDER_VARIABLE = "FEDREPRO_DATA_DIR"
CACHE = Path("data/cache")
SILENCE = 5.0  # seconds without an answer from a server before it is given up
FAILURES = (OSError, EOFError, zlib.error, HTTPException, ValueError)  # ValueError: a malformed address


def folder() -> Path:
    """The folder that files of data and weights are read from."""
    return Path(os.environ.get(FOLDER_VARIABLE) or CACHE).expanduser().absolute()


def lent() -> bool:
    """Whether that folder is the user's own, which is never written to."""
    return bool(os.environ.get(FOLDER_VARIABLE))


def download(
    root: Path, addresses: Mapping[str, Sequence[str]], check: Callable[[str, bytes], object], what: str, advice: str
) -> None:
    """Download files, check all of them, and only then write them under root: a failure leaves nothing.

    addresses: path under root -> the URLs of the file, of which the first good one counts; gzip is unpacked, unless it
    is the file itself. check: raises an OSError for a path and a content that is not the right one. Raises UsageError,
    which says that `what` could not be downloaded, what each address answered, and the `advice`.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        contents = {path: _content(path, urls, check) for path, urls in addresses.items()}
    except FAILURES as error:
        raise UsageError(f"{what} could not be downloaded ({_reason(error)}): {advice}.") from error
    for path, content in contents.items():
        write_bytes(root / path, content)


def _content(path: str, urls: Sequence[str], check: Callable[[str, bytes], object]) -> bytes:
    answers = []
    for url in urls:
        try:
            content = _answer(url)
            content = gzip.decompress(content) if url.endswith(".gz") and not path.endswith(".gz") else content
            check(path, content)
            return content
        except FAILURES as error:
            answers.append(f"{url}: {_reason(error)}")
    raise OSError("; ".join(answers))


def json_of(url: str, what: str, advice: str) -> Any:
    """The JSON that an address answers; UsageError, as of `download`, where it does not."""
    try:
        return json.loads(_answer(url))
    except FAILURES as error:
        raise UsageError(f"{what} could not be downloaded ({url}: {_reason(error)}): {advice}.") from error


def _answer(url: str) -> bytes:
    with urlopen(Request(url, headers={"User-Agent": "fedrepro"}), timeout=SILENCE) as answer:
        return answer.read()


def _reason(error: Exception) -> str:
    *_, reason = type(error).__name__, *str(error).strip().splitlines()
    return reason.strip("<>")


def check_named(path: str | Path, content: bytes) -> None:
    """Raise OSError unless the sha256 of the content begins as the file's name ends, as in name-5c106cde.pth."""
    found, wanted = sha256(content), Path(path).stem.rpartition("-")[2]
    if not found.startswith(wanted):
        raise wrong_checksum(path, wanted, found)


def wrong_checksum(path: str | Path, wanted: str, found: str) -> OSError:
    """The error for a content that has another sha256 than it should."""
    return OSError(f"{path} has the wrong checksum, sha256 {found[:12]} and not {wanted[:12]}")
