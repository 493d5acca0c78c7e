"""Numbers under one another: padded with spaces as wide as a digit, so that their decimal points meet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from fedrepro.results import cells

DIGIT, POINT = "\u2007", "\u2008"  # spaces as wide as these
MINUS = "\u2212"  # as wide as a plus
NUMBER = re.compile(r"(?P<whole>[+\u2212]?\d+)(?:\.(?P<part>\d+))?")


def aligned(texts: Sequence[str]) -> list[str]:
    """The texts of a column, the first number of each below the first of the others, the second below the second..."""
    found = [list(NUMBER.finditer(text)) for text in texts]
    places = [[number for number in nth if number] for nth in zip_longest(*found)]
    widths = [(max(len(n["whole"]) for n in nth), max(len(n["part"] or "") for n in nth)) for nth in places]
    return [_padded(text, numbers, widths) for text, numbers in zip(texts, found, strict=True)]


def difference(cell: Any) -> str:
    """`cells.difference` with a minus as wide as a plus."""
    return cells.difference(cell).replace("-", MINUS)


def _padded(text: str, numbers: list[re.Match], widths: list[tuple[int, int]]) -> str:
    """A text with spaces before and after its numbers, but none at its end."""
    out, end = "", 0
    for number, (whole, part) in zip(numbers, widths, strict=False):
        after = DIGIT * (part - len(number["part"] or ""))
        point = POINT if part and not number["part"] else ""
        out += text[end : number.start()] + DIGIT * (whole - len(number["whole"])) + number[0] + point + after
        end = number.end()
    return (out + text[end:]).rstrip(DIGIT + POINT)
