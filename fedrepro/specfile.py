"""Reading papers/<paper>/paper.toml, and checking that whatever it mentions exists."""

from __future__ import annotations

import string
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

from fedrepro.errors import UsageError, unknown
from fedrepro.schema import (
    FIXED,
    Block,
    Cells,
    Curves,
    Figure,
    FirstRound,
    Gallery,
    Levels,
    Rounds,
    Share,
    Spec,
    Table,
    When,
    first_fault,
    values,
)


def read(path: Path) -> Spec:
    """A spec, checked: every axis, value, metric and budget that it mentions exists.

    Raises UsageError with file and place for anything that is not as `Spec` says.
    """
    try:
        spec = Spec.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}.") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {first_fault(error)}") from error
    _check_all_reads(spec, path)
    _check_tables(spec, path)
    _check_figures(spec, path)
    _check_sheets(spec, path)
    _check_claims(spec, path)
    _check_when(spec.search.base, spec.axes, f"{path}: search.base")
    if "paper" not in spec.budgets:
        raise UsageError(f"{path}: there is no budget 'paper', on which the others build.")
    for name, budget in spec.budgets.items():
        for rule in budget.rules:
            _check_when(rule.when, spec.axes, f"{path}: budgets.{name}")
        for own in budget.own:
            if own not in (known := [*spec.tables, *spec.figures, "claims"]):
                raise UsageError(f"{path}: budgets.{name}.own: {unknown('table or figure', own, known)}")
    return spec


def _check_tables(spec: Spec, path: Path) -> None:
    for name, table in spec.tables.items():
        where = f"{path}: tables.{name}"
        _check_reduction(table, where)
        _check_cells(table.cells, FIXED, spec.axes, where)
        facts = {**spec.axes, "metric": table.metrics, "budget": spec.budgets}
        for remark in (*table.readings, *table.instead, *table.deviations, *table.not_run, *table.reads):
            _check_when(remark.when, facts, where)
        _check_implied(table, spec.axes, where)
        _check_grid(table.grid, table.cells, spec.axes, where)
        for axis in table.ranked:
            _check_when({axis: ()}, spec.axes, f"{where}: ranked")
        _check_reads(table, where)
        for remark in table.instead:
            if remark.table not in spec.tables:
                raise UsageError(f"{where}: {unknown('table', remark.table, spec.tables)}")


def _check_reduction(table: Table, where: str) -> None:
    try:
        over = table.checkpoints
    except ValueError:
        known = ("final", "last<N>", "median<N>")
        raise UsageError(f"{where}: {unknown('reduction', table.reduction, known)}") from None
    if table.grid and over is None:
        raise UsageError(f"{where}: a `grid` has several runs behind a cell: reduce them by `median<N>`.")


def _check_grid(grid: Block, cells: Cells, axes: Mapping[str, Iterable[str]], where: str) -> None:
    _check_when(grid, axes, f"{where}: grid")
    if twice := [axis for axis in grid if any(axis in block for block in cells)]:
        raise UsageError(f"{where}: axis {twice[0]!r} is in `grid` and again in `cells`.")


def _check_all_reads(spec: Spec, path: Path) -> None:
    """Those of all tables, figures and claims; they cannot know which axes a cell has."""
    metrics = {metric for table in spec.tables.values() for metric in table.metrics}
    facts = {**spec.axes, "metric": metrics, "budget": spec.budgets}
    for read in spec.reads:
        _check_when(read.when, facts, f"{path}: reads")
        if "{" in read.metric:
            raise UsageError(f"{path}: reads: {read.metric!r} has an axis in braces, which only a table's own may.")


def _check_implied(table: Table, axes: Mapping[str, Iterable[str]], where: str) -> None:
    _check_when(table.implied, axes, f"{where}: implied")
    if twice := [axis for axis in table.implied if any(axis in block for block in table.cells)]:
        raise UsageError(f"{where}: axis {twice[0]!r} is in `implied` and again in `cells`.")


