"""How good generated samples are: the Frechet distance of images to real ones, and the modes that points cover.

f2u-2019, section 5. Only a distance of Inception features is a FID; one of a small classifier's is named
after it, and says something about orderings alone.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from fedrepro import data
from fedrepro.core.streams import stream
from fedrepro.data import sources
from fedrepro.files import sha256, write_bytes
from fedrepro.judges import extractors, networks
from fedrepro.judges.extractors import Found
from fedrepro.judges.networks import Extractor
from fedrepro.records.config import Watch

SHARE = 0.01  # of the samples, that make a class or a mode count as covered
NEAR = 3.0  # standard deviations from a mode
DAMAGED = (OSError, ValueError, KeyError, safetensors.SafetensorError)


class Moments(NamedTuple):
    """Mean [F] and covariance [F, F] of features, float64."""

    mean: np.ndarray
    covariance: np.ndarray


@dataclass(frozen=True)
class Yardstick:
    """The real images of one source, against which generated ones are held.

    real: the moments of a fixed sample of its training images; floor: their distance to those of another, disjoint one.
    classifier: what says of which class an image is, None where there is none.
    """

    extractor: Extractor
    classifier: Extractor | None
    real: Moments
    floor: float

    def measure(self, images: Tensor) -> dict[str, float]:
        """The distance of images uint8 [N, C, H, W], the floor, and the number of classes that they cover."""
        metric = self.extractor.found.metric
        distance = frechet(moments(self.extractor.features(images)), self.real)
        metrics = {metric: distance, f"{metric.partition('_')[0]}_floor": self.floor}
        if self.classifier is not None:
            metrics["classes_covered"] = float(classes(self.classifier.logits(images).argmax(1)))
        return metrics


def yardstick(dataset: str, watch: Watch, device: torch.device) -> Yardstick:
    """The yardstick of a dataset of images, which all methods on it share."""
    found = extractors.of(dataset, watch)
    source = data.find(dataset).made_of.name
    return _yardstick(source, found, extractors.classifier(source), watch.judged, device, sources.CACHE.absolute())


def moments(features: Tensor) -> Moments:
    """The moments of features [N, F], the covariance unbiased."""
    values = features.cpu().double().numpy()
    return Moments(values.mean(0), np.atleast_2d(np.cov(values, rowvar=False)))


def frechet(a: Moments, b: Moments) -> float:
    """|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)), by pytorch-fid's own function."""
    from pytorch_fid.fid_score import calculate_frechet_distance  # slow to import

    # It warns, and prints, of covariances that are close to singular, as those of few kinds of images are.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return float(calculate_frechet_distance(*a, *b))
        except ValueError:
            return _frechet(a, b)


def _frechet(a: Moments, b: Moments) -> float:
    """The same where the product's root comes out complex: that of the symmetric C1^(1/2) C2 C1^(1/2) never does."""
    values, vectors = np.linalg.eigh(a.covariance)
    root = vectors * np.sqrt(values.clip(min=0)) @ vectors.T
    traced = np.sqrt(np.linalg.eigvalsh(root @ b.covariance @ root).clip(min=0)).sum()
    apart = a.mean - b.mean
    return float(apart @ apart + np.trace(a.covariance) + np.trace(b.covariance) - 2 * traced)


def classes(labels: Tensor) -> int:
    """How many classes at least 1% of the predicted labels [N] are of."""
    return int((labels.bincount() >= SHARE * len(labels)).sum())


def modes(points: Tensor, centres: Tensor, sd: float) -> dict[str, float]:
    """How much of a mixture with modes at [M, d] points [N, d] cover (f2u-2019, Fig. 5; papers/f2u-2019/PROTOCOL.md).

    modes_covered: those with at least 1% of the points within 3 sd; samples_near_modes: the share of such points.
    """
    near = (points[:, None] - centres).square().sum(-1).sqrt() <= NEAR * sd
    covered = (near.double().mean(0) >= SHARE).sum()
    return {"modes_covered": float(covered), "samples_near_modes": near.any(1).double().mean().item()}


def as_bytes(x: Tensor) -> Tensor:
    """Images of -1..1 as a file would have them, uint8."""
    return ((x + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


@lru_cache(maxsize=4)
def _yardstick(
    source: str, found: Found, labels: Found | None, count: int, device: torch.device, cache: Path
) -> Yardstick:
    loaded = networks.load(found, device)
    classifier = loaded if labels == found else labels and networks.load(labels, device)
    key = f"1/{extractors.fingerprint(source)}/{found.sha256}/{count}"
    path = cache / "statistics" / f"{source}-{sha256(key)[:16]}.safetensors"
    try:
        kept = safetensors.torch.load(path.read_bytes())
        real, floor = Moments(kept["mean"].numpy(), kept["covariance"].numpy()), kept["floor"].item()
    except DAMAGED:
        real, floor = _real(source, loaded, count)
        named = {"mean": real.mean, "covariance": real.covariance, "floor": np.array(floor)}
        write_bytes(path, safetensors.torch.save({name: torch.from_numpy(values) for name, values in named.items()}))
    return Yardstick(loaded, classifier, real, floor)


def _real(source: str, extractor: Extractor, count: int) -> tuple[Moments, float]:
    """The moments of `count` training images, and their distance to those of as many others (fewer of a small source).

    Which images is drawn at the address (0, 0, 0, "real images"), so that it is the same for all methods and seeds.
    """
    x = networks.images(sources.raw(data.source(source)).train_x)
    count = min(count, len(x) // 2)
    rows = torch.from_numpy(stream(purpose="real images", seed=0).permutation(len(x))[: 2 * count])
    one, other = (moments(extractor.features(x[half])) for half in rows.split(count))
    return one, frechet(one, other)
