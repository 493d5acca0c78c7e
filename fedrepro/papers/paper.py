"""A paper at one budget: the cells of its tables and figures, and the runs that fill them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fedrepro.errors import UsageError, unknown
from fedrepro.papers import comparisons, expand
from fedrepro.papers.comparisons import Comparison
from fedrepro.papers.expand import Draft, Study, run_name, settled
from fedrepro.papers.schema.cells import FIXED, Point, Remark, facts, matches, product, remark_on, values, words
from fedrepro.papers.schema.claims import Claim
from fedrepro.papers.schema.figures import Figure, Sheet, Spot
from fedrepro.papers.schema.spec import Spec
from fedrepro.papers.schema.tables import Read, Table
from fedrepro.papers.schema.tuning import Tuned, unset
from fedrepro.records import paths
from fedrepro.records.config import RunConfig

Named = TypeVar("Named")


@dataclass(frozen=True)
class Cell:
    """The place of one published number, and the runs that fill it: several with a grid, none where `reason` says why.

    `readings`: (reading, runs) of the other readings of the paper that are run for it.
    `read`: the metric of the record that it is, with the axes filled in. `grid`: the axes and values of the grid that
    its runs have; `lacks`: why the others are not run.
    """

    paper: str
    table: str
    dataset: str
    variant: str
    method: str
    metric: str
    runs: tuple[str, ...]
    reason: str
    read: Read = field(hash=False)
    grid: tuple[tuple[str, str], ...] = ()
    lacks: tuple[str, ...] = ()
    readings: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def trained(self) -> tuple[str, ...]:
        """Its runs and those of its other readings."""
        return (*self.runs, *(run for _, runs in self.readings for run in runs))

    @property
    def key(self) -> tuple[str, ...]:
        """The key on which published.csv is joined."""
        return (self.table, self.dataset, self.variant, self.method, self.metric)

    @property
    def facts(self) -> dict[str, str]:
        """The facts that a remark's `when` may ask for: the cell's axes and its metric."""
        return facts(self)

    def __str__(self) -> str:
        return ", ".join((self.paper, *self.key))


class Filled(NamedTuple):
    """A place in a table or figure, with the axes that its table implies, its run, and whether that is wanted there."""

    place: Point
    cell: Point
    run: str
    wanted: bool


@dataclass(frozen=True)
class Paper:
    """A paper's spec, where it lies, and the budget in use. `tuned`: tuned.json, study -> what it found."""

    name: str
    root: Path
    budget: str
    spec: Spec
    tuned: dict[str, Tuned]

    @property
    def folder(self) -> Path:
        """The folder of the paper's own files."""
        return paths.spec(self.name, self.root)

    def at(self, budget: str | None) -> Paper:
        """The paper at a budget, or as it is; UsageError with the closest name where it does not have it."""
        budget = self.budget if budget is None else budget
        _find(self.spec.budgets, budget, f"budget of {self.name}")
        return self if budget == self.budget else replace(self, budget=budget)

    @property
    def prepared(self) -> str | None:
        """The budget, if it is one that is still to be trained beside that in use, which commands must name."""
        return self.budget if self.spec.budgets[self.budget].prepared else None

    def home(self, run: str, method: str) -> Path:
        """The folder of the record of a run by a method."""
        own = paths.run(self.name, method, run, self.root)
        return paths.prepared(self.name, self.budget, run, self.root) if self.prepared else own

    # Tables

    def table(self, table: str) -> Table:
        """A table by name; UsageError with the closest name where there is none."""
        return _find(self.spec.tables, table, f"table of {self.name}")

    def cells(self, table: str) -> list[Cell]:
        """The cells of a table in the order of its blocks, the metrics of one run together."""
        spec = self.table(table)
        places = [point for block in spec.cells for point in product(block)]
        return [self._cell(table, point, metric) for point in places for metric in spec.metrics]

    def table_runs(self, table: str) -> list[str]:
        """The names of the runs that fill a table, in the order of its cells, those of other readings included."""
        return list(dict.fromkeys(run for cell in self.cells(table) for run in cell.trained))

    # Figures

    def figure(self, figure: str) -> Figure:
        """A figure that is run, by name; UsageError with the closest name where there is none."""
        found = _find(self.spec.figures, figure, f"figure of {self.name}")
        if figure not in self.figures:
            reason = next(iter(self.left_out(figure)), f"it is not drawn at budget {self.budget}")
            raise UsageError(f"figure {figure!r} of {self.name} is not run: {reason}.")
        return found

    @property
    def figures(self) -> list[str]:
        """The names of the figures that are run."""
        return [figure for figure in self.spec.figures if self.spots(figure)]

    def spots(self, figure: str) -> list[tuple[Spot, str]]:
        """Where a figure shows the cells that are run, each with its run."""
        return [(spot, run_name(self.spec, spot.cell)) for spot, remark in self._spots(figure) if remark is None]

    def figure_runs(self, figure: str) -> list[str]:
        """The names of the runs that a figure shows, in the order of its lines."""
        return list(dict.fromkeys(run for _, run in self.spots(figure)))

    def left_out(self, figure: str) -> list[str]:
        """Why some of a figure's cells are not run, or all."""
        return list(dict.fromkeys(remark.reason for _, remark in self._spots(figure) if remark))

    def not_shown(self, figure: str) -> list[str]:
        """Which of a figure's cells are not run, and why: a sentence for each remark."""
        said = []
        for remark in (remark for _, remark in self._spots(figure) if remark):
            meant = {axis: " or ".join(values(each)) for axis, each in remark.when.items() if axis != "budget"}
            said.append(f"Not shown: {words(meant)}: {remark.reason}.")
        return list(dict.fromkeys(said))

    # Sample sheets

    @property
    def sheets(self) -> dict[str, Sheet]:
        """The sample sheets that are drawn at the budget in use."""
        return {name: sheet for name, sheet in self.spec.sheets.items() if self._shows(sheet)}

    def sheet(self, sheet: str) -> tuple[str, dict[str, Any]]:
        """The dataset that a sample sheet shows, and the parameters of its synthesis; UsageError for an unknown one."""
        found = _find(self.sheets, sheet, f"sample sheet of {self.name} at budget {self.budget}")
        settings = expand.settings(self.spec, found.cell, self.budget)
        return settings["dataset"], settings.get("data", {})

    # Claims

    @property
    def claims(self) -> dict[str, Claim]:
        """The claims that are judged at the budget in use."""
        return {name: claim for name, claim in self.spec.claims.items() if self._shows(claim)}

    def comparisons(self, claim: str) -> list[Comparison]:
        """The comparisons of a claim; UsageError where it names a cell that no table and no figure has."""
        return comparisons.comparisons(self.spec.claims[claim], partial(self._run_of, claim))

    def references(self, claim: str) -> dict[str, str | None]:
        """Run -> the run whose accuracy the claim's level is a share of; UsageError as of `comparisons`."""
        return comparisons.references(self.spec.claims[claim], partial(self._run_of, claim))

    def read(self, metric: str, run: str) -> Read:
        """The metric of the record of `run` that figures and claims mean by `metric`."""
        facts = next((each.cell for each in self._filled if each.wanted and each.run == run), {})
        return self._remark(self.spec.reads, facts | {"metric": metric}) or Read(metric=metric)

    # Runs

    @cached_property
    def drafts(self) -> dict[str, Draft]:
        """Every run before its study: all that the cells of tables and figures need."""
        drafts: dict[str, Draft] = {}
        for each in self._filled:
            if each.wanted:
                draft = expand.draft(self.spec, each.cell, self.budget, self.tuned)
                if drafts.setdefault(each.run, draft) != draft:
                    raise UsageError(f"two settings share the name {each.run!r}; rename one.")
        return drafts

    def runs(self) -> dict[str, RunConfig]:
        """Every run, with what its study found; UsageError where a study is still to be made, or is stale."""
        return {run: self.run(run) for run in self.drafts}

    def run(self, run: str) -> RunConfig:
        """One run, as `runs` has it; UsageError as there, and with the closest name where there is none."""
        return settled(self.name, run, self._draft(run), self.tuned, self.prepared)

    def study(self, run: str) -> Study:
        """The search that a run needs, which may be named after another; UsageError where it needs none."""
        study = self._draft(run).study
        if study is None:
            raise UsageError(f"run {run!r} of {self.name} needs no tuning: its spec leaves nothing open.")
        return study

    def chosen(self, run: str) -> dict[str, int | float]:
        """The hyper-parameters that a search chose for a run; empty where it needs none, or it is still to be made."""
        draft = self._draft(run)
        found = self.tuned.get(draft.study.name) if draft.study else None
        return {key: value for key, value in (found.chosen if found else {}).items() if key in unset(draft.config)}

    @cached_property
    def _filled(self) -> list[Filled]:
        """The cells of all tables, then those of all figures."""
        found = []
        for name, table in self.spec.tables.items():
            wanted = set(self.table_runs(name))
            for point in table.points():
                cell = point | table.implied
                others = ((point | {"reading": r.reading}, r.other(cell)) for r in table.readings if r.reading)
                for place, at in ((point, cell), *others):
                    run = run_name(self.spec, at)
                    found.append(Filled(place, at, run, run in wanted))
        for figure in self.spec.figures.values():
            for *_, cell in figure.spots():
                wanted = self._shows(figure) and self._remark(figure.not_run, cell) is None
                found.append(Filled(cell, cell, run_name(self.spec, cell), wanted))
        return found

    @cached_property
    def _places(self) -> dict[frozenset[tuple[str, str]], str]:
        return {frozenset(each.place.items()): each.run for each in self._filled}

    def _draft(self, run: str) -> Draft:
        return _find(self.drafts, run, f"run of {self.name}")

    def _run_of(self, claim: str, cell: Point) -> str | None:
        """The run of a cell of a table or figure; None where the budget leaves it out."""
        run = self._places.get(frozenset(cell.items()))
        if run is None:
            raise UsageError(f"claims.{claim}: no table and no figure has the cell {words(cell)}.")
        return run if run in self.drafts else None

    def _spots(self, figure: str) -> list[tuple[Spot, Remark | None]]:
        """Where a figure shows its cells, each with the remark that says why it is not run."""
        spec = _find(self.spec.figures, figure, f"figure of {self.name}")
        return [(spot, self._remark(spec.not_run, spot.cell)) for spot in spec.spots() if self._shows(spec)]

    def _shows(self, part: Figure | Sheet | Claim) -> bool:
        """Whether a part of the spec is of the budget in use."""
        return not part.budgets or self.budget in part.budgets

    def _remark(self, remarks: tuple[Any, ...], facts: Mapping[str, str]) -> Any:
        return remark_on(remarks, {**facts, "budget": self.budget})

    def _cell(self, table: str, point: Point, metric: str) -> Cell:
        spec, places, grid, reasons = self.table(table), [], {}, {}
        for extra in product(spec.grid):
            if remark := self._remark(spec.not_run, {**point, **extra, "metric": metric}):
                reasons[remark.reason] = None
            else:
                places.append(point | spec.implied | extra)
                grid |= dict.fromkeys(extra.items())
        runs = [run_name(self.spec, place) for place in places]
        variant = ";".join(f"{axis}={value}" for axis, value in point.items() if axis not in FIXED)
        place = (self.name, table, point["dataset"], variant, point["method"], metric, tuple(runs))
        read = self._remark((*spec.reads, *self.spec.reads), {**point, "metric": metric}) or Read(metric=metric)
        read = read.model_copy(update={"metric": read.metric.format_map(point)})
        if not runs:
            return Cell(*place, next(iter(reasons)), read)
        facts = {**point, "budget": self.budget}
        others = [each for each in spec.readings if each.reading and matches(each.when, facts)]
        readings = ((each.reading, tuple(run_name(self.spec, each.other(p)) for p in places)) for each in others)
        return Cell(*place, "", read, tuple(grid), tuple(reasons), tuple(readings))


def _find(there: Mapping[str, Named], name: str, kind: str) -> Named:
    """The one of that name; UsageError with the closest name where there is none."""
    if name not in there:
        raise unknown(kind, name, there)
    return there[name]
