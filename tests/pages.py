"""A page as a reader's program sees it: its elements, its links, what stands where, and the data behind it."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from fedrepro.papers.load import load_papers
from fedrepro.report.page import build
from fedrepro.results import evaluate

VOID = {"meta", "link", "img", "br", "input", "hr"}


class Page(HTMLParser):
    """`elements`: (tag, attributes). `cells`: the id of a number -> the texts of its place and of all that follow.

    `traced`: the id of a number -> the runs that it opens.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.cells: dict[str, list[str]] = {}
        self.traced: dict[str, list[str]] = {}
        self.words: list[str] = []
        self.data: dict[str, Any] = {}
        self._open: list[tuple[str, dict[str, str]]] = []
        self._places: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self._open == [], "an element is not closed"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        element = (tag, {name: value or "" for name, value in attributes})
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)
        if tag == "a" and "data-runs" in element[1] and (place := self._open[-2][1].get("id")):
            self.traced[place] = element[1]["data-runs"].split()
        if tag == "tr":
            self._places = []
        elif tag == "td":
            if "id" in element[1]:
                self._places.append(self.cells.setdefault(element[1]["id"], []))
            for place in self._places:
                place.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1][0] == tag, f"<{self._open[-1][0]}> is closed by </{tag}>"
        self._open.pop()

    def handle_data(self, text: str) -> None:
        if self._open and self._open[-1][0] in ("script", "style"):
            if self._open[-1][1].get("id") == "data":
                self.data = json.loads(text)
            return
        self.words.append(text)
        if any(tag == "td" for tag, _ in self._open) and not any(tag == "sup" for tag, _ in self._open):
            for place in self._places:
                place[-1] += text

    @property
    def ids(self) -> list[str]:
        """Every id, in its order."""
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]

    @property
    def links(self) -> list[str]:
        """Where the links lead."""
        return [attributes["href"] for tag, attributes in self.elements if tag == "a"]

    @property
    def loaded(self) -> list[str]:
        """The addresses of what a browser would load by itself."""
        found = [a[name] for tag, a in self.elements for name in ("src", "srcset", "poster", "data") if name in a]
        found += [a["href"] for tag, a in self.elements if tag == "link"]
        return found + re.findall(r"url\(([^)]*)\)|@import ([^;]*)", self.text.partition("</style>")[0])

    @property
    def shown(self) -> str:
        """All that is there to read, with single spaces."""
        return " ".join("".join(self.words).split())


@cache
def built(root: Path) -> dict[str, str]:
    """The pages of all papers of a project, from its frames: their names -> their texts."""
    papers = load_papers(root)
    return {path.name: text for path, text in build.texts(papers, map(evaluate.read, papers)).items()}


@cache
def single(root: Path) -> str:
    """The same as one file."""
    papers = load_papers(root)
    return build.single(papers, map(evaluate.read, papers))


def plain(text: str) -> str:
    """A number as the other formats have it: without the spaces that line it up, and with a hyphen for a minus."""
    return " ".join(re.sub("[\u2007\u2008]", "", text).replace("\u2212", "-").split())
