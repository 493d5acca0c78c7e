"""The choices made where a paper is silent: papers/<paper>/PROTOCOL.md as a part of the page."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

BELOW = 1  # its second level of headings is the page's third
SCROLLED = '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>'


def html(text: str, folder: str | None) -> str:
    """Markdown as HTML without the title; HTML in it is shown, not obeyed, and wide tables scroll.

    `folder`: the file's, as seen from the page; with none links to other files are left out, their texts are not.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    if tokens and tokens[0].tag == "h1":
        del tokens[:3]  # its opening, its text and its close
    for token in tokens:
        if token.type.startswith("heading"):
            token.tag = f"h{min(int(token.tag[1:]) + BELOW, 6)}"
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        token.children = list(_linked(token.children or [], folder))
    drawn = parser.renderer.render(tokens, parser.options, {})  # in which a < of the text is &lt;
    return drawn.replace("<table>", SCROLLED).replace("</table>", "</table></div>")


def _linked(children: list[Token], folder: str | None) -> Iterator[Token]:
    """The parts of a text with links to other files seen from the page."""
    left_out = False
    for child in children:
        address = str(child.attrs.get("href", ""))
        if address and ":" not in address and not address.startswith("#"):
            left_out = folder is None
            child.attrSet("href", posixpath.normpath(f"{folder}/{address}"))
        if not (left_out and child.type in ("link_open", "link_close")):
            yield child
        left_out = left_out and child.type != "link_close"
