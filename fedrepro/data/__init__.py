"""Data: sources, the federations made from them, and how a record describes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fedrepro.data import domains, fedgma, gans, palettes, plain, rotated, sources, synth
from fedrepro.data.sources import Raw
from fedrepro.data.synth import Federation
from fedrepro.errors import unknown

__all__ = ["DATASETS", "Dataset", "Federation", "Raw", "describe", "load", "parameters"]


@dataclass(frozen=True)
class Dataset:
    """A federation by name: `build(raw, seed, **parameters)` on a source; `shape` is that of one row by default."""

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
        *(
            Dataset(
                name=name,
                source=source,
                build=plain.plain,
                shape=shape,
                summary="ten classes as they are, by default two of them per client",
            )
            for name, source, shape in (
                ("mnist", "mnist", (1, 28, 28)),
                ("fashion-mnist", "fashion-mnist", (1, 28, 28)),
                ("cifar10", "cifar10", (3, 32, 32)),
                ("cifar10-jpeg", "cifar10-jpeg", (3, 32, 32)),
                ("digits-plain", "digits", (1, 28, 28)),
            )
        ),
        Dataset(
            name="femnist",
            source="femnist",
            build=plain.femnist,
            shape=(1, 28, 28),
            summary="handwritten digits, each client with those of as many writers",
        ),
        *(
            Dataset(name=name + suffix, source=source, build=build, shape=shape, summary=summary)
            for name, build, shape, summary in (
                (
                    "fedcmnist",
                    palettes.fedcmnist,
                    (3, 28, 28),
                    "ten digits, each client in a foreground and a background colour of its own, the test in others",
                ),
                (
                    "fedrotmnist",
                    rotated.fedrotmnist,
                    (1, 28, 28),
                    "ten digits, each client at an angle of its own, the test at another",
                ),
                (
                    "fedgma-binary",
                    fedgma.binary,
                    (3, 28, 28),
                    "digits 0-4 against 5-9, red or green: the colour is a shortcut that misleads at test",
                ),
                (
                    "fedgma-colored",
                    fedgma.colored,
                    (3, 28, 28),
                    "ten digits, each in colours of its own, the test in others",
                ),
                (
                    "rotated-mnist",
                    domains.rotated_mnist,
                    (1, 28, 28),
                    "ten digits, each client at an angle of its own, with a test for each angle and one for a new one",
                ),
            )
            for suffix, source in (("", "mnist"), ("-digits", "digits"))
        ),
        *(
            Dataset(
                name=name,
                source=name,
                build=partial(domains.pictures, test_domain=test),
                shape=(3, sources.SOURCES[name].size, sources.SOURCES[name].size),
                summary=summary,
            )
            for name, test, summary in (
                ("pacs", "sketch", "seven kinds of things in four styles, of which one is left for the test"),
                ("pacs-112px", "sketch", "pacs made of smaller copies of the pictures"),
                ("officehome", "clipart", "65 kinds of things in four styles, of which one is left for the test"),
            )
        ),
        *(
            Dataset(
                name=name,
                source=source,
                build=gans.by_class,
                shape=shape,
                summary="ten classes for a generator, by default two of its own for each client",
            )
            for name, source, shape in (
                ("gan-mnist", "mnist", (1, 28, 28)),
                ("gan-fashion-mnist", "fashion-mnist", (1, 28, 28)),
                ("gan-cifar10", "cifar10", (3, 32, 32)),
                ("gan-cifar10-jpeg", "cifar10-jpeg", (3, 32, 32)),
                ("gan-cinic10", "cinic-10", (3, 32, 32)),
                ("gan-digits", "digits", (1, 28, 28)),
            )
        ),
        Dataset(
            name="mixture-1d",
            source="drawn",
            build=gans.mixture_1d,
            shape=(1,),
            summary="points on a line for a generator, each client with a Gaussian of its own",
        ),
        Dataset(
            name="mixture-2d",
            source="drawn",
            build=gans.mixture_2d,
            shape=(2,),
            summary="points in the plane for a generator, each client with a Gaussian of its own",
        ),
    )
}


def load(dataset: str, seed: int, params: dict) -> Federation:
    """One seed's federation. Unknown names and keys, bad values and missing data are UsageErrors."""
    row = _row(dataset)
    for key in params:
        if key not in (known := parameters(dataset)):
            raise unknown(f"data key of {dataset}", key, known)
    source, params = sources.SOURCES[row.source], dict(params)
    if "size" in params:
        source = sources.sized(source, params.pop("size"))
    return row.build(sources.raw(source), seed, **params)


def parameters(dataset: str) -> dict:
    """The data parameters of a dataset and their defaults: the keyword-only arguments of its builder.

    Where images have no size of their own, also the `size` to which they are brought when they are read.
    """
    row = _row(dataset)
    arguments = inspect.signature(row.build).parameters.values()
    defaults = {argument.name: argument.default for argument in arguments if argument.kind is argument.KEYWORD_ONLY}
    size = sources.SOURCES[row.source].size
    return defaults | ({"size": size} if size else {})


def describe(dataset: str) -> dict:
    """What a run's record says of its data: all from the pins, which a load verifies, so nothing is read here.

    A source without pins is described by the files that are found, which are read; UsageError where there are none.
    """
    source = sources.SOURCES[_row(dataset).source]
    files = sources.digests(source)
    return {
        "dataset": dataset,
        "source": source.name,
        "substitute": source.substitute,
        "licence": source.licence,
        "files": files,
        "fingerprint": sources.fingerprint(files),
    }


def _row(dataset: str) -> Dataset:
    if dataset not in DATASETS:
        raise unknown("dataset", dataset, DATASETS)
    return DATASETS[dataset]
