"""Why numbers are not like the print, or not there: each reason once, with what it is said of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fedrepro.page.align import signed
from fedrepro.page.links import Link, anchor
from fedrepro.results import Result
from fedrepro.schema import words
from fedrepro.spec import Paper


@dataclass(frozen=True)
class Reason:
    """One sentence, how many numbers it is about, and where: numbers, or tables and figures."""

    text: str
    count: int
    links: list[Link]


def deviations(paper: Paper, results: list[Result]) -> list[Reason]:
    """The declared deviations, the reason of most numbers first."""
    found: dict[str, list[Link]] = {}
    for result in results:
        if result.status == "deviation":
            found.setdefault(result.reason, []).append(_number(paper, result))
    return _sorted(Reason(reason, len(links), links) for reason, links in found.items())


def not_run(paper: Paper, results: list[Result]) -> list[Reason]:
    """What is not run of tables and figures, the reason of most numbers first."""
    found: dict[str, Reason] = {}
    for name, table in paper.spec.tables.items():
        left_out = (result.reason for result in results if result.cell.table == name and not result.cell.runs)
        for reason, count in Counter(left_out).items():
            where = Link(f"{short(table.title)} ({count})", f"#{paper.name}.{name}")
            _add(found, Reason(reason, count, [where]))
    for name, figure in paper.spec.figures.items():
        where = Link(figure.title, f"#{paper.name}.{name}" if name in paper.figures else "")
        for reason in paper.left_out(name):
            _add(found, Reason(f"{reason}.", 0, [where]))
    return _sorted(found.values())


def short(title: str) -> str:
    """A title up to its colon, as "Table 1"."""
    return title.partition(":")[0]


def _number(paper: Paper, result: Result) -> Link:
    """To a number, by where it stands."""
    named = {"dataset": result.cell.dataset} | result.cell.facts
    place = words({axis: value for axis, value in named.items() if axis != "metric" and value != "none"})
    place = f"{short(paper.table(result.cell.table).title)}: {place}, {result.cell.metric.replace('_', ' ')}"
    found = "diverged" if result.difference is None else signed(result.difference, result.decimals)
    return Link(f"{place} {found}", f"#{anchor(result.cell)}")


def _add(found: dict[str, Reason], reason: Reason) -> None:
    other = found.get(reason.text, Reason(reason.text, 0, []))
    found[reason.text] = Reason(reason.text, other.count + reason.count, [*other.links, *reason.links])


def _sorted(found: Iterable[Reason]) -> list[Reason]:
    return sorted(found, key=lambda reason: -reason.count)
