"""Measures joined with the published numbers, and the verdict of each cell."""

from __future__ import annotations

import csv
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedrepro.errors import UsageError
from fedrepro.evaluate import Evaluation, Measure
from fedrepro.schema import Instead, Label, Remark, Tolerance, remark_on
from fedrepro.spec import Cell, Paper

SCALE = {"percent": 100.0}  # unit of a published number -> what our measure is multiplied with
STATUSES = ("within", "outside", "deviation", "not-run", "not-compared", "missing")
COMPARED = ("within", "deviation", "outside")  # statuses of numbers that are compared


@dataclass(frozen=True)
class Published:
    """A number as printed: `mean` and `spread` are its digits (a spread may be empty); `note` is our remark on it.

    Where the paper prints a median with the least and the largest value, `mean` is the median and `spread` min..max.
    """

    mean: str
    spread: str
    unit: str
    note: str

    @property
    def range(self) -> tuple[float, float] | None:
        """The least and the largest value, where they are printed."""
        low, dots, high = self.spread.partition("..")
        return (float(low), float(high)) if dots else None

    def __str__(self) -> str:
        return spread_out(self.mean, self.spread)


@dataclass(frozen=True)
class Result:
    """One cell: the published number, what the seeds gave, and how the two compare.

    `measures`: one per seed; none where the cell was not run, or where `fault` says what is wrong with the record.
    `spreads`: likewise, of the metric that the printed standard deviation is; none where this is over seeds.
    `deviation`: the declaration about the cell, if there is one. `instead`: why `reference`, the number that the cell
    is compared with, is not the published one. `chosen`: what a search found for the run, in
    words; empty where there was none. `ranges`: whether it is a median, with the least and the largest value, over all
    that its measures are of: seeds, runs of a grid and checkpoints. `floors`: as `spreads`, of what a perfect result
    would be near.
    """

    cell: Cell
    published: Published
    reference: Published
    instead: Instead | None
    measures: tuple[Measure, ...]
    spreads: tuple[Measure, ...]
    budget: Label
    tolerance: Tolerance
    deviation: Remark | None
    fault: str
    chosen: str
    ranges: bool = False
    floors: tuple[Measure, ...] = ()

    @property
    def values(self) -> list[float]:
        """The seeds' values in the published unit, without the seeds that diverged."""
        return self._in_unit(measure.value for measure in self.measures)

    @property
    def n_seeds(self) -> int:
        """The number of seeds with a value."""
        return len({measure.seed for measure in self.measures if measure.value is not None})

    @property
    def sensitivity(self) -> tuple[list[float], list[float]]:
        """The values with the stopping threshold raised and lowered, of the seeds that would have stopped."""
        return tuple(self._in_unit(getattr(m, moved) for m in self.measures) for moved in ("raised", "lowered"))

    def _in_unit(self, values: Iterable[float | None]) -> list[float]:
        scale = SCALE.get(self.published.unit, 1.0)
        return [scale * value for value in values if value is not None]

    @property
    def mean(self) -> str:
        """The mean over the seeds, or the median over all values, with `decimals`; empty without a value."""
        if self.ranges and self.values:
            return f"{statistics.median(self.values):.{self.decimals}f}"
        return mean(self.values, self.decimals)

    @property
    def spread(self) -> str:
        """The population standard deviation over the seeds, or min..max of all values; empty where there is none.

        One seed has none. Where the printed one is of something else, the mean over the seeds of what it is of.
        """
        if self.ranges and self.values:
            return "..".join(f"{end:.{self.decimals}f}" for end in (min(self.values), max(self.values)))
        if self.cell.read.spread:
            return mean(self._in_unit(measure.value for measure in self.spreads), self.decimals)
        return f"{statistics.pstdev(self.values):.{self.decimals}f}" if len(self.values) > 1 else ""

    @property
    def decimals(self) -> int:
        """How many decimals our number has: two in percent, and else those of the published one."""
        return 2 if self.published.unit in SCALE else len(self.published.mean.partition(".")[2])

    @property
    def difference(self) -> float | None:
        """Reproduced less published, of the printed digits so that a reader can repeat it; None without a value."""
        return round(float(self.mean) - float(self.reference.mean), 6) if self.values else None

    @property
    def limit(self) -> float:
        """The largest difference within tolerance, in the published unit, where it is no range."""
        spread = 0 if self.reference.range else float(self.reference.spread or 0)
        return round(self.tolerance.limit(float(self.reference.mean), spread), 6)

    @property
    def room(self) -> tuple[float, float] | None:
        """The range within tolerance, in the published unit, where one is published and widened."""
        if self.tolerance.widened is None or self.reference.range is None:
            return None
        low, high = self.reference.range
        return round(low * (1 - self.tolerance.widened), 6), round(high * (1 + self.tolerance.widened), 6)

    @property
    def inside(self) -> bool:
        """Whether there is a value and it is within tolerance."""
        if self.room and self.values:
            return self.room[0] <= float(self.mean) <= self.room[1]
        return self.difference is not None and abs(self.difference) <= self.limit

    @property
    def allowed(self) -> str:
        """How far the value may be from the published one, or where it may lie, for a reader."""
        return f"{self.room[0]:g} to {self.room[1]:g}" if self.room else f"±{self.limit:g}"

    @property
    def status(self) -> str:
        """One of STATUSES: missing is a cell with a fault.

        not-compared is a budget that says nothing about the paper, or a metric that only stands in for the paper's.
        """
        if self.cell.run is None:
            return "not-run"
        if self.fault:
            return "missing"
        if not self.budget.compare or self.cell.read.substitute:
            return "not-compared"
        if self.inside:
            return "within"
        return "deviation" if self.deviation else "outside"

    @property
    def reason(self) -> str:
        """Why the cell is not simply within tolerance, as a sentence; empty where it is, or is not compared."""
        reasons = {
            "not-run": self.cell.reason,
            "missing": self.fault,
            "deviation": self.deviation.reason if self.deviation else "",
            "outside": "no deviation is declared",
        }
        return f"{reasons.get(self.status, '').rstrip('.')}.".lstrip(".")

    def __str__(self) -> str:
        if self.values:
            return spread_out(self.mean, self.spread)
        return {"not-run": "not run", "missing": "missing"}.get(self.status, "diverged")


