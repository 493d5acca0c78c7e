"""Sources: raw images and labels, pinned by sha256 and verified before each use.

A source on disk is looked for in the folder that FEDREPRO_DATA_DIR names, which is only ever read, or else in
`data/cache` under the current directory, into which missing files are downloaded. Nothing reaches the cache before
it is verified, and everything is verified again when it is read. Whatever is wrong with data is a UsageError.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from http.client import HTTPException
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedrepro.data import femnist, images, pictures
from fedrepro.errors import UsageError
from fedrepro.streams import stream

FOLDER_VARIABLE = "FEDREPRO_DATA_DIR"
CACHE = Path("data/cache")
LISTED = 100  # files that a record names one by one
SILENCE = 5.0  # seconds without an answer from a server before it is given up


@dataclass(frozen=True)
class Raw:
    """A source as it is: train_x, test_x uint8 [N, H, W] or [N, C, H, W]; train_y, test_y int64 [N].

    train_groups, test_groups int64 [N]: who wrote each image, or which of `domains` it is from, where the source knows.
    A source of domains has no split of its own: all its images are training images.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    train_groups: Tensor | None = None
    test_groups: Tensor | None = None
    domains: tuple[str, ...] = ()


@dataclass(frozen=True)
class File:
    """A pinned file (or embedded array): sha256, size in bytes, path relative to the data folder."""

    sha256: str
    bytes: int
    path: str


@dataclass(frozen=True)
class Source:
    """Where raw data come from and what they must be.

    files: in the order that `read` expects. train, test: images of each split, None where any number is right.
    find: for a source without pins, the paths of its files under a folder; `sought` says what they would be.
    read: (source, folder) -> the verified data. download: (source, folder) puts verified files there; None if embedded.
    substitute: what results made from it are labelled with, when it stands in for an original.
    layout: how a copy that the user puts there by hand must lie, in words.
    domains: their names, in the papers' order; size: pixels a side to which images are brought, 0 as they are.
    """

    name: str
    origin: str
    licence: str
    files: tuple[File, ...]
    train: int | None
    test: int | None
    classes: int
    read: Callable[[Source, Path], Raw]
    download: Callable[[Source, Path], None] | None = None
    substitute: str | None = None
    find: Callable[[Path], list[str]] | None = None
    sought: str = ""
    layout: str = ""
    domains: tuple[str, ...] = ()
    size: int = 0

    @property
    def pinned(self) -> bool:
        """Whether the checksums of its files are known beforehand."""
        return self.find is None


def folder() -> Path:
    """The folder that sources on disk are read from."""
    return Path(os.environ.get(FOLDER_VARIABLE) or CACHE).expanduser().absolute()


def lent() -> bool:
    """Whether that folder is the user's own, which is never written to."""
    return bool(os.environ.get(FOLDER_VARIABLE))


def sized(source: Source, size: int) -> Source:
    """The source with its images at another size; UsageError for one that cannot be."""
    if type(size) is not int or not 8 <= size <= 1024:
        raise UsageError(f"size is the pixels a side of an image, 8 to 1,024, and cannot be {size!r}.")
    return replace(source, size=size)


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
        raise _absent(source, root, lacking[0])
    data = source.read(source, root)
    for x, y, rows in (data.train_x, data.train_y, source.train), (data.test_x, data.test_y, source.test):
        if rows is not None and (len(x), len(y)) != (rows, rows):
            raise UsageError(f"{source.name} has {len(x):,} images and {len(y):,} labels where {rows:,} are expected.")
        if len(y) and not 0 <= int(y.min()) <= int(y.max()) < source.classes:
            raise UsageError(f"{source.name} has labels outside 0..{source.classes - 1}.")
    return data


def fetch(source: Source) -> Raw:
    """The source's data, verified; missing or damaged files of the cache are downloaded (again) first."""
    root = folder()
    if source.download and not lent() and (missing(source, root) or _damaged(source, root)):
        source.download(source, root)
    return read(source, root)


def _absent(source: Source, root: Path, lacking: str) -> UsageError:
    wrong = f"has no {lacking}" if root.is_dir() else f"is not a folder, and should have {lacking}"
    where = f"{FOLDER_VARIABLE} is {root}, which" if lent() else f"{root}"
    download = f"unset {FOLDER_VARIABLE} to download it" if lent() else f"run `fedrepro data fetch {source.name}`"
    ways = f"{download}, " if source.download not in (_no_download, _by_hand) else ""
    return UsageError(f"{where} {wrong}: {ways}{_elsewhere(source)}.")


