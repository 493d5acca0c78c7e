"""The house: packages import only from those below them, files and functions stay small, lists need no PyTorch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fedrepro"
FLOORS = (
    ("errors", "files", "downloads"),
    *(("core",), ("records",), ("plugins",), ("nets",), ("data",), ("judges",), ("methods",), ("papers",)),
    *(("training",), ("pipeline",), ("results",), ("report",), ("cli", "api")),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(PACKAGE.rglob("*.py"))
LONG = {"nets/loops.py"}  # files that may have more than 300 lines
WITHOUT_TORCH = (
    *("cli.app", "data", "data.sources", "files", "judges.extractors", "methods", "papers.load", "pipeline.run"),
    *("records.record", "results.evaluate", "results.check", "training.identity"),
    *("api", "results.chosen", "results.compare", "results.listing", "cli.held"),
)


def imported(path):
    """The rooms of this package that a module imports, however it does."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("fedrepro.") and name.count("."))


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_module_has_its_room():
    assert {room(path) for path in MODULES} - {"__init__"} <= FLOOR.keys()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_below(path):
    own = room(path)
    others = {other for other in imported(path) if other in FLOOR and other != own}
    assert not {other for other in others if FLOOR[other] > FLOOR.get(own, 99)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_are_small(path):
    text = path.read_text()
    if str(path.relative_to(PACKAGE)) not in LONG:
        assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 40, node.name


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_it_needs_no_torch(module):
    code = f"import sys, fedrepro.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
