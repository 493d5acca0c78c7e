"""Pictures by domain and class (PACS, Office-Home), as parquet files or as folders, brought to one size when read.

The splits of CINIC-10 and of CIFAR-10 as parquet, whose pictures are of one size, are read as domains are.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas
import torch
from PIL import Image
from torch import Tensor

from fedrepro.data.sources.catalogue import Raw, Source
from fedrepro.errors import UsageError

FAULTS = (KeyError, ValueError, TypeError, AttributeError, OSError, NotImplementedError)  # of a file in another layout


def read(source: Source, files: Iterable[tuple[str, bytes]]) -> Raw:
    """Pictures by domain and class, the groups being their domains; all are training images.

    Without domains, they are split by files whose names begin with "train" and "test".
    """
    x, y, places = decode(files, source.domains or ("train", "test"), source.classes, source.size)
    train = len(y) if source.domains else int((places == 0).sum())
    groups = places if source.domains else None
    return Raw(x[:train], y[:train], x[train:], y[train:], source.classes, groups, domains=source.domains)


def decode(
    files: Iterable[tuple[str, bytes]], domains: Sequence[str], classes: int, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures uint8 [N, 3, H, W], labels int64 [N] and domains int64 [N] (places in `domains`).

    files: (path, content) pairs. Resized to `size` a side as torchvision 0.9 did tensors, bilinear without
    antialiasing; with 0 they must be of one size. A table without a column `domain` is of the domain with which its
    file's name begins. The classes of folders are numbered in the order of their names. UsageError for files in another
    layout, for a domain without a picture and for another number of classes.
    """
    pictures, labels, places, path = [], [], [], ""
    known = list(map(_letters, domains))
    for path, content in files:
        try:
            for encoded, domain, label in _rows(path, content, domains):
                if _letters(domain) not in known:
                    wrong = f"{path} has pictures of the domain {domain!r}, which is none of {', '.join(domains)}."
                    raise UsageError(wrong)
                places.append(known.index(_letters(domain)))
                labels.append(label)
                pictures.append(picture(encoded, size))
                if pictures[-1].shape != pictures[0].shape:
                    raise ValueError("pictures of several sizes")
        except FAULTS as error:
            layout = "columns image (encoded bytes), domain and label (a number)" if _table(path) else "a picture"
            raise UsageError(f"{path} cannot be read as expected ({layout}): put the original file there.") from error
    folder = Path(path).parts[0]
    if empty := [domain for place, domain in enumerate(domains) if place not in places]:
        raise UsageError(f"{folder} has no picture of the domain {empty[0]}: put the whole data set there.")
    if not _table(path):
        names, labels = np.unique(labels, return_inverse=True)
        if len(names) != classes:
            raise UsageError(f"{folder} has {len(names)} folders of classes where {classes} are expected.")
    return _stacked(pictures), torch.as_tensor(labels), torch.tensor(places)


def picture(encoded: bytes, size: int) -> Tensor:
    """uint8 [3, size, size] of an encoded image of any format and size; with size 0 its own."""
    pixels = torch.from_numpy(np.array(Image.open(io.BytesIO(encoded)).convert("RGB"))).permute(2, 0, 1)
    if not size:
        return pixels
    from torchvision.transforms.v2 import functional as transforms  # slow to import

    return transforms.resize(pixels, [size, size], antialias=False).contiguous()


def _table(path: str) -> bool:
    return path.endswith(".parquet")


def _rows(path: str, content: bytes, domains: Sequence[str]) -> Iterator[tuple[bytes, str, int | str]]:
    """The encoded image, the domain and the class of each picture in a file, which may be one picture."""
    if not _table(path):
        domain, label, _ = Path(path).parts[-3:]
        yield content, domain, label
        return
    table = pandas.read_parquet(io.BytesIO(content))
    if "domain" not in table:
        (table["domain"],) = (domain for domain in domains if Path(path).name.startswith(domain))
    image = "image" if "image" in table else "img"
    for encoded, domain, label in zip(table[image], table["domain"], table["label"], strict=True):
        yield encoded["bytes"], domain, int(label)


def _letters(domain: str) -> str:
    """The letters of a domain's name, the same for `Real World`, `real_world` and `RealWorld`."""
    return "".join(filter(str.isalpha, domain)).lower()


def _stacked(pictures: list[Tensor]) -> Tensor:
    """One tensor of all, into which they move one after another: thousands of large pictures exist only once."""
    pictures.reverse()
    x = torch.empty(len(pictures), *pictures[0].shape, dtype=torch.uint8)
    for place in x:
        place.copy_(pictures.pop())
    return x
