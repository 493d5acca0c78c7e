"""Cells: each published number, what the seeds gave, and how the two compare."""

from __future__ import annotations

import itertools
import math
import statistics
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from fedrepro.errors import FedreproError, UsageError
from fedrepro.papers.paper import Cell, Paper
from fedrepro.papers.published import KEYS, read
from fedrepro.papers.schema.cells import facts, remark_on
from fedrepro.papers.schema.tables import Table, Tolerance
from fedrepro.records.record import DIVERGED
from fedrepro.results.runs import Run

SCALE = {"percent": 100.0}  # unit of a published number -> what our measure is multiplied with


class Measure(NamedTuple):
    """One number of one seed, reduced as its table asks for, in the record's unit; of a median, at one checkpoint.

    `value`: NaN where the seed diverged. `round`: in which training ended, or the checkpoint. `raised`, `lowered`: the
    value had the stopping threshold been moved up, and down, by `thresholds.SHIFT`, if it would have stopped.
    """

    run: str
    seed: int
    metric: str
    value: float
    status: str
    round: int
    raised: float = math.nan
    lowered: float = math.nan


Groups = dict[tuple[str, str], list[Measure]]  # by run and metric
Numbers = dict[tuple[str, ...], Any]  # by KEYS, the rows of published.csv


def published(paper: Paper) -> Numbers:
    """The rows of published.csv by KEYS; UsageError where the file is not as it should be, or has other cells."""
    printed = {row[: len(KEYS)]: row for row in read(paper).itertuples(index=False)}
    keys = {cell.key for table in paper.spec.tables for cell in paper.cells(table)}
    if absent := sorted(printed.keys() - keys):
        raise UsageError(f"{paper.folder / 'paper.toml'} has no cell for the published {', '.join(absent[0])}.")
    if absent := sorted(keys - printed.keys()):
        raise UsageError(f"{paper.folder / 'published.csv'} has no row for the cell {', '.join(absent[0])}.")
    return printed


def compared(paper: Paper) -> dict[tuple[str, ...], float]:
    """By KEYS, the numbers that the cells are compared with. Raises UsageError as `published`."""
    printed, found = published(paper), {}
    for cell in (cell for table in paper.spec.tables for cell in paper.cells(table)):
        found[cell.key] = float(_beside(paper, cell, printed)[1].mean)
    return found


