"""How a table looks: one sheet of entries, drawn as Markdown or in the terminal; latex.py draws it, too."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from fedrepro.rankings import JUDGED, Ranking, rankings
from fedrepro.results import Result, mean
from fedrepro.schema import FIXED, Table, Tolerance, matches
from fedrepro.verdicts import STYLES

MARKS = {"within": "✓", "outside": "✗", "deviation": "†"}


@dataclass(frozen=True)
class Column:
    """`group` stands above the heads of neighbouring columns; `kind`: key, published, reproduced or fact."""

    head: str
    kind: str
    group: str = ""


@dataclass(frozen=True)
class Entry:
    """What stands in one place: text, the status that it shows, the numbers of its notes; `result`: whose number."""

    text: str
    status: str = ""
    notes: tuple[int, ...] = ()
    result: Result | None = None

    @property
    def marked(self) -> str:
        """The text with the mark of its status."""
        return f"{self.text} {MARKS[self.status]}" if self.status in MARKS else self.text


@dataclass
class Sheet:
    """A table ready to be drawn. `notes`: footnotes, numbered from 1 in the order in which `note` first saw them."""

    title: str
    legend: list[str]
    columns: list[Column]
    rows: list[list[Entry]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rankings: list[Ranking] = field(default_factory=list)

    @property
    def told(self) -> list[str]:
        """What stands below the table: its legend, then the rankings."""
        return [*self.legend, *map(str, self.rankings)]

    def note(self, *texts: str) -> tuple[int, ...]:
        """The numbers of these footnotes; equal texts share one, empty texts have none."""
        self.notes += [text for text in dict.fromkeys(texts) if text and text not in self.notes]
        return tuple(self.notes.index(text) + 1 for text in texts if text)


def sheet(table: Table, results: list[Result]) -> Sheet:
    """Rows are methods, columns the metrics: published beside reproduced, then seeds, threshold and rounds."""
    axes = dict.fromkeys(axis for result in results for axis in result.cell.facts if axis not in (*FIXED, "metric"))
    datasets = {result.cell.dataset for result in results}
    keys = [*(["dataset"] if len(datasets) > 1 else []), *axes, "method"]
    stops = any(measure.threshold is not None for result in results for measure in result.measures)
    moved = {result.cell.metric for result in results if any(result.sensitivity) and _is_test(result.cell.metric)}
    columns = [Column(key, "key") for key in keys]
    for metric in table.metrics:
        group = metric.replace("_", " ")
        columns += _compared(metric, group, results)
        columns += [Column("T+, T-", "fact", group)] if metric in moved else []
    columns += [Column(head, "fact") for head in ("seeds", *(["T"] if stops else []), "rounds")]
    over = any(result.cell.read.spread for result in results)
    ranked = rankings(table, results) if results[0].budget.compare else []
    legend = _legend(table, results, stops, bool(moved), over) + _floors(results) + ([JUDGED] if ranked else [])
    drawn = Sheet(_title(table, results), legend, columns, rankings=ranked)
    for _, row in itertools.groupby(results, key=lambda result: result.cell.key[:-1]):
        drawn.rows.append(_row(drawn, table, list(row), keys, stops, moved))
    return drawn


def markdown(sheet: Sheet) -> str:
    """A Markdown document that is as readable raw as rendered."""
    heads = [f"{column.group}, {column.head}" if column.group else column.head for column in sheet.columns]
    body = [[_refer(entry, " [{}]").replace("|", "\\|") for entry in row] for row in sheet.rows]
    flush = [column.kind not in ("published", "fact") for column in sheet.columns]
    notes = [f"{number}. {note}" for number, note in enumerate(sheet.notes, 1)]
    legend = [f"- {line}" for line in sheet.told]
    parts = [f"# {sheet.title}", grid(heads, body, flush), "\n".join(legend), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def grid(heads: list[str], rows: list[list[str]], flush: list[bool]) -> str:
    """Heads and rows as a table of Markdown whose columns line up, to the left where they are `flush`."""
    widths = [max(map(len, place)) for place in zip(heads, *rows, strict=True)]
    rule = [":" + "-" * (w - 1) if left else "-" * (w - 1) + ":" for w, left in zip(widths, flush, strict=True)]
    lines = []
    for row in (heads, rule, *rows):
        padded = (f"{t:<{w}}" if left else f"{t:>{w}}" for t, w, left in zip(row, widths, flush, strict=True))
        lines.append(f"| {' | '.join(padded)} |")
    return "\n".join(lines)


def terminal(sheet: Sheet) -> Group:
    """The table for a rich console: published dim, verdicts in colour, notes below."""
    drawn = RichTable(title=Text(sheet.title, style="bold"), title_justify="left")
    for column in sheet.columns:
        head = f"{column.group}\n{column.head}".lstrip("\n")
        justify = "left" if column.kind in ("key", "reproduced") else "right"
        style = "dim" if column.kind == "published" else ""
        drawn.add_column(head, justify=justify, style=style, vertical="bottom", overflow="fold")
    for row in sheet.rows:
        drawn.add_row(*(Text(_refer(entry, " [{}]"), style=STYLES.get(entry.status, "")) for entry in row))
    notes = [f"[{number}] {note}" for number, note in enumerate(sheet.notes, 1)]
    return Group(drawn, Text("\n".join([*sheet.told, *notes]), style="dim"))


def allowed(tolerance: Tolerance) -> str:
    """How far a number may be from the published one, for a reader."""
    if tolerance.widened is not None:
        return f"in the published range, each end moved outwards by {100 * tolerance.widened:g}% of itself"
    spreads, points = f"{tolerance.spreads:g} published standard deviations", f"{tolerance.points:g} points"
    if not tolerance.share:
        return f"the larger of {spreads} and {points}"
    share = f"{100 * tolerance.share:g}% of the published number"
    own = [*([spreads] if tolerance.spreads else []), *([points] if tolerance.points else []), share]
    return f"the largest of {', '.join(own)}" if len(own) > 1 else share


def _compared(metric: str, group: str, results: list[Result]) -> list[Column]:
    """The columns of a metric: published and reproduced, or the paper's own and what stands in for it."""
    reads = [result.cell.read for result in results if result.cell.metric == metric and result.cell.read.substitute]
    if not reads:
        return [Column("published", "published", group), Column("reproduced", "reproduced", group)]
    names = " or ".join(sorted({read.metric for read in reads}))
    printed = " or ".join(sorted({read.printed or group for read in reads}))
    return [Column(f"paper ({printed}, not comparable)", "published"), Column(names, "reproduced")]


