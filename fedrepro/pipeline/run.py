"""Planned runs: those that have no current record, trained one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from fedrepro import data, methods
from fedrepro.errors import UsageError, unknown
from fedrepro.papers.paper import Paper
from fedrepro.records import paths
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Place
from fedrepro.training.identity import current, identity


@dataclass(frozen=True)
class Planned:
    """A run that a paper's cells need, and its place."""

    config: RunConfig
    place: Place

    @property
    def recorded(self) -> bool:
        """Whether its record is current and has all of its seeds."""
        found = current(self.place, identity(self.config))
        return found is not None and found.budget == self.place.budget and set(self.config.seeds) <= found.seeds.keys()

    @property
    def command(self) -> str:
        """The command that trains this run alone."""
        return f"fedrepro train --paper {self.place.paper} --run {self.place.run}"

    @property
    def title(self) -> str:
        """The heading of its display."""
        return title(self.config, self.place)


def title(config: RunConfig, place: Place) -> str:
    """The heading of a training's display: run or method, dataset and seeds."""
    seeds = "seed" if len(config.seeds) == 1 else "seeds"
    return f"training {place.run or config.method} on {config.dataset}, {seeds} {', '.join(map(str, config.seeds))}"


def planned(papers: Iterable[Paper], method: str | None = None) -> list[Planned]:
    """The runs of papers, or those by one method, in the order of their cells.

    None where only another budget has runs by it. Raises UsageError for a method that no run of any budget has, and
    where a pilot or a search is missing or stale.
    """
    papers = list(papers)
    known = {each for paper in papers for budget in paper.spec.budgets for each in _methods(paper.at(budget)).values()}
    if method not in (None, *known):
        raise unknown(f"method of {' and '.join(paper.name for paper in papers)}", method, known)
    found = []
    for paper in papers:
        wanted = (run for run, each in _methods(paper).items() if method in (None, each))
        configs = {run: paper.run(run) for run in wanted}
        found += [Planned(config, place(paper, run, config)) for run, config in configs.items()]
    return found


def _methods(paper: Paper) -> dict[str, str]:
    """Run -> the method that it is by."""
    return {run: draft.config.method for run, draft in paper.drafts().items()}


def place(paper: Paper, run: str, config: RunConfig) -> Place:
    """The place of a planned run."""
    return Place(paths.run(paper.name, config.method, run, paper.root), paper.name, run, paper.budget)


def check(run: Planned) -> None:
    """Raise UsageError where the method or dataset of a run does not have its settings."""
    try:
        methods.check(run.config.method, run.config.hyper)
        data.check(run.config.dataset, run.config.data)
    except UsageError as error:
        raise UsageError(f"{paths.spec(run.place.paper) / 'paper.toml'}: run {run.place.run}: {error}") from error


def train(runs: Iterable[Planned], shown: Callable[[Planned], AbstractContextManager], device: str = "auto") -> None:
    """Train runs, each with a display of its own.

    `shown`: a run -> a display for as long as its block lasts. Raises UsageError before any training where a run has
    settings that its method or dataset does not have, and whatever the training of a run raises.
    """
    from fedrepro.training import runs as trainer  # slow to import, and most often there is nothing to train

    runs = list(runs)
    for each in runs:
        check(each)
    for each in runs:
        with shown(each) as display:
            trainer.execute(each.config, each.place, device=device, watch=display.watch, say=display.say)
