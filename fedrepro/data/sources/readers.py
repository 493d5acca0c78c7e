"""Verified files to images and labels, by layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedrepro.data import femnist, images, pictures
from fedrepro.data.sources.files import elsewhere, files_of, sha256, verified
from fedrepro.data.sources.kinds import Raw, Source, lent
from fedrepro.errors import UsageError
from fedrepro.streams import stream


def read_idx(source: Source, root: Path) -> Raw:
    """Four IDX files."""
    train_x, train_y, test_x, test_y = map(images.idx, contents(source, root))
    return Raw(train_x, train_y.long(), test_x, test_y.long(), source.classes)


def read_cifar10(source: Source, root: Path) -> Raw:
    """The archive; nothing is unpickled but what is pinned."""
    (content,) = contents(source, root)
    return Raw(*images.cifar10(content), source.classes)


def read_parquet(source: Source, root: Path) -> Raw:
    """Two parquet files, train and test, in the Hugging Face layout: image bytes and labels."""
    (train_x, train_y), (test_x, test_y) = map(images.parquet, contents(source, root))
    return Raw(train_x, train_y, test_x, test_y, source.classes)


def read_femnist(source: Source, root: Path) -> Raw:
    contents = found(source, root)
    (train_x, train_y, train_groups), (test_x, test_y, test_groups) = femnist.decode(contents)
    return Raw(train_x, train_y, test_x, test_y, source.classes, train_groups, test_groups)


def read_pictures(source: Source, root: Path) -> Raw:
    x, y, domains = pictures.decode(found(source, root), source.domains, source.classes, source.size)
    return Raw(x, y, x[:0], y[:0], source.classes, train_groups=domains, domains=source.domains)


DIGITS_TRAIN = 1500  # of 1,797, so that 2, 3, 5 and 10 clients get equal sizes


def read_digits(source: Source, root: Path) -> Raw:
    """8x8 digits upsampled to 28x28 and split by a fixed permutation; the result is what is hashed."""
    from sklearn.datasets import load_digits  # slow to import, and needed only here

    embedded = load_digits()
    order = stream(0, purpose="digits split").permutation(len(embedded.target))
    x, y = images.upsample(embedded.images.astype(np.int64))[order], embedded.target.astype(np.uint8)[order]
    arrays = x[:DIGITS_TRAIN], y[:DIGITS_TRAIN], x[DIGITS_TRAIN:], y[DIGITS_TRAIN:]
    for array, file in zip(arrays, source.files, strict=True):
        if sha256(array) != file.sha256:
            raise UsageError(
                f"{file.path}, made from the installed scikit-learn, has the wrong checksum: "
                "install the versions of requirements.lock."
            )
    train_x, train_y, test_x, test_y = map(torch.from_numpy, arrays)
    return Raw(train_x, train_y.long(), test_x, test_y.long(), source.classes)


def nothing(source: Source, root: Path) -> Raw:
    x = torch.empty(0, dtype=torch.uint8)
    return Raw(x, x.long(), x, x.long(), source.classes)


def contents(source: Source, root: Path) -> Iterator[np.ndarray]:
    """The verified bytes of each file. UsageError where they are not what was pinned."""
    try:
        for file in source.files:
            yield verified(root / file.path, file)
    except OSError as error:
        mend = "put the original there" if lent() else f"run `fedrepro data fetch {source.name}`"
        raise UsageError(f"{error}: {mend}, {elsewhere(source)}.") from error


def found(source: Source, root: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Path and content of each file; where there are no pins, each must be what it was when it was found."""
    found = replace(source, files=files_of(source, root))
    return zip([file.path for file in found.files], contents(found, root), strict=True)
