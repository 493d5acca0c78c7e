"""Records and curves to the points of figures: mean and spread over the seeds, as reports/figures/<paper>/*.csv."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import dataclass
from pathlib import Path

from fedrepro import evaluate, quantities
from fedrepro.curves import digits
from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.evaluate import Watched
from fedrepro.files import csv_text, write_text
from fedrepro.schema import Curves, Levels, Spot
from fedrepro.spec import Paper


@dataclass(frozen=True)
class Spread:
    """One plotted point: mean and population standard deviation over `n` seeds, in percent for accuracies.

    `line`: its name in the legend. `x`: the round, or the value of the figure's axis. `capped`, `diverged`: how many of
    the run's seeds reached the cap without stopping, and how many are left out because they diverged. `budget`,
    `substitute`: as in a table's measures. A run without any value has one row, with n = 0 and no mean; a run that does
    not have a metric which others have is not in its panel.
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
    found, faults = evaluate.watched(paper, paper.figure_runs(name))
    where = f"{paper.folder / 'paper.toml'}: figures.{name}"
    spots = [(spot, run) for spot, run in paper.spots(name) if run in found]
    if isinstance(spec, Levels):
        return _levels(spec, spots, found, faults, where)
    points = []
    for metric in spec.metrics:
        for spot, run in spots:
            if found[run].seeds and metric not in found[run].metrics:
                _check_metrics(spec, found, run, metric, bool(faults), f"{where}: run {run}")
            else:
                values = _curve(found[run], metric, spec.until)
                points += [_point(spot.line, run, metric, x, values[x], found[run]) for x in values]
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
    return [_parsed(row) for row in csv.DictReader(io.StringIO(text))]


def stored(paper: Paper, name: str) -> list[Spread]:
    """The points that `fedrepro evaluate` wrote. Raises FedreproError where they are missing or stale."""
    command = f"fedrepro evaluate --paper {paper.name} --figure {name}"
    return evaluate.stored(path(paper.name, name, paper.root), parse, paper, paper.figure_runs(name), command)


def _levels(
    spec: Levels, spots: list[tuple[Spot, str]], found: dict[str, Watched], faults: dict[str, str], where: str
) -> Plotted:
    """A point for each cell in each panel. The quantity of a seed that did not stop is that at the cap."""
    points = []
    for quantity in spec.quantities:
        metric = getattr(quantity, "metric", quantity.kind)
        for spot, run in spots:
            quantities.check_metric(quantity, found[run], f"{where}: run {run}")
            try:
                read = (quantities.read(quantity, found[run], seed) for seed in found[run].seeds)
                values = [value for value, _ in read if value is not None]
            except FedreproError as error:
                faults[run] = str(error)
            else:
                points.append(_point(spot.line, run, metric, spot.x, values, found[run]))
    return Plotted(points, faults)


def _curve(run: Watched, metric: str, until: int | None) -> dict[str, list[float]]:
    """Round -> the seeds' values, for the rounds at which at least two seeds, or the only one, were watched."""
    values: dict[int, list[float]] = {}
    for seed in run.seeds:
        for round, value in run.curve(seed, metric):
            if until is None or round <= until:
                values.setdefault(round, []).append(value)
    rounds = [round for round in sorted(values) if len(values[round]) >= min(2, len(run.seeds))]
    return {str(round): values[round] for round in rounds} or {"": []}


def _check_metrics(spec: Curves, found: dict[str, Watched], run: str, metric: str, faulty: bool, where: str) -> None:
    """Raise UsageError where no run of the figure can have the metric, or the run has none of the figure's."""
    others = any(not each.seeds or metric in each.metrics for each in found.values())  # if all diverged, who knows
    if not (others or faulty):
        raise UsageError(f"{where}: {unknown('metric', metric, found[run].metrics)}")
    if not found[run].metrics & set(spec.metrics):
        raise UsageError(f"{where}: it has watched none of {', '.join(spec.metrics)}: leave it out.")


def _point(line: str, run: str, metric: str, x: str, values: list[float], found: Watched) -> Spread:
    ends = (found.count("cap"), found.count("diverged"), *found.origin)
    return Spread(line, run, metric, x, *_over_seeds(values), *ends)


def _over_seeds(values: list[float]) -> tuple[float | None, float | None, int]:
    if not values:
        return None, None, 0
    return digits(statistics.fmean(values)), digits(statistics.pstdev(values)), len(values)


def _parsed(row: dict[str, str]) -> Spread:
    numbers = {key: float(row[key]) if row[key] else None for key in ("mean", "spread")}
    return Spread(**(row | numbers | {key: int(row[key]) for key in ("n", "capped", "diverged")}))