def files_of(source: Source, root: Path) -> tuple[File, ...]:
    """What the source's files must be: its pins or, for a source without, what is under root now.

    UsageError where there is nothing.
    """
    if source.pinned:
        return source.files
    if lacking := missing(source, root):
        raise _absent(source, root, lacking[0])
    try:
        seen = [(path, (root / path).stat()) for path in source.find(root)]
        return tuple(_seen(root, path, stat.st_size, stat.st_mtime_ns) for path, stat in seen)
    except OSError as error:
        raise UsageError(f"{source.name} cannot be read ({error}): {_elsewhere(source)}.") from error


def held(source: Source) -> tuple[File, ...]:
    """The source's files in the folder in use, as records list them; UsageError where there are none."""
    return listed(files_of(source, folder()))


def digests(source: Source) -> dict[str, str]:
    """path -> sha256 of what `held` lists."""
    return {file.path: file.sha256 for file in held(source)}


def fingerprint(digests: dict[str, str]) -> str:
    """sha256 of a source's digests, which stands for them."""
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def listed(files: tuple[File, ...]) -> tuple[File, ...]:
    """Files as a record lists them: thousands are one entry for each folder below the first, of all that it holds.

    Its sha256 is that of the lines "sha256 path" of its files, in their order.
    """
    if len(files) <= LISTED:
        return files
    folders: dict[str, list[File]] = {}
    for file in files:
        folders.setdefault("/".join(Path(file.path).parts[:2]) + "/", []).append(file)
    return tuple(
        File(
            hashlib.sha256("".join(f"{file.sha256} {file.path}\n" for file in held).encode()).hexdigest(),
            sum(file.bytes for file in held),
            folder,
        )
        for folder, held in folders.items()
    )


@lru_cache(maxsize=1 << 19)  # CINIC-10 has 270,000 files
def _seen(root: Path, path: str, bytes: int, modified: int) -> File:
    """A file as it is; hashed again only when its size or time has changed."""
    return File(_sha256(np.fromfile(root / path, np.uint8)), bytes, path)


def missing(source: Source, root: Path) -> list[str]:
    """The paths of the source's files that are not under root; none for an embedded source."""
    if not source.pinned:
        return [] if source.find(root) else [source.sought]
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
    first = Path(source.files[0].path) if source.pinned else Path(source.name, "any")
    held = first if first.parent == Path() else first.parent
    return f"set {FOLDER_VARIABLE} to a folder that holds {held}, or use `--dataset digits`"


def _pins(listing: str) -> tuple[File, ...]:
    """Lines of sha256, bytes, path."""
    rows = (line.split() for line in listing.strip().splitlines())
    return tuple(File(sha256, int(size), path) for sha256, size, path in rows)


# MNIST and Fashion-MNIST, in torchvision's layout: train images, train labels, test images, test labels

MNIST_FILES = _pins("""
    ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db 47040016 MNIST/raw/train-images-idx3-ubyte
    65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5    60008 MNIST/raw/train-labels-idx1-ubyte
    0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  7840016 MNIST/raw/t10k-images-idx3-ubyte
    ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2    10008 MNIST/raw/t10k-labels-idx1-ubyte
""")


FASHION_FILES = _pins("""
    c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888 47040016 FashionMNIST/raw/train-images-idx3-ubyte
    bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9    60008 FashionMNIST/raw/train-labels-idx1-ubyte
    5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b  7840016 FashionMNIST/raw/t10k-images-idx3-ubyte
    0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34    10008 FashionMNIST/raw/t10k-labels-idx1-ubyte
""")


def _read_idx(source: Source, root: Path) -> Raw:
    """Four IDX files."""
    train_x, train_y, test_x, test_y = map(images.idx, _contents(source, root))
    return Raw(train_x, train_y.long(), test_x, test_y.long(), source.classes)


def _contents(source: Source, root: Path) -> Iterator[np.ndarray]:
    """The verified bytes of each file. UsageError where they are not what was pinned."""
    try:
        for file in source.files:
            yield _verified(root / file.path, file)
    except OSError as error:
        mend = "put the original there" if lent() else f"run `fedrepro data fetch {source.name}`"
        raise UsageError(f"{error}: {mend}, {_elsewhere(source)}.") from error