def _check_reads(table: Table, where: str) -> None:
    """Every axis in braces must be one of all cells."""
    for read in table.reads:
        for axis in (axis for _, axis, _, _ in string.Formatter().parse(read.metric) if axis is not None):
            if absent := [block for block in table.cells if axis not in block]:
                raise UsageError(f"{where}: reads: {unknown('axis', axis, absent[0])}")


def _check_figures(spec: Spec, path: Path) -> None:
    names = [*spec.tables, *spec.figures, "claims"]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{path}: there would be two stages 'evaluate-{twice[0]}': rename a table or a figure.")
    for name, figure in spec.figures.items():
        where = f"{path}: figures.{name}"
        own = _places(figure)
        for axis in own:
            _check_when({axis: ()}, spec.axes, where)
        if isinstance(figure, Levels):
            _check_grid(figure.grid, figure.cells, spec.axes, where)
        if isinstance(figure, Levels) and figure.panels and isinstance(figure.quantity, Rounds):
            raise UsageError(f"{where}: `panels` are metrics, and its quantity is none: give the figure a `quantity`.")
        _check_cells(figure.cells, (*FIXED, *own), spec.axes, where)
        for remark in figure.left_out:
            _check_when(remark.when, {**spec.axes, "budget": spec.budgets}, where)
        grid = figure.grid if isinstance(figure, Levels) else {}
        places = [(spot.line, spot.x, *(spot.cell[axis] for axis in grid)) for spot in figure.spots()]
        if twice := [place for place in places if places.count(place) > 1]:
            raise UsageError(f"{where}: two cells are at {', '.join(filter(None, twice[0][:2]))!r}: leave one out.")


def _places(figure: Figure) -> tuple[str, ...]:
    """The axes that say where a figure shows a cell."""
    if isinstance(figure, Curves):
        return ()
    if isinstance(figure, Gallery):
        return (figure.columns, *values(figure.rows))
    return (*values(figure.x), figure.lines)


def _check_sheets(spec: Spec, path: Path) -> None:
    for name, sheet in spec.sheets.items():
        where = f"{path}: sheets.{name}"
        _check_when(sheet.cell, spec.axes, where)
        _check_when({"budget": sheet.budgets}, {"budget": spec.budgets}, where)
        if "dataset" not in sheet.cell:
            raise UsageError(f"{where}: its cell has no axis 'dataset'.")


def _check_claims(spec: Spec, path: Path) -> None:
    for name, claim in spec.claims.items():
        where = f"{path}: claims.{name}"
        if bool(claim.pairs) == bool(claim.gains):
            raise UsageError(f"{where}: a claim has either `pairs` or `gains`.")
        if claim.published is not None and claim.gains:
            raise UsageError(f"{where}: `published` is a number of `pairs`, and there are none.")
        if claim.pooled and (claim.gains or claim.published is not None):
            raise UsageError(f"{where}: `pooled` pairs can neither be counted, as `published` asks, nor be gains.")
        if isinstance(claim.quantity, FirstRound) and isinstance(claim.quantity.level, Share):
            _check_when(claim.quantity.level.of, spec.axes, where)
        for pairs in claim.blocks:
            for side in (pairs.both, pairs.high, pairs.low):
                _check_when(side, spec.axes, where)
            if "low" in pairs.pick and not pairs.low:
                raise UsageError(f"{where}: `pick` chooses a low, and there is none.")
            if twice := [axis for axis in pairs.both if axis in pairs.high or axis in pairs.low]:
                raise UsageError(f"{where}: axis {twice[0]!r} is in `both` and again in `high` or `low`.")


def _check_cells(cells: Cells, needed: Iterable[str], axes: Mapping[str, Iterable[str]], where: str) -> None:
    for block in cells:
        _check_when(block, axes, where)
        if absent := [axis for axis in needed if axis not in block]:
            raise UsageError(f"{where}: a block of cells has no axis {absent[0]!r}.")


def _check_when(when: When, axes: Mapping[str, Iterable[str]], where: str) -> None:
    for axis, wanted in when.items():
        if axis not in axes:
            raise UsageError(f"{where}: {unknown('axis', axis, axes)}")
        for value in values(wanted):
            if value not in axes[axis]:
                raise UsageError(f"{where}: {unknown(axis, value, axes[axis])}")
