"""The papers that there are: each from its folder, checked down to the settings of every run at every budget."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from fedrepro.errors import UsageError, unknown
from fedrepro.papers.paper import Cell, Paper
from fedrepro.papers.schema.spec import Spec
from fedrepro.papers.schema.tuning import Tuned
from fedrepro.records.config import first_fault

__all__ = ["Cell", "Paper", "load_paper", "load_papers", "papers"]


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
    spec, tuned = _spec(folder / "paper.toml"), _tuned(folder / "tuned.json")
    paper = Paper(name, root, _budget(name, root), spec, tuned)
    for each in [paper.at(budget) for budget in (paper.budget, *spec.budgets)]:
        try:
            each.drafts()
            for claim in spec.claims:
                each.comparisons(claim), each.references(claim)
        except UsageError as error:
            raise UsageError(f"{folder / 'paper.toml'}: {error}") from error
    return paper


def load_papers(root: str | Path = ".") -> list[Paper]:
    """All papers, in the order of their names; UsageError where there is none."""
    return [load_paper(name, root) for name in find(None, root)]


def _spec(path: Path) -> Spec:
    try:
        return Spec.model_validate(tomllib.loads(path.read_text(encoding="utf-8")), context={})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}.") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {first_fault(error)}") from error


def _budget(name: str, root: Path) -> str:
    path = root / "params.yaml"
    try:
        return str(yaml.safe_load(path.read_text(encoding="utf-8"))[name]["budget"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} gives no budget for {name}: add `{name}: {{budget: paper}}`.") from error


def _tuned(path: Path) -> dict[str, Tuned]:
    try:
        return TypeAdapter(dict[str, Tuned]).validate_json(path.read_bytes()) if path.exists() else {}
    except ValidationError as error:
        raise UsageError(f"{path}: {first_fault(error)} Restore it from git, or repeat `fedrepro tune`.") from error
