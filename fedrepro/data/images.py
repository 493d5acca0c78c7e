"""Decoding: the bytes of verified files as images and labels. Nothing here opens a file."""

from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


def idx(data: np.ndarray) -> Tensor:
    """The content of an IDX file: two zero bytes, type, rank, big-endian sizes, then uint8 [N] or [N, H, W]."""
    start = 4 + 4 * int(data[3])
    return torch.from_numpy(data[start:].reshape(data[4:start].view(">i4")))


def cifar10(content: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images uint8 [N, 3, 32, 32] and labels int64 [N] of CIFAR-10's archive, its bytes uint8 [M].

    Read in memory: nothing is unpacked, and the content must have been verified, since the batches are pickles.
    """
    batches = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            if "_batch" in member.name:
                batches[Path(member.name).name] = pickle.load(archive.extractfile(member), encoding="bytes")
    test = batches.pop("test_batch")
    train = [batches[name] for name in sorted(batches)]

    def pixels(parts: list[dict]) -> Tensor:
        return torch.from_numpy(np.concatenate([part[b"data"] for part in parts]).reshape(-1, 3, 32, 32))

    def labels(parts: list[dict]) -> Tensor:
        return torch.tensor([label for part in parts for label in part[b"labels"]])

    return pixels(train), labels(train), pixels([test]), labels([test])


def parquet(content: np.ndarray) -> tuple[Tensor, Tensor]:
    """Images uint8 [N, 3, H, W] and labels int64 [N] of a parquet file, its bytes uint8 [M].

    Columns: `image` or `img`, a struct with the encoded `bytes` of an image of any format, all of one size; `label`.
    """
    import pyarrow  # slow to import, as PIL is, and needed only here
    import pyarrow.compute
    import pyarrow.parquet
    from PIL import Image

    table = pyarrow.parquet.read_table(pyarrow.BufferReader(pyarrow.py_buffer(content)))
    column = table.column("image" if "image" in table.column_names else "img")
    encoded = pyarrow.compute.struct_field(column, "bytes").to_pylist()
    decoded = (np.asarray(Image.open(io.BytesIO(each)).convert("RGB")) for each in encoded)
    images = torch.from_numpy(np.stack(list(decoded))).permute(0, 3, 1, 2).contiguous()
    return images, torch.tensor(table.column("label").to_pylist())


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
