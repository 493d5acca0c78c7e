"""What raw data are, where they come from, and the folder in which they lie."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from fedrepro.errors import UsageError

FOLDER_VARIABLE = "FEDREPRO_DATA_DIR"
CACHE = Path("data/cache")


@dataclass(frozen=True)
class Raw:
    """A source as it is: train_x, test_x uint8 [N, H, W] or [N, C, H, W]; train_y, test_y int64 [N].

    train_groups, test_groups int64 [N]: who wrote each image, or which of `domains` it is from, where the source knows.
    A source of domains has no split of its own: all its images are training images.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    train_groups: Tensor | None = None
    test_groups: Tensor | None = None
    domains: tuple[str, ...] = ()


@dataclass(frozen=True)
class File:
    """A pinned file (or embedded array): sha256, size in bytes, path relative to the data folder."""

    sha256: str
    bytes: int
    path: str


@dataclass(frozen=True)
class Source:
    """Where raw data come from and what they must be.

    files: in the order that `read` expects. train, test: images of each split, None where any number is right.
    find: for a source without pins, the paths of its files under a folder; `sought` says what they would be.
    read: (source, folder) -> the verified data. download: (source, folder) puts verified files there; None if it has no
    public address. embedded: whether it has no files on disk.
    substitute: what results made from it are labelled with, when it stands in for an original.
    layout: how a copy that the user puts there by hand must lie, in words.
    domains: their names, in the papers' order; size: pixels a side to which images are brought, 0 as they are.
    """

    name: str
    origin: str
    licence: str
    files: tuple[File, ...]
    train: int | None
    test: int | None
    classes: int
    read: Callable[[Source, Path], Raw]
    download: Callable[[Source, Path], None] | None = None
    embedded: bool = False
    substitute: str | None = None
    find: Callable[[Path], list[str]] | None = None
    sought: str = ""
    layout: str = ""
    domains: tuple[str, ...] = ()
    size: int = 0

    @property
    def pinned(self) -> bool:
        """Whether the checksums of its files are known beforehand."""
        return self.find is None


def folder() -> Path:
    """The folder that sources on disk are read from."""
    return Path(os.environ.get(FOLDER_VARIABLE) or CACHE).expanduser().absolute()


def lent() -> bool:
    """Whether that folder is the user's own, which is never written to."""
    return bool(os.environ.get(FOLDER_VARIABLE))


def sized(source: Source, size: int) -> Source:
    """The source with its images at another size; UsageError for one that cannot be."""
    if type(size) is not int or not 8 <= size <= 1024:
        raise UsageError(f"size is the pixels a side of an image, 8 to 1,024, and cannot be {size!r}.")
    return replace(source, size=size)
