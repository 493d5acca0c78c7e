"""Whether every rendered file is what its records give, and every published number is met, declared or explained."""

from __future__ import annotations

from pathlib import Path

from fedrepro import claims, evaluate, figures, page, quantities, summary, tables
from fedrepro.errors import FedreproError
from fedrepro.layout import allowed
from fedrepro.results import COMPARED, Result, counts, join
from fedrepro.schema import Gallery, Remark, Table
from fedrepro.spec import Paper, load_papers
from fedrepro.verdicts import Report, Verdict


def everything(root: Path) -> Report:
    """Render all of every paper from the records, and the page, and compare. UsageError without papers."""
    report = Report({}, {}, {}, [], [])
    papers = load_papers(root)
    for paper in papers:
        report.counts[paper.name], report.tolerances[paper.name] = {}, {}
        for table, spec in paper.spec.tables.items():
            results, problems = _table(paper, table)
            report.counts[paper.name][table] = counts(results)
            report.tolerances[paper.name][table] = f"{allowed(spec.tolerance)}, because {spec.tolerance.reason}"
            report.cells.extend(map(_verdict, results))
            report.problems.extend(problems)
        for figure in paper.figures:
            report.problems.extend(_figure(paper, figure))
        if paper.spec.claims:
            report.claims[paper.name], problems = _claims(paper)
            report.problems.extend(problems)
    report.problems.extend(_summaries(papers, report))
    report.problems.extend(_page(papers, root))
    report.problems[:] = dict.fromkeys(report.problems)  # a run may be missing in several places
    return report


def _table(paper: Paper, table: str) -> tuple[list[Result], list[str]]:
    """The results of a table, and what is wrong with them."""
    found = evaluate.collect(paper, table)
    results = join(paper, table, found)
    problems = list(found.faults.values())
    problems += [_outside(result) for result in results if result.status == "outside"]
    problems += [_vain(result) for result in results if result.status == "within" and result.deviation]
    problems += [_idle(paper, table, remark) for remark in _unused(paper.table(table), results)]
    if not found.faults:
        problems += _stale(paper, table, found, results)
    return results, problems


def _figure(paper: Paper, figure: str) -> list[str]:
    """What is wrong with a figure. Its PNG is not compared: its bytes depend on the machine's compression library."""
    from fedrepro import plot  # slow to import, and not every paper has figures

    found = figures.collect(paper, figure)
    if found.faults:
        return list(found.faults.values())
    points, (svg, _) = (each(paper.name, figure, paper.root) for each in (figures.path, figures.pictures))
    if isinstance(paper.figure(figure), Gallery):  # its SVG has pictures in it, so likewise
        texts = {points: figures.text(found.points).encode()}
        return _unequal(texts | {svg: svg.read_bytes() if svg.exists() else b""})
    (drawn,) = plot.pictures(paper, figure, found.points, "svg")
    return _unequal({points: figures.text(found.points).encode(), svg: drawn})


def _claims(paper: Paper) -> tuple[dict[str, str], list[str]]:
    """The verdicts on a paper's claims, and what is wrong with its files."""
    found = quantities.collect(paper)
    evidence = claims.weigh(paper, found.readings)
    verdicts = claims.verdicts(evidence)
    if found.faults:
        return verdicts, list(found.faults.values())
    texts = {quantities.path(paper.name, paper.root): quantities.text(found.readings)}
    texts |= claims.texts(paper, found.readings, evidence)
    return verdicts, _unequal({path: text.encode() for path, text in texts.items()})


def _summaries(papers: list[Paper], report: Report) -> list[str]:
    fates = [summary.Fate(cell.paper, cell.table, cell.status, cell.reason) for cell in report.cells]
    texts = summary.texts(papers, fates, report.claims, papers[0].root)
    return _unequal({path: text.encode() for path, text in texts.items()})


def _page(papers: list[Paper], root: Path) -> list[str]:
    """What is wrong with the page; its pictures are compared by their sources, as their bytes depend on the machine."""
    from fedrepro.page import build, pictures  # slow to import

    path = page.path(root)
    try:
        wanted = pictures.unpictured(build.text(papers))
    except FedreproError as error:
        return [str(error)]
    fresh = path.exists() and pictures.unpictured(path.read_text(encoding="utf-8")) == wanted
    return [] if fresh else [_unlike(path)]


def _outside(result: Result) -> str:
    ours = f"reproduced {result}, published {result.reference}, allowed {result.allowed}"
    return f"{result.cell}: {ours}; look for the cause, or declare the deviation in paper.toml with its reason."


def _vain(result: Result) -> str:
    return f"{result.cell}: the declared deviation is none any more ({result} against {result.reference}); remove it."


def _unused(table: Table, results: list[Result]) -> list[Remark]:
    used = [result.deviation for result in results]
    return [remark for remark in table.deviations if remark not in used and "budget" not in remark.when]


def _idle(paper: Paper, table: str, remark: Remark) -> str:
    return f"{paper.name}, {table}: the deviation declared for {remark.when} is about no cell of its own; remove it."


def _stale(paper: Paper, table: str, found: evaluate.Evaluation, results: list[Result]) -> list[str]:
    """The files that do not say what the records give."""
    texts = {evaluate.path(paper.name, table, paper.root): evaluate.text(found.measures)}
    texts |= tables.texts(paper, table, results)
    return _unequal({path: text.encode() for path, text in texts.items()})


def _unequal(files: dict[Path, bytes]) -> list[str]:
    return [_unlike(path) for path, content in files.items() if not path.exists() or path.read_bytes() != content]


def _unlike(path: Path) -> str:
    return f"{path} does not equal what its records render: run `dvc repro`."


def _verdict(result: Result) -> Verdict:
    """What is reported of a cell."""
    compared = result.status in COMPARED
    return Verdict(
        result.cell.paper,
        *result.cell.key,
        unit=result.published.unit,
        published=str(result.published),
        compared_with=str(result.reference),
        reproduced=str(result),
        expected=float(result.reference.mean),
        value=float(result.mean) if result.values else None,
        difference=result.difference if compared else None,
        allowed=None if result.cell.read.substitute else list(result.room) if result.room else result.limit,
        status=result.status,
        reason=result.reason,
    )
