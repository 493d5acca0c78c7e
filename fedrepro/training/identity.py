"""The identity of a run: what its numbers depend on. It is computed here alone, and without PyTorch."""

from __future__ import annotations

from fedrepro import data, methods
from fedrepro.errors import FedreproError
from fedrepro.judges import extractors
from fedrepro.records import record
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Identity, Numerics, Place, Record

ENGINE = 1  # raised in the commit that changes numbers of all methods: by the trainer, its streams, draws or judges


def identity(config: RunConfig) -> Identity:
    """The identity of a run's numbers. A record with another one is stale, and its run is trained again.

    Raises UsageError for an unknown method or dataset, and where the network that judges generated images is missing.
    """
    described = data.describe(config.dataset)  # first, since it knows what datasets there are
    found = extractor(config)
    numerics = Numerics(engine=ENGINE, method=methods.numerics(config.method), data=data.numerics(config.dataset))
    return Identity(
        config=config.digest(),
        data=described["fingerprint"],
        numerics=numerics,
        extractor=found.sha256 if found else "",
    )


def samples(config: RunConfig) -> str:
    """The name of the file in which a run shows what it generates, images or points; "" where it generates nothing."""
    if not methods.find(config.method).generates:
        return ""
    return "samples.png" if len(data.find(config.dataset).shape) == 3 else "samples.csv"


def extractor(config: RunConfig) -> extractors.Found | None:
    """The network that judges the images which a run generates; None of a run that generates none."""
    if not samples(config).endswith(".png"):
        return None
    return extractors.of(config.dataset, config.watch)


def current(place: Place, wanted: Identity) -> Record | None:
    """The record at a run's place if it is whole, of this run and of this identity."""
    try:
        found = record.read(place.folder)
    except FedreproError:
        return None
    return found if (found.paper, found.run, found.identity) == (place.paper, place.run, wanted) else None
