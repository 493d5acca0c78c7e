"""Reading the files of a paper that are written by hand: whatever is wrong with one is a UsageError with its path."""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from fedrepro.errors import UsageError, short
from fedrepro.records.config import first_fault


@contextmanager
def reading(path: Path, remedy: str = "") -> Iterator[None]:
    """Inside the block, a file that cannot be read or is not as it should be is a UsageError with its path."""
    usual = remedy or "Correct it, or restore it from git."
    try:
        yield
    except ValidationError as error:
        raise UsageError(f"{path}: {first_fault(error)} {remedy}".strip()) from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply. {usual}") from error
    except (OSError, TypeError, ValueError, csv.Error, yaml.YAMLError) as error:
        said = short(" ".join(str(getattr(error, "strerror", None) or error).partition("; use ")[0].split()), 300)
        raise UsageError(f"{path} cannot be read ({said.rstrip('.')}). {usual}") from error


def toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. ValueError for a number that is not finite."""
    return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=_finite)


def from_yaml(path: Path) -> Any:
    """The content of a YAML file. YAMLError where a key is there twice."""
    return yaml.load(path.read_text(encoding="utf-8"), _Once)  # noqa: S506 (a safe loader)


def _finite(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError(f"{digits} is no finite number")
    return value


class _Once(yaml.SafeLoader):
    """YAML's safe loader, for which a key may be there once; the usual one takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key.value for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.constructor.ConstructorError(problem=f"{twice[0]} is there twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)
