"""The templates of the report, and the texts that are made of them."""

from __future__ import annotations

import functools
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape


@functools.cache
def environment() -> Environment:
    """In HTML all that is not a template's own is escaped; JSON keeps its order and cannot end its element."""
    escaped = select_autoescape()
    found = Environment(loader=PackageLoader(__package__), autoescape=escaped, undefined=StrictUndefined)
    found.trim_blocks = found.lstrip_blocks = True
    found.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":"), "sort_keys": False}
    return found


def lines(name: str, **shown: Any) -> list[str]:
    """The lines of a text template."""
    return environment().get_template(f"{name}.txt").render(shown).splitlines()
