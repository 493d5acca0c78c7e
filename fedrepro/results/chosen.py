"""Runs as a user names them: a folder with a record, an ad hoc run, or a planned run as PAPER/RUN."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedrepro.errors import FedreproError, UsageError, short
from fedrepro.papers.load import load_paper, papers
from fedrepro.records import paths, record
from fedrepro.results import evaluate
from fedrepro.results.runs import Run


def run(text: str) -> Run:
    """The run of that name. UsageError where there is none, FedreproError where its record cannot be used.

    A planned run that is named as PAPER/RUN ends where its paper's tables have it end.
    """
    for folder in (Path(text), paths.ADHOC / text):
        folder = folder.parent if folder.name == "record.json" else folder
        if text and os.path.exists(record.path(folder)):
            return in_folder(folder)
    paper, _, name = text.partition("/")
    if name and paper in papers():
        loaded = load_paper(paper)
        found, faults = evaluate.runs(loaded, [name])
        if faults:
            raise FedreproError(faults[name])
        return found[name]
    raise UsageError(
        f"there is no record {short(repr(text))}: name its folder, an ad hoc run (`fedrepro show runs --adhoc` lists "
        "them), or a planned one as PAPER/RUN."
    )


def in_folder(folder: Path) -> Run:
    """The run whose record is in a folder. FedreproError where it is missing or cannot be trusted."""
    found = record.read(folder)
    return Run(folder.resolve().name, folder, found.config, found)


def runs(texts: Sequence[str]) -> list[Run]:
    """Several runs, each with a name of its own. UsageError where one is named twice."""
    return distinct([run(text) for text in texts])


def distinct(found: Sequence[Run]) -> list[Run]:
    """Runs with a name each: those that share theirs get that of their folder. UsageError where one is there twice."""
    folders = [each.folder.resolve() for each in found]
    if twice := [str(each.folder) for each in found if folders.count(each.folder.resolve()) > 1]:
        raise UsageError(f"{twice[0]} is named twice: leave one out.")
    names = [each.name for each in found]
    return [replace(each, name=str(each.folder)) if names.count(each.name) > 1 else each for each in found]
