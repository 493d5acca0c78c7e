"""A paper as data: the cells of its tables and the runs that fill them, expanded from papers/<paper>/paper.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from fedrepro import comparisons, drafts, schema, specfile
from fedrepro.comparisons import Comparison
from fedrepro.config import RunConfig
from fedrepro.drafts import Draft, Search
from fedrepro.errors import UsageError, unknown
from fedrepro.schema import FIXED, Chosen, Figure, Found, Pilot, Point, Spec, Spot, Table, matches, remark_on

Entry = TypeVar("Entry", Found, Chosen)


@dataclass(frozen=True)
class Cell:
    """The place of one published number. `run` is None where `reason` says why there is none.

    `source`: the metric of the record that it is. `spread`: that which its printed standard deviation is; empty where
    this is over seeds.
    """

    paper: str
    table: str
    dataset: str
    variant: str
    method: str
    metric: str
    run: str | None
    reason: str
    source: str
    spread: str

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
        """A figure by name; UsageError with the closest name where there is none."""
        if figure not in self.spec.figures:
            raise unknown(f"figure of {self.name}", figure, self.spec.figures)
        found = self.spec.figures[figure]
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
        return list(dict.fromkeys(cell.run for cell in self.cells(table, budget) if cell.run is not None))

    def measured(self, table: str) -> dict[str, list[str]]:
        """Run -> the metrics of the record that its cells in a table are, and those that their spreads are."""
        spec, found = self.table(table), dict.fromkeys(self.table_runs(table), ())
        for point in schema.points(spec.cells):
            if (run := self._run_name(point | spec.implied)) in found:
                found[run] += tuple(name for metric in spec.metrics for name in self._sources(spec, point, metric))
        return {run: list(filter(None, dict.fromkeys(names))) for run, names in found.items()}

    def sheet(self, sheet: str) -> tuple[str, dict[str, Any]]:
        """The dataset that a sample sheet shows, and the parameters of its synthesis; UsageError for an unknown one."""
        if sheet not in self.spec.sheets:
            raise unknown(f"sample sheet of {self.name}", sheet, self.spec.sheets)
        settings = self._settings(self.spec.sheets[sheet].cell, self.budget)
        return settings["dataset"], settings.get("data", {})

    def sheet_path(self, sheet: str) -> Path:
        """Where a sample sheet is."""
        return self.root / "reports" / "sheets" / self.name / f"{sheet}.png"

    def spots(self, figure: str) -> list[tuple[Spot, str]]:
        """Where a figure shows its cells, each with the run that fills it."""
        return [(spot, self._run_name(spot.cell)) for spot in self._spots(self.figure(figure))]

    def left_out(self, figure: str) -> list[str]:
        """Why some of a figure's cells are not run."""
        spec = self.figure(figure)
        return list(dict.fromkeys(filter(None, (self._left_out(spec, spot.cell) for spot in spec.spots()))))

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
        drawn = [(table.cells, table.implied) for table in self.spec.tables.values()]
        drawn += [(figure.cells, {}) for figure in self.spec.figures.values()]
        places = ((cell, cell | implied) for cells, implied in drawn for cell in schema.points(cells))
        cells = {frozenset(cell.items()): self._run_name(whole) for cell, whole in places}

        def run(cell: Point) -> str | None:
            if frozenset(cell.items()) not in cells:
                raise UsageError(f"{self._place(claim)}: no table and no figure has the cell {schema.words(cell)}.")
            name = cells[frozenset(cell.items())]
            return name if name in self.drafts() else None

        return run

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
        return f"papers/{self.name}/{self._draft(run, None).group}/dvc.yaml:train-{run}"

    def pilot(self, run: str, budget: str | None = None) -> Pilot:
        """How the threshold of `run` is found; UsageError where its stopping rule needs no pilot."""
        pilot = self._draft(run, budget).pilot
        if pilot is None:
            raise UsageError(f"run {run!r} of {self.name} needs no pilot: its spec leaves no threshold open.")
        return pilot

    def pilot_config(self, run: str, budget: str | None = None) -> RunConfig:
        """The configuration of the pilot of `run`; its digest is the entry's `config_digest` in pilots.json."""
        self.pilot(run, budget)
        return self._draft(run, budget).pilot_config()

    def search(self, run: str, budget: str | None = None) -> Search:
        """The search of `run`, which may be named after another; UsageError where the run leaves nothing open."""
        search = self._draft(run, budget).search
        if search is None:
            raise UsageError(f"run {run!r} of {self.name} needs no search: its spec leaves no hyper-parameter open.")
        return search

    @property
    def searched(self) -> bool:
        """Whether a run's hyper-parameters are found by a search."""
        return any(draft.search for draft in self.drafts().values())

    def chosen(self, run: str) -> dict[str, int | float]:
        """What a search chose for a run; empty where there was none to make, or it is still to be made."""
        draft = self._draft(run, None)
        found = self.searches.get(draft.search.run) if draft.search else None
        return {key: value for key, value in found.chosen.items() if key in draft.open} if found else {}

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
            run, draft = self._run_name(point), self._expand(point, budget)
            if drafts.setdefault(run, draft) != draft:
                raise UsageError(f"{self.folder / 'paper.toml'}: two settings share the name {run!r}; rename one.")
        return drafts

    def _points(self, budget: str) -> Iterator[Point]:
        """The cells that are run: those of the tables, but for what they leave out, and those of the figures."""
        for name, table in self.spec.tables.items():
            wanted = self.table_runs(name, budget)
            places = (point | table.implied for point in schema.points(table.cells))
            yield from (point for point in places if self._run_name(point) in wanted)
        for figure in self.spec.figures.values():
            yield from (spot.cell for spot in self._spots(figure, budget))

    def _spots(self, figure: Figure, budget: str | None = None) -> list[Spot]:
        """Where a figure shows the cells that are run."""
        return [spot for spot in figure.spots() if not self._left_out(figure, spot.cell, budget)]

    def _left_out(self, figure: Figure, cell: Point, budget: str | None = None) -> str:
        """Why a cell of a figure is not run; empty where it is."""
        remark = remark_on(figure.left_out, cell | {"budget": budget or self.budget})
        return figure.not_run or (remark.reason if remark else "")

    def _draft(self, run: str, budget: str | None) -> Draft:
        drafts = self.drafts(budget)
        if run not in drafts:
            raise unknown(f"run of {self.name}", run, drafts)
        return drafts[run]

    def _settled(self, run: str, draft: Draft) -> RunConfig:
        if draft.search:
            return self._searched(run, draft)
        return self._piloted(run, draft) if draft.pilot else draft.config

    def _searched(self, run: str, draft: Draft) -> RunConfig:
        search, keys = draft.search, " and ".join(draft.open)
        command = f"`fedrepro search --paper {self.name} --run {search.run}`"
        if search.run not in self.searches:
            raise UsageError(f"run {run!r} of {self.name} has no {keys} yet: find it with {command}.")
        if self.searches[search.run].config_digest != search.digest():
            raise UsageError(f"the search of run {run!r} of {self.name} had other settings: repeat it with {command}.")
        return draft.config.model_copy(update={"hyper": draft.config.hyper | self.chosen(run)})

    def _piloted(self, run: str, draft: Draft) -> RunConfig:
        command = f"`fedrepro pilot --paper {self.name} --run {run}`"
        if run not in self.pilots:
            raise UsageError(f"run {run!r} of {self.name} has no stopping threshold yet: find it with {command}.")
        found = self.pilots[run]
        if found.config_digest != draft.pilot_config().digest():
            raise UsageError(f"the pilot of run {run!r} of {self.name} had other settings: repeat it with {command}.")
        return draft.config.model_copy(update={"stop": draft.pilot.stop(found)})

    def _cell(self, table: str, point: Point, metric: str, budget: str | None) -> Cell:
        variant = ";".join(f"{axis}={value}" for axis, value in point.items() if axis not in FIXED)
        spec = self.spec.tables[table]
        remark = remark_on(spec.not_run, {**point, "metric": metric, "budget": budget or self.budget})
        run, reason = (None, remark.reason) if remark else (self._run_name(point | spec.implied), "")
        sources = self._sources(spec, point, metric)
        return Cell(self.name, table, point["dataset"], variant, point["method"], metric, run, reason, *sources)

    def _sources(self, table: Table, point: Point, metric: str) -> tuple[str, str]:
        """The metrics of the record that a cell is, and that its spread is; the second may be empty."""
        read = remark_on(table.reads, point | {"metric": metric, "budget": self.budget})
        return (read.metric.format_map(point), read.spread) if read else (metric, "")

    def _run_name(self, point: Point) -> str:
        return "-".join(filter(None, (self._part(axis, point) for axis in _ordered(point))))

    def _part(self, axis: str, point: Point) -> str:
        """What a value of an axis adds to the names of runs."""
        return _slug(self.spec.axes[axis][point[axis]].get("run", point[axis]))

    def _settings(self, point: Point, budget: str) -> dict[str, Any]:
        """Merge defaults, the values of the axes, the rules of the budget `paper` and those of the budget in use."""
        values = [self.spec.axes[axis][point[axis]] for axis in _ordered(point)]
        budgets = [self.spec.budgets[name] for name in dict.fromkeys(("paper", budget))]
        rules = [rule.settings for each in budgets for rule in each.rules if matches(rule.when, point)]
        return reduce(_merge, [*values, *rules], self.spec.defaults)

    def _expand(self, point: Point, budget: str) -> Draft:
        draft, _ = self._bare(point, budget)
        if not draft.open:
            return draft
        base = point | {axis: value for axis, value in self.spec.search.base.items() if axis in point}
        run, (first, settings) = self._run_name(base), self._bare(base, budget)
        if strange := [key for key in draft.open if key not in first.open]:
            raise UsageError(
                f"{self._where(point)}: its search is that of {run}, which does not search {strange[0]!r}."
            )
        return replace(draft, search=drafts.search(run, first, settings, self._where(base)))

    def _bare(self, point: Point, budget: str) -> tuple[Draft, dict[str, Any]]:
        """A cell's draft without its search, and the settings behind it."""
        settings = self._settings(point, budget)
        parts = (self._part("dataset", point), _slug(settings.get("group", "")))
        return drafts.draft("-".join(filter(None, parts)), settings, self._where(point)), settings

    def _where(self, point: Point) -> str:
        return f"{self.folder / 'paper.toml'}: {self._run_name(point)}"


