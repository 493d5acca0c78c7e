"""Plans: the jobs that are left for the runs of papers, each a process of its own, in the order in which they start.

Manifests come first, then extractors and searches, then runs; the longest of them first, after those of which
nothing is known. Planning needs no PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from fedrepro import data
from fedrepro.errors import UsageError
from fedrepro.files import held
from fedrepro.judges import extractors
from fedrepro.papers.expand import Draft, Study, at, tuning
from fedrepro.papers.load import load_paper
from fedrepro.papers.paper import Paper
from fedrepro.pipeline import costs
from fedrepro.pipeline.costs import Cost, Costs
from fedrepro.pipeline.request import adhoc
from fedrepro.pipeline.run import Only, Planned, place, studied, wanted
from fedrepro.records import paths
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Place, Record
from fedrepro.training.identity import identity, samples

KINDS = {"fetch": 0, "extractor": 1, "point": 2, "study": 3, "run": 4}  # kind -> its place in the order


@dataclass(frozen=True)
class Job:
    """The task of one process, and the command that does it alone.

    `kind`: one of KINDS. `of`: what it is about, a source or the names of paper, run and point. `needs`: the commands
    of the jobs that it waits for. `trains`: the run that it trains, where its configuration is known already. `budget`:
    that of its run, where it is not the one in use.
    """

    kind: str
    of: tuple[str, ...]
    command: str
    needs: frozenset[str] = frozenset()
    trains: Planned | None = None
    cost: Cost = Cost()
    budget: str | None = None

    @property
    def name(self) -> str:
        """The job for a reader."""
        return " ".join(self.of if self.kind in ("point", "run") else (self.kind, *self.of))

    @property
    def place(self) -> Place:
        """The place that its process locks: that of its run, else one with the job's own name."""
        if self.trains:
            return self.trains.place
        return Place(paths.STATE, self.kind, "--".join(self.of), self.budget or "")

    @property
    def done(self) -> bool:
        """Whether nothing is left to do, since another process did it."""
        if self.kind == "study":
            return settled_run(load_paper(self.of[0]).at(self.budget), self.of[1]) is not None
        if self.kind == "fetch":
            return paths.manifest(*self.of).exists()
        if self.kind == "extractor":
            return not _absent(*self.of)
        return self.trains is not None and self.trains.recorded


@dataclass
class Target:
    """A planned run: where its record is or will be, whether it is recorded, and what it takes or took.

    `shared`: whether all of its seeds are recorded under another name, from where its job takes them over.
    """

    paper: str
    run: str
    method: str
    trains: Planned
    recorded: bool = False
    shared: bool = False
    cost: Cost = Cost()

    @property
    def state(self) -> str:
        """Where it stands: "recorded", "running", "stopped" (it has a checkpoint), "shared" or "missing"."""
        place = self.trains.place
        if self.recorded:
            return "recorded"
        if held(place.lock):
            return "running"
        if paths.checkpoints(place.state):
            return "stopped"
        return "shared" if self.shared else "missing"


@dataclass
class Plan:
    """The runs that are meant, and the jobs that are left.

    `trained`: the runs among them, as (paper, run, configuration), where a search still has to find values with one
    that it tries. `refused`: why they cannot be done at this budget.
    """

    targets: list[Target] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    trained: list[tuple[str, str, RunConfig]] = field(default_factory=list)
    refused: str = ""

    def add(self, job: Job) -> frozenset[str]:
        """Add a job, unless it is there; returns its command, as what another one needs."""
        self.jobs.setdefault(job.command, job)
        return frozenset({job.command})

    @property
    def ordered(self) -> list[Job]:
        """The jobs in the order in which they start."""
        long = lambda job: -math.inf if job.cost.seconds is None else -job.cost.seconds  # noqa: E731
        return sorted(self.jobs.values(), key=lambda job: (KINDS[job.kind], long(job)))


def plan(papers: Iterable[Paper], only: Only = Only(), budget: str | None = None) -> Plan:
    """The plan for the runs of papers that are meant, at the budgets in use or at another one.

    Raises UsageError for what does not exist. Whether methods and datasets have the settings of runs is not looked at,
    which takes PyTorch.
    """
    made = Plan()
    papers = list(papers)
    for (paper, runs), own in zip(wanted([paper.at(budget) for paper in papers], only), papers, strict=True):
        known = Costs(paper)
        for run in runs:
            _add(made, own, paper, run, known)
    return made


