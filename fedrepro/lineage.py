"""Which source files a run's numbers depend on: the trainer's and the method's, with what they import of their own."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from fedrepro import methods
from fedrepro.data import DATASETS

PACKAGE = Path(__file__).parent

# These shape messages and files, not numbers.
SILENT = {"fedrepro.errors", "fedrepro.files"}
SHEETS = "fedrepro.data.sheet"  # draws the sample sheets
# The trainer needs it for methods that generate, and no other run depends on it.
JUDGE = "fedrepro.generators"


def source_files(method: str) -> list[str]:
    """The files of this package behind a method's numbers, from the project's root, sorted."""
    return _own(_closure(method))


def code_digest(method: str) -> str:
    """sha256 of the code behind a method's numbers, a plugin's included, without comments, docstrings and layout."""
    return _digest(_closure(method))


def sheet_files() -> list[str]:
    """The files of this package behind the sample sheets, from the project's root, sorted."""
    return _own(_drawing())


def sheet_digest() -> str:
    """sha256 of the code behind the sample sheets, as `code_digest`."""
    return _digest(_drawing())


def _own(paths: Iterable[Path]) -> list[str]:
    return sorted(f"fedrepro/{path.relative_to(PACKAGE)}" for path in paths if PACKAGE in path.parents)


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda path: (path.name, path.parent.name)):
        digest.update(_bare(path, path.stat().st_mtime_ns).encode())
    return digest.hexdigest()


@cache  # a file is behind many methods
def _bare(path: Path, modified: int) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


@cache
def generates(method: str) -> bool:
    """Whether a method makes samples: some file behind it, but for the trainer's, gives a `Method` its `generate`."""
    build = methods.find(method).build.__module__
    # Not by way of the registry, through which every method is reached.
    return any(map(_gives_generate, _reached([build], build, SILENT | {methods.__name__})))


def samples(method: str, dataset: str) -> str | None:
    """The file in which a run shows what it generates, images or points; None where it generates nothing."""
    if not generates(method):
        return None
    return "samples.png" if len(DATASETS[dataset].shape) == 3 else "samples.csv"


@cache
def _closure(method: str) -> frozenset[Path]:
    build = methods.find(method).build.__module__
    return frozenset(_reached(["fedrepro.train", build], build, SILENT if generates(method) else SILENT | {JUDGE}))


def _drawing() -> list[Path]:
    return _reached([SHEETS], SHEETS, SILENT)


def _reached(waiting: list[str], build: str, left_out: set[str]) -> list[Path]:
    """The files of modules, and of what they import of this package and of that of the module `build`."""
    tops = {"fedrepro", build.split(".")[0]}
    seen: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        if name in seen or name in left_out:
            continue
        seen[name] = Path(importlib.util.find_spec(name).origin)
        waiting += _imports(name, seen[name], tops)
    return list(seen.values())


def _gives_generate(path: Path) -> bool:
    calls = (node for node in ast.walk(_tree(path)) if isinstance(node, ast.Call))
    return any(keyword.arg == "generate" for call in calls for keyword in call.keywords)


def _imports(module: str, path: Path, tops: set[str]) -> list[str]:
    """The modules of the packages `tops` that a module's file imports, in whatever form."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.split(".")[0] in tops]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            if base.split(".")[0] in tops:
                inner = [f"{base}.{alias.name}" for alias in node.names]
                names += [each for each in inner if _is_module(each)] or [base]
    return names


def _tree(path: Path) -> ast.Module:
    """The syntax of a file, parsed once as long as it stays as it is; not to be changed."""
    return _parsed(path, path.stat().st_mtime_ns)


@cache
def _parsed(path: Path, modified: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # its parent is no package
        return False
