"""The datasets, as datasets.toml has them: federations by name, each with the source and the builder that make it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrepro.data.federations.federation import Federation

# Module of builders -> a number that is raised in the commit that changes what they make.
NUMERICS = {"colored": 1, "plain": 1, "rotated": 1, "palettes": 1, "fedgma": 1, "domains": 1, "gans": 1}


@dataclass(frozen=True)
class Dataset:
    """A federation by name, made of a source.

    builder: "module.function" in `federations`; preset: those of its parameters that have other defaults here.
    shape: that of one row by default.
    """

    name: str
    source: str
    builder: str
    shape: tuple[int, ...]
    summary: str
    preset: dict[str, Any] = field(default_factory=dict)

    @property
    def build(self) -> Callable[..., Federation]:
        """The builder, (raw, seed, **parameters) -> Federation, imported when it is used."""
        module, _, function = self.builder.partition(".")
        built = getattr(import_module(f"fedrepro.data.federations.{module}"), function)
        return partial(built, **self.preset) if self.preset else built

    @property
    def numerics(self) -> int:
        """The number of its builder's module in NUMERICS, part of the identity of a run."""
        return NUMERICS[self.builder.partition(".")[0]]


def datasets(toml: str) -> dict[str, Dataset]:
    """Datasets by name, of a text in TOML with a table of each."""
    return {name: Dataset(name, **row | {"shape": tuple(row["shape"])}) for name, row in tomllib.loads(toml).items()}


DATASETS = datasets(Path(__file__).with_name("datasets.toml").read_text(encoding="utf-8"))
