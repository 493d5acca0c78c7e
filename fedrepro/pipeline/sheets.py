"""Sample sheets of a paper's report: those that do not show the data of now are drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from PIL import Image

from fedrepro import data
from fedrepro.papers.paper import Paper
from fedrepro.records import paths

SEED = 0  # whose data are shown


def draw(paper: Paper) -> Iterator[Path]:
    """Draw the sheets of a paper that are missing, or of other data; yields the path of each when it is written.

    Raises UsageError where the raw data of one are missing.
    """
    for name in paper.sheets:
        dataset, params = paper.sheet(name)
        path, mark = paths.sheet(paper.name, name, paper.root), marked(dataset, params)
        if _mark(path) != mark:
            from fedrepro.data import sheet  # slow to import, and most often there is nothing to draw

            yield sheet.show(dataset, path, SEED, params, mark)


def marked(dataset: str, params: dict) -> str:
    """The identity of a sheet, as its PNG says it: the dataset, its parameters, the raw data, and the numerics."""
    shown = {"dataset": dataset, "params": params, "seed": SEED}
    shown |= {"data": data.describe(dataset)["fingerprint"], "numerics": data.numerics(dataset)}
    return json.dumps(shown, sort_keys=True)


def _mark(path: Path) -> str:
    """The mark of a drawn sheet; empty where there is none."""
    with suppress(OSError), Image.open(path) as image:
        return image.text.get("fedrepro", "")
    return ""
