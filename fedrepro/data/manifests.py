"""Manifests: one JSON file per source in `data/manifests/`, in git, saying what the data are and where from.

Runs depend on the pins in `sources/sources.toml`, which loading verifies; manifests are their public face and are made
of what was counted in the verified data.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedrepro import files
from fedrepro.data import DATASETS, Dataset, find, sources
from fedrepro.data import source as named
from fedrepro.data.sources import SOURCES, Raw, Source
from fedrepro.data.sources.files import contents, require
from fedrepro.errors import UsageError
from fedrepro.records import paths

if TYPE_CHECKING:
    from torch import Tensor


def list_datasets(rows: Mapping[str, Dataset] = DATASETS) -> list[dict[str, str | None]]:
    """One row per dataset: name, source, where, substitute, summary.

    `where` is "embedded", "drawn" (without files), or "present: " or "missing: " and the folder; present data without
    pins are said to be so.
    Nothing is read: `verify` tells whether what is present is also right.
    """
    listed = []
    for name, row in rows.items():
        source = row.made_of
        where = {"where": _where(source), "substitute": source.substitute}
        listed.append({"name": name, "source": source.name, **where, "summary": row.summary})
    return listed


def described(name: str) -> dict[str, str]:
    """A dataset in words: its name, its source and where that is, what it stands in for, its shape, how it is made."""
    row = find(name)
    source = row.made_of
    return {
        "dataset": f"{name}, {row.summary}",
        "source": f"{source.name}, {source.origin}",
        "licence": source.licence,
        "where": _where(source),
        **({"results are labelled": source.substitute} if source.substitute else {}),
        "shape of a row": " x ".join(map(str, row.shape)),
        "doc": inspect.getdoc(getattr(row.build, "func", row.build)),
    }


def fetch(name: str) -> dict:
    """Make sure that a dataset's (or source's) data are there and right, write the manifest, return it.

    Missing or damaged files of the cache are downloaded; a folder named by FEDREPRO_DATA_DIR is only read.
    """
    source = named(name)
    manifest = _manifest(source, sources.fetch(source))
    files.write_json(paths.manifest(source.name), manifest)
    return manifest


def verify(name: str) -> dict:
    """Read and check a dataset's (or source's) data again, and its manifest if there is one; return the manifest."""
    source = named(name)
    manifest, path = _manifest(source, sources.read(source, sources.folder())), paths.manifest(source.name)
    if path.exists() and path.read_bytes() != files.json_text(manifest).encode():
        raise _other(path, name)
    return manifest


def intact(name: str) -> None:
    """Check a source as `verify` does, but where its files are pinned by them alone: no image is decoded."""
    source, path = SOURCES[name], paths.manifest(name)
    if source.embedded or not source.pinned:
        verify(name)
        return
    require(source, sources.folder())
    for _ in contents(source, sources.folder()):
        pass
    try:
        listed = json.loads(path.read_bytes())["files"] if path.exists() else _files(source)
    except (ValueError, KeyError, TypeError) as error:
        raise _other(path, name) from error
    if listed != _files(source):
        raise _other(path, name)


def _other(path: Path, name: str) -> UsageError:
    return UsageError(f"{path} does not describe these data: run `fedrepro data fetch {name}` to write it again.")


def there(name: str) -> bool:
    """Whether a source's files are where they are read from, as far as their names say."""
    return not sources.missing(SOURCES[name], sources.folder())


def fetchable(name: str) -> bool:
    """Whether `fetch` can get a source's files where they are not there."""
    return SOURCES[name].public and not sources.lent()


def _where(source: Source) -> str:
    if source.embedded:
        return "embedded" if source.files else "drawn"
    present = "present" if source.pinned else "present, checksums not pinned"
    return f"{'missing' if sources.missing(source, sources.folder()) else present}: {sources.folder()}"


def _manifest(source: Source, raw: Raw) -> dict:
    more = {}
    if raw.domains:
        counts = raw.train_groups.bincount(minlength=len(raw.domains)).tolist()
        more["domains"] = dict(zip(raw.domains, counts, strict=True))
    if not source.pinned:
        more["checksums"] = "not pinned: those of the files that were found"
    return {
        "source": source.name,
        **{key: getattr(source, key) for key in ("origin", "licence", "substitute")},
        "classes": raw.classes,
        "train": _counted(raw.train_x, raw.train_y, raw.classes),
        "test": _counted(raw.test_x, raw.test_y, raw.classes),
        **more,
        "files": _files(source),
    }


def _files(source: Source) -> dict:
    return {file.path: {"sha256": file.sha256, "bytes": file.bytes} for file in sources.held(source)}


def _counted(x: Tensor, y: Tensor, classes: int) -> dict:
    return {
        "images": len(x),
        "shape": list(x.shape[1:]),
        "labels": [int(y.min()), int(y.max())] if len(y) else [],
        "images_per_label": y.bincount(minlength=classes).tolist(),
    }
