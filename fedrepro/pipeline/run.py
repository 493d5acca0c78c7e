"""Planned runs: which there are, where their records are, and whether these are current."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fedrepro import data, methods
from fedrepro.errors import UsageError, unknown
from fedrepro.papers.expand import Study
from fedrepro.papers.paper import Paper
from fedrepro.records import paths
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Place, Record
from fedrepro.training.identity import current, identity


@dataclass(frozen=True)
class Planned:
    """A run that a paper's cells need, or a point of a search, and its place."""

    config: RunConfig
    place: Place

    @property
    def earlier(self) -> Record | None:
        """Its record, if that is current, whichever seeds it has."""
        found = current(self.place, identity(self.config))
        return found if found and found.budget == self.place.budget else None

    @property
    def record(self) -> Record | None:
        """Its record, if that is current and has all of its seeds."""
        found = self.earlier
        return found if found and set(self.config.seeds) <= found.seeds.keys() else None

    @property
    def recorded(self) -> bool:
        """Whether its record is current and has all of its seeds."""
        return self.record is not None


@dataclass(frozen=True)
class Only:
    """Which runs of papers are meant: those by a method, one by name, those of a table or a figure; None: all."""

    method: str | None = None
    run: str | None = None
    table: str | None = None
    figure: str | None = None


def title(config: RunConfig, place: Place) -> str:
    """The heading of a training's display: run or method, dataset and seeds."""
    seeds = "seed" if len(config.seeds) == 1 else "seeds"
    return f"training {place.run or config.method} on {config.dataset}, {seeds} {', '.join(map(str, config.seeds))}"


def planned(papers: Iterable[Paper], method: str | None = None) -> list[Planned]:
    """The runs of papers, or those by one method, in the order of their cells.

    None where only another budget has runs by it. Raises UsageError for a method that no run of any budget has, and
    where a search is missing or stale.
    """
    chosen = wanted(papers, Only(method))
    configs = [(paper, run, paper.run(run)) for paper, runs in chosen for run in runs]
    return [Planned(config, place(paper, run, config)) for paper, run, config in configs]


def wanted(papers: Iterable[Paper], only: Only) -> list[tuple[Paper, list[str]]]:
    """Each paper with the names of its runs that are meant, in the order of their cells.

    Raises UsageError for a method that no run of any budget has, and for a run, table or figure that no paper has.
    """
    papers = list(papers)
    of = " and ".join(paper.name for paper in papers)
    named = {
        "method": lambda: {each for p in papers for b in p.spec.budgets for each in _methods(p.at(b)).values()},
        "run": lambda: {run for paper in papers for run in paper.drafts},
        "table": lambda: {table for paper in papers for table in paper.spec.tables},
        "figure": lambda: {figure for paper in papers for figure in paper.spec.figures},
    }
    for kind, known in named.items():
        name = getattr(only, kind)
        if name is not None and name not in (there := known()):
            raise unknown(f"{kind} of {of}", name, there)
    return [(paper, [run for run in _shown(paper, only) if _meant(paper, run, only)]) for paper in papers]


def _shown(paper: Paper, only: Only) -> Iterable[str]:
    """The runs of the table and of the figure that are meant, or all."""
    if only.table is None and only.figure is None:
        return paper.drafts
    found = paper.table_runs(only.table) if only.table in paper.spec.tables else []
    return dict.fromkeys([*found, *(paper.figure_runs(only.figure) if only.figure in paper.spec.figures else [])])


def _meant(paper: Paper, run: str, only: Only) -> bool:
    return only.run in (None, run) and only.method in (None, paper.drafts[run].config.method)


def _methods(paper: Paper) -> dict[str, str]:
    """Run -> the method that it is by."""
    return {run: draft.config.method for run, draft in paper.drafts.items()}


def place(paper: Paper, run: str, config: RunConfig) -> Place:
    """The place of a planned run, or of one at a prepared budget."""
    return Place(paper.home(run, config.method), paper.name, run, paper.budget)


def studied(paper: Paper, study: Study, point: str) -> Planned:
    """A point of a search. Its record is named among all runs of the paper."""
    folder = paths.study(paper.name, study.name, point, paper.root)
    return Planned(study.points[point], Place(folder, paper.name, f"search-{study.name}-{point}", "search"))


def check(paper: str, run: str, config: RunConfig) -> None:
    """Raise UsageError where the method or dataset of a run does not have its settings."""
    try:
        methods.check(config.method, config.hyper)
        data.check(config.dataset, config.data)
    except UsageError as error:
        raise UsageError(f"{paths.spec(paper) / 'paper.toml'}: run {run}: {error}") from error
