"""Downloads: into a folder of their own, verified there, then moved into the cache."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path

from fedrepro.data.sources.files import elsewhere, verified
from fedrepro.data.sources.kinds import Source
from fedrepro.errors import UsageError

SILENCE = 5.0  # seconds without an answer from a server before it is given up


def download_idx(source: Source, root: Path) -> None:
    import torchvision.datasets  # slow to import, and needed only here

    family = getattr(torchvision.datasets, Path(source.files[0].path).parts[0])
    _download(source, root, lambda staging: family(staging, download=True))


def download_cifar10(source: Source, root: Path) -> None:
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import download_url

    _download(source, root, lambda staging: download_url(CIFAR10.url, staging, CIFAR10.filename, CIFAR10.tgz_md5))


def _download(source: Source, root: Path, fill: Callable[[str], object]) -> None:
    """Let `fill` download into a folder of its own, verify there, then move: a failure leaves nothing to be trusted."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as staging, quietly():
            fill(staging)
            for file in source.files:
                verified(Path(staging, file.path), file)
            for file in source.files:
                (root / file.path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(staging, file.path), root / file.path)
    except (OSError, RuntimeError, HTTPException) as error:
        *_, reason = type(error).__name__, *str(error).strip().splitlines()
        raise UsageError(
            f"{source.name} is not in {root} and could not be downloaded ({reason.strip('<>')}): {elsewhere(source)}."
        ) from error


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """No progress bars and lists of mirrors on the terminal, and no long wait for a server that does not answer."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        socket.setdefaulttimeout(before)
