"""Extractors: the networks whose features tell how far generated images are from real ones.

The paper's (papers/f2u-2019/PROTOCOL.md) is the Inception network of 2015; where its weights are not at hand, a small
classifier of the source's own training images, trained once by `fedrepro extractor` and kept in `data/extractors`.
Distances of different extractors are not comparable, so that a metric has the extractor in its name. A run's identity
has its extractor: nothing here imports torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fedrepro import data, downloads
from fedrepro.data import sources
from fedrepro.errors import UsageError
from fedrepro.files import file_digest, sha256
from fedrepro.records.config import Watch

FOLDER = Path("data/extractors")
WEIGHTS = "pt_inception-2015-12-05-6726825d.pth"  # as pytorch-fid names them: the last part begins their sha256


@dataclass(frozen=True)
class Found:
    """An extractor that is there: its name, such as `mnist_cnn`, its weights' sha256 and their file."""

    name: str
    sha256: str
    path: Path

    @property
    def metric(self) -> str:
        """The name of a distance by it: only that of the Inception network is a FID."""
        return "fid" if self.name == "inception" else f"fd_{self.name}"


def of(dataset: str, watch: Watch) -> Found:
    """The extractor of a dataset of images; UsageError where there is none."""
    return find(data.find(dataset).made_of.name, watch.extractor)


def find(source: str, wanted: str = "auto") -> Found:
    """The extractor for a source's images: "inception", "cnn", or "auto", Inception if its weights are there.

    Raises UsageError where it is missing or not what its name or its .json says.
    """
    if wanted != "cnn" and (weights := inception()):
        return weights
    if wanted == "inception":
        raise UsageError(
            f"there is no {WEIGHTS} in {downloads.folder()}: run `fedrepro extractor inception` to download it, "
            "put it there, or leave watch.extractor at auto."
        )
    return _cnn(source)


def classifier(source: str) -> Found | None:
    """The small classifier of a source, if it is there; it says of what class an image is."""
    return _cnn(source) if paths(source)[1].exists() else None


def inception() -> Found | None:
    """The Inception network, if its weights are in the data folder or the cache; UsageError for another file there."""
    if (path := weights()) is None:
        return None
    content = path.read_bytes()
    try:
        downloads.check_named(path, content)
    except OSError as error:
        raise UsageError(f"{error}: put the file of pytorch-fid's releases there.") from error
    return Found("inception", sha256(content), path)


def weights() -> Path | None:
    """The file that has the name of Inception's weights, in the data folder or the cache; unread."""
    found = (folder / WEIGHTS for folder in (downloads.folder(), downloads.CACHE))
    return next((path for path in found if path.is_file()), None)


def fetch() -> Path:
    """Download the Inception weights of pytorch-fid's releases into the cache, where they are not at hand.

    They are verified before they have their name. Raises UsageError where they cannot be had.
    """
    if found := inception():
        return found.path
    from pytorch_fid.inception import FID_WEIGHTS_URL  # slow to import

    advice = f"put that file of pytorch-fid's releases into {downloads.folder()}"
    downloads.download(downloads.CACHE, {WEIGHTS: [FID_WEIGHTS_URL]}, downloads.check_named, WEIGHTS, advice)
    return downloads.CACHE / WEIGHTS


def paths(source: str) -> tuple[Path, Path]:
    """Where the weights of a source's small classifier are, and what is said of them."""
    return FOLDER / f"{source}-cnn.safetensors", FOLDER / f"{source}-cnn.json"


def fingerprint(source: str) -> str:
    """sha256 of what a source's files are pinned to be, as runs' records have it."""
    return sources.fingerprint(sources.digests(data.source(source)))


def _cnn(source: str) -> Found:
    weights, said = paths(source)
    remedy = f"run `fedrepro extractor {source}`"
    try:
        sha256 = json.loads(said.read_text(encoding="utf-8"))["sha256"]
        found = file_digest(weights)
    except FileNotFoundError as error:
        raise UsageError(f"generated images of {source} need {error.filename}, which is missing: {remedy}.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{said} cannot be read ({error}): {remedy}.") from error
    if found != sha256:
        raise UsageError(f"{weights} is not what {said} says it is: restore both from git, or {remedy}.")
    return Found(f"{source.replace('-', '_')}_cnn", sha256, weights)
