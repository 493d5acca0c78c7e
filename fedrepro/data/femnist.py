"""FEMNIST, digits only: handwritten digits by writer, in the layout of Hugging Face or in LEAF's.

Both have 28x28 grey images on a white background (255), as LEAF made them; only labels 0 to 9 of the 62 are kept.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedrepro.errors import UsageError
from fedrepro.streams import stream

CLASSES, SIDE = 10, 28
SOUGHT = (
    "femnist/*.parquet (Hugging Face's layout, with the columns image, writer_id and character) "
    "or femnist/train/*.json with femnist/test/*.json (LEAF's layout)"
)


class Written(NamedTuple):
    """Images uint8 [N, 28, 28], digits int64 [N] and the names of their writers, str [N]."""

    x: np.ndarray
    y: np.ndarray
    writers: np.ndarray


def find(root: Path) -> list[str]:
    """The paths of FEMNIST's files under root, sorted: parquet files, else LEAF's; none where it is not whole."""
    kinds = ("*.parquet", "train/*.json", "test/*.json")
    tables, train, test = (sorted(root.glob(f"femnist/{kind}")) for kind in kinds)
    found = tables or (train + test if train and test else [])
    return [path.relative_to(root).as_posix() for path in found]


def decode(files: Iterable[tuple[str, bytes]]) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
    """The training and the test split, each as images, digits and writers int64 [N], of (path, content) pairs.

    Writers are numbered in the order of their names. LEAF's files bring their split; Hugging Face has none, and a tenth
    of each writer's digits, the same ones always, are the test split. UsageError for a file in another layout.
    """
    parts: dict[str, list[Written]] = {}
    for path, content in files:
        split = "all" if path.endswith(".parquet") else Path(path).parent.name
        parts.setdefault(split, []).append((_parquet if split == "all" else _leaf)(path, content))
    splits = {split: Written(*map(np.concatenate, zip(*each, strict=True))) for split, each in parts.items()}
    if "all" in splits:
        whole = splits["all"]
        test = tenth(np.unique(whole.writers, return_inverse=True)[1])
        splits = {"train": Written(*(part[~test] for part in whole)), "test": Written(*(part[test] for part in whole))}
    if empty := [split for split in ("train", "test") if not len(splits[split].y)]:
        raise UsageError(f"the files of femnist have no digit for the {empty[0]} split: put the whole data set there.")
    names = np.unique(np.concatenate([splits["train"].writers, splits["test"].writers]))

    def numbered(part: Written) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(map(torch.from_numpy, (part.x, part.y, np.searchsorted(names, part.writers))))

    return numbered(splits["train"]), numbered(splits["test"])


def tenth(writers: np.ndarray) -> np.ndarray:
    """bool [N], whether an image is in the test split: a tenth of a writer's, rounded up but never all.

    Rounded as LEAF does, whose training split is the whole part of nine tenths. writers: int64 [N], each of 0..W-1.
    """
    counts = np.bincount(writers)
    starts = np.cumsum(counts) - counts
    order = np.lexsort((stream(0, purpose="femnist split").random(len(writers)), writers))
    rank = np.empty(len(writers), np.int64)
    rank[order] = np.arange(len(writers)) - np.repeat(starts, counts)
    return rank < np.minimum(-(-counts // 10), counts - 1)[writers]


def _parquet(path: str, content: bytes) -> Written:
    import pyarrow  # slow to import, as PIL is, and needed only here
    import pyarrow.compute
    import pyarrow.parquet
    from PIL import Image

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(pyarrow.py_buffer(content)))
        table = table.filter(pyarrow.compute.less(table.column("character"), CLASSES))
        encoded = pyarrow.compute.struct_field(table.column("image"), "bytes").to_pylist()
        x = [np.asarray(Image.open(io.BytesIO(each)).convert("L")) for each in encoded]
        x = np.stack(x) if x else np.empty((0, SIDE, SIDE), np.uint8)
        y = np.array(table.column("character").to_pylist(), np.int64)
        writers = np.array([str(writer) for writer in table.column("writer_id").to_pylist()], dtype=str)
    except (KeyError, ValueError, TypeError, OSError, NotImplementedError) as error:
        raise _other_layout(path) from error
    return _checked(path, x, y, writers)


def _leaf(path: str, content: bytes) -> Written:
    try:
        found = json.loads(bytes(content))["user_data"]
        parts = []
        for writer, data in found.items():
            y = np.array(data["y"], np.int64)
            x = np.array(data["x"], np.float32).reshape(len(y), SIDE * SIDE)[y < CLASSES]
            if not ((x >= 0) & (x <= 1)).all():
                raise _other_layout(path)
            y = y[y < CLASSES]
            x = np.rint(x * 255).astype(np.uint8).reshape(-1, SIDE, SIDE)
            parts.append(Written(x, y, np.full(len(y), writer, dtype=f"<U{max(len(writer), 1)}")))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise _other_layout(path) from error
    if not parts:
        raise _other_layout(path)
    return _checked(path, *map(np.concatenate, zip(*parts, strict=True)))


def _checked(path: str, x: np.ndarray, y: np.ndarray, writers: np.ndarray) -> Written:
    if x.shape != (len(y), SIDE, SIDE) or len(writers) != len(y) or (y < 0).any():
        raise _other_layout(path)
    return Written(x, y, writers)


def _other_layout(path: str) -> UsageError:
    layout = (
        "columns image (bytes of a 28x28 picture), writer_id and character (0 to 61)"
        if path.endswith(".parquet")
        else "user_data, which gives for each user x, lists of 784 numbers from 0 to 1, and y, labels 0 to 61"
    )
    return UsageError(f"{path} is not FEMNIST as expected ({layout}): put the original file there.")
