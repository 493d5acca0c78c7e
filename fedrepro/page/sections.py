"""What the page says of a paper: first in a few sentences, then with all of its parts."""

from __future__ import annotations

import statistics
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from fedrepro import layout, tables
from fedrepro.page import evidence, grids, pictures, protocol, protocol_path, reasons
from fedrepro.page.evidence import Claim
from fedrepro.page.grids import Grid, word
from fedrepro.page.links import seen
from fedrepro.page.pictures import Figure
from fedrepro.page.reasons import Reason
from fedrepro.rankings import Ranking
from fedrepro.results import COMPARED, SCALE, STATUSES, Result, counts, join
from fedrepro.spec import Paper

SHOWN = (*COMPARED, "not-compared", "not-run")  # what a cell with all that it needs may be
HEADINGS = {
    "claims": "Claims", "deviations": "Declared deviations", "not-run": "Not run",
    "protocol": "What the paper leaves open",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A table. `name`: the title without what stands in for the metric. `gap`: as of `gap`.

    `grid`: only the published numbers where nothing is run. `not_run`: reason -> the number of cells that are not.
    """

    id: str
    title: str
    name: str
    counts: dict[str, int]
    gap: str
    budget: str
    grid: Grid
    rankings: list[Ranking]
    legend: list[str]
    notes: list[str]
    not_run: dict[str, int]
    files: list[str]

    @property
    def run(self) -> bool:
        """Whether any of its cells is run."""
        return self.counts["not-run"] < sum(self.counts.values())

    @property
    def again(self) -> str:
        """The commands that render it again from its records."""
        paper, _, name = self.id.partition(".")
        return f"fedrepro evaluate --paper {paper} --table {name} && fedrepro report"


@dataclass(frozen=True)
class Section:
    """A paper. `gap`: as of `gap`. `protocol`: HTML, empty where there is none."""

    name: str
    title: str
    budget: str
    counts: dict[str, int]
    gap: str
    tables: list[Table]
    figures: list[Figure]
    sheets: list[Figure]
    claims: list[Claim]
    judged: list[str]
    deviations: list[Reason]
    not_run: list[Reason]
    protocol: str


def section(paper: Paper) -> Section:
    """A paper as the page shows it. Raises FedreproError where a part of the report is not made yet."""
    results = {name: join(paper, name, tables.stored(paper, name)) for name in paper.spec.tables}
    every = [result for own in results.values() for result in own]
    claims, judged = evidence.found(paper)
    path = protocol_path(paper.name, paper.root)
    with ThreadPoolExecutor() as pool:  # most of the page's time is in their compression
        sheets = list(pool.map(partial(pictures.sample_sheet, paper), paper.sheets))
    return Section(
        name=paper.name,
        title=paper.spec.title,
        budget=paper.spec.budgets[paper.budget].label,
        counts=counts(every),
        gap=gap(every),
        tables=[_table(paper, name, own) for name, own in results.items()],
        figures=[pictures.figure(paper, name) for name in paper.figures],
        sheets=sheets,
        claims=claims,
        judged=judged,
        deviations=reasons.deviations(paper, every),
        not_run=reasons.not_run(paper, every),
        protocol=protocol.html(path.read_text(encoding="utf-8")) if path.exists() else "",
    )


def _table(paper: Paper, name: str, results: list[Result]) -> Table:
    found, sheet = counts(results), layout.sheet(paper.table(name), results)
    ran = found["not-run"] < len(results)
    return Table(
        id=f"{paper.name}.{name}",
        title=sheet.title,
        name=paper.table(name).title,
        counts=found,
        gap=gap(results),
        budget=results[0].budget.label,
        grid=grids.grid(paper, sheet) if ran else grids.published(sheet),
        rankings=sheet.rankings,
        legend=sheet.legend,
        notes=sheet.notes,
        not_run=dict(Counter(result.reason for result in results if not result.cell.runs)),
        files=[seen(paper, path) for path in tables.paths(paper.name, name, paper.root)],
    )


def summary(sections: list[Section]) -> str:
    """The result of all papers in one sentence."""
    found = {status: sum(section.counts[status] for section in sections) for status in STATUSES}
    compared, every = sum(found[status] for status in COMPARED), sum(found.values())
    others = [status for status in ("not-compared", "not-run") if found[status]]
    rest = [f"{found[status]} {_are(found[status])} {word(status)}" for status in others]
    verdicts = f"{found['within']} within tolerance, {found['deviation']} outside with a declared reason"
    undeclared = f", {found['outside']} outside without one" if found["outside"] else ""
    said = f"Of {_numbers(every, 'published number')}, {compared} {_are(compared)} compared: {verdicts}{undeclared}."
    return f"{said} {' and '.join(rest)}." if rest else said


def gap(results: list[Result]) -> str:
    """The median distance of compared numbers from the published ones; empty without any, or where units differ."""
    compared = [result for result in results if result.status in COMPARED and result.difference is not None]
    units = {result.published.unit for result in compared}
    if len(units) != 1:
        return ""
    middle = statistics.median(abs(result.difference) for result in compared)
    unit = " points" if units <= set(SCALE) else ""
    return f"{middle:.{compared[0].decimals}f}{unit}"


def sentences(section: Section) -> list[str]:
    """The result of a paper at its budget, for a reader in a hurry."""
    found, every = section.counts, _numbers(sum(section.counts.values()), "published number")
    compared, said = sum(found[status] for status in COMPARED), []
    if compared:
        typical = f"; the median difference is {section.gap}" if section.gap else ""
        of = f"{found['within']} of {_numbers(compared, 'number')} compared"
        said.append(f"{of} {_are(found['within'])} within tolerance{typical}.")
    if found["outside"]:
        said.append(f"{found['outside']} {_are(found['outside'])} outside without a declared reason.")
    if found["deviation"]:
        are = f"{found['deviation']} {_are(found['deviation'])}"
        said.append(f"{are} outside, declared with a reason{_mostly(section.deviations)}")
    if found["not-compared"]:
        are = f"{found['not-compared']} {_are(found['not-compared'])}"
        said.append(f"{are} run and never compared: the metric or the budget is not the paper's.")
    if orders := Counter(ranking.verdict for table in section.tables for ranking in table.rankings):
        columns = _numbers(orders.total(), "column")
        said.append(f"The order within {columns} of its tables is compared: {_tally(orders)}.")
    if found["not-run"]:
        whole = found["not-run"] == sum(found.values())
        some = f"{found['not-run']} of {every} {_are(found['not-run'])} not run"
        said.append(f"{f'None of {every} is run so far' if whole else some}{_mostly(section.not_run)}")
    if section.claims:
        verdicts = Counter(claim.verdict for claim in section.claims)
        said.append(f"{_numbers(len(section.claims), 'claim')}: {_tally(verdicts)}.")
    return [*said, f"Budget: {section.budget}."]


def _mostly(found: list[Reason]) -> str:
    """The end of a sentence about what some reasons are given for: the first reason, and how often it is given."""
    first, every = found[0], sum(reason.count for reason in found)
    return f": {first.text}" if first.count == every else f"; for {first.count} of them: {first.text}"


def _numbers(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _tally(verdicts: Counter[str]) -> str:
    """How many there are of each verdict: several hold, fail or agree."""
    return ", ".join(
        f"{count} {verdict if count == 1 else verdict.removesuffix('s')}" for verdict, count in sorted(verdicts.items())
    )
