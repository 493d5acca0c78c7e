"""Records and curves to the points of figures: mean and spread over the seeds, as reports/figures/<paper>/*.csv."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from fedrepro import evaluate, gallery, quantities
from fedrepro.curves import digits
from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.evaluate import Watched
from fedrepro.files import csv_text, write_text
from fedrepro.gallery import Panel
from fedrepro.schema import Curves, Gallery, Levels, Median, Quantity, Spot
from fedrepro.spec import Paper


@dataclass(frozen=True)
class Spread:
    """One plotted point: mean and population standard deviation over `n` seeds, in percent for accuracies.

    `line`: its name in the legend. `x`: the round, or the value of the figure's axis. `capped`, `diverged`: how many of
    the run's seeds reached the cap without stopping, and how many are left out because they diverged. `budget`,
    `substitute`: as in a table's measures. A run without any value has one row, with n = 0 and no mean; a run that does
    not have a metric which others have is not in its panel. Of the median over checkpoints and a grid of runs, whose
    names are then joined by "; ", `mean` is that median, and `spread` and `n` are of all these values.
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
    """The points of a figure, or the panels of a gallery, and for each run without a usable record what is wrong."""

    points: list[Spread] | list[Panel]
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
    if isinstance(spec, Gallery):
        panels, lost = gallery.collect(spec, spots, found)
        return Plotted(panels, faults | {run: evaluate.remedied(paper, run, fault) for run, fault in lost.items()})
    if isinstance(spec, Levels):
        return _levels(paper, spec, spots, found, faults, where)
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


def text(points: list[Spread] | list[Panel]) -> str:
    """The points, or the panels of a gallery, as CSV."""
    return csv_text(Panel if points and isinstance(points[0], Panel) else Spread, points)


def parse(text: str) -> list[Spread]:
    """The inverse of `text` for points; gallery.py has that for panels."""
    return [_parsed(row) for row in csv.DictReader(io.StringIO(text))]


def stored(paper: Paper, name: str) -> list[Spread] | list[Panel]:
    """The points that `fedrepro evaluate` wrote. Raises FedreproError where they are missing or stale."""
    command = f"fedrepro evaluate --paper {paper.name} --figure {name}"
    read = gallery.parse if isinstance(paper.figure(name), Gallery) else parse
    return evaluate.stored(path(paper.name, name, paper.root), read, paper, paper.figure_runs(name), command)


def _levels(
    paper: Paper,
    spec: Levels,
    spots: list[tuple[Spot, str]],
    found: dict[str, Watched],
    faults: dict[str, str],
    where: str,
) -> Plotted:
    """A point for each place in each panel. The quantity of a seed that did not stop is that at the cap."""
    places: dict[tuple[str, str], list[str]] = {}  # (line, x) -> its runs: several with a grid
    for spot, run in spots:
        places.setdefault((spot.line, spot.x), []).append(run)
    points = []
    for quantity in spec.quantities:
        for (line, x), runs in places.items():
            own = [quantities.of_record(quantity, paper, run) for run in runs]
            for run, each in zip(runs, own, strict=True):
                quantities.check_metric(each, found[run], f"{where}: run {run}")
            try:
                values = [value for run, each in zip(runs, own, strict=True) for value in _values(each, found[run])]
            except FedreproError as error:
                faults |= dict.fromkeys(runs, str(error))
            else:
                metric = getattr(own[0], "metric", quantity.kind)
                point = _point(line, "; ".join(runs), metric, x, values, *(found[run] for run in runs))
                middle = digits(statistics.median(values)) if values and isinstance(quantity, Median) else point.mean
                points.append(replace(point, mean=middle))
    return Plotted(points, faults)


def _values(quantity: Quantity, run: Watched) -> list[float]:
    """The quantity of each seed; of a median all that it is of, since it is that of all seeds and runs together."""
    if isinstance(quantity, Median):
        return [value for seed in run.seeds for value in quantities.looks(quantity, run, seed)]
    read = (quantities.read(quantity, run, seed) for seed in run.seeds)
    return [value for value, _ in read if value is not None]


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


def _point(line: str, run: str, metric: str, x: str, values: list[float], *found: Watched) -> Spread:
    ends = (sum(each.count(status) for each in found) for status in ("cap", "diverged"))
    return Spread(line, run, metric, x, *_over_seeds(values), *ends, *found[0].origin)


def _over_seeds(values: list[float]) -> tuple[float | None, float | None, int]:
    if not values:
        return None, None, 0
    return digits(statistics.fmean(values)), digits(statistics.pstdev(values)), len(values)


def _parsed(row: dict[str, str]) -> Spread:
    numbers = {key: float(row[key]) if row[key] else None for key in ("mean", "spread")}
    return Spread(**(row | numbers | {key: int(row[key]) for key in ("n", "capped", "diverged")}))
