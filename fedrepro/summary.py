"""What reproduces and what does not, as reports/summary/*.md: the counts, verdicts and reasons that the pages show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from fedrepro.layout import grid
from fedrepro.results import STATUSES, Result
from fedrepro.spec import Paper

OVERVIEW = "papers"
HEADS = {"within": "within tolerance", "deviation": "outside, declared", "outside": "outside, undeclared"}
HEADS |= {"not-run": "not run", "not-compared": "not compared"}
VERDICTS = ("holds", "fails", "undecided")


def paths(papers: list[str], root: str | Path = ".") -> list[Path]:
    """Where the summaries are: that of all papers, then each paper's own."""
    return [Path(root) / "reports" / "summary" / f"{name}.md" for name in (OVERVIEW, *papers)]


def texts(papers: list[Paper], results: list[Result], claims: Mapping[str, dict[str, str]]) -> list[str]:
    """What these files say, of the results of all tables and the verdicts of all claims (paper -> claim -> verdict)."""
    of = {paper.name: [result for result in results if result.cell.paper == paper.name] for paper in papers}
    overview = _overview(papers, of, claims)
    return [overview, *(_paper(paper, of[paper.name], claims.get(paper.name, {})) for paper in papers)]


def _overview(papers: list[Paper], of: dict[str, list[Result]], claims: Mapping[str, dict[str, str]]) -> str:
    """A row for each paper: its numbers by status, and its claims by verdict."""
    statuses = _occurring([result for results in of.values() for result in results])
    heads = ["paper", "budget", "numbers", *(HEADS.get(status, status) for status in statuses)]
    heads += [f"claims: {verdict}" for verdict in VERDICTS]
    rows = []
    for paper in papers:
        found = Counter(claims.get(paper.name, {}).values())
        label = paper.spec.budgets[paper.budget].label
        numbers = [*_counts(of[paper.name], statuses), *(str(found[verdict]) for verdict in VERDICTS)]
        rows.append([paper.name, label, *numbers])
    return grid(heads, rows, [True, True, *[False] * (len(heads) - 2)]) + "\n"


def _paper(paper: Paper, results: list[Result], claims: dict[str, str]) -> str:
    """A paper's tables with their counts, its claims with their verdicts, and why numbers deviate or are not there."""
    deviating, absent = (_reasons(paper, results, status) for status in ("deviation", "not-run"))
    parts = [
        _tables(paper, results) if results else "The paper prints no numbers that could be compared.",
        _claims(paper, claims) if claims else "",
        f"Outside tolerance, declared, and why:\n\n{deviating}" if deviating else "",
        f"Not run, and why:\n\n{absent}" if absent else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _tables(paper: Paper, results: list[Result]) -> str:
    statuses = _occurring(results)
    heads = ["table", "numbers", *(HEADS.get(status, status) for status in statuses)]
    rows = [[table.title, *_counts(_of(results, name), statuses)] for name, table in paper.spec.tables.items()]
    rows.append(["all", *_counts(results, statuses)])
    return grid(heads, rows, [True, *[False] * (len(heads) - 1)])


def _claims(paper: Paper, verdicts: dict[str, str]) -> str:
    rows = [
        [name, verdicts[name], f"“{' '.join(claim.statement.split())}” ({claim.place})".replace("|", "\\|")]
        for name, claim in paper.spec.claims.items()
    ]
    return grid(["claim", "verdict", "what the paper says"], rows, [True, True, True])


def _reasons(paper: Paper, results: list[Result], status: str) -> str:
    """The reasons of one status, each with the number of its cells by table."""
    found: dict[str, Counter[str]] = {}
    for result in results:
        if result.status == status:
            found.setdefault(result.reason, Counter())[result.cell.table] += 1
    places = {name: table.title.partition(":")[0] for name, table in paper.spec.tables.items()}
    return "\n".join(
        f"- {', '.join(f'{places[name]} ({count})' for name, count in tables.items())}: {reason}"
        for reason, tables in found.items()
    )


def _of(results: list[Result], table: str) -> list[Result]:
    return [result for result in results if result.cell.table == table]


def _occurring(results: list[Result]) -> list[str]:
    """The statuses that some result has, in their order."""
    return [status for status in STATUSES if any(result.status == status for result in results)]


def _counts(results: list[Result], statuses: list[str]) -> list[str]:
    """How many numbers there are, and how many of each status."""
    found = Counter(result.status for result in results)
    return [str(len(results)), *(str(found[status]) for status in statuses)]
