"""The findings that docs/what-reproduces.md tells of a paper: a sentence each, with the numbers behind it."""

from __future__ import annotations

from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from fedrepro.papers.paper import Paper
from fedrepro.records import paths
from fedrepro.report import summary
from fedrepro.results.frames import Reproduction


class Finding(NamedTuple):
    """`said`: the sentence that leads a paragraph. `more`: the paragraph, as HTML."""

    said: str
    more: str


def findings(paper: Paper, found: Reproduction) -> list[Finding]:
    """The paragraphs that begin in bold below the paper's heading; none where that page has other counts than these.

    The heading is of the second level and ends with the paper's name in brackets.
    """
    path = paper.root / paths.FINDINGS
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if summary.text(paper, found).strip() not in text:
        return []  # written about other results, as those of another budget
    parser, told, own = MarkdownIt("commonmark", {"html": False}), [], False
    tokens = parser.parse(text)
    for before, token in zip(tokens, tokens[1:], strict=False):
        if before.type == "heading_open" and before.tag == "h2":
            own = token.content.endswith(f"({paper.name})")
        elif own and before.type == "paragraph_open" and token.children and _leads(token.children):
            told.append(_finding(parser, token.children))
    return told


def _leads(children: list[Token]) -> bool:
    """Whether a paragraph begins in bold, behind an empty text."""
    return next((child.type for child in children if child.type != "text" or child.content), "") == "strong_open"


def _finding(parser: MarkdownIt, children: list[Token]) -> Finding:
    """The bold start of a paragraph, and the rest without its links, which are seen from another folder."""
    end = next(n for n, child in enumerate(children) if child.type == "strong_close")
    said = parser.renderer.renderInlineAsText(children[:end], parser.options, {})
    rest = [child for child in children[end + 1 :] if not child.type.startswith("link_")]
    return Finding(" ".join(said.split()), parser.renderer.renderInline(rest, parser.options, {}).strip())
