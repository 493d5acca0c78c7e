"""Datasets of other packages: what a listing and a plan need of one, and the guard around what its builder makes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt, TypeAdapter, ValidationError

from fedrepro import plugins
from fedrepro.core import parameters
from fedrepro.data.sources.catalogue import SOURCES, Source
from fedrepro.errors import FedreproError, UsageError
from fedrepro.plugins import plain
from fedrepro.records.config import NAME, NAMED, Strict, Value, first_fault

if TYPE_CHECKING:
    from fedrepro.data.catalogue import Dataset

KIND = plugins.Kind("fedrepro.datasets", "Dataset", __name__)
TEST = re.compile(r"[\w.-]+")  # a name of a test, which is in the names of metrics


class Card(Strict):
    """The fields of a plugin's `Dataset` that need no import: a list shows them, and a plan needs them."""

    source: str | Source
    shape: tuple[PositiveInt, ...]
    summary: str
    preset: dict[str, Value]
    numerics: int


def card(point: EntryPoint, row: Any) -> Card:
    """The card of what an entry point names; UsageError for what no run could be made with."""
    from fedrepro.data.catalogue import Dataset

    if not isinstance(row, Dataset):
        raise UsageError(f"is a {type(row).__name__}, not a {KIND.named}")
    if isinstance(row.builder, str):
        raise UsageError(f"has the builder {row.builder!r}, which is to be the function itself")
    plugins.check_builder(row.builder, "builder of a dataset", ("raw", "seed"))
    try:
        parameters.check(row.builder, row.preset, "preset of it")
    except UsageError as error:
        raise UsageError(f"has a wrong preset: {error}") from error
    fields = {name: getattr(row, name) for name in Card.model_fields}
    if not isinstance(row.source, str):
        fields["source"] = asdict(row.source)
        _check_source(row.source)
    said = row.summary or (row.builder.__doc__ or "").strip().split("\n")[0]
    try:
        return Card.model_validate_json(json.dumps(fields | {"summary": plain(said)}))
    except ValidationError as error:
        raise UsageError(f"is a wrong Dataset: {first_fault(error)}") from error


def _check_source(source: Source) -> None:
    """UsageError for a source of a plugin's own with a field of another type, or no usable name or path."""
    try:
        TypeAdapter(Source).validate_json(json.dumps(asdict(source)))
    except ValidationError as error:
        raise UsageError(f"has a wrong Source: {first_fault(error)}") from error
    if not NAME.fullmatch(source.name):
        raise UsageError(f"has the source {source.name!r}, whose name is none: names have {NAMED}")
    if source.name in SOURCES:
        raise UsageError(f"has a source of its own with the name {source.name!r}, which is taken")
    for path in (*(file.path for file in source.files), *(each for layout in source.patterns for each in layout)):
        if path.startswith("/") or ".." in path.split("/"):
            raise UsageError(f"has a source with the path {path!r}, which is outside of the data folder")
    if not source.embedded and not source.files and not source.patterns:
        raise UsageError("has a source without files and patterns, which is not embedded")


def load(reference: str) -> Callable:
    """The builder of a plugin that was tried before."""
    return plugins.load(reference).builder


# The guard


def guarded(name: str, row: Dataset, make: Callable[[], Any]) -> Any:
    """The federation that `make` makes, checked. Whatever fails is a FedreproError that names the plugin.

    What the plugin itself raises as a FedreproError is passed on.
    """
    plugin = f"dataset {name!r} of {row.builder.partition(':')[0]}: its builder"
    with plugins.blamed(plugin):
        made = make()
        fault = wrong(made, len(row.shape))
    if fault:
        raise FedreproError(f"{plugin} returns {plain(fault)}.")
    return made


def wrong(made: Any, axes: int) -> str:
    """The fault of a federation whose rows have so many axes, as the end of a sentence; "" where there is none."""
    from fedrepro.data.federations.federation import Federation

    if not isinstance(made, Federation):
        return f"a {type(made).__name__} where a Federation is wanted"
    if type(made.classes) is not int or made.classes < 1:
        return f"{made.classes!r} as the number of classes"
    if fault := _wrong_rows(made.x, made.y, axes, made.classes):
        return fault
    if not all(type(size) is int and size > 0 for size in made.sizes) or sum(made.sizes) != len(made.y):
        return f"sizes of clients that are not at least 1, or whose sum is not {len(made.y):,}, the number of rows"
    for test, (x, y) in made.tests.items():
        if not TEST.fullmatch(test) or test == "train":
            return f"a test with the name {test!r}, which metrics cannot have"
        if (x.dtype, x.shape[1:]) != (made.x.dtype, made.x.shape[1:]):
            return f"the test {test!r} with x as {_words(x)}, which is not as x of the clients: {_words(made.x)}"
        if fault := _wrong_rows(x, y, axes, made.classes):
            return f"the test {test!r} with {fault}"
    if unknown := {name for names in made.groups.values() for name in names} - made.tests.keys():
        return f"a group of the test {min(unknown)!r}, which is not there"
    return _wrong_facts(made)


def _wrong_rows(x: Any, y: Any, axes: int, classes: int) -> str:
    import torch

    if not isinstance(x, torch.Tensor) or x.dtype not in (torch.uint8, torch.float32) or x.dim() != axes + 1:
        return f"x as {_words(x)}, and not as uint8 (or float32, of points) with {axes} axes after that of the rows"
    if not isinstance(y, torch.Tensor) or y.dtype != torch.int64 or y.shape != x.shape[:1] or not len(y):
        return f"y as {_words(y)}, and not as int64 [{len(x)}], a label for each row, of which there is one at least"
    if x.is_floating_point() and not x.isfinite().all():
        return "x with values that are not finite"
    low, high = int(y.min()), int(y.max())
    return f"labels from {low} to {high} where there are {classes} classes" if low < 0 or high >= classes else ""


def _wrong_facts(made: Any) -> str:
    try:
        json.dumps(made.facts, allow_nan=False)
    except (TypeError, ValueError):
        return "facts that are no JSON, which a record is"
    facts = made.facts if isinstance(made.facts, dict) else {}
    each = facts.get("clients")
    if not isinstance(each, list) or len(each) != len(made.sizes) or {type(own) for own in each} != {dict}:
        return 'facts without "clients", a list with a dict of each client'
    if lacking := [test for test in made.tests if not isinstance(facts.get(test), dict)]:
        return f"facts without {lacking[0]!r}, a dict of what was measured in that test"
    return ""


def _words(value: Any) -> str:
    """A tensor by its dtype and shape, anything else by its type."""
    dtype = getattr(value, "dtype", None)
    return f"{str(dtype).removeprefix('torch.')} {list(value.shape)}" if dtype else f"a {type(value).__name__}"
