"""Manifests: one JSON file per source in `data/manifests/`, in git, saying what the data are and where from.

Runs depend on the pins in `sources/catalogue.py`, which loading verifies; manifests are their public face and are made
of what was counted in the verified data.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from fedrepro import files
from fedrepro.data import DATASETS, sources
from fedrepro.data.sources import SOURCES, Raw, Source
from fedrepro.errors import UsageError, unknown

FOLDER = Path("data/manifests")


def list_datasets() -> list[dict[str, str | None]]:
    """One row per dataset: name, source, where, substitute, summary.

    `where` is "embedded", "drawn" (without files), or "present: " or "missing: " and the folder; present data without
    pins are said to be so.
    Nothing is read: `verify` tells whether what is present is also right.
    """
    return [
        {
            "name": dataset.name,
            "source": dataset.source,
            "where": _where(SOURCES[dataset.source]),
            "substitute": SOURCES[dataset.source].substitute,
            "summary": dataset.summary,
        }
        for dataset in DATASETS.values()
    ]


def fetch(name: str) -> dict:
    """Make sure that a dataset's (or source's) data are there and right, write the manifest, return it.

    Missing or damaged files of the cache are downloaded; a folder named by FEDREPRO_DATA_DIR is only read.
    """
    source = _source(name)
    manifest = _manifest(source, sources.fetch(source))
    files.write_json(_path(source), manifest)
    return manifest


def verify(name: str) -> dict:
    """Read and check a dataset's (or source's) data again, and its manifest if there is one; return the manifest."""
    source = _source(name)
    manifest = _manifest(source, sources.read(source, sources.folder()))
    path = _path(source)
    if path.exists() and path.read_bytes() != files.json_text(manifest).encode():
        raise UsageError(f"{path} does not describe these data: run `fedrepro data fetch {name}` to write it again.")
    return manifest


def there(name: str) -> bool:
    """Whether a source's files are where they are read from, as far as their names say."""
    return not sources.missing(SOURCES[name], sources.folder())


def fetchable(name: str) -> bool:
    """Whether `fetch` can get a source's files where they are not there."""
    return SOURCES[name].download is not None and not sources.lent()


def _source(name: str) -> Source:
    if name in DATASETS:
        return SOURCES[DATASETS[name].source]
    if name in SOURCES:
        return SOURCES[name]
    raise unknown("dataset", name, {*DATASETS, *SOURCES})


def _path(source: Source) -> Path:
    return FOLDER / f"{source.name}.json"


def _where(source: Source) -> str:
    if source.embedded:
        return "embedded" if source.files else "drawn"
    root = sources.folder()
    present = "present" if source.pinned else "present, checksums not pinned"
    return f"{'missing' if sources.missing(source, root) else present}: {root}"


def _manifest(source: Source, raw: Raw) -> dict:
    unpinned = {} if source.pinned else {"checksums": "not pinned: those of the files that were found"}
    return {
        "source": source.name,
        "origin": source.origin,
        "licence": source.licence,
        "substitute": source.substitute,
        "classes": raw.classes,
        "train": _counted(raw.train_x, raw.train_y, raw.classes),
        "test": _counted(raw.test_x, raw.test_y, raw.classes),
        **({"domains": _per_domain(raw)} if raw.domains else {}),
        **unpinned,
        "files": {file.path: {"sha256": file.sha256, "bytes": file.bytes} for file in sources.held(source)},
    }


def _counted(x: Tensor, y: Tensor, classes: int) -> dict:
    return {
        "images": len(x),
        "shape": list(x.shape[1:]),
        "labels": [int(y.min()), int(y.max())] if len(y) else [],
        "images_per_label": y.bincount(minlength=classes).tolist(),
    }


def _per_domain(raw: Raw) -> dict[str, int]:
    return dict(zip(raw.domains, raw.train_groups.bincount(minlength=len(raw.domains)).tolist(), strict=True))
