"""Methods of other packages: what a listing and a plan need of one, and how its builder comes into this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

from pydantic import PositiveInt, ValidationError

from fedrepro import data, plugins
from fedrepro.errors import UsageError
from fedrepro.records.config import Stop, Strict, first_fault

KIND = plugins.Kind("fedrepro.methods", "builder of a method", __name__)


class Card(Strict):
    """The fields of a plugin's `Row` that need no import: a list shows them, and a plan needs them."""

    about: str
    dataset: str
    rounds: PositiveInt
    stop: Stop | None
    generates: bool
    optimiser: str
    network: str
    numerics: int


def card(point: EntryPoint, row: Any) -> Card:
    """The card of what an entry point names; UsageError for what no run could be made with."""
    from fedrepro.methods import Row

    if not isinstance(row, Row):
        row = Row(row, numerics=getattr(sys.modules[point.module], "NUMERICS", 0))
    plugins.check_builder(row.build if isinstance(row.builder, str) else row.builder, KIND.named, ("task",))
    if not data.known(row.dataset):
        raise UsageError(f"names a dataset that does not exist: {row.dataset!r}")
    fields = {name: getattr(row, name) for name in Card.model_fields}
    try:
        return Card.model_validate(fields | {"about": plugins.plain(row.summary)}, strict=True)
    except ValidationError as error:
        raise UsageError(f"has a wrong row: {first_fault(error)}") from error


def load(reference: str) -> Callable:
    """The builder of a plugin that was tried before."""
    from fedrepro.methods import Row

    found = plugins.load(reference)
    return found.build if isinstance(found, Row) else found
