"""The datasets, as datasets.toml has them: federations by name, each with the source and the builder that make it.

A package adds a dataset by an entry point of the group `fedrepro.datasets`, which names a `Dataset` (`plugged.py`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrepro import plugins
from fedrepro.data.plugged import KIND, load
from fedrepro.data.sources.catalogue import SOURCES, Source
from fedrepro.errors import unknown

if TYPE_CHECKING:
    from fedrepro.data.federations.federation import Federation

# Module of builders -> a number that is raised in the commit that changes what they make.
NUMERICS = {"colored": 1, "plain": 1, "rotated": 1, "palettes": 1, "fedgma": 1, "domains": 1, "gans": 1}


@dataclass(frozen=True)
class Dataset:
    """A federation, made of a source.

    builder: (raw, seed, **parameters) -> Federation; of a dataset here "module.function" in `federations`; of a plugin
             that was found "module:name"
    source:  that of its raw data: the name of one here, or one of a plugin's own
    shape:   that of one row by default
    summary: what a list says of it; by default the first line of the builder's documentation
    preset:  those of its parameters that have other defaults here
    numerics: of a plugin, as NUMERICS of the modules here
    """

    builder: str | Callable[..., Federation]
    source: str | Source
    shape: tuple[int, ...]
    summary: str = ""
    preset: dict[str, Any] = field(default_factory=dict)
    numerics: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.source, str) and self.source not in SOURCES:
            raise unknown("source", self.source, SOURCES)

    @property
    def made_of(self) -> Source:
        """The source itself."""
        return SOURCES[self.source] if isinstance(self.source, str) else self.source

    @property
    def build(self) -> Callable[..., Federation]:
        """The builder, imported if need be, with its preset."""
        built = self.builder
        if isinstance(built, str) and ":" in built:
            built = load(built)
        elif isinstance(built, str):
            module, _, function = built.partition(".")
            built = getattr(import_module(f"fedrepro.data.federations.{module}"), function)
        return partial(built, **self.preset) if self.preset else built


def datasets(toml: str) -> dict[str, Dataset]:
    """Datasets by name, of a text in TOML with a table of each."""
    return {name: Dataset(**row | {"shape": tuple(row["shape"])}) for name, row in tomllib.loads(toml).items()}


DATASETS = datasets(Path(__file__).with_name("datasets.toml").read_text(encoding="utf-8"))


def discover() -> tuple[dict[str, Dataset], dict[str, str]]:
    """All datasets, built in and from plugins, and the faults {name: reason} of the plugins that are left out."""
    found, faults = plugins.listed(KIND, DATASETS)
    return DATASETS | {name: Dataset(**fields) for name, fields in found.items()}, faults


def find(name: str) -> Dataset:
    """A dataset by name; UsageError with the closest name, or with the fault of the plugin that has it."""
    return DATASETS[name] if name in DATASETS else _plugged(name)


@cache
def _plugged(name: str) -> Dataset:
    return Dataset(**plugins.wanted(KIND, DATASETS, name, "dataset"))


def numerics(name: str) -> int:
    """The NUMERICS of a dataset: a run whose record has another one is trained again."""
    row = find(name)
    return NUMERICS[row.builder.partition(".")[0]] if name in DATASETS else row.numerics


def known(name: str) -> bool:
    """Whether there is a dataset of that name, or a plugin that may have it; nothing is imported."""
    return name in DATASETS or name in plugins.entries(KIND, DATASETS)[0]


def source(name: str, what: str = "dataset") -> Source:
    """A source by its name, or that of a dataset; UsageError, about an unknown `what`, where there is none."""
    if name in SOURCES:
        return SOURCES[name]
    if known(name):
        return find(name).made_of
    for row in discover()[0].values():
        if row.made_of.name == name:
            return row.made_of
    raise unknown(what, name, {*DATASETS, *SOURCES})
