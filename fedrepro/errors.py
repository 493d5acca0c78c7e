"""The errors that a user sees: one clear sentence each, and the exit code of the command."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedreproError(Exception):
    """The run failed; the message is one sentence that says what to do. Exit code 1."""

    exit_code = 1


class Busy(FedreproError):
    """Another process does this now; once it ends, nothing may be left to do. Exit code 1."""


class UsageError(FedreproError):
    """The request cannot be served as given: bad input, or something it needs is missing. Exit code 2."""

    exit_code = 2


class OutsideTolerance(FedreproError):
    """A reproduced number is outside its tolerance and no deviation is declared. Exit code 3."""

    exit_code = 3


class Interrupted(FedreproError):
    """Stopped by a signal; what was reached is saved. Exit code 130."""

    exit_code = 130


LISTED = 10  # candidates in a sentence


def same(name: str, known: Iterable[str]) -> str:
    """The known name that differs in case, hyphens and underscores alone; else the name as it is."""
    return next((each for each in known if _letters(each) == _letters(name)), name)


def _letters(name: str) -> str:
    return name.casefold().translate(dict.fromkeys(map(ord, "-_ ")))


def short(text: str, most: int = 100) -> str:
    """A text that a user wrote, for a sentence: cut where it is long."""
    return text if len(text) <= most else f"{text[:most]}..."


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that does not exist, with one that is near, or with those that there are."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(known[:LISTED]) or 'none'}{more}."
    return UsageError(f"unknown {kind} {short(repr(name))}: {hint}")
