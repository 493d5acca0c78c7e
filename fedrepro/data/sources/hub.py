"""Datasets as parquet files on Hugging Face: which files a source has there, and how they come into the cache.

A repository is read at one revision, a commit. The hub says the sha256 of each file, and what arrives must have it. The
first fetch of a source writes revision and checksums to data/hub.lock; every later one must get the same files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from fedrepro import downloads, files
from fedrepro.data.sources.catalogue import File, Source
from fedrepro.data.sources.files import check, elsewhere
from fedrepro.errors import UsageError, short
from fedrepro.records.config import Strict, first_fault
from fedrepro.records.paths import HUB_LOCK as LOCK

ADDRESS, ADDRESS_VARIABLE = "https://huggingface.co", "HF_ENDPOINT"  # the variable of Hugging Face's own tools
COMMIT, SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")
TABLE = re.compile(r"(?:[\w-]+/)*[\w-]+\.parquet", re.ASCII)


class Locked(Strict):
    """The files that were fetched from a repository, with their paths there."""

    repository: str
    revision: str
    files: tuple[File, ...]


def fetch(source: Source, root: Path) -> None:
    """Download the parquet files of a source into its folder under root; all are verified before one is there.

    UsageError where they cannot be had, or are not what the lock says.
    """
    locked, advice = _locks().get(source.name), elsewhere(source)
    if locked and locked.repository != source.hub:
        fault = f"{LOCK} has {source.name} from {locked.repository}, where it is {source.hub} now"
        raise UsageError(f"{fault}: remove that entry to fetch and lock it anew.")
    found = locked or _listed(source, advice)
    wanted = {f"{source.name}/{Path(file.path).name}": file for file in found.files}
    base = f"{_address()}/datasets/{found.repository}/resolve/{found.revision}"
    urls = {path: [f"{base}/{quote(file.path)}"] for path, file in wanted.items()}
    if locked:
        advice = f"if these files are gone, remove {source.name} from {LOCK} to lock newer ones, or {advice}"
    what = f"{source.name} is not in {root} and"
    downloads.download(root, urls, lambda path, content: check(path, content, wanted[path]), what, advice)
    if not locked:
        kept = {name: each.model_dump(mode="json") for name, each in (_locks() | {source.name: found}).items()}
        files.write_json(LOCK, dict(sorted(kept.items())))


def _listed(source: Source, advice: str) -> Locked:
    """The parquet files of a repository at the source's revision, or at the newest one."""
    api, what = f"{_address()}/api/datasets/{source.hub}", f"the list of the files of {source.name}"
    revision = source.revision
    if not revision:
        newest = downloads.json_of(f"{api}/revision/main", what, advice)
        revision = newest.get("sha") if isinstance(newest, dict) else None
    if not isinstance(revision, str) or not COMMIT.fullmatch(revision):
        raise UsageError(f"{api} names no commit as its newest revision: {advice}.")
    listed = downloads.json_of(f"{api}/tree/{revision}?recursive=true", what, advice)
    try:
        tables = [each for each in listed if each["type"] == "file" and each["path"].endswith(".parquet")]
        found = tuple(File(each["lfs"]["oid"], each["lfs"]["size"], each["path"]) for each in tables)
        found = TypeAdapter(tuple[File, ...]).validate_python(found, strict=True)
        names = {Path(file.path).name for file in found}
        if not all(TABLE.fullmatch(file.path) and SHA256.fullmatch(file.sha256) for file in found):
            raise ValueError("a path or checksum of another form")
        if not found or len(names) != len(found):
            raise ValueError("no files, or two of one name")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{api} lists no parquet files with checksums at {revision[:12]}: {advice}.") from error
    return Locked(repository=source.hub, revision=revision, files=tuple(sorted(found, key=lambda file: file.path)))


def _locks() -> dict[str, Locked]:
    """The locked files by source; UsageError for a lock that cannot be read."""
    try:
        return TypeAdapter(dict[str, Locked]).validate_json(LOCK.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        raise UsageError(f"{LOCK} cannot be read ({first_fault(error)}): restore it from git, or remove it.") from error


def _address() -> str:
    """The address of the hub. UsageError where the user's own does not begin as one."""
    found = (os.environ.get(ADDRESS_VARIABLE) or ADDRESS).rstrip("/")
    if not found.startswith(("https://", "http://")):
        raise UsageError(f"{ADDRESS_VARIABLE} is {short(repr(found))}: write it with https:// in front, or unset it.")
    return found