def _title(table: Table, results: list[Result]) -> str:
    """With what stands in for the paper's metric, if anything does."""
    substitutes = sorted({result.cell.read.substitute for result in results} - {""})
    return f"{table.title} – here: {'; '.join(substitutes)}" if substitutes else table.title


def _is_test(metric: str) -> bool:
    return metric.startswith("test")


def _row(
    drawn: Sheet, table: Table, results: list[Result], keys: list[str], stops: bool, moved: set[str]
) -> list[Entry]:
    """One method under one setting; all its metrics come from the same run."""
    facts = results[0].cell.facts
    *settings, method = (facts.get(key, "–") for key in keys)
    readings = drawn.note(*(f"{remark.reason}." for remark in table.readings if matches(remark.when, facts)))
    row = [*map(Entry, settings), Entry(method, notes=readings + drawn.note(max(result.chosen for result in results)))]
    for result in results:
        row.append(Entry(str(result.published), notes=drawn.note(_on_print(result), _swapped(result))))
        lacks = (f"A part of its grid is left out: {reason}." for reason in result.cell.lacks)
        row.append(Entry(str(result), result.status, drawn.note(_remark(result), *lacks), result))
        if result.cell.metric in moved:
            row.append(Entry(", ".join(_some(values, len(result.measures)) for values in result.sensitivity)))
    ran = max(results, key=lambda result: len(result.measures))  # a metric may have been left out with a reason
    substitutes = sorted({measure.substitute for measure in ran.measures} - {""})
    data = drawn.note(*(f"Data: {substitute}, in place of the paper's own." for substitute in substitutes))
    row.append(Entry(str(ran.n_seeds), notes=data))
    if stops:
        thresholds = sorted({measure.threshold for measure in ran.measures if measure.threshold is not None})
        row.append(Entry(", ".join(f"{100 * threshold:.2f}" for threshold in thresholds) or "–"))
    row.append(Entry(_rounds(ran), notes=drawn.note(*_endings(ran))))
    return row


