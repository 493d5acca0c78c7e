"""The numbers that a paper prints, one row each, from papers/<paper>/published.csv."""

from __future__ import annotations

import csv
import math

import pandas as pd

from fedrepro.errors import UsageError
from fedrepro.papers.paper import Paper

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
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            head = list(reader.fieldnames or ())
            lines = [(reader.line_num, row) for row in reader]
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read ({error}): restore it from git.") from error
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
    for digits in [row[kind], *(spread if any(spread) else ())]:
        try:
            finite = math.isfinite(float(digits))
        except ValueError:
            finite = False
        if not finite:
            return f"{digits!r} is no number: write what the paper prints"
    return ""
