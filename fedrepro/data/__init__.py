"""Data: sources, the federations made from them, and how a record describes them.

Nothing here imports torch before a federation is built.
"""

from __future__ import annotations

from fedrepro.core import parameters as builders
from fedrepro.data import sources
from fedrepro.data.catalogue import DATASETS, NUMERICS, Dataset, discover, find, known, numerics, source
from fedrepro.data.federations.federation import Federation
from fedrepro.data.plugged import guarded
from fedrepro.data.sources import File, Raw, Source

__all__ = [
    "DATASETS", "NUMERICS", "Dataset", "Federation", "File", "Raw", "Source", "check", "describe", "discover", "find",
    "known", "load", "numerics", "parameters", "source",
]  # fmt: skip


def load(dataset: str, seed: int, params: dict) -> Federation:
    """One seed's federation. Unknown names and keys, bad values and missing data are UsageErrors."""
    source, params = _checked(dataset, params)
    row, raw = find(dataset), sources.raw(source)
    if dataset in DATASETS:
        return row.build(raw, seed, **params)
    return guarded(dataset, row, lambda: row.build(raw, seed, **params))


def check(dataset: str, params: dict) -> None:
    """Raise UsageError for an unknown dataset or data key, and for a value that is wrong whatever the data are."""
    _checked(dataset, params)


def _checked(dataset: str, params: dict) -> tuple[Source, dict]:
    """The source, with its images at the size that is asked for, and the builder's parameters in their types."""
    row, params = find(dataset), dict(params)
    source = row.made_of
    if source.size and "size" in params:
        source = source.sized(params.pop("size"))
    return source, builders.check(row.build, params, f"data key of {dataset}")


def parameters(dataset: str) -> dict:
    """The data parameters of a dataset and their defaults: the keyword-only arguments of its builder.

    Where images have no size of their own, also the `size` to which they are brought when they are read.
    """
    row = find(dataset)
    return builders.defaults(row.build) | ({"size": row.made_of.size} if row.made_of.size else {})


def describe(dataset: str) -> dict:
    """The data of a run in its record: all from the pins, which a load verifies, so that nothing is read here.

    A source without pins is described by the files that are found, which are read; UsageError where there are none.
    """
    source = find(dataset).made_of
    files = sources.digests(source)
    return {
        "dataset": dataset,
        "source": source.name,
        "substitute": source.substitute,
        "licence": source.licence,
        "files": files,
        "fingerprint": sources.fingerprint(files),
    }
