"""The sources that there are: where raw data come from and what they must be, as sources.toml has it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedrepro.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor


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


class File(NamedTuple):
    """A pinned file (or embedded array): sha256, size in bytes, path relative to the data folder."""

    sha256: str
    bytes: int
    path: str


@dataclass(frozen=True)
class Source:
    """Where raw data come from and what they must be.

    train, test: images of each split, None where any number is right.
    reader: the "module.function" that makes raw data of the files. files: in the order that it expects.
    patterns: for a source without pins, the layouts that its files may have under a folder, globs that must all match
    something; `sought` says what they would be, and `layout` how a copy that the user puts there must lie, in words.
    torchvision: its class that knows where the files can be downloaded.
    hub: the repository on Hugging Face that has them as parquet, as owner/name; revision: the commit of it that is
    taken, the newest one at the first fetch where it is empty. Without torchvision and hub there is no public address.
    embedded: whether it has no files on disk.
    substitute: what results made from it are labelled with, when it stands in for an original.
    domains: their names, in the papers' order; size: pixels a side to which images are brought, 0 as they are.
    """

    name: str
    origin: str
    licence: str
    reader: str
    classes: int
    train: int | None = None
    test: int | None = None
    files: tuple[File, ...] = ()
    torchvision: str = ""
    hub: str = ""
    revision: str = ""
    embedded: bool = False
    substitute: str | None = None
    patterns: tuple[tuple[str, ...], ...] = ()
    sought: str = ""
    layout: str = ""
    domains: tuple[str, ...] = ()
    size: int = 0

    @property
    def pinned(self) -> bool:
        """Whether the checksums of its files are known beforehand."""
        return not self.patterns

    @property
    def public(self) -> bool:
        """Whether its files can be downloaded."""
        return bool(self.torchvision or self.hub)

    def sized(self, size: int) -> Source:
        """The source with its images at another size; UsageError for one that cannot be."""
        if type(size) is not int or not 8 <= size <= 1024:
            raise UsageError(f"size is the pixels a side of an image, 8 to 1,024, and cannot be {size!r}.")
        return replace(self, size=size)


def _source(name: str, files: list = (), **fields: Any) -> Source:
    return Source(name, files=tuple(File(*each) for each in files), **{key: _fixed(of) for key, of in fields.items()})


def _fixed(value: Any) -> Any:
    return tuple(map(_fixed, value)) if isinstance(value, list) else value


SOURCES = {
    name: _source(name, **fields)
    for name, fields in tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8")).items()
}
