"""The numbers that a paper prints, one row each, from papers/<paper>/published.csv."""

from __future__ import annotations

import csv
import re

import pandas as pd

from fedrepro.errors import UsageError, short
from fedrepro.papers.paper import Paper
from fedrepro.papers.reading import reading

KEYS = ["table", "dataset", "variant", "method", "metric"]  # where a number is; `variant`: axis=value;axis=value
COLUMNS = {  # of the file, by what is printed: a mean with a standard deviation, or a median with its range
    "mean": ["paper", *KEYS, "mean", "std", "unit", "note"],
    "median": ["paper", *KEYS, "median", "min", "max", "unit", "note"],
}


def read(paper: Paper) -> pd.DataFrame:
    """The published numbers: KEYS, `mean`, `spread`, `unit` and `note`, all as text, so with the digits as printed.

    `mean` is a median where the paper prints these; `spread` is the standard deviation or lo..hi, the least and the
    largest value, and empty where none is printed; `note` is our remark on the number. Raises UsageError with the line
    of a row that has other columns, belongs to another paper, has no finite number, or repeats another one.
    """
    path = paper.folder / "published.csv"
    with reading(path), path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        head = list(reader.fieldnames or ())
        lines = [(reader.line_num, row) for row in reader]
    kind = "median" if "median" in head else "mean"
    if head != COLUMNS[kind]:
        raise UsageError(f"{path}: its columns must be {', '.join(COLUMNS[kind])}.")
    for line, row in lines:
        if fault := _fault(row, kind, paper.name):
            raise UsageError(f"{path}, line {line}: {fault}.")
    frame = pd.DataFrame([row for _, row in lines], columns=head, dtype=str)
    if (twice := frame.duplicated(KEYS)).any():
        line, row = lines[twice.argmax()]
        raise UsageError(f"{path}, line {line}: {', '.join(row[k] for k in KEYS)} is there twice: leave one out.")
    spread = (frame["min"] + ".." + frame["max"]).replace("..", "") if kind == "median" else frame["std"]
    return frame.assign(mean=frame[kind], spread=spread)[[*KEYS, "mean", "spread", "unit", "note"]]


def _fault(row: dict[str, str | None], kind: str, paper: str) -> str:
    """The fault of a row; empty where nothing is."""
    if None in row or None in row.values():
        return f"it must have {len(COLUMNS[kind])} fields"
    if row["paper"] != paper:
        return f"it is of {row['paper']!r} instead of {paper!r}"
    spread = [row["std"]] if kind == "mean" else [row["min"], row["max"]]
    numbers = [row[kind], *(spread if any(spread) else ())]
    for digits in numbers:
        if not re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", digits):
            return f"{short(repr(digits))} is no number: write the digits that the paper prints"
    if kind == "mean" and row["std"].startswith("-"):
        return f"the standard deviation {row['std']} is below zero"
    if kind == "median" and any(spread) and not float(row["min"]) <= float(row[kind]) <= float(row["max"]):
        return f"the median {row[kind]} is not between {row['min']} and {row['max']}"
    if not re.fullmatch("[a-z][a-z0-9_]*", row["unit"]):
        return f"{short(repr(row['unit']))} is no unit: write a word, such as percent"
    return ""
