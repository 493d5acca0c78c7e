"""A stand-in for the servers that files are downloaded from."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

from fedrepro import downloads


def serve(monkeypatch, answer: Callable[[str], bytes]) -> list[str]:
    """Downloads get `answer(url)`, which may raise an error; returns the list of the URLs that are asked."""
    asked = []

    def urlopen(request, timeout):
        assert timeout == downloads.SILENCE
        asked.append(request.full_url)
        return contextlib.closing(io.BytesIO(answer(request.full_url)))

    monkeypatch.setattr(downloads, "urlopen", urlopen)
    return asked


def forbid(monkeypatch) -> None:
    """Whoever downloads fails the test."""

    def answer(url):
        raise AssertionError(f"downloads {url}")

    serve(monkeypatch, answer)
