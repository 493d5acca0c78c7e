"""Pictures by domain and class (PACS, Office-Home), as parquet files or as folders, brought to one size when read.

What is said of domains holds for the splits of CINIC-10, whose pictures are of one size.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedrepro.errors import UsageError

SUFFIXES = {".jpg", ".jpeg", ".png"}
LAYOUT = "parquet files with the columns image, domain and label, or folders of pictures by domain and class"


def sought(folder: str) -> str:
    """What `find` looks for, in words."""
    return (
        f"{folder}/*.parquet (Hugging Face's layout, with the columns image, domain and label) "
        f"or {folder}/<domain>/<class>/ with .jpg or .png files"
    )


def find(root: Path, folder: str) -> list[str]:
    """The paths under root of a folder's parquet files, else of its pictures by domain and class, sorted."""
    pictures = (path for path in root.glob(f"{folder}/*/*/*") if path.suffix.lower() in SUFFIXES)
    found = list(root.glob(f"{folder}/*.parquet")) or pictures
    return sorted(path.relative_to(root).as_posix() for path in found)


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
    for path, content in files:
        try:
            rows = _table(path, content, domains) if path.endswith(".parquet") else _file(path, content)
            for encoded, domain, label in rows:
                places.append(_place(path, domain, domains))
                labels.append(label)
                pictures.append(picture(encoded, size))
                if pictures[-1].shape != pictures[0].shape:
                    raise ValueError("pictures of several sizes")
        except (KeyError, ValueError, TypeError, AttributeError, OSError, NotImplementedError) as error:
            raise _other_layout(path) from error
    folder = Path(path).parts[0]
    if empty := [domain for place, domain in enumerate(domains) if place not in places]:
        raise UsageError(f"{folder} has no picture of the domain {empty[0]}: put the whole data set there.")
    return _stacked(pictures), torch.tensor(_numbered(labels, classes, folder)), torch.tensor(places)


def picture(encoded: bytes, size: int) -> Tensor:
    """uint8 [3, size, size] of an encoded image of any format and size; with size 0 its own."""
    from PIL import Image  # slow to import, as torchvision is, and needed only here
    from torchvision.transforms.v2 import functional as transforms

    pixels = torch.from_numpy(np.array(Image.open(io.BytesIO(encoded)).convert("RGB"))).permute(2, 0, 1)
    resized = transforms.resize(pixels, [size, size], antialias=False) if size else pixels
    return resized.contiguous()


def _table(path: str, content: bytes, domains: Sequence[str]) -> Iterator[tuple[bytes, str, int]]:
    import pyarrow  # slow to import, and needed only here
    import pyarrow.compute
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(pyarrow.BufferReader(pyarrow.py_buffer(content)))
    encoded = pyarrow.compute.struct_field(table.column("image"), "bytes")
    labels = table.column("label").cast(pyarrow.int64())
    if "domain" in table.column_names:
        names = table.column("domain").to_pylist()
    else:
        (name,) = (domain for domain in domains if Path(path).name.startswith(domain))
        names = [name] * len(table)
    for picture, domain, label in zip(encoded, names, labels, strict=True):
        yield picture.as_py(), domain, int(label.as_py())


def _file(path: str, content: bytes) -> Iterator[tuple[bytes, str, str]]:
    domain, label, _ = Path(path).parts[-3:]
    yield bytes(content), domain, label


def _place(path: str, domain: str, domains: Sequence[str]) -> int:
    """The place of a domain, whose name may be written as `Real World`, `real_world` or `RealWorld`."""
    letters = ["".join(filter(str.isalpha, name)).lower() for name in (domain, *domains)]
    if letters[0] not in letters[1:]:
        raise UsageError(f"{path} has pictures of the domain {domain!r}, which is none of {', '.join(domains)}.")
    return letters.index(letters[0], 1) - 1


def _numbered(labels: list[int | str], classes: int, folder: str) -> list[int]:
    if not isinstance(labels[0], str):
        return labels
    names = sorted(set(labels))
    if len(names) != classes:
        raise UsageError(f"{folder} has {len(names)} folders of classes where {classes} are expected.")
    return [names.index(label) for label in labels]


def _stacked(pictures: list[Tensor]) -> Tensor:
    """One tensor of all, into which they move one after another: thousands of large pictures exist only once."""
    pictures.reverse()
    x = torch.empty(len(pictures), *pictures[0].shape, dtype=torch.uint8)
    for place in x:
        place.copy_(pictures.pop())
    return x


def _other_layout(path: str) -> UsageError:
    layout = "columns image (encoded bytes), domain and label (a number)" if path.endswith(".parquet") else "a picture"
    return UsageError(f"{path} cannot be read as expected ({layout}): put the original file there.")
