"""A whole paper.toml; specfile.py reads it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, model_validator

from fedrepro.config import Strict
from fedrepro.schema.cells import Point, When
from fedrepro.schema.claims import Claim
from fedrepro.schema.figures import Figure, Sheet
from fedrepro.schema.tables import Read, Table, Tolerance

KINDS: dict[str, tuple[type, str]] = {"group": (str, "a word"), "run": (str, "a word")}
KINDS |= dict.fromkeys(("stop", "pilot", "search", "hyper", "data"), (dict, "a table"))


def _kinds(settings: dict[str, Any]) -> dict[str, Any]:
    for key, (kind, name) in KINDS.items():
        if not isinstance(settings.get(key, kind()), kind):
            raise ValueError(f"{key} must be {name}")
    return settings


# Merged over the axes of a cell, then read as a run's configuration.
Settings = Annotated[dict[str, Any], AfterValidator(_kinds)]


class Rule(Strict):
    """Settings for the cells that `when` selects; an empty `when` selects all."""

    when: When = {}
    settings: Settings


class Label(Strict):
    """What a reader is told of a budget. `compare` false: its numbers are never compared with published ones."""

    label: str
    compare: bool = True


class Budget(Label):
    """What a setting costs: rules on top of the paper's own. `own`: what some tables, figures or `claims` say of it."""

    own: dict[str, Label] = {}
    rules: tuple[Rule, ...] = ()

    def of(self, name: str) -> Label:
        """What the table or figure of that name, or `claims`, says of it."""
        return self.own.get(name, self)


class Base(Strict):
    """Whose search a run uses: that of the same cell with these values on the axes that it has."""

    base: Point = {}


class Spec(Strict):
    """paper.toml. `axes`: axis -> value -> settings; the key `run` of a value is its part of the run's name.

    A `group` among the settings parts a dataset's runs, of which one pipeline file cannot take many. `reads`: of all
    tables (behind their own), figures and claims, for the metrics that they name.
    """

    title: str
    defaults: Settings = {}
    axes: dict[str, dict[str, Settings]]
    budgets: dict[str, Budget]
    tolerance: Tolerance | None = None
    reads: tuple[Read, ...] = ()
    tables: dict[str, Table] = {}
    figures: dict[str, Figure] = {}
    sheets: dict[str, Sheet] = {}
    claims: dict[str, Claim] = {}
    search: Base = Base()

    @model_validator(mode="before")
    @classmethod
    def _share_tolerance(cls, data: Any) -> Any:
        tables = data.get("tables")
        if "tolerance" not in data or not isinstance(tables, dict):
            return data
        given = {name: table for name, table in tables.items() if isinstance(table, dict)}
        shared = {name: {"tolerance": data["tolerance"]} | table for name, table in given.items()}
        return data | {"tables": tables | shared}
