"""FEMNIST, digits only: handwritten digits by writer, in the layout of Hugging Face or in LEAF's.

Both have 28x28 grey images on a white background (255), as LEAF made them; only labels 0 to 9 of the 62 are kept.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas
import torch
from PIL import Image

from fedrepro.core.streams import stream
from fedrepro.data.sources.catalogue import Raw, Source
from fedrepro.data.sources.pictures import FAULTS
from fedrepro.errors import UsageError

CLASSES, SIDE = 10, 28
COLUMNS = "columns image (bytes of a 28x28 picture), writer_id and character (0 to 61)"
USERS = "user_data, which gives for each user x, lists of 784 numbers from 0 to 1, and y, labels 0 to 61"


def read(source: Source, files: Iterable[tuple[str, bytes]]) -> Raw:
    """FEMNIST's digits, the groups being their writers, who are numbered in the order of their names.

    LEAF's files bring their split; Hugging Face has none, and a tenth of each writer's digits, the same ones always,
    are the test split. UsageError for a file in another layout.
    """
    parts = []  # images uint8 [N, 28, 28], digits int64 [N], writers str [N] and splits str [N] of each file
    for path, content in files:
        table = path.endswith(".parquet")
        try:
            x, y, writers = _parquet(content) if table else _leaf(content)
            if x.shape != (len(y), SIDE, SIDE) or (y < 0).any():
                raise ValueError("other images or digits")
        except FAULTS as error:
            wrong = f"{path} is not FEMNIST as expected ({COLUMNS if table else USERS}): put the original file there."
            raise UsageError(wrong) from error
        parts.append((x, y, writers, np.full(len(y), Path(path).parent.name)))
    x, y, writers, split = map(np.concatenate, zip(*parts, strict=True))
    writers = np.unique(writers, return_inverse=True)[1]
    test = tenth(writers) if table else split == "test"
    kept = []
    for name, rows in ("train", ~test), ("test", test):
        if not rows.any():
            raise UsageError(f"the files of femnist have no digit for the {name} split: put the whole data set there.")
        kept.append([torch.from_numpy(each[rows]) for each in (x, y, writers)])
    (train_x, train_y, train_groups), (test_x, test_y, test_groups) = kept
    return Raw(train_x, train_y, test_x, test_y, source.classes, train_groups, test_groups)


def tenth(writers: np.ndarray) -> np.ndarray:
    """bool [N], whether an image is in the test split: a tenth of a writer's, rounded up but never all.

    Rounded as LEAF does, whose training split is the whole part of nine tenths. writers: int64 [N], each of 0..W-1.
    """
    counts = np.bincount(writers)
    order = np.lexsort((stream(0, purpose="femnist split").random(len(writers)), writers))
    rank = np.empty(len(writers), np.int64)
    rank[order] = np.arange(len(writers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rank < np.minimum(-(-counts // 10), counts - 1)[writers]


def _parquet(content: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = pandas.read_parquet(io.BytesIO(content))
    table = table[table["character"] < CLASSES]
    x = [np.asarray(Image.open(io.BytesIO(each["bytes"])).convert("L")) for each in table["image"]]
    x = np.stack(x) if x else np.empty((0, SIDE, SIDE), np.uint8)
    return x, table["character"].to_numpy(np.int64), table["writer_id"].to_numpy(str)


def _leaf(content: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    parts = []
    for writer, data in json.loads(bytes(content))["user_data"].items():
        y = np.array(data["y"], np.int64)
        x = np.array(data["x"], np.float32).reshape(len(y), SIDE * SIDE)[y < CLASSES]
        if not ((x >= 0) & (x <= 1)).all():
            raise ValueError("values that are not from 0 to 1")
        x, y = np.rint(x * 255).astype(np.uint8).reshape(-1, SIDE, SIDE), y[y < CLASSES]
        parts.append((x, y, np.full(len(y), writer, dtype=f"<U{max(len(writer), 1)}")))
    return tuple(map(np.concatenate, zip(*parts, strict=True)))