def papers(root: str | Path = ".") -> list[str]:
    """The names of all papers that have a spec, sorted."""
    return sorted(path.parent.name for path in Path(root).glob("papers/*/paper.toml"))


def load_paper(name: str, root: str | Path = ".") -> Paper:
    """The paper of that name, checked down to the settings of every run at every budget.

    Raises UsageError for an unknown paper, and with file and place for whatever is wrong in its files.
    """
    root = Path(root)
    if name not in papers(root):
        raise unknown("paper", name, papers(root))
    folder = root / "papers" / name
    pilots = _found(folder / "pilots.json", Found, "pilots")
    searches = _found(folder / "searches.json", Chosen, "searches")
    paper = Paper(name, root, _budget(name, root), specfile.read(folder / "paper.toml"), pilots, searches)
    for budget in (paper.budget, *paper.spec.budgets):
        paper.drafts(budget)
    for claim in paper.spec.claims:
        paper.comparisons(claim)
        paper.references(claim)
    return paper


def load_papers(root: str | Path = ".") -> list[Paper]:
    """All papers, in the order of their names."""
    return [load_paper(name, root) for name in papers(root)]


def _ordered(point: Point) -> list[str]:
    """The axes in the order in which they merge and make up the run's name."""
    return [axis for axis in dict.fromkeys((*FIXED, *point)) if axis in point]


def _slug(value: str) -> str:
    """A value as part of a run's name: the name of a DVC stage takes letters, digits and dashes."""
    return "-".join(re.findall(r"[a-z0-9]+", value.lower()))


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables merge key by key, everything else is replaced."""
    nested = {key for key, value in above.items() if isinstance(value, dict) and isinstance(below.get(key), dict)}
    return {**below, **above, **{key: _merge(below[key], above[key]) for key in nested}}


def _budget(name: str, root: Path) -> str:
    path = root / "params.yaml"
    try:
        return str(yaml.safe_load(path.read_text(encoding="utf-8"))[name]["budget"])
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} gives no budget for {name}: add `{name}: {{budget: paper}}`.") from error


def _found(path: Path, kind: type[Entry], what: str) -> dict[str, Entry]:
    try:
        return TypeAdapter(dict[str, kind]).validate_json(path.read_bytes()) if path.exists() else {}
    except ValidationError as error:
        raise UsageError(f"{path}: {schema.first_fault(error)} Restore it from git, or repeat the {what}.") from error