def _download_idx(source: Source, root: Path) -> None:
    import torchvision.datasets  # slow to import, and needed only here

    family = getattr(torchvision.datasets, Path(source.files[0].path).parts[0])
    _download(source, root, lambda staging: family(staging, download=True))


def _download(source: Source, root: Path, fill: Callable[[str], object]) -> None:
    """Let `fill` download into a folder of its own, verify there, then move: a failure leaves nothing to be trusted."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as staging, _quietly():
            fill(staging)
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


# CIFAR-10: the archive that torchvision keeps, and parquet files with image bytes

CIFAR10_FILES = _pins("""
    6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce 170498071 cifar-10-python.tar.gz
""")
CIFAR10_JPEG_FILES = _pins("""
    0fc125f78e80c161cbeb2820b256628ff5add1670dab4367392944f207260f1e 15480407 cifar10-jpeg/train.parquet
    468f3e927cdf535078d970d84e7c7f5a0a9de6bc4f6815939afc732c8f8e749e  3093982 cifar10-jpeg/test.parquet
""")


def _read_cifar10(source: Source, root: Path) -> Raw:
    """The archive; nothing is unpickled but what is pinned."""
    (content,) = _contents(source, root)
    return Raw(*images.cifar10(content), source.classes)


def _download_cifar10(source: Source, root: Path) -> None:
    from torchvision.datasets import CIFAR10
    from torchvision.datasets.utils import download_url

    _download(source, root, lambda staging: download_url(CIFAR10.url, staging, CIFAR10.filename, CIFAR10.tgz_md5))


def _read_parquet(source: Source, root: Path) -> Raw:
    """Two parquet files, train and test, in the Hugging Face layout: image bytes and labels."""
    (train_x, train_y), (test_x, test_y) = map(images.parquet, _contents(source, root))
    return Raw(train_x, train_y, test_x, test_y, source.classes)


def _no_download(source: Source, root: Path) -> None:
    raise UsageError(f"{source.name} is not in {root} and has no public address: {_elsewhere(source)}.")


# FEMNIST, in whatever of two layouts the user has it


def _found(source: Source, root: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Path and content of each file; where there are no pins, each must be what it was when it was found."""
    found = replace(source, files=files_of(source, root))
    return zip([file.path for file in found.files], _contents(found, root), strict=True)


def _read_femnist(source: Source, root: Path) -> Raw:
    contents = _found(source, root)
    (train_x, train_y, train_groups), (test_x, test_y, test_groups) = femnist.decode(contents)
    return Raw(train_x, train_y, test_x, test_y, source.classes, train_groups, test_groups)


# PACS and Office-Home, pictures by domain, and CINIC-10, by split: parquet files or folders

PACS_112PX_FILES = _pins("""
    8ad980bf184b3ccdb799c5b94e2ccd608824558989187f09a5f950ac45ba9040 35883574 pacs-112px/train.parquet
""")
PACS_DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
OFFICEHOME_DOMAINS = ("art", "clipart", "product", "real_world")
CINIC10_SPLITS = ("train", "valid", "test")


def _read_pictures(source: Source, root: Path) -> Raw:
    x, y, domains = pictures.decode(_found(source, root), source.domains, source.classes, source.size)
    return Raw(x, y, x[:0], y[:0], source.classes, train_groups=domains, domains=source.domains)


def _by_hand(source: Source, root: Path) -> None:
    raise UsageError(
        f"{source.name} is not in {root} and is not downloaded here, since no copy of it is pinned: "
        f"put one into {source.name}/ ({source.layout}), {_elsewhere(source)}."
    )


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
    x, y = images.upsample(embedded.images.astype(np.int64))[order], embedded.target.astype(np.uint8)[order]
    arrays = x[:DIGITS_TRAIN], y[:DIGITS_TRAIN], x[DIGITS_TRAIN:], y[DIGITS_TRAIN:]
    for array, file in zip(arrays, source.files, strict=True):
        if _sha256(array) != file.sha256:
            raise UsageError(
                f"{file.path}, made from the installed scikit-learn, has the wrong checksum: "
                "install the versions of requirements.lock."
            )
    train_x, train_y, test_x, test_y = map(torch.from_numpy, arrays)
    return Raw(train_x, train_y.long(), test_x, test_y.long(), source.classes)


