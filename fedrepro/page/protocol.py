"""What a paper leaves open and what was chosen: docs/protocol-<paper>.md as a part of the page."""

from __future__ import annotations

from collections.abc import Sequence

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

BELOW = 2  # its second level of headings is the page's fourth


def html(text: str) -> str:
    """Markdown as HTML without the title; HTML in it is shown, not obeyed, and wide tables scroll."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("table_open", _table_open)
    parser.add_render_rule("table_close", _table_close)
    tokens = parser.parse(text)
    if tokens and tokens[0].tag == "h1":
        del tokens[:3]  # its opening, its text and its close
    for token in tokens:
        if token.tag.startswith("h") and token.tag[1:].isdigit():
            token.tag = f"h{min(int(token.tag[1:]) + BELOW, 6)}"
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        for child in token.children or ():
            _link(child)
    return parser.renderer.render(tokens, parser.options, {})


def _link(token: Token) -> None:
    """A link to a file beside the protocol, seen from the page."""
    address = str(token.attrs.get("href", ""))
    if address and ":" not in address and not address.startswith("#"):
        token.attrSet("href", f"../docs/{address}")


def _table_open(renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: object) -> str:
    return f'<div class="scroll" tabindex="0" role="group" aria-label="Table">{_plain(renderer, tokens, index)}'


def _table_close(renderer: RendererHTML, tokens: Sequence[Token], index: int, *_: object) -> str:
    return f"{_plain(renderer, tokens, index)}</div>"


def _plain(renderer: RendererHTML, tokens: Sequence[Token], index: int) -> str:
    return renderer.renderToken(tokens, index, {}, {})
