"""What stages depend on and no single file says: the code behind each method, each section of a spec.

As papers/digests.json, the out of a stage of its own and a parameter of the others. So a run has one dependency in
place of a file for every module (DVC reads long lists slowly), and a comment makes no stage stale.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedrepro.files import write_json
from fedrepro.spec import Paper, load_papers

PATH = Path("papers/digests.json")
SECTIONS = ("tables", "figures")  # of paper.toml, a digest of each entry
WHOLE = ("claims", "reads")  # one digest of all


def write(code: Callable[[str], str], sheets: str, root: str | Path = ".") -> Path:
    """Write what `collect` finds."""
    return write_json(Path(root) / PATH, collect(code, sheets, root))


def collect(code: Callable[[str], str], sheets: str, root: str | Path = ".") -> dict[str, Any]:
    """The digests of the code behind each method of a planned run, behind the sample `sheets`, and of specs' sections.

    `code`: method -> sha256.
    """
    papers = load_papers(root)
    methods = sorted({draft.config.method for paper in papers for draft in paper.drafts().values()})
    sections = {paper.name: _sections(paper) for paper in papers}
    return {"code": {method: code(method) for method in methods}, "sheets": sheets, "papers": sections}


def of_code(method: str) -> dict[str, list[str]]:
    """The parameter of a stage that trains by a method."""
    return {str(PATH): [f"code.{method}"]}


def of_sheet(paper: str, sheet: str) -> dict[str, list[str]]:
    """The parameter of a stage that draws a sample sheet."""
    return {str(PATH): ["sheets", f"papers.{paper}.sheets.{sheet}"]}


def of_section(paper: Paper, *section: str) -> dict[str, list[str]]:
    """The parameters of a stage that reads a section of a spec, and the section `reads`, which is for all of them."""
    sections = [section, ("reads",)] if paper.spec.reads else [section]
    return {str(PATH): [".".join(("papers", paper.name, *each)) for each in sections]}


def _sections(paper: Paper) -> dict[str, Any]:
    spec = tomllib.loads((paper.folder / "paper.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = {
        kind: {name: _digest(entry) for name, entry in spec[kind].items()} for kind in SECTIONS if kind in spec
    }
    found |= {kind: _digest(spec[kind]) for kind in WHOLE if kind in spec}
    sheets = {name: _digest([sheet.title, *paper.sheet(name)]) for name, sheet in paper.sheets.items()}
    return found | {"sheets": sheets}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
