"""Which source files a run's numbers depend on: the trainer's and the method's, with what they import of their own."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from functools import cache
from pathlib import Path

from fedrepro import methods

PACKAGE = Path(__file__).parent

# These shape messages and files, not numbers.
SILENT = {"fedrepro.errors", "fedrepro.files"}


def source_files(method: str) -> list[str]:
    """The files of this package behind a method's numbers, from the project's root, sorted."""
    return sorted(f"fedrepro/{path.relative_to(PACKAGE)}" for path in _closure(method) if PACKAGE in path.parents)


def code_digest(method: str) -> str:
    """sha256 of the code behind a method's numbers, a plugin's included, without comments, docstrings and layout."""
    digest = hashlib.sha256()
    for path in sorted(_closure(method), key=lambda path: (path.name, path.parent.name)):
        digest.update(_bare(path).encode())
    return digest.hexdigest()


def _bare(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


@cache
def _closure(method: str) -> frozenset[Path]:
    build = methods.find(method).build.__module__
    tops = {"fedrepro", build.split(".")[0]}
    waiting = ["fedrepro.train", build]
    seen: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        if name in seen or name in SILENT:
            continue
        seen[name] = Path(importlib.util.find_spec(name).origin)
        waiting += _imports(name, seen[name], tops)
    return frozenset(seen.values())


def _imports(module: str, path: Path, tops: set[str]) -> list[str]:
    """The modules of the packages `tops` that a module's file imports, in whatever form."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.split(".")[0] in tops]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            if base.split(".")[0] in tops:
                inner = [f"{base}.{alias.name}" for alias in node.names]
                names += [each for each in inner if _is_module(each)] or [base]
    return names


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # its parent is no package
        return False
