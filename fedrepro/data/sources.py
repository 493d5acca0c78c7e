"""Sources: raw images and labels, pinned by sha256 and verified before each use.

A source on disk is looked for in the folder that FEDREPRO_DATA_DIR names, which is only ever read, or else in
`data/cache` under the current directory, into which missing files are downloaded. Nothing reaches the cache before
it is verified, and everything is verified again when it is read. Whatever is wrong with data is a UsageError.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedrepro.errors import UsageError
from fedrepro.streams import stream

FOLDER_VARIABLE = "FEDREPRO_DATA_DIR"
CACHE = Path("data/cache")
SILENCE = 5.0  # seconds without an answer from a server before it is given up


@dataclass(frozen=True)
class Raw:
    """A source as it is: train_x, test_x uint8 [N, H, W] or [N, C, H, W]; train_y, test_y int64 [N]."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int


@dataclass(frozen=True)
class File:
    """A pinned file (or embedded array): sha256, size in bytes, path relative to the data folder."""

    sha256: str
    bytes: int
    path: str


@dataclass(frozen=True)
class Source:
    """Where raw data come from and what they must be.

    files: in the order train images, train labels, test images, test labels. train, test: images of each split.
    read: (source, folder) -> the verified data. download: (source, folder) puts verified files there; None if embedded.
    substitute: what results made from it are labelled with, when it stands in for an original.
    """

    name: str
    origin: str
    licence: str
    files: tuple[File, ...]
    train: int
    test: int
    classes: int
    read: Callable[[Source, Path], Raw]
    download: Callable[[Source, Path], None] | None = None
    substitute: str | None = None


def folder() -> Path:
    """The folder that sources on disk are read from."""
    return Path(os.environ.get(FOLDER_VARIABLE) or CACHE).expanduser().absolute()


def lent() -> bool:
    """Whether that folder is the user's own, which is never written to."""
    return bool(os.environ.get(FOLDER_VARIABLE))


def raw(source: Source) -> Raw:
    """The source's data: downloaded if missing, verified once per process and folder, shared by its callers."""
    return _raw(source, folder())


@lru_cache(maxsize=4)
def _raw(source: Source, root: Path) -> Raw:
    if missing(source, root) and not lent():
        source.download(source, root)
    return read(source, root)


def read(source: Source, root: Path) -> Raw:
    """The source's data as found under root, verified: checksums, sizes, counts and label range."""
    if lacking := missing(source, root):
        wrong = f"has no {lacking[0]}" if root.is_dir() else "is not a folder"
        where = f"{FOLDER_VARIABLE} is {root}, which" if lent() else f"{root}"
        download = f"unset {FOLDER_VARIABLE} to download it" if lent() else f"run `fedrepro data fetch {source.name}`"
        raise UsageError(f"{where} {wrong}: {download}, {_elsewhere(source)}.")
    data = source.read(source, root)
    for x, y, rows in (data.train_x, data.train_y, source.train), (data.test_x, data.test_y, source.test):
        if (len(x), len(y)) != (rows, rows):
            raise UsageError(f"{source.name} has {len(x):,} images and {len(y):,} labels where {rows:,} are expected.")
        if int(y.min()) < 0 or int(y.max()) >= source.classes:
            raise UsageError(f"{source.name} has labels outside 0..{source.classes - 1}.")
    return data


def fetch(source: Source) -> Raw:
    """The source's data, verified; missing or damaged files of the cache are downloaded (again) first."""
    root = folder()
    if source.download and not lent() and (missing(source, root) or _damaged(source, root)):
        source.download(source, root)
    return read(source, root)


def missing(source: Source, root: Path) -> list[str]:
    """The paths of the source's files that are not under root; none for an embedded source."""
    return [file.path for file in source.files if source.download and not (root / file.path).is_file()]


def _damaged(source: Source, root: Path) -> bool:
    try:
        for file in source.files:
            _verified(root / file.path, file)
    except OSError:
        return True
    return False


def _verified(path: Path, file: File) -> np.ndarray:
    """The bytes of the file at path, uint8; an OSError says why they are not what was pinned.

    They are read once and hashed in memory, so that what is used is what was verified.
    """
    data = np.fromfile(path, np.uint8)
    if len(data) != file.bytes:
        raise OSError(f"{path} has {len(data):,} bytes instead of {file.bytes:,}")
    if _sha256(data) != file.sha256:
        raise OSError(f"{path} has the wrong checksum")
    return data


def _sha256(data: np.ndarray) -> str:
    return hashlib.sha256(data).hexdigest()


def _elsewhere(source: Source) -> str:
    """The ways out that always exist."""
    held = Path(source.files[0].path).parent
    return f"set {FOLDER_VARIABLE} to a folder that holds {held}, or use `--dataset digits`"


def _pins(listing: str) -> tuple[File, ...]:
    """Lines of sha256, bytes, path."""
    rows = (line.split() for line in listing.strip().splitlines())
    return tuple(File(sha256, int(size), path) for sha256, size, path in rows)


# MNIST, in torchvision's layout

MNIST_FILES = _pins("""
    ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db 47040016 MNIST/raw/train-images-idx3-ubyte
    65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5    60008 MNIST/raw/train-labels-idx1-ubyte
    0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  7840016 MNIST/raw/t10k-images-idx3-ubyte
    ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2    10008 MNIST/raw/t10k-labels-idx1-ubyte
""")


