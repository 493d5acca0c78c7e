"""Records and curves to the points of figures: mean and spread over the seeds, as reports/figures/<paper>/*.csv."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import dataclass
from pathlib import Path

from fedrepro import evaluate
from fedrepro.curves import Watched, digits, watched
from fedrepro.errors import UsageError, unknown
from fedrepro.files import csv_text, write_text
from fedrepro.schema import Curves
from fedrepro.spec import Paper

ROUNDS = "rounds"  # the metric of levels


@dataclass(frozen=True)
class Spread:
    """One plotted point: mean and population standard deviation over `n` seeds, in percent for accuracies.

    `line`: its name in the legend. `x`: the round, or the value of the figure's axis. `capped`, `diverged`: how many of
    the run's seeds reached the cap without stopping, and how many are left out because they diverged. `budget`,
    `substitute`: as in a table's measures. A run without any value has one row, with n = 0 and no mean.
    """

    line: str
    run: str
    metric: str
    x: str
    mean: float | None
    spread: float | None
    n: int
    capped: int
    diverged: int
    budget: str
    substitute: str


@dataclass(frozen=True)
class Plotted:
    """The points of a figure, and for each run without a usable record one sentence that says what is wrong."""

    points: list[Spread]
    faults: dict[str, str]


def figure(paper: Paper, name: str) -> Path:
    """Write reports/figures/<paper>/<figure>.csv from the records and curves of the figure's runs.

    Raises FedreproError where a record is missing, incomplete or of other settings than the spec's.
    """
    found = collect(paper, name)
    evaluate.enforce(found.faults, f"{paper.name} {name}")
    return write_text(path(paper.name, name, paper.root), text(found.points))


def collect(paper: Paper, name: str) -> Plotted:
    """The points of a figure, panel by panel and line by line; nothing is raised for a faulty record.

    Raises UsageError where the spec names a metric that a run has not watched.
    """
    spec = paper.figure(name)
    found, faults = watched(paper, paper.figure_runs(name))
    points = []
    for metric in spec.metrics if isinstance(spec, Curves) else (ROUNDS,):
        for spot, name_of_run in paper.spots(name):
            if run := found.get(name_of_run):
                where = f"{paper.folder / 'paper.toml'}: figures.{name}: run {name_of_run}"
                values = _curve(run, metric, spec.until, where) if isinstance(spec, Curves) else _level(run)
                ends = (run.count("cap"), run.count("diverged"), *run.origin)
                for x, each in (values or {"": []}).items():
                    points.append(Spread(spot.line, name_of_run, metric, spot.x or x, *_over_seeds(each), *ends))
    return Plotted(points, faults)


def path(paper: str, figure: str, root: str | Path = ".") -> Path:
    """Where a figure's points are."""
    return Path(root) / "reports" / "figures" / paper / f"{figure}.csv"


def pictures(paper: str, figure: str, root: str | Path = ".") -> list[Path]:
    """Where a figure's pictures are."""
    return [path(paper, figure, root).with_suffix(f".{kind}") for kind in ("svg", "png")]


def text(points: list[Spread]) -> str:
    """The points as CSV."""
    return csv_text(Spread, points)


def parse(text: str) -> list[Spread]:
    """The inverse of `text`."""
    return [_point(row) for row in csv.DictReader(io.StringIO(text))]


def stored(paper: Paper, name: str) -> list[Spread]:
    """The points that `fedrepro evaluate` wrote. Raises FedreproError where they are missing or stale."""
    command = f"fedrepro evaluate --paper {paper.name} --figure {name}"
    return evaluate.stored(path(paper.name, name, paper.root), parse, paper, paper.figure_runs(name), command)


def _curve(run: Watched, metric: str, until: int | None, where: str) -> dict[str, list[float]]:
    """Round -> the seeds' values, for the rounds at which at least two seeds, or the only one, were watched."""
    if run.seeds and metric not in run.metrics:
        raise UsageError(f"{where}: {unknown('metric', metric, run.metrics)}")
    values: dict[int, list[float]] = {}
    for seed in run.seeds:
        for round, value in run.curve(seed, metric):
            if until is None or round <= until:
                values.setdefault(round, []).append(value)
    return {str(round): values[round] for round in sorted(values) if len(values[round]) >= min(2, len(run.seeds))}


def _level(run: Watched) -> dict[str, list[float]]:
    """The seeds' numbers of rounds; of a seed that did not stop, the cap."""
    return {"": [run.record.seeds[seed].rounds for seed in run.seeds]}


def _over_seeds(values: list[float]) -> tuple[float | None, float | None, int]:
    if not values:
        return None, None, 0
    return digits(statistics.fmean(values)), digits(statistics.pstdev(values)), len(values)


def _point(row: dict[str, str]) -> Spread:
    numbers = {key: float(row[key]) if row[key] else None for key in ("mean", "spread")}
    return Spread(**(row | numbers | {key: int(row[key]) for key in ("n", "capped", "diverged")}))
