"""Notes that many numbers of a paper share, each printed once on its page: reasons, footnotes, how to read tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fedrepro.report.layout import REMARKS, Sheet
from fedrepro.report.reasons import Reason, collected

Said = tuple[int, str]  # a footnote with its number


class Notes(NamedTuple):
    """The footnotes of a page. `numbers`: a sheet's footnote -> its number here, where reasons are the first ones.

    `others`: the footnotes that are no reasons. `reading`: lines on how to read the tables, each with the tables that
    it is about, none where it is about all.
    """

    numbers: dict[str, int]
    others: list[Said]
    reading: list[tuple[str, list[str]]]


def notes(sheets: list[tuple[str, Sheet]], deviations: list[Reason], absent: list[Reason]) -> Notes:
    """The footnotes of a paper's tables; `sheets`: each with a short name."""
    reasons = [f"{REMARKS['deviation']}: {reason.text}" for reason in deviations]
    reasons += [f"{REMARKS['not-run']}: {reason.text}" for reason in absent]
    numbers = {text: number for number, text in enumerate(reasons, 1)}
    others = list(dict.fromkeys(note for _, sheet in sheets for note in sheet.notes if note not in numbers))
    own = list(enumerate(others, 1 + len(numbers)))
    return Notes(numbers | {text: number for number, text in own}, own, list(_reading(sheets)))


def _reading(sheets: list[tuple[str, Sheet]]) -> Iterator[tuple[str, list[str]]]:
    for line in collected([(line, 1, name, "") for name, sheet in sheets for line in sheet.legend]):
        yield line.text, [name for name, _ in line.places] if len(line.places) < len(sheets) else []