def _read_idx(source: Source, root: Path) -> Raw:
    """Four IDX files."""
    try:
        train_x, train_y, test_x, test_y = (_idx(_verified(root / file.path, file)) for file in source.files)
    except OSError as error:
        mend = "put the original there" if lent() else f"run `fedrepro data fetch {source.name}`"
        raise UsageError(f"{error}: {mend}, {_elsewhere(source)}.") from error
    return Raw(train_x, train_y.long(), test_x, test_y.long(), source.classes)


def _idx(data: np.ndarray) -> Tensor:
    """The content of an IDX file: two zero bytes, type, rank, big-endian sizes, then uint8 [N] or [N, H, W]."""
    start = 4 + 4 * int(data[3])
    return torch.from_numpy(data[start:].reshape(data[4:start].view(">i4")))


def _download_mnist(source: Source, root: Path) -> None:
    """Download into a folder of its own, verify there, then move: a failure leaves nothing that could be trusted."""
    from torchvision.datasets import MNIST  # slow to import, and needed only here

    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as staging, _quietly():
            MNIST(staging, download=True)
            for file in source.files:
                _verified(Path(staging, file.path), file)
            for file in source.files:
                (root / file.path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(staging, file.path), root / file.path)
    except (OSError, RuntimeError, HTTPException) as error:
        *_, reason = type(error).__name__, *str(error).strip().splitlines()
        raise UsageError(
            f"{source.name} is not in {root} and could not be downloaded ({reason.strip('<>')}): {_elsewhere(source)}."
        ) from error


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """No progress bars and lists of mirrors on the terminal, and no long wait for a server that does not answer."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SILENCE)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        socket.setdefaulttimeout(before)


# scikit-learn's digits, embedded in the package

DIGITS_FILES = _pins("""
    61ecbfddb6c4a4249fe06635b89d5964a942dce29463cdef587de73da6162793  1176000 digits/train-images
    dea473bd09d64c36e6f276a4d06f70ff75aa81ec4897fa9c0e856502ac10133e     1500 digits/train-labels
    4c5a186df817057edb0426720c45abcfa58ed0e0576119064357ce6fcd7fc819   232848 digits/test-images
    6807e92daae064eb73f59d136ab51cd3d4ef560078c14621d07f05b8538f2651      297 digits/test-labels
""")
DIGITS_TRAIN = 1500  # of 1,797, so that 2, 3, 5 and 10 clients get equal sizes


def _read_digits(source: Source, root: Path) -> Raw:
    """8x8 digits upsampled to 28x28 and split by a fixed permutation; the result is what is hashed."""
    from sklearn.datasets import load_digits  # slow to import, and needed only here

    embedded = load_digits()
    order = stream(0, purpose="digits split").permutation(len(embedded.target))
    x, y = upsample(embedded.images.astype(np.int64))[order], embedded.target.astype(np.uint8)[order]
    arrays = x[:DIGITS_TRAIN], y[:DIGITS_TRAIN], x[DIGITS_TRAIN:], y[DIGITS_TRAIN:]
    for array, file in zip(arrays, source.files, strict=True):
        if _sha256(array) != file.sha256:
            raise UsageError(
                f"{file.path}, made from the installed scikit-learn, has the wrong checksum: "
                "install the versions of requirements.lock."
            )
    train_x, train_y, test_x, test_y = map(torch.from_numpy, arrays)
    return Raw(train_x, train_y.long(), test_x, test_y.long(), source.classes)


def upsample(images: np.ndarray) -> np.ndarray:
    """Integers 0..16 [N, 8, 8] to uint8 0..255 [N, 28, 28], bilinear, edges repeated.

    Exact integer arithmetic, since the result is hashed: the centre of output pixel i lies at input coordinate
    (i + 1/2) 8/28 - 1/2 = (4i - 5)/14, so all weights are multiples of 1/14.
    """
    place = np.clip(4 * np.arange(28) - 5, 0, 7 * 14)
    left = np.minimum(place // 14, 6)
    weights = np.zeros((28, 8), np.int64)
    weights[np.arange(28), left] = 14 * (left + 1) - place
    weights[np.arange(28), left + 1] = place - 14 * left
    full = 16 * 14 * 14
    return ((255 * (weights @ images @ weights.T) + full // 2) // full).astype(np.uint8)


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="mnist",
            origin="the MNIST database of handwritten digits (LeCun, Cortes, Burges), through torchvision",
            licence="CC BY-SA 3.0",
            files=MNIST_FILES,
            train=60_000,
            test=10_000,
            classes=10,
            read=_read_idx,
            download=_download_mnist,
        ),
        Source(
            name="digits",
            origin=(
                "Optical Recognition of Handwritten Digits (Alpaydin, Kaynak), the 1,797 embedded in scikit-learn: "
                "8x8 upsampled to 28x28, bilinear; 1,500 train and 297 test by a fixed permutation"
            ),
            licence="CC BY 4.0",
            files=DIGITS_FILES,
            train=1_500,
            test=297,
            classes=10,
            read=_read_digits,
            substitute="digits (8x8)",
        ),
    )
}