def rows(paper: Paper, runs: dict[str, Run], faults: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of `cells`, and in `faults` what else is wrong with runs. Raises UsageError as `published`."""
    printed, found, before = published(paper), [], dict(faults)
    for table in paper.spec.tables:
        groups, own = measures(paper, table, runs)
        sound = {name: run for name, run in runs.items() if name not in own}
        found += [_row(paper, cell, printed, groups, sound, before | own) for cell in paper.cells(table)]
        faults |= own | faults
    return found


def measures(paper: Paper, name: str, runs: dict[str, Run]) -> tuple[Groups, dict[str, str]]:
    """The measures that a table takes from the runs, and the faults of those that lack what it asks for."""
    found, faults, reads = {}, {}, {}
    for cell in paper.cells(name):
        for metric in filter(None, (cell.read.metric, cell.read.spread, cell.read.floor)):
            for run in cell.trained:
                reads.setdefault(run, {})[metric] = None
    for run, metrics in reads.items():
        try:
            found |= {(run, each): _measures(runs[run], each, paper.table(name)) for each in metrics if run in runs}
        except FedreproError as error:
            faults[run] = str(error)
    return found, faults


def with_readings(cells: pd.DataFrame) -> list[Any]:
    """The rows of `cells`, those of each run followed by those of its other readings, whose variant says so."""
    found = []
    rows = cells.itertuples(index=False)
    for _, group in itertools.groupby(rows, lambda row: (row.table, row.dataset, row.variant, row.method)):
        own = list(group)
        found += own
        for others in zip(*(cell.readings for cell in own), strict=True):
            found += [_other(cell, **other) for cell, other in zip(own, others, strict=True)]
    return found


def _other(cell: Any, reading: str, **own: Any) -> Any:
    """A row as it is by another reading."""
    told = {key: math.nan if value is None else value for key, value in own.items()}
    return cell._replace(variant=";".join(filter(None, (cell.variant, f"reading={reading}"))), readings=[], **told)


def spread_out(mean: str, spread: str) -> str:
    """A number with its spread for a reader: a standard deviation, or a range."""
    low, dots, high = spread.partition("..")
    return f"{mean} ({low} – {high})" if dots else f"{mean} ± {spread}" if spread else mean


def reproduced(cell: Any) -> str:
    """Our number of a row of `cells` for a reader, or why there is none."""
    if cell.reproduced:
        return spread_out(cell.reproduced, cell.reproduced_spread)
    return {"not-run": "not run", "missing": "missing"}.get(cell.status, "diverged")


def limits(cell: Any) -> str:
    """How far the number of a row of `cells` may be from that of `compared_with`, or where it may lie, for a reader."""
    return f"±{cell.limit:g}" if math.isnan(cell.least) else f"{cell.least:g} to {cell.greatest:g}"


def decimals(number: str) -> int:
    """How many digits a number has behind its point."""
    return len(number.partition(".")[2])


def difference(cell: Any) -> str:
    """Reproduced less published of a row of `cells`, as exact as our number; empty where the two are not compared."""
    return "" if math.isnan(cell.difference) else f"{cell.difference:+.{decimals(cell.reproduced)}f}"


def _measures(run: Run, metric: str, table: Table) -> list[Measure]:
    ended, found = run.record.seeds, []
    if table.checkpoints:
        looks = run.checkpoints(metric, table.checkpoints)
    else:
        values = run.last(metric, table.last) if table.last else run.final(metric)
        looks = {seed: {run.ends[seed]: value} for seed, value in values.items()}
    moves = (run.ended.raised, run.ended.lowered) if run.ended and table.reduction == "final" else ({}, {})
    raised, lowered = (run.at(metric, rounds) for rounds in moves)
    for seed in run.config.seeds:
        moved = raised.get(seed, math.nan), lowered.get(seed, math.nan)
        status = "cap" if seed in run.capped else ended[seed].status
        for round, value in looks.get(seed, {ended[seed].rounds: math.nan}).items():
            found.append(Measure(run.name, seed, metric, value, status, round, *moved))
    return found


def _row(
    paper: Paper, cell: Cell, printed: Numbers, groups: Groups, runs: dict[str, Run], faults: dict[str, str]
) -> dict[str, Any]:
    """One cell; what it does not have is empty. `runs` have no fault."""
    table, number, facts = paper.table(cell.table), printed[cell.key], cell.facts | {"budget": paper.budget}
    (instead, other), deviation = _beside(paper, cell, printed), remark_on(table.deviations, facts)
    label, ran = paper.spec.budgets[paper.budget].of(cell.table), [runs[run] for run in cell.runs if run in runs]
    row = {
        **{"paper": cell.paper, **number._asdict(), "published": number.mean, "published_spread": number.spread},
        **{"compared_with": other.mean, "compared_with_spread": other.spread},
        **_ours(table, cell, number, groups),
        "compared_because": instead.reason if instead else "",
        "deviation": deviation.reason if deviation else "",
        **_seen(ran),
        **{"runs": list(cell.runs), "lacks": list(cell.lacks)},
        **{"read": cell.read.metric, "spread_of": cell.read.spread, "substitute_metric": cell.read.substitute},
        "substitute_data": sorted({run.substitute for run in ran} - {""}),
        "chosen": _chosen(paper, cell.runs[0]) if cell.runs else "",
        **{"budget": paper.budget, "label": label.label},
    }
    fault = next((faults[run] for run in cell.trained if run in faults), "")
    fitted = remark_on(table.calibrated, facts)
    verdict = partial(_compared, table.tolerance, cell, compare=label.compare)
    ended, others = next((run.ended for run in ran), None), []
    for reading, names in cell.readings if not fault else ():
        ran = [runs[name] for name in names]
        of_run = {"runs": list(names), "deviation": "", "chosen": _chosen(paper, names[0])}
        own = _ours(table, cell, number, groups, names) | of_run | _seen(ran)
        own |= verdict(fitted if fitted and fitted.ends else None, row | own, "", ran[0].ended)
        told = {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in own.items()}
        others.append({"reading": reading} | told)
    return row | verdict(fitted, row, fault, ended) | {"readings": others}


def _seen(runs: list[Run]) -> dict[str, list]:
    """The training accuracies below which runs stop, if they do, and their seeds that collapsed."""
    thresholds = {rule.threshold for run in runs if (rule := run.ended or run.config.stop)} - {None}
    return {"thresholds": sorted(thresholds), "collapsed": sorted({seed for run in runs for seed in run.collapsed})}


def _beside(paper: Paper, cell: Cell, printed: Numbers) -> tuple[Any, Any]:
    """The remark that sets a cell beside a number of another table, or None; and the number beside which it stands."""
    instead = remark_on(paper.table(cell.table).instead, cell.facts | {"budget": paper.budget})
    return instead, _elsewhere(cell, instead.table, printed) if instead else printed[cell.key]


def _elsewhere(cell: Cell, table: str, printed: Numbers) -> Any:
    """The number of another table for the same dataset, method and metric, and for those axes that it knows."""
    for number in printed.values():
        if number.table == table and facts(number).items() <= cell.facts.items():
            return number
    raise UsageError(f"{table} has no number to compare {cell} with: correct its `instead` in paper.toml.")


def _ours(table: Table, cell: Cell, number: Any, groups: Groups, runs: tuple[str, ...] = ()) -> dict[str, Any]:
    """Our number over the seeds, of the cell's runs or of others.

    Percent have two decimals, other units those of the published number.
    """
    own, spreads, floors = (
        [measure for run in runs or cell.runs for measure in groups.get((run, metric), [])]
        for metric in (cell.read.metric, cell.read.spread, cell.read.floor)
    )
    scale, places = SCALE.get(number.unit, 1.0), 2 if number.unit in SCALE else decimals(number.mean)
    there, lost = ([m for m in own if (m.status == DIVERGED) == gone] for gone in (False, True))
    values, raised, lowered = (_scaled(there, key, scale) for key in ("value", "raised", "lowered"))
    if table.checkpoints and values:
        middle = f"{statistics.median(values):.{places}f}"
        spread = f"{min(values):.{places}f}..{max(values):.{places}f}"
    else:
        middle, spread = _mean(values, places), f"{statistics.pstdev(values):.{places}f}" if len(values) > 1 else ""
        spread = _mean(_scaled(spreads, "value", scale), places) if cell.read.spread else spread
    rounds = [m.round for m in there]
    return {
        **{"reproduced": middle, "reproduced_spread": spread, "n_seeds": len({m.seed for m in there})},
        "measured": [[m.run, m.seed, m.round, round(value, 10)] for m, value in zip(there, values, strict=True)],
        "rounds": sorted(set(rounds)) if table.checkpoints else rounds,
        **{"raised": _mean(raised), "n_raised": len(raised), "lowered": _mean(lowered), "n_lowered": len(lowered)},
        "capped": list(dict.fromkeys(m.seed for m in there if m.status == "cap")),
        "diverged": [[m.seed, m.round] for m in lost],
        "floor": sorted({f"{value:.{places}f}" for value in _scaled(floors, "value", 1.0)}),
    }


def _compared(
    tolerance: Tolerance, cell: Cell, fitted: Any, row: dict[str, Any], fault: str, ended: Any, compare: bool
) -> dict[str, Any]:
    """How a number compares, of its printed digits so that a reader can repeat it.

    `fitted`: the remark that says what was fitted to the cell, if anything was; `ended`: the end that was found.
    """
    ours, expected, spread = row["reproduced"], float(row["compared_with"]), row["compared_with_spread"]
    low, ranged, high = spread.partition("..")
    limit, least, greatest = math.nan, math.nan, math.nan
    difference = round(float(ours) - expected, 6) if ours else math.nan
    if tolerance.widened is not None and ranged:
        least, greatest = (round(float(end) * (1 + by * tolerance.widened), 6) for end, by in ((low, -1), (high, 1)))
        inside = bool(ours) and least <= float(ours) <= greatest
    else:
        limit = round(tolerance.limit(expected, 0 if ranged else float(spread or 0)), 6)
        inside = abs(difference) <= limit
    replaced, declared = bool(cell.read.substitute), row["deviation"]
    lost = bool(fitted and ended and not ended.reached)
    unreached = "training accuracy not reached" if lost else ""
    verdicts = (
        ("not-run", not cell.runs, cell.reason),
        ("missing", fault, fault),
        ("not-compared", not compare or replaced, ""),
        ("calibrated", fitted and cell.metric == fitted.metric and not lost, fitted.reason if fitted else ""),
        ("within", inside and not lost, ""),
        ("deviation", declared, ": ".join(filter(None, (unreached, declared)))),
        ("outside", True, unreached or "no deviation is declared"),
    )
    status, reason = next((status, reason) for status, applies, reason in verdicts if applies)
    return {
        "difference": difference if status in ("within", "outside", "deviation") else math.nan,
        **({} if replaced else {"limit": limit, "least": least, "greatest": greatest}),
        **{"status": status, "reason": f"{reason.rstrip('.')}.".lstrip(".")},
    }


def _scaled(measures: list[Measure], key: str, scale: float) -> list[float]:
    """Those that there are of a field."""
    return [scale * value for value in (getattr(measure, key) for measure in measures) if not math.isnan(value)]


def _mean(values: list[float], places: int = 2) -> str:
    return f"{statistics.fmean(values):.{places}f}" if values else ""


def _chosen(paper: Paper, run: str) -> str:
    values = ", ".join(f"{key} {value:g}" for key, value in paper.chosen(run).items())
    if not values:
        return ""
    metric = paper.study(run).rule.metric.replace("_", " ")
    return f"{values}: the best {metric} of a search on a seed of its own, see papers/{paper.name}/tuned.json."
