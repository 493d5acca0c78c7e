"""The papers that there are: each from its folder, checked down to the settings of every run at every budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, TypeAdapter

from fedrepro.data.sources import SOURCES
from fedrepro.errors import UsageError, unknown
from fedrepro.papers.paper import Paper
from fedrepro.papers.reading import from_yaml, reading, toml
from fedrepro.papers.schema.spec import Spec
from fedrepro.papers.schema.tuning import Tuned
from fedrepro.records import paths
from fedrepro.records.config import Distinct, Name, Strict, named, strictly


def papers(root: str | Path = ".") -> list[str]:
    """The names of all papers that have a spec, sorted; UsageError for a folder whose name is none."""
    there = sorted(path.parent for path in Path(root).glob("papers/*/paper.toml"))
    for folder in there:
        with reading(folder):
            named(folder.name)
    return [folder.name for folder in there]


def find(name: str | None, root: str | Path = ".") -> list[str]:
    """The name if there is such a paper, or those of all; UsageError where there is none."""
    there = papers(root)
    if not there:
        ways = "change to the folder of the project, or make one by `fedrepro init`"
        raise UsageError(f"there is no papers/*/paper.toml here: {ways}.")
    if name is not None and name not in there:
        raise unknown("paper", name, there)
    return there if name is None else [name]


def load_paper(name: str, root: str | Path = ".") -> Paper:
    """The paper of that name, checked down to the settings of every run at every budget.

    Raises UsageError for an unknown paper, and with file and place for whatever is wrong in its files.
    """
    root = Path(root)
    budget = _budget(name, root)
    folder = paths.spec(name, root)
    spec, tuned = _spec(folder / "paper.toml"), _tuned(folder / "tuned.json")
    if budget not in spec.budgets:
        raise UsageError(f"{root / paths.PARAMS}: {unknown(f'budget of {name}', budget, spec.budgets)}")
    if spec.budgets[budget].prepared:
        fault = f"budget {budget!r} of {name} is prepared and not in use"
        remedy = "take `prepared` out; `fedrepro run` then takes over its records"
        raise UsageError(f"{root / paths.PARAMS}: {fault}: {remedy}.")
    paper = Paper(name, root, budget, spec, tuned)
    for each in [paper.at(budget) for budget in spec.budgets]:
        try:
            _ = each.drafts
            for claim in each.claims:
                each.comparisons(claim), each.references(claim)
        except UsageError as error:
            raise UsageError(f"{folder / 'paper.toml'}: {error}") from error
    return paper


def load_papers(root: str | Path = ".") -> list[Paper]:
    """All papers, in the order of their names; UsageError where there is none."""
    return [load_paper(name, root) for name in find(None, root)]


class InUse(Strict):
    """The budget of a paper's committed results."""

    budget: Name


class Params(Strict):
    """params.yaml: the budgets in use, by paper; the sources and extractors that the pipeline makes for their runs."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, InUse]
    sources: Annotated[tuple[Literal[*SOURCES], ...], Distinct] = ()
    extractors: Annotated[tuple[Literal[*SOURCES], ...], Distinct] = ()


def _budget(name: str, root: Path) -> str:
    """The budget in use of a paper. UsageError where there is no such paper, or something else in params.yaml."""
    find(name, root)
    path, there = root / paths.PARAMS, papers(root)
    with reading(path):
        in_use = strictly(Params, from_yaml(path) or {}).__pydantic_extra__
    for paper in in_use:
        if paper not in there:
            raise UsageError(f"{path}: {unknown('paper', paper, there)}")
    if name not in in_use:
        raise UsageError(f"{path} gives no budget for {name}: add `{name}: {{budget: paper}}`.")
    return in_use[name].budget


def _spec(path: Path) -> Spec:
    with reading(path):
        return strictly(Spec, toml(path), context={})


def _tuned(path: Path) -> dict[str, Tuned]:
    with reading(path, "Restore it from git, or repeat `fedrepro tune`."):
        return TypeAdapter(dict[str, Tuned]).validate_json(path.read_bytes(), strict=True) if path.exists() else {}
