"""What reproduces and what does not, as reports/summary/*.md: the counts, verdicts and reasons that the pages show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedrepro import claims, quantities, tables
from fedrepro.files import write_text
from fedrepro.layout import grid
from fedrepro.results import STATUSES, join
from fedrepro.spec import Paper
from fedrepro.verdicts import FOUND

OVERVIEW = "papers"
HEADS = {"within": "within tolerance", "deviation": "outside, declared", "outside": "outside, undeclared"}
HEADS |= {"not-run": "not run", "not-compared": "not compared"}


def paths(papers: list[str], root: str | Path = ".") -> list[Path]:
    """Where the summaries are: that of all papers, then each paper's own."""
    return [Path(root) / "reports" / "summary" / f"{name}.md" for name in (OVERVIEW, *papers)]


class Fate(NamedTuple):
    """What became of one published number; `reason` as `Result.reason`."""

    paper: str
    table: str
    status: str
    reason: str


Claims = Mapping[str, Mapping[str, str]]  # paper -> claim -> verdict


def render(papers: list[Paper], root: str | Path = ".") -> list[Path]:
    """Write the summaries of papers, from the measures and readings in reports/metrics.

    Equal inputs give equal bytes. Raises FedreproError where these are missing.
    """
    fates, found = [], {}
    for paper in papers:
        for table in paper.spec.tables:
            results = join(paper, table, tables.stored(paper, table))
            fates += [Fate(paper.name, table, result.status, result.reason) for result in results]
        if paper.spec.claims:
            found[paper.name] = claims.verdicts(claims.weigh(paper, quantities.stored(paper)))
    return [write_text(path, text) for path, text in texts(papers, fates, found, root).items()]


def texts(papers: list[Paper], fates: list[Fate], claims: Claims, root: str | Path = ".") -> dict[Path, str]:
    """The summaries of papers, from what became of all their numbers and claims."""
    said = [_overview(papers, fates, claims)]
    for paper in papers:
        said.append(_paper(paper, [fate for fate in fates if fate.paper == paper.name], claims.get(paper.name, {})))
    return dict(zip(paths([paper.name for paper in papers], root), said, strict=True))


def _overview(papers: list[Paper], fates: list[Fate], claims: Claims) -> str:
    """A row for each paper: its numbers by status, and its claims by verdict."""
    statuses = _occurring(fates)
    heads = ["paper", "budget", "numbers", *(HEADS.get(status, status) for status in statuses)]
    heads += [f"claims: {verdict}" for verdict in FOUND]
    rows = []
    for paper in papers:
        counts = _counts([fate for fate in fates if fate.paper == paper.name], statuses)
        found = Counter(claims.get(paper.name, {}).values())
        label = paper.spec.budgets[paper.budget].label
        rows.append([paper.name, label, *counts, *(str(found[verdict]) for verdict in FOUND)])
    return grid(heads, rows, [True, True, *[False] * (len(heads) - 2)]) + "\n"


def _paper(paper: Paper, fates: list[Fate], claims: Mapping[str, str]) -> str:
    """A paper's tables with their counts, its claims with their verdicts, and why numbers deviate or are not there."""
    deviating, absent = _reasons(paper, fates, "deviation", {}), _reasons(paper, fates, "not-run", _unseen(paper))
    parts = [
        _tables(paper, fates) if fates else "The paper prints no numbers that could be compared.",
        _claims(paper, claims) if claims else "",
        f"Outside tolerance, declared, and why:\n\n{deviating}" if deviating else "",
        f"Not run, and why:\n\n{absent}" if absent else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _tables(paper: Paper, fates: list[Fate]) -> str:
    statuses = _occurring(fates)
    heads = ["table", "numbers", *(HEADS.get(status, status) for status in statuses)]
    rows = [[table.title, *_counts(_of(fates, name), statuses)] for name, table in paper.spec.tables.items()]
    rows.append(["all", *_counts(fates, statuses)])
    return grid(heads, rows, [True, *[False] * (len(heads) - 1)])


def _claims(paper: Paper, verdicts: Mapping[str, str]) -> str:
    rows = [
        [name, verdicts[name], f"“{' '.join(claim.statement.split())}” ({claim.place})".replace("|", "\\|")]
        for name, claim in paper.spec.claims.items()
    ]
    return grid(["claim", "verdict", "what the paper says"], rows, [True, True, True])


def _reasons(paper: Paper, fates: list[Fate], status: str, beside: Mapping[str, list[str]]) -> str:
    """The reasons of one status, each with the number of its cells by table, and with the places `beside` these."""
    found: dict[str, Counter[str]] = {}
    for fate in fates:
        if fate.status == status:
            found.setdefault(fate.reason, Counter())[fate.table] += 1
    titles = {name: table.title.partition(":")[0] for name, table in paper.spec.tables.items()}
    lines = []
    for reason in dict.fromkeys((*found, *beside)):
        counted = [f"{titles[name]} ({count})" for name, count in found.get(reason, Counter()).items()]
        lines.append(f"- {'; '.join([*counted, *beside.get(reason, [])])}: {reason}")
    return "\n".join(lines)


def _unseen(paper: Paper) -> dict[str, list[str]]:
    """What figures do not show, by its reason."""
    found: dict[str, list[str]] = {}
    for name, figure in paper.spec.figures.items():
        for reason in paper.left_out(name):
            found.setdefault(f"{reason}.", []).append(figure.title.replace(": ", ", ", 1))
    return found


def _of(fates: list[Fate], table: str) -> list[Fate]:
    return [fate for fate in fates if fate.table == table]


def _occurring(fates: list[Fate]) -> list[str]:
    """The statuses that occur, in their order."""
    return [status for status in STATUSES if any(fate.status == status for fate in fates)]


def _counts(fates: list[Fate], statuses: list[str]) -> list[str]:
    """How many numbers there are, and how many of each status."""
    found = Counter(fate.status for fate in fates)
    return [str(len(fates)), *(str(found[status]) for status in statuses)]
