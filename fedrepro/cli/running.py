"""`fedrepro run`: what is planned, what of it is recorded, and the training of the rest, many runs at once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from fedrepro.cli import options
from fedrepro.cli.options import Budget, Device, console, papers
from fedrepro.errors import FedreproError, UsageError, short

if TYPE_CHECKING:
    from fedrepro.pipeline.plan import Plan
    from fedrepro.pipeline.workers import Workers

STATES = ("recorded", "running", "stopped", "missing", "shared")
WORDS = {  # what comes before the runs, one and many
    "fetch": ("source to fetch", "sources to fetch"),
    "extractor": ("extractor", "extractors"),
    "point": ("point of a search", "points of searches"),
    "study": ("search", "searches"),
}

Names = Annotated[
    list[str] | None,
    typer.Argument(parser=options.paper, metavar="[PAPER]...", help="Papers; all without one.", show_default=False),
]
OfTable = Annotated[str | None, typer.Option("--table", help="Only the runs of one table.")]
OfFigure = Annotated[str | None, typer.Option("--figure", help="Only the runs of one figure; with --table, of both.")]
ByMethod = Annotated[str | None, typer.Option("--method", parser=options.method, help="Only the runs by one method.")]
OneRun = Annotated[str | None, typer.Option("--run", help="Only one run.")]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Runs at once; without it as many as there are cores // threads, or slots of GPUs."),
]
Threads = Annotated[
    int, typer.Option(min=1, help="Threads of each run; runs of one thread, side by side, are the fastest.")
]
Gpus = Annotated[
    str | None, typer.Option(metavar="0,1", help="GPUs to share out among the runs; without it, all that are visible.")
]
PerGpu = Annotated[int, typer.Option("--jobs-per-gpu", min=1, help="Runs that share a GPU.")]
Backend = Annotated[str, typer.Option(help="local, or slurm: arrays of jobs of a cluster.")]
Partition = Annotated[str | None, typer.Option(help="The partition of Slurm.")]
Limit = Annotated[str | None, typer.Option("--time", help="Slurm's time limit of each job, such as 4:00:00.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List what would be done, in order, and do nothing.")]
Status = Annotated[bool, typer.Option("--status", help="Count the recorded, running and missing runs by method.")]
KeepGoing = Annotated[bool, typer.Option("--keep-going", help="Where a run fails, go on with the others.")]


def run(
    names: Names = None,
    table: OfTable = None,
    figure: OfFigure = None,
    method: ByMethod = None,
    run: OneRun = None,
    budget: Budget = None,
    jobs: Jobs = None,
    threads: Threads = 1,
    gpus: Gpus = None,
    jobs_per_gpu: PerGpu = 1,
    backend: Backend = "local",
    partition: Partition = None,
    time: Limit = None,
    dry_run: DryRun = False,
    status: Status = False,
    keep_going: KeepGoing = False,
    device: Device = "auto",
) -> None:
    """Train the planned runs that have no current record, each in a process of its own; the others are kept.

    What they need comes first: data, extractors and searches. A record is current where settings, data and
    numerics are those of now. At a `--budget` other than that in use, records go where `fedrepro train --budget` has
    them. Interrupted or killed, the same command goes on. A stage of `dvc repro` for each paper and method calls it.
    """
    from fedrepro.pipeline import plan
    from fedrepro.pipeline.run import Only
    from fedrepro.pipeline.workers import share

    workers = share(jobs, threads, gpus, jobs_per_gpu, device)
    cluster = _cluster(backend, partition, time, jobs)
    chosen = [paper for name in names or [None] for paper in papers(name)]
    made = plan.plan(chosen, Only(method, run, table, figure), budget)
    if status:
        console().print(_status(made))
    elif dry_run:
        _list(made, len(workers.slots))
    else:
        _do(made, workers, cluster, keep_going, chosen if method else (), method)


def _cluster(backend: str, partition: str | None, limit: str | None, jobs: int | None) -> dict | None:
    """The settings of Slurm; None of the local backend."""
    if backend not in ("local", "slurm"):
        raise UsageError(f"unknown backend {short(repr(backend))}: there is local and slurm.")
    if backend == "slurm":
        return {"partition": partition, "limit": limit, "most": jobs}
    if partition is not None or limit is not None:
        raise UsageError("--partition and --time are of Slurm: they need --backend slurm.")
    return None


def _counts(made: Plan) -> list[str]:
    """The counts of runs and of the jobs before them."""
    recorded = sum(target.recorded for target in made.targets)
    shared = sum(target.shared for target in made.targets)
    over = f"{shared} to take over, " if shared else ""
    left = len(made.targets) - recorded - shared
    lines = [f"{len(made.targets)} runs planned, {recorded} recorded, {over}{left} to train"]
    kinds = Counter(job.kind for job in made.jobs.values())
    if before := [f"{kinds[kind]} {words[kinds[kind] > 1]}" for kind, words in WORDS.items() if kinds[kind]]:
        lines.append(f"before them: {', '.join(before)}")
    return lines


def _list(made: Plan, jobs: int) -> None:
    """Print the commands that are left, in their order, and how long they take together."""
    from fedrepro.pipeline.costs import total

    for line in [*_counts(made), *(job.command for job in made.ordered)]:
        typer.echo(line)
    if made.jobs:
        seconds, unknown = total(job.cost for job in made.jobs.values() if job.kind not in ("fetch", "extractor"))
        parts = [f"about {_hours(seconds / jobs)} hours with {jobs} at once"] if seconds or not unknown else []
        typer.echo(", and ".join([*parts, *([f"{unknown} of unknown length"] if unknown else [])]))
    if made.refused:
        typer.echo(made.refused)


def _status(made: Plan) -> Table:
    """Counts of runs by paper and method, and the hours that they take or took, one after another."""
    from fedrepro.pipeline.costs import total

    columns = [Column(name, justify="right", no_wrap=True) for name in ("runs", *STATES, "hours")]
    table = Table("paper", "method", *columns, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    groups: dict[tuple[str, ...], list] = {}
    for target in made.targets:
        for key in ((target.paper, target.method), ("all", "")):
            groups.setdefault(key, []).append(target)
    groups["all", ""] = groups.pop(("all", ""), [])  # at the end
    for key, targets in groups.items():
        states = Counter(target.state for target in targets)
        seconds, unknown = total(target.cost for target in targets)
        hours = _hours(seconds) + f" + {unknown} ?" * bool(unknown)
        table.add_row(*key, *(str(count) for count in (len(targets), *(states[state] for state in STATES))), hours)
    return table


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2g}" if seconds < 36000 else f"{seconds / 3600:.0f}"


def _do(made: Plan, workers: Workers, cluster: dict | None, keep_going: bool, chosen: list, method: str | None) -> None:
    """Do the jobs; FedreproError where one failed or was stopped, after what ran, what did not, and why."""
    from fedrepro.records import paths

    for line in _counts(made):
        typer.echo(line)
    if made.refused:
        raise UsageError(made.refused)
    for paper in chosen:  # a stage's out must be there, even if this budget has no run by the method
        paths.runs(paper.name, method).mkdir(parents=True, exist_ok=True)
    if not made.jobs:
        return
    from fedrepro.cli.board import Board, summary
    from fedrepro.pipeline import local, process

    context = process.serve(workers.threads, ["fedrepro.cli.app"])
    process.check(context, made.trained)
    with Board(console(stderr=True), len(made.jobs)) as board:
        if cluster is None:
            driver = local.Driver(made.ordered, workers, board, keep_going, context)
        else:
            from fedrepro.pipeline.slurm import Slurm

            driver = Slurm(made.ordered, workers, board, keep_going, **cluster)
        try:
            driver.run()
        finally:
            board.close()
            for line in summary(driver.over, driver.waiting.values()):
                board.say(line)
    for ended, remedy in (("failed", "."), ("stopped", ": the same command goes on from there.")):
        if count := sum(work.ended == ended for work in driver.over):
            raise FedreproError(f"{count} of {len(made.jobs)} {ended}{remedy}")
