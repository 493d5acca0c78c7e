"""A paper as data: the cells of its tables and the runs that fill them, expanded from papers/<paper>/paper.toml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedrepro import comparisons, expand, schema
from fedrepro.comparisons import Comparison
from fedrepro.config import RunConfig
from fedrepro.drafts import Draft, Search
from fedrepro.errors import UsageError, unknown
from fedrepro.schema import (
    FIXED,
    Chosen,
    Figure,
    Found,
    Pilot,
    Point,
    Read,
    Remark,
    Sheet,
    Spec,
    Spot,
    Table,
    remark_on,
    values,
    words,
)


@dataclass(frozen=True)
class Cell:
    """The place of one published number, and the runs that fill it: several with a grid, none where `reason` says why.

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

    @property
    def run(self) -> str | None:
        """The first of its runs, if it has any."""
        return self.runs[0] if self.runs else None

    @property
    def key(self) -> tuple[str, ...]:
        """What published.csv is joined on."""
        return (self.table, self.dataset, self.variant, self.method, self.metric)

    @property
    def facts(self) -> dict[str, str]:
        """What a remark's `when` may ask for: the cell's axes and its metric."""
        axes = dict(pair.split("=", 1) for pair in self.variant.split(";") if pair)
        return axes | {"dataset": self.dataset, "method": self.method, "metric": self.metric}

    def __str__(self) -> str:
        return ", ".join((self.paper, *self.key))


