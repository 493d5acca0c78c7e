"""Consoles for the tests of displays, and a clock for them."""

import io

from rich.console import Console


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def console(terminal=False, width=80):
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)
