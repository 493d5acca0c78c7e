"""reports/index.html: every published number beside ours, why the two differ, and the command that rebuilds it.

One file that needs nothing else, made of what `evaluate` and the other parts of the report wrote, and of the records.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def path(root: str | Path = ".") -> Path:
    """Where the page is."""
    return Path(root) / "reports" / "index.html"


def protocol_path(paper: str, root: str | Path = ".") -> Path:
    """Where it stands what a paper leaves open; a paper need not have it."""
    return Path(root) / "docs" / f"protocol-{paper}.md"


def sources() -> list[str]:
    """The files of this package, from the project's root, sorted."""
    kinds = (".py", ".html", ".css", ".js")
    return sorted(f"fedrepro/page/{file.relative_to(HERE)}" for file in HERE.rglob("*") if file.suffix in kinds)