def _add(made: Plan, own: Paper, paper: Paper, run: str, known: Costs) -> None:
    """Add a run and, unless it is recorded, the jobs that it takes; `own`: the paper at the budget in use."""
    draft, other = paper.drafts[run], None if paper is own else paper.budget
    data.find(draft.config.dataset)  # an unknown one is refused
    config = settled_run(paper, run)
    trains = Planned(config or draft.config, _place(own, paper, run, config or draft.config))
    needs = _extractor(made, draft.config)
    target = Target(paper.name, run, draft.config.method, trains)
    made.targets.append(target)
    found = _record(trains) if config and not needs else None
    if found:
        target.recorded, target.cost = True, costs.recorded(found)
        return
    left = _left(trains, known) if config and not needs else trains.config
    target.shared, target.cost = not left.seeds, known.of(run, trains.config)
    made.trained.append((paper.name, run, config or next(iter(draft.study.rule.points(draft.config).values()))))
    needs |= _manifest(made, draft.config.dataset)
    if config is None:
        if other and not paper.prepared:
            said = f"the search of {draft.study.run} is not of budget {paper.budget}"
            made.refused = f"{said}: write that budget for {paper.name} in {paths.PARAMS}, and leave --budget out."
        needs |= _studied(made, paper, draft, needs, known, other)
    command = f"fedrepro train --paper {paper.name} --run {run}{at(other)}"
    made.add(Job("run", (paper.name, run), command, needs, trains if config else None, known.of(run, left), other))


def _record(trains: Planned) -> Record | None:
    """The record of a run; None where its data are not there to say whether it is current."""
    try:
        return trains.record
    except UsageError:
        return None


def _left(trains: Planned, known: Costs) -> RunConfig:
    """A run with the seeds alone that are left to train, since no record has them."""
    try:
        seeds, earlier = known.lacking(trains.config, trains.place, identity(trains.config)), trains.earlier
    except UsageError:  # its data are not there
        return trains.config
    kept = earlier.seeds if earlier else ()
    return trains.config.model_copy(update={"seeds": tuple(seed for seed in seeds if seed not in kept)})


def settled_run(paper: Paper, run: str) -> RunConfig | None:
    """The run with what its study found; None where that is still to be made, or is stale."""
    try:
        return paper.run(run)
    except UsageError:
        return None


def _place(own: Paper, paper: Paper, run: str, config: RunConfig) -> Place:
    """Where `fedrepro train` puts a run: at another budget, among the ad hoc ones unless nothing differs.

    A prepared budget has places of its own.
    """
    if paper.prepared:
        return place(paper, run, config)
    if paper is own or (run in own.drafts and config == settled_run(own, run)):
        return place(own, run, config)
    return adhoc(config)


def _manifest(made: Plan, dataset: str) -> frozenset[str]:
    """The job that gets the images of a dataset and writes their manifest, unless that is there."""
    source = data.find(dataset).made_of.name
    if paths.manifest(source).exists():
        return frozenset()
    return made.add(Job("fetch", (source,), f"fedrepro data fetch {source}"))


def _extractor(made: Plan, config: RunConfig) -> frozenset[str]:
    """The job that makes the network which judges what a run generates, where one does and it is not there."""
    if not samples(config).endswith(".png"):
        return frozenset()
    source, wanted = data.find(config.dataset).made_of.name, config.watch.extractor
    name = "inception" if wanted == "inception" else source
    if not _absent(name) or (wanted == "auto" and not _absent("inception")):
        return frozenset()
    needs = frozenset() if name == "inception" else _manifest(made, config.dataset)
    return made.add(Job("extractor", (name,), f"fedrepro extractor {name}", needs))


def _absent(name: str) -> bool:
    """Whether an extractor is not there; one that is damaged is refused by whoever reads it."""
    if name == "inception":
        return extractors.weights() is None
    return not any(path.exists() for path in extractors.paths(name))


def _studied(
    made: Plan, paper: Paper, draft: Draft, needs: frozenset[str], known: Costs, other: str | None
) -> frozenset[str]:
    """The jobs of the search that a run needs: one for each point that has no record, and one that chooses."""
    study: Study = draft.study
    command = tuning(paper.name, study, other)
    if command in made.jobs:
        return frozenset({command})
    points = frozenset()
    for point in study.rule.stages(study.config)[0]:  # which of them go on, the choosing job finds
        trains = studied(paper, study, point)
        if _record(trains) is None:
            of, cost = (paper.name, study.run, point), known.point(study, trains.config)
            points |= made.add(Job("point", of, f"{command} --point {point}", needs, trains, cost, other))
    chooses = Job("study", (paper.name, study.run), command, needs | points, cost=known.later(study), budget=other)
    return made.add(chooses)


def waves(jobs: Iterable[Job]) -> list[list[Job]]:
    """Jobs in groups: those of a group need only jobs of earlier ones."""
    left, done, found = list(jobs), set(), []
    while left:
        found.append([job for job in left if not job.needs - done])
        done |= {job.command for job in found[-1]}
        left = [job for job in left if job.command not in done]
    return found
