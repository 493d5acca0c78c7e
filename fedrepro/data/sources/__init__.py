"""Sources: raw images and labels, pinned by sha256 and verified before each use.

A source on disk is looked for in the folder that FEDREPRO_DATA_DIR names, which is only ever read, or else in
`data/cache` under the current directory, into which missing files are downloaded. Nothing reaches the cache before
it is verified, and everything is verified again when it is read. Whatever is wrong with data is a UsageError.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import numpy as np

from fedrepro import downloads, plugins
from fedrepro.data.sources import files, hub
from fedrepro.data.sources.catalogue import SOURCES, File, Raw, Source
from fedrepro.data.sources.files import digests, fingerprint, held, missing
from fedrepro.downloads import CACHE, FOLDER_VARIABLE, folder, lent
from fedrepro.errors import FedreproError, UsageError

__all__ = [
    "CACHE", "FOLDER_VARIABLE", "SOURCES", "File", "Raw", "Source", "digests", "fetch", "fingerprint", "folder", "held",
    "lent", "missing", "raw", "read",
]  # fmt: skip


def raw(source: Source) -> Raw:
    """The source's data, verified once per process and folder, shared by its callers; small ones are downloaded."""
    return _raw(source, folder())


@lru_cache(maxsize=4)
def _raw(source: Source, root: Path) -> Raw:
    return fetch(source) if missing(source, root) and source.torchvision else read(source, root)


def read(source: Source, root: Path) -> Raw:
    """The source's data as found under root, verified: checksums, sizes, counts and label range."""
    files.require(source, root)
    data = _made(source, files.contents(source, root))
    for x, y, rows in (data.train_x, data.train_y, source.train), (data.test_x, data.test_y, source.test):
        if rows is not None and (len(x), len(y)) != (rows, rows):
            raise UsageError(f"{source.name} has {len(x):,} images and {len(y):,} labels where {rows:,} are expected.")
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < source.classes:
            raise UsageError(f"{source.name} has labels outside 0..{source.classes - 1}.")
    return data


def _made(source: Source, contents: Iterable[tuple[str, np.ndarray]]) -> Raw:
    """The raw data that the source's reader makes; FedreproError where that of a plugin fails."""
    if ":" not in source.reader:
        module, _, reader = source.reader.partition(".")
        return getattr(import_module(f"fedrepro.data.sources.{module}"), reader)(source, contents)
    reader, named = plugins.load(source.reader), f"the reader {source.reader} of source {source.name}"
    with plugins.blamed(named):
        made = reader(source, contents)
    if not isinstance(made, Raw):
        raise FedreproError(f"{named} returns a {type(made).__name__} where Raw is wanted.")
    return made


def fetch(source: Source) -> Raw:
    """The source's data, verified; where files of the cache are missing or damaged, all are downloaded (again)."""
    root = folder()
    try:
        return read(source, root)
    except UsageError:
        if lent() or not source.public:
            raise
    if source.hub:
        hub.fetch(source, root)
        return read(source, root)
    family = getattr(import_module("torchvision.datasets"), source.torchvision)  # slow to import, and seldom needed
    pins = {file.path: file for file in source.files}
    if hasattr(family, "mirrors"):
        addresses = {path: [f"{mirror}{Path(path).name}.gz" for mirror in family.mirrors] for path in pins}
    else:
        addresses = {path: [family.url] for path in pins}
    check, what = lambda path, found: files.check(path, found, pins[path]), f"{source.name} is not in {root} and"
    downloads.download(root, addresses, check, what, files.elsewhere(source))
    return read(source, root)