@dataclass(frozen=True)
class Paper:
    """A paper's spec and where it lies. `budget`: that of params.yaml.

    `pilots`: pilots.json, run -> what was found; `searches`: searches.json, by the run that a search is named after.
    Where a method takes a budget, None means `budget`.
    """

    name: str
    root: Path
    budget: str
    spec: Spec
    pilots: dict[str, Found]
    searches: dict[str, Chosen] = field(default_factory=dict)
    _drafts: dict[str, dict[str, Draft]] = field(default_factory=dict, repr=False)  # by budget, once expanded

    @property
    def folder(self) -> Path:
        """The folder of the paper's own files."""
        return self.root / "papers" / self.name

    def table(self, table: str) -> Table:
        """A table by name; UsageError with the closest name where there is none."""
        if table not in self.spec.tables:
            raise unknown(f"table of {self.name}", table, self.spec.tables)
        return self.spec.tables[table]

    def figure(self, figure: str) -> Figure:
        """A figure that is run, by name; UsageError with the closest name where there is none."""
        found = self._figure(figure)
        reasons = [self._left_out(found, spot.cell) for spot in found.spots()]
        if all(reasons):
            raise UsageError(f"figure {figure!r} of {self.name} is not run: {reasons[0]}.")
        return found

    @property
    def figures(self) -> list[str]:
        """The names of the figures that are run."""
        return [name for name, figure in self.spec.figures.items() if self._spots(figure)]

    def cells(self, table: str, budget: str | None = None) -> list[Cell]:
        """The cells of a table in the order of its blocks, the metrics of one run together."""
        spec = self.table(table)
        places = schema.points(spec.cells)
        return [self._cell(table, point, metric, budget) for point in places for metric in spec.metrics]

    def table_runs(self, table: str, budget: str | None = None) -> list[str]:
        """The names of the runs that fill a table, in the order of its cells."""
        return list(dict.fromkeys(run for cell in self.cells(table, budget) for run in cell.runs))

    def measured(self, table: str) -> dict[str, list[str]]:
        """Run -> the metrics of the record that its cells in a table are, and those of their spreads and floors."""
        spec, found = self.table(table), dict.fromkeys(self.table_runs(table), ())
        for point in schema.points(spec.cells):
            reads = [self._read(spec, point, metric) for metric in spec.metrics]
            for _, run in self._places(spec, point):
                if run in found:
                    found[run] += tuple(name for read in reads for name in (read.metric, read.spread, read.floor))
        return {run: list(filter(None, dict.fromkeys(names))) for run, names in found.items()}

    def read(self, metric: str, run: str) -> Read:
        """The metric of the record of `run` that figures and claims mean by `metric`."""
        cell = self._first.get(run, {}) if self.spec.reads else {}
        return remark_on(self.spec.reads, cell | {"metric": metric, "budget": self.budget}) or Read(metric=metric)

    @cached_property
    def _first(self) -> dict[str, Point]:
        """Run -> the first cell that it fills."""
        places = [(self._run_name(point), point) for point in self._points(self.budget)]
        return dict(reversed(places))

    @property
    def sheets(self) -> dict[str, Sheet]:
        """The sample sheets that are drawn at the budget in use."""
        every = self.spec.sheets.items()
        return {name: sheet for name, sheet in every if not sheet.budgets or self.budget in sheet.budgets}

    def sheet(self, sheet: str) -> tuple[str, dict[str, Any]]:
        """The dataset that a sample sheet shows, and the parameters of its synthesis; UsageError for an unknown one."""
        if sheet not in self.sheets:
            raise unknown(f"sample sheet of {self.name} at budget {self.budget}", sheet, self.sheets)
        settings = expand.settings(self.spec, self.spec.sheets[sheet].cell, self.budget)
        return settings["dataset"], settings.get("data", {})

    def sheet_path(self, sheet: str) -> Path:
        """Where a sample sheet is."""
        return self.root / "reports" / "sheets" / self.name / f"{sheet}.png"

    def spots(self, figure: str) -> list[tuple[Spot, str]]:
        """Where a figure shows its cells, each with the run that fills it."""
        return [(spot, self._run_name(spot.cell)) for spot in self._spots(self.figure(figure))]

    def left_out(self, figure: str) -> list[str]:
        """Why some of a figure's cells are not run, or all."""
        spec = self._figure(figure)
        return list(dict.fromkeys(filter(None, (self._left_out(spec, spot.cell) for spot in spec.spots()))))

    def not_shown(self, figure: str) -> list[str]:
        """Which of a figure's cells are not run, and why: a sentence for each remark."""
        spec, said = self._figure(figure), []
        for spot in spec.spots():
            if remark := self._remark(spec, spot.cell):
                meant = {axis: " or ".join(values(each)) for axis, each in remark.when.items() if axis != "budget"}
                said.append(f"Not shown: {words(meant)}: {remark.reason}.")
        return list(dict.fromkeys(said))

    def figure_runs(self, figure: str) -> list[str]:
        """The names of the runs that a figure shows, in the order of its lines."""
        return list(dict.fromkeys(run for _, run in self.spots(figure)))

    def comparisons(self, claim: str) -> list[Comparison]:
        """What a claim compares; UsageError for a cell that no table and no figure has, since a claim adds no run."""
        spec = self.spec.claims[claim]
        found = comparisons.comparisons(spec, self._known(claim))
        if spec.published is not None and spec.published > len(found):
            raise UsageError(f"{self._place(claim)}: {spec.published} pairs are published, and there are {len(found)}.")
        return found

    def references(self, claim: str) -> dict[str, str | None]:
        """Run -> the run whose accuracy the claim's level is a share of; UsageError as for `comparisons`."""
        return comparisons.references(self.spec.claims[claim], self._known(claim))

    def claim_runs(self) -> list[str]:
        """The names of the runs that the claims compare or measure by, in the order of the claims."""
        runs = []
        for claim in self.spec.claims:
            runs += [run for comparison in self.comparisons(claim) for run in comparison.runs]
            runs += [run for run in self.references(claim).values() if run is not None]
        return list(dict.fromkeys(runs))

    def _known(self, claim: str) -> comparisons.Run:
        """The run of a cell, for the cells of tables and figures alone."""

        def run(cell: Point) -> str | None:
            if frozenset(cell.items()) not in self._named:
                raise UsageError(f"{self._place(claim)}: no table and no figure has the cell {schema.words(cell)}.")
            name = self._named[frozenset(cell.items())]
            return name if name in self.drafts() else None

        return run

    @cached_property
    def _named(self) -> dict[frozenset[tuple[str, str]], str]:
        """The cells of all tables and figures -> their runs, of which some may be left out."""
        cells = {}
        for table in self.spec.tables.values():
            for cell in schema.points(table.cells):
                cells |= {frozenset((cell | extra).items()): run for extra, run in self._places(table, cell)}
        for figure in self.spec.figures.values():
            cells |= {frozenset(spot.cell.items()): self._run_name(spot.cell) for spot in figure.spots()}
        return cells

    def _place(self, claim: str) -> str:
        return f"{self.folder / 'paper.toml'}: claims.{claim}"

    def runs(self, budget: str | None = None) -> dict[str, RunConfig]:
        """Every run of the paper's tables and figures, with what pilots and searches found.

        Raises UsageError where a pilot or a search is missing or stale.
        """
        return {run: self._settled(run, draft) for run, draft in self.drafts(budget).items()}

    def run(self, run: str, budget: str | None = None) -> RunConfig:
        """One run, as `runs` has it; UsageError as there, and with the closest name where there is none."""
        return self._settled(run, self._draft(run, budget))

    def stage(self, run: str) -> str:
        """The pipeline stage that trains a run, as DVC is asked for it."""
        return f"papers/{self.name}/{self._draft(run).group}/dvc.yaml:train-{run}"

    def pilot(self, run: str) -> Pilot:
        """How the threshold of `run` is found; UsageError where its stopping rule needs no pilot."""
        pilot = self._draft(run).pilot
        if pilot is None:
            raise UsageError(f"run {run!r} of {self.name} needs no pilot: its spec leaves no threshold open.")
        return pilot

    def pilot_config(self, run: str) -> RunConfig:
        """The configuration of the pilot of `run`; its digest is the entry's `config_digest` in pilots.json."""
        self.pilot(run)
        return self._draft(run).pilot_config()

    def search(self, run: str) -> Search:
        """The search of `run`, which may be named after another; UsageError where the run leaves nothing open."""
        search = self._draft(run).search
        if search is None:
            raise UsageError(f"run {run!r} of {self.name} needs no search: its spec leaves no hyper-parameter open.")
        return search

    @property
    def searched(self) -> bool:
        """Whether a run's hyper-parameters are found by a search."""
        return any(draft.search for draft in self.drafts().values())

    def chosen(self, run: str) -> dict[str, int | float]:
        """What a search chose for a run; empty where there was none to make, or it is still to be made."""
        return expand.chosen(self._draft(run), self.searches)

    def drafts(self, budget: str | None = None) -> dict[str, Draft]:
        """Every run before its pilot or search: the union of the runs of all cells of tables and figures."""
        budget = budget or self.budget
        if budget not in self.spec.budgets:
            raise unknown(f"budget of {self.name}", budget, self.spec.budgets)
        if budget not in self._drafts:
            self._drafts[budget] = self._expand_all(budget)
        return self._drafts[budget]

    def _expand_all(self, budget: str) -> dict[str, Draft]:
        drafts: dict[str, Draft] = {}
        for point in self._points(budget):
            run, draft = self._run_name(point), expand.draft(self.spec, point, budget, self.folder / "paper.toml")
            if drafts.setdefault(run, draft) != draft:
                raise UsageError(f"{self.folder / 'paper.toml'}: two settings share the name {run!r}; rename one.")
        return drafts

    def _points(self, budget: str) -> Iterator[Point]:
        """The cells that are run: those of the tables, but for what they leave out, and those of the figures."""
        for name, table in self.spec.tables.items():
            wanted = self.table_runs(name, budget)
            for point in schema.points(table.cells):
                places = (point | table.implied | extra for extra, run in self._places(table, point) if run in wanted)
                yield from places
        for figure in self.spec.figures.values():
            yield from (spot.cell for spot in self._spots(figure, budget))

    def _figure(self, figure: str) -> Figure:
        if figure not in self.spec.figures:
            raise unknown(f"figure of {self.name}", figure, self.spec.figures)
        return self.spec.figures[figure]

    def _spots(self, figure: Figure, budget: str | None = None) -> list[Spot]:
        """Where a figure shows the cells that are run."""
        return [spot for spot in figure.spots() if not self._left_out(figure, spot.cell, budget)]

    def _left_out(self, figure: Figure, cell: Point, budget: str | None = None) -> str:
        """Why a cell of a figure is not run; empty where it is."""
        remark = self._remark(figure, cell, budget)
        return figure.not_run or (remark.reason if remark else "")

    def _remark(self, figure: Figure, cell: Point, budget: str | None = None) -> Remark | None:
        return remark_on(figure.left_out, cell | {"budget": budget or self.budget})

    def _draft(self, run: str, budget: str | None = None) -> Draft:
        drafts = self.drafts(budget)
        if run not in drafts:
            raise unknown(f"run of {self.name}", run, drafts)
        return drafts[run]

    def _settled(self, run: str, draft: Draft) -> RunConfig:
        if draft.search:
            return expand.searched(self.name, run, draft, self.searches)
        return expand.piloted(self.name, run, draft, self.pilots) if draft.pilot else draft.config

    def _cell(self, table: str, point: Point, metric: str, budget: str | None) -> Cell:
        variant = ";".join(f"{axis}={value}" for axis, value in point.items() if axis not in FIXED)
        spec, runs, grid, reasons = self.table(table), [], {}, {}
        for extra, run in self._places(spec, point):
            facts = {**point, **extra, "metric": metric, "budget": budget or self.budget}
            if remark := remark_on(spec.not_run, facts):
                reasons[remark.reason] = None
            else:
                runs.append(run)
                grid |= dict.fromkeys(extra.items())
        place = (self.name, table, point["dataset"], variant, point["method"], metric, tuple(runs))
        read = self._read(spec, point, metric)
        if not runs:
            return Cell(*place, next(iter(reasons)), read)
        return Cell(*place, "", read, tuple(grid), tuple(reasons))

    def _places(self, table: Table, point: Point) -> list[tuple[Point, str]]:
        """The grid behind a cell of a table: its points, each with its run."""
        return [(extra, self._run_name(point | table.implied | extra)) for extra in schema.product(table.grid)]

    def _read(self, table: Table, point: Point, metric: str) -> Read:
        """The metric of the record that a cell is, and what else there is to say of it."""
        read = remark_on((*table.reads, *self.spec.reads), point | {"metric": metric, "budget": self.budget})
        return read.model_copy(update={"metric": read.metric.format_map(point)}) if read else Read(metric=metric)

    def _run_name(self, point: Point) -> str:
        return expand.run_name(self.spec, point)
