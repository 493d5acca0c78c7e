"""The papers that there are: each from its folder, checked down to the settings of every run at every budget."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from fedrepro import schema, specfile
from fedrepro.errors import UsageError, unknown
from fedrepro.paper import Cell, Paper
from fedrepro.schema import Chosen, Found

__all__ = ["Cell", "Paper", "load_paper", "load_papers", "papers"]

Entry = TypeVar("Entry", Found, Chosen)


def papers(root: str | Path = ".") -> list[str]:
    """The names of all papers that have a spec, sorted."""
    return sorted(path.parent.name for path in Path(root).glob("papers/*/paper.toml"))


def find(name: str | None, root: str | Path = ".") -> list[str]:
    """The name if there is such a paper, or those of all; UsageError where there is none."""
    there = papers(root)
    if not there:
        raise UsageError("there is no papers/*/paper.toml here: change to the folder of the project.")
    if name is not None and name not in there:
        raise unknown("paper", name, there)
    return there if name is None else [name]


def load_paper(name: str, root: str | Path = ".") -> Paper:
    """The paper of that name, checked down to the settings of every run at every budget.

    Raises UsageError for an unknown paper, and with file and place for whatever is wrong in its files.
    """
    root = Path(root)
    find(name, root)
    folder = root / "papers" / name
    pilots = _found(folder / "pilots.json", Found, "pilots")
    searches = _found(folder / "searches.json", Chosen, "searches")
    paper = Paper(name, root, _budget(name, root), specfile.read(folder / "paper.toml"), pilots, searches)
    for budget in (paper.budget, *paper.spec.budgets):
        paper.drafts(budget)
    for claim in paper.spec.claims:
        paper.comparisons(claim)
        paper.references(claim)
    return paper


def load_papers(root: str | Path = ".") -> list[Paper]:
    """All papers, in the order of their names; UsageError where there is none."""
    return [load_paper(name, root) for name in find(None, root)]


def _budget(name: str, root: Path) -> str:
    path = root / "params.yaml"
    try:
        return str(yaml.safe_load(path.read_text(encoding="utf-8"))[name]["budget"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} gives no budget for {name}: add `{name}: {{budget: paper}}`.") from error


def _found(path: Path, kind: type[Entry], what: str) -> dict[str, Entry]:
    try:
        return TypeAdapter(dict[str, kind]).validate_json(path.read_bytes()) if path.exists() else {}
    except ValidationError as error:
        raise UsageError(f"{path}: {schema.first_fault(error)} Restore it from git, or repeat the {what}.") from error
