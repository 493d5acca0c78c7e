"""Reproduction of five federated-learning papers: one trainer, one pipeline, tables beside the published numbers.

In Python: `train`, `load`, `compare`, `cells` and `track`, which `fedrepro.api` documents.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedrepro.api import cells, compare, load, track, train

__version__ = "0.1.0"

__all__ = ["__version__", "cells", "compare", "load", "track", "train"]


def __getattr__(name: str) -> Any:
    """A function of `fedrepro.api`, which is imported once one is used."""
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module 'fedrepro' has no attribute {name!r}")
    return getattr(import_module("fedrepro.api"), name)