def counts(results: list[Result]) -> dict[str, int]:
    """Status -> number of cells, for every status."""
    found = Counter(result.status for result in results)
    return {status: found[status] for status in STATUSES}


def spread_out(mean: str, spread: str) -> str:
    """A number with its spread for a reader: a standard deviation, or a range."""
    low, dots, high = spread.partition("..")
    return f"{mean} ({low} – {high})" if dots else f"{mean} ± {spread}" if spread else mean


def mean(values: list[float], decimals: int = 2) -> str:
    """With that many decimals; empty without a value."""
    return f"{statistics.fmean(values):.{decimals}f}" if values else ""


def join(paper: Paper, table: str, found: Evaluation) -> list[Result]:
    """A result for every cell of a table, in the order of its cells.

    Raises UsageError where the cells of the spec and the rows of published.csv are not the same.
    """
    spec, cells, printed = paper.table(table), paper.cells(table), published(paper)
    _same([cell.key for cell in cells], [key for key in printed if key[0] == table], paper.folder)
    seeds: dict[tuple[str, str], list[Measure]] = defaultdict(list)
    for measure in found.measures:
        seeds[measure.run, measure.metric].append(measure)
    swapped = {cell: remark_on(spec.instead, cell.facts | {"budget": paper.budget}) for cell in cells}
    return [
        Result(
            cell,
            printed[cell.key],
            reference=_elsewhere(cell, swapped[cell].table, printed) if swapped[cell] else printed[cell.key],
            instead=swapped[cell],
            measures=tuple(measure for run in cell.runs for measure in seeds[run, cell.read.metric]),
            spreads=tuple(measure for run in cell.runs for measure in seeds[run, cell.read.spread]),
            budget=paper.spec.budgets[paper.budget].of(table),
            tolerance=spec.tolerance,
            deviation=remark_on(spec.deviations, cell.facts | {"budget": paper.budget}),
            fault=next((found.faults[run] for run in cell.runs if run in found.faults), ""),
            chosen=_chosen(paper, cell.run) if cell.run else "",
            ranges=spec.checkpoints is not None,
            floors=tuple(measure for run in cell.runs for measure in seeds[run, cell.read.floor]),
        )
        for cell in cells
    ]


def published(paper: Paper) -> dict[tuple[str, ...], Published]:
    """published.csv by (table, dataset, variant, method, metric). Raises UsageError where it is not as it should be."""
    path = paper.folder / "published.csv"
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        found = {
            tuple(row[key] for key in ("table", "dataset", "variant", "method", "metric")): Published(
                row["median" if "median" in row else "mean"], _spread(row), row["unit"], row["note"]
            )
            for row in rows
        }
        for number in found.values():
            for digits in filter(None, (number.mean, *number.spread.split(".."))):
                float(digits)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} cannot be read ({error}): restore it from git.") from error
    return found


def _spread(row: dict[str, str]) -> str:
    """What is printed with a number: a standard deviation, or the least and the largest value."""
    return row["std"] if "std" in row else f"{row['min']}..{row['max']}"


def _chosen(paper: Paper, run: str) -> str:
    values = ", ".join(f"{key} {value:g}" for key, value in paper.chosen(run).items())
    if not values:
        return ""
    metric = paper.search(run).rule.metric.replace("_", " ")
    return f"{values}: the best {metric} of a search on a seed of its own, see papers/{paper.name}/searches.json."


def _elsewhere(cell: Cell, table: str, printed: dict[tuple[str, ...], Published]) -> Published:
    """What another table has for the same dataset, method and metric, and for those of the axes that it knows."""
    for (name, dataset, variant, method, metric), number in printed.items():
        axes = dict(pair.split("=", 1) for pair in variant.split(";") if pair)
        same = (name, dataset, method, metric) == (table, cell.dataset, cell.method, cell.metric)
        if same and axes.items() <= cell.facts.items():
            return number
    raise UsageError(f"{table} has no number to compare {cell} with: correct its `instead` in paper.toml.")


def _same(cells: list[tuple[str, ...]], printed: list[tuple[str, ...]], folder: Path) -> None:
    if absent := sorted(set(printed) - set(cells)):
        raise UsageError(f"{folder / 'paper.toml'} has no cell for the published {', '.join(absent[0])}.")
    if absent := sorted(set(cells) - set(printed)):
        raise UsageError(f"{folder / 'published.csv'} has no row for the cell {', '.join(absent[0])}.")