def _some(values: list[float], seeds: int) -> str:
    """A mean, with the number of seeds where it is not over all."""
    return f"{mean(values) or '–'}{f' ({len(values)})' if 0 < len(values) < seeds else ''}"


def _legend(table: Table, results: list[Result], stops: bool, moved: bool, over: bool) -> list[str]:
    result = results[0]
    unit = result.published.unit.replace("_", " ") if not result.cell.read.substitute else result.cell.read.metric
    unit = f", in {unit}" if unit else ""
    of = "Mean ± standard deviation (population) over the seeds"
    if result.ranges:
        grid = "".join(f"{axis.replace('_', ' ')} {', '.join(v)}; " for axis, v in _gridded(table, results).items())
        parts = f"the ends of {table.checkpoints} equal parts of training and the seeds"
        of = f"Median (least – largest) over {grid}{parts}"
    legend = [f"{of}{unit}; budget: {result.budget.label}."]
    if table.last is not None:
        legend.append(f"The number of a seed is the mean over its last {table.last} rounds.")
    if over:
        legend.append("Where the table prints a standard deviation, so do we the same one, and not that over seeds.")
    if result.budget.compare and result.cell.read.substitute:
        legend.append("The metric only stands in for the paper's: values are never compared, rankings are.")
    elif result.budget.compare:
        marks = "✓ within tolerance, ✗ outside, † outside and declared."
        legend.append(f"{marks} Tolerance: {allowed(result.tolerance)}, because {result.tolerance.reason}.")
    else:
        legend.append("The numbers of this budget are never compared with the paper's.")
    if stops:
        legend.append("T: the training accuracy in percent below which a run stops.")
    if moved:
        legend.append(
            "T+, T-: the mean had T been moved up or down by its shifts (`stop.shifts` in runs.json); in brackets the "
            "number of seeds that would have stopped, where it is not all, and – where it is none."
        )
    rounds = "Rounds: the checkpoints." if result.ranges else "Rounds trained: mean over the seeds (least–most)."
    return [*legend, rounds]


def _gridded(table: Table, results: list[Result]) -> dict[str, list[str]]:
    """The values of the grid's axes that cells have a run of; of a table of which nothing is run, all."""
    ran = {point for result in results for point in result.cell.grid}
    return {axis: [value for value in values if not ran or (axis, value) in ran] for axis, values in table.grid.items()}


def _floors(results: list[Result]) -> list[str]:
    """What a perfect result would be near, where that was measured."""
    found = sorted({f"{m.value:.{r.decimals}f}" for r in results for m in r.floors if m.value is not None})
    return [f"Floor (two samples of real images from each other): {', '.join(found)}."] if found else []


def _on_print(result: Result) -> str:
    return f"Published: {result.published.note.rstrip('.')}." if result.published.note else ""


def _swapped(result: Result) -> str:
    return f"Compared with {result.reference}: {result.instead.reason}." if result.instead else ""


def _remark(result: Result) -> str:
    kinds = {"not-run": "Not run", "missing": "Missing", "deviation": "Declared deviation"}
    return f"{kinds[result.status]}: {result.reason}" if result.status in kinds else ""


def _rounds(result: Result) -> str:
    rounds = [measure.rounds for measure in result.measures if measure.status != "diverged"]
    if result.ranges:
        return ", ".join(map(str, sorted(set(rounds)))) or "–"
    if len(set(rounds)) < 2:
        return str(rounds[0]) if rounds else "–"
    return f"{statistics.fmean(rounds):.0f} ({min(rounds)}–{max(rounds)})"


def _endings(result: Result) -> list[str]:
    """Footnotes on the seeds whose training did not end as intended."""
    capped = [str(measure.seed) for measure in result.measures if measure.status == "cap"]
    notes = [f"Reached the cap without stopping: {_seeds(capped)}."] if capped else []
    lost = [measure for measure in result.measures if measure.status == "diverged"]
    return notes + [f"Seed {m.seed} diverged in round {m.rounds} and is left out of mean and spread." for m in lost]


def _seeds(names: list[str]) -> str:
    return f"seed {names[0]}" if len(names) == 1 else f"seeds {', '.join(names[:-1])} and {names[-1]}"


def _refer(entry: Entry, mark: str) -> str:
    return entry.marked + "".join(mark.format(number) for number in entry.notes)
