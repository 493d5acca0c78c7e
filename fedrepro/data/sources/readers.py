"""Readers: the verified files of a source as images and labels, by layout; those of pictures have files of their own.

A reader is a function (source, (path, bytes) of each file) -> Raw.
"""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Iterable

import numpy as np
import torch

from fedrepro.core.streams import stream
from fedrepro.data.sources.catalogue import Raw, Source
from fedrepro.errors import UsageError
from fedrepro.files import sha256

Files = Iterable[tuple[str, np.ndarray]]

DIGITS_TRAIN = 1500  # of 1,797, so that 2, 3, 5 and 10 clients get equal sizes


def idx(source: Source, files: Files) -> Raw:
    """Four IDX files: two zero bytes, type, rank, big-endian sizes, then uint8 [N, H, W] or [N]."""
    arrays = []
    for _, data in files:
        start = 4 + 4 * int(data[3])
        arrays.append(data[start:].reshape(data[4:start].view(">i4")))
    return _split(source, *arrays)


def cifar10(source: Source, files: Files) -> Raw:
    """The archive, in memory: nothing is unpacked, and nothing unpickled but what is pinned."""
    ((_, content),) = files
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = sorted((member for member in archive if "_batch" in member.name), key=lambda member: member.name)
        batches = [pickle.load(archive.extractfile(member), encoding="bytes") for member in members]
    x = np.concatenate([batch[b"data"] for batch in batches]).reshape(-1, 3, 32, 32)
    y = np.concatenate([batch[b"labels"] for batch in batches])
    train = len(y) - len(batches[-1][b"labels"])  # the test batch is the last by name
    return _split(source, x[:train], y[:train], x[train:], y[train:])


def digits(source: Source, files: Files) -> Raw:
    """8x8 digits upsampled to 28x28 and split by a fixed permutation; the result is what is hashed."""
    from sklearn.datasets import load_digits  # slow to import, and needed only here

    embedded = load_digits()
    order = stream(0, purpose="digits split").permutation(len(embedded.target))
    x, y = upsample(embedded.images.astype(np.int64))[order], embedded.target.astype(np.uint8)[order]
    arrays = x[:DIGITS_TRAIN], y[:DIGITS_TRAIN], x[DIGITS_TRAIN:], y[DIGITS_TRAIN:]
    for array, file in zip(arrays, source.files, strict=True):
        if sha256(array) != file.sha256:
            raise UsageError(
                f"{file.path}, made from the installed scikit-learn, has the wrong checksum: "
                "install the versions of requirements.lock."
            )
    return _split(source, *arrays)


def nothing(source: Source, files: Files) -> Raw:
    """No rows: what is drawn needs none."""
    return _split(source, *[np.empty(0, np.uint8)] * 4)


def _split(source: Source, *arrays: np.ndarray) -> Raw:
    """Raw data of the images and labels of the training and of the test split."""
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