# No files: the dataset draws its data


def _nothing(source: Source, root: Path) -> Raw:
    x = torch.empty(0, dtype=torch.uint8)
    return Raw(x, x.long(), x, x.long(), source.classes)


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
            download=_download_idx,
        ),
        Source(
            name="fashion-mnist",
            origin="Fashion-MNIST (Xiao, Rasul, Vollgraf), through torchvision",
            licence="MIT",
            files=FASHION_FILES,
            train=60_000,
            test=10_000,
            classes=10,
            read=_read_idx,
            download=_download_idx,
        ),
        Source(
            name="cifar10",
            origin="CIFAR-10 (Krizhevsky), the archive of the Python version, through torchvision",
            licence="none stated",
            files=CIFAR10_FILES,
            train=50_000,
            test=10_000,
            classes=10,
            read=_read_cifar10,
            download=_download_cifar10,
        ),
        Source(
            name="cifar10-jpeg",
            origin=(
                "CIFAR-10 (Krizhevsky), images re-encoded once as JPEG of quality about 75, rows shuffled, as parquet"
            ),
            licence="none stated",
            files=CIFAR10_JPEG_FILES,
            train=50_000,
            test=10_000,
            classes=10,
            read=_read_parquet,
            download=_no_download,
            substitute="cifar10 (jpeg)",
        ),
        Source(
            name="femnist",
            origin="the digits of FEMNIST (LEAF, Caldas et al., from NIST Special Database 19), by writer",
            licence="that of the copy that is used",
            files=(),
            train=None,
            test=None,
            classes=femnist.CLASSES,
            read=_read_femnist,
            download=_no_download,
            find=femnist.find,
            sought=femnist.SOUGHT,
        ),
        Source(
            name="pacs",
            origin="PACS (Li et al. 2017), 9,991 pictures of 227 pixels a side in four domains",
            licence="none stated",
            files=(),
            train=9_991,
            test=0,
            classes=7,
            read=_read_pictures,
            download=_by_hand,
            find=partial(pictures.find, folder="pacs"),
            sought=pictures.sought("pacs"),
            layout=pictures.LAYOUT,
            domains=PACS_DOMAINS,
            size=224,
        ),
        Source(
            name="pacs-112px",
            origin="PACS (Li et al. 2017), resized once from 227 to 112 pixels a side, JPEG of quality 88, as parquet",
            licence="none stated",
            files=PACS_112PX_FILES,
            train=9_991,
            test=0,
            classes=7,
            read=_read_pictures,
            download=_no_download,
            substitute="pacs (112 px)",
            domains=PACS_DOMAINS,
            size=112,
        ),
        Source(
            name="officehome",
            origin="Office-Home (Venkateswara et al. 2017), 15,588 pictures of various sizes in four domains",
            licence="that of its authors: for academic research",
            files=(),
            train=15_588,
            test=0,
            classes=65,
            read=_read_pictures,
            download=_by_hand,
            find=partial(pictures.find, folder="officehome"),
            sought=pictures.sought("officehome"),
            layout=pictures.LAYOUT,
            domains=OFFICEHOME_DOMAINS,
            size=224,
        ),
        Source(
            name="cinic-10",
            origin="CINIC-10 (Darlow et al. 2018), CIFAR-10 with small pictures of ImageNet, its three splits together",
            licence="CC BY 4.0",
            files=(),
            train=270_000,
            test=0,
            classes=10,
            read=_read_pictures,
            download=_by_hand,
            find=partial(pictures.find, folder="cinic-10"),
            sought=(
                "cinic-10/{train,valid,test}/<class>/ with .png files and no cinic-10/*.parquet (Hugging Face's "
                "layout: train*, valid* and test* with the columns image and label)"
            ),
            layout=(
                "its folders train, valid and test, or parquet files with the columns image and label named after them"
            ),
            domains=CINIC10_SPLITS,
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
        Source(
            name="drawn",
            origin="random numbers, drawn when a dataset is made",
            licence="none needed",
            files=(),
            train=0,
            test=0,
            classes=0,
            read=_nothing,
        ),
    )
}
