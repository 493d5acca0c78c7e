"""Sources: raw images and labels, pinned by sha256 and verified before each use.

A source on disk is looked for in the folder that FEDREPRO_DATA_DIR names, which is only ever read, or else in
`data/cache` under the current directory, into which missing files are downloaded. Nothing reaches the cache before
it is verified, and everything is verified again when it is read. Whatever is wrong with data is a UsageError.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from fedrepro.data.sources.catalogue import SOURCES
from fedrepro.data.sources.downloads import SILENCE, quietly
from fedrepro.data.sources.files import absent, digests, files_of, fingerprint, held, listed, missing, verified
from fedrepro.data.sources.kinds import CACHE, FOLDER_VARIABLE, File, Raw, Source, folder, lent, sized
from fedrepro.errors import UsageError

__all__ = [
    "CACHE",
    "FOLDER_VARIABLE",
    "SILENCE",
    "SOURCES",
    "File",
    "Raw",
    "Source",
    "digests",
    "fetch",
    "files_of",
    "fingerprint",
    "folder",
    "held",
    "lent",
    "listed",
    "missing",
    "quietly",
    "raw",
    "read",
    "sized",
]


def raw(source: Source) -> Raw:
    """The source's data: downloaded if missing, verified once per process and folder, shared by its callers."""
    return _raw(source, folder())


@lru_cache(maxsize=4)
def _raw(source: Source, root: Path) -> Raw:
    if source.download and missing(source, root) and not lent():
        source.download(source, root)
    return read(source, root)


def read(source: Source, root: Path) -> Raw:
    """The source's data as found under root, verified: checksums, sizes, counts and label range."""
    if lacking := missing(source, root):
        raise absent(source, root, lacking[0])
    data = source.read(source, root)
    for x, y, rows in (data.train_x, data.train_y, source.train), (data.test_x, data.test_y, source.test):
        if rows is not None and (len(x), len(y)) != (rows, rows):
            raise UsageError(f"{source.name} has {len(x):,} images and {len(y):,} labels where {rows:,} are expected.")
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < source.classes:
            raise UsageError(f"{source.name} has labels outside 0..{source.classes - 1}.")
    return data


def fetch(source: Source) -> Raw:
    """The source's data, verified; missing or damaged files of the cache are downloaded (again) first."""
    root = folder()
    if source.download and not lent() and (missing(source, root) or _damaged(source, root)):
        source.download(source, root)
    return read(source, root)


def _damaged(source: Source, root: Path) -> bool:
    try:
        for file in source.files:
            verified(root / file.path, file)
    except OSError:
        return True
    return False
