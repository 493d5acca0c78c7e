"""All runs of a project, planned and ad hoc, with what their records say. Nothing here imports pandas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrepro.errors import FedreproError, unknown
from fedrepro.papers import load
from fedrepro.papers.paper import Paper
from fedrepro.records import paths, record
from fedrepro.records.config import RunConfig
from fedrepro.records.curves import reduced
from fedrepro.records.record import Record

MISSING, DAMAGED = "missing", "damaged"
STATUSES = (MISSING, DAMAGED, "finished", "stopped", "cap", "diverged", "collapsed")
MAIN = "test_accuracy"  # shown where a run has it


@dataclass(frozen=True)
class Listed:
    """A run. `paper`: "" of an ad hoc one. `fault`: why its record cannot be used, "" where it can or is missing."""

    paper: str
    run: str
    folder: Path
    config: RunConfig | None
    record: Record | None = None
    fault: str = ""

    @property
    def statuses(self) -> set[str]:
        """Those of STATUSES that fit: how seeds ended, or that there is no usable record."""
        if self.record is None:
            return {DAMAGED if self.fault else MISSING}
        seeds = self.record.seeds.values()
        return {seed.status for seed in seeds} | {"collapsed" for seed in seeds if seed.collapsed}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the configuration beside method and dataset, without defaults."""
        if self.config is None:
            return {}
        own = {"rounds": self.config.rounds} | self.config.hyper | self.config.data
        rest = self.config.model_dump(mode="json", exclude_defaults=True, include={"stop", "watch", "precision"})
        for name, value in rest.items():
            own |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
        return own

    @property
    def metric(self) -> str:
        """The metric by which a list shows the run: that of the test, or the first that is not of training."""
        names = [name for seed in self.record.seeds.values() for name in seed.metrics] if self.record else []
        return MAIN if MAIN in names else next((name for name in names if not name.startswith("train_")), "")

    @property
    def final(self) -> tuple[float, float]:
        """Mean and spread of `metric` over the seeds that have it, as in the record."""
        seeds = self.record.seeds.values() if self.record else ()
        return reduced([seed.metrics[self.metric] for seed in seeds if self.metric in seed.metrics])


@dataclass(frozen=True)
class Which:
    """Which runs are meant; None: all."""

    adhoc: bool = False
    paper: str | None = None
    method: str | None = None
    status: str | None = None


def runs(which: Which) -> list[Listed]:
    """The planned runs of the papers, in the order of their cells, then the ad hoc ones by name.

    UsageError for a status that there is not, and for a method that no run has.
    """
    if which.status is not None and which.status not in STATUSES:
        raise unknown("status", which.status, STATUSES)
    names = [] if which.adhoc else load.papers() if which.paper is None else [which.paper]
    found = [each for name in names for each in planned(load.load_paper(name))]
    found += [] if which.paper else list(adhoc())
    methods = {each.config.method for each in found if each.config}
    if which.method is not None and which.method not in methods:
        raise unknown("method of these runs", which.method, methods)
    return [each for each in found if _meant(each, which)]


def planned(paper: Paper) -> Iterator[Listed]:
    """The planned runs of a paper."""
    for run, draft in paper.drafts.items():
        folder = paper.home(run, draft.config.method)
        yield _listed(paper.name, run, folder, draft.config)


def adhoc(root: str | Path = ".") -> Iterator[Listed]:
    """The ad hoc runs of a project that have a record."""
    for place in sorted((Path(root) / paths.ADHOC).glob("*/record.json")):
        yield _listed("", place.parent.name, place.parent, None)


def _listed(paper: str, run: str, folder: Path, config: RunConfig | None) -> Listed:
    if not record.path(folder).exists():
        return Listed(paper, run, folder, config)
    try:
        found = record.read(folder)
    except FedreproError as error:
        return Listed(paper, run, folder, config, fault=str(error))
    return Listed(paper, run, folder, config or found.config, found)


def _meant(each: Listed, which: Which) -> bool:
    method = each.config.method if each.config else None
    return which.method in (None, method) and (which.status is None or which.status in each.statuses)
