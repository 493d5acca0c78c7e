"""Data: sources, the federations made from them, and how a record describes them."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fedrepro.data import sources, synth
from fedrepro.data.sources import Raw
from fedrepro.data.synth import Federation
from fedrepro.errors import unknown

__all__ = ["DATASETS", "Dataset", "Federation", "Raw", "describe", "load", "parameters"]


@dataclass(frozen=True)
class Dataset:
    """A federation by name: `build(raw, seed, **parameters)` on a source; `shape` is that of one image by default."""

    name: str
    source: str
    build: Callable[..., Federation]
    shape: tuple[int, ...]
    summary: str


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="colored-mnist",
            source="mnist",
            build=synth.colored_mnist,
            shape=(2, 28, 28),
            summary="digits 0-4 against 5-9 with noisy labels; the colour is a shortcut that misleads at test",
        ),
        Dataset(
            name="colored-fashion-mnist",
            source="fashion-mnist",
            build=synth.colored_fashion_mnist,
            shape=(2, 28, 28),
            summary="clothing against footwear with noisy labels; the colour is a shortcut that misleads at test",
        ),
        Dataset(
            name="spurious-cifar10",
            source="cifar10",
            build=synth.spurious_cifar10,
            shape=(3, 32, 32),
            summary="vehicles against animals with noisy labels; the place of a black patch misleads at test",
        ),
        Dataset(
            name="spurious-cifar10-jpeg",
            source="cifar10-jpeg",
            build=synth.spurious_cifar10,
            shape=(3, 32, 32),
            summary="spurious-cifar10 made of JPEG copies of the images",
        ),
        Dataset(
            name="digits",
            source="digits",
            build=partial(synth.colored_mnist, binarise=False),  # upsampled edges are grey: binarised, digits are blobs
            shape=(2, 28, 28),
            summary="Colored MNIST made of scikit-learn's small digits: no download, for smoke runs",
        ),
    )
}


def load(dataset: str, seed: int, params: dict) -> Federation:
    """One seed's federation. Unknown names and keys, bad values and missing data are UsageErrors."""
    row = _row(dataset)
    for key in params:
        if key not in (known := parameters(dataset)):
            raise unknown(f"data key of {dataset}", key, known)
    return row.build(sources.raw(sources.SOURCES[row.source]), seed, **params)


def parameters(dataset: str) -> dict:
    """The data parameters of a dataset and their defaults: the keyword-only arguments of its builder."""
    arguments = inspect.signature(_row(dataset).build).parameters.values()
    return {argument.name: argument.default for argument in arguments if argument.kind is argument.KEYWORD_ONLY}


def describe(dataset: str) -> dict:
    """What a run's record says of its data: all from the pins, which a load verifies, so nothing is read here."""
    source = sources.SOURCES[_row(dataset).source]
    files = {file.path: file.sha256 for file in source.files}
    return {
        "dataset": dataset,
        "source": source.name,
        "substitute": source.substitute,
        "licence": source.licence,
        "files": files,
        "fingerprint": hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest(),
    }


def _row(dataset: str) -> Dataset:
    if dataset not in DATASETS:
        raise unknown("dataset", dataset, DATASETS)
    return DATASETS[dataset]
