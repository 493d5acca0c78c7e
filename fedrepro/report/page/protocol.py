"""The choices made where a paper is silent: papers/<paper>/PROTOCOL.md as a part of the page."""

from __future__ import annotations

import posixpath

from markdown_it import MarkdownIt
from markdown_it.token import Token

BELOW = 2  # its second level of headings is the page's fourth
SCROLLED = '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>'


def html(text: str, folder: str) -> str:
    """Markdown as HTML without the title; HTML in it is shown, not obeyed, and wide tables scroll.

    `folder`: the file's, as seen from the page.
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
        for child in token.children or ():
            _link(child, folder)
    drawn = parser.renderer.render(tokens, parser.options, {})  # in which a < of the text is &lt;
    return drawn.replace("<table>", SCROLLED).replace("</table>", "</table></div>")


def _link(token: Token, folder: str) -> None:
    """A link to another file, seen from the page."""
    address = str(token.attrs.get("href", ""))
    if address and ":" not in address and not address.startswith("#"):
        token.attrSet("href", posixpath.normpath(f"{folder}/{address}"))
