"""The committed papers at other budgets than theirs, for the tests of their specs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedrepro.papers.load import load_paper
from fedrepro.papers.paper import Paper

REPO = Path(__file__).parents[1]


def lifted(name: str, budget: str, lift: Callable[[str], bool] = lambda reason: False) -> Paper:
    """A paper at a budget; `lift`: which reasons to leave cells out do not count."""

    def kept(remarks):
        return tuple(remark for remark in remarks if not lift(remark.reason))

    paper = load_paper(name, REPO)
    tables = {n: t.model_copy(update={"not_run": kept(t.not_run)}) for n, t in paper.spec.tables.items()}
    figures = {n: f.model_copy(update={"not_run": kept(f.not_run)}) for n, f in paper.spec.figures.items()}
    spec = paper.spec.model_copy(update={"tables": tables, "figures": figures})
    return replace(paper, budget=budget, spec=spec)


def everything(name: str, budget: str) -> Paper:
    """A paper at a budget with all cells of all tables and figures."""
    return lifted(name, budget, lift=lambda reason: True)
