"""Extractors: the networks whose features tell how far generated images are from real ones (docs/protocol-f2u-2019.md).

The paper's is the Inception network of 2015; where its weights are not at hand, a small classifier of the source's own
training images, trained once by `fedrepro extractor` and kept in `data/extractors`, so that its bytes are the same for
all methods. Distances of different extractors are not comparable, so that a metric has the extractor in its name.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from importlib.metadata import version
from pathlib import Path
from statistics import fmean

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedrepro import optim, trees
from fedrepro.data import sources
from fedrepro.errors import UsageError, unknown
from fedrepro.files import file_digest, write_bytes, write_json
from fedrepro.modules import nested, network
from fedrepro.scoring import in_parts, score
from fedrepro.streams import stream, torch_stream
from fedrepro.types import Net, State

FOLDER = Path("data/extractors")
WEIGHTS = "pt_inception-2015-12-05-6726825d.pth"  # as pytorch-fid names them: the last part begins their sha256
FEATURES = 128
BATCH, LR = 128, 1e-3
EPOCHS = {"digits": 20, "mnist": 3, "fashion-mnist": 3}  # of colour pictures OTHERWISE
OTHERWISE = 10


@dataclass(frozen=True)
class Found:
    """An extractor that is there: its name, such as `mnist_cnn`, its weights' sha256 and their file."""

    name: str
    sha256: str
    path: Path

    @property
    def metric(self) -> str:
        """What a distance by it is called: only that of the Inception network is a FID."""
        return "fid" if self.name == "inception" else f"fd_{self.name}"


@dataclass(frozen=True)
class Extractor:
    """A network that is loaded.

    features: uint8 [N, C, H, W] -> float32 [N, F]; logits: the same images -> [N, classes], None where it is no
    classifier of the source's classes.
    """

    found: Found
    features: Callable[[Tensor], Tensor]
    logits: Callable[[Tensor], Tensor] | None


def find(source: str, wanted: str = "auto") -> Found:
    """The extractor for a source's images: "inception", "cnn", or "auto", Inception if its weights are there.

    Raises UsageError where it is missing or not what its name or its .json says.
    """
    if wanted != "cnn" and (weights := inception()):
        return weights
    if wanted == "inception":
        raise UsageError(
            f"there is no {WEIGHTS} in {sources.folder()}: run `fedrepro extractor inception` to download it, "
            "put it there, or leave watch.extractor at auto."
        )
    return _cnn(source)


def classifier(source: str) -> Found | None:
    """The small classifier of a source, if it is there; it says of what class an image is."""
    return _cnn(source) if paths(source)[1].exists() else None


def inception() -> Found | None:
    """The Inception network, if its weights are in the data folder or the cache; UsageError for another file there."""
    for path in (folder / WEIGHTS for folder in (sources.folder(), sources.CACHE)):
        if path.is_file():
            sha256 = file_digest(path)
            if not sha256.startswith(_checksum()):
                raise UsageError(f"{path} has the wrong checksum: put the file of pytorch-fid's releases there.")
            return Found("inception", sha256, path)
    return None


def make(name: str, say: Callable[[str], None] = lambda line: None) -> Path:
    """The extractor by name: "inception" is downloaded, the small classifier of a source trained. The file written."""
    return fetch() if name == "inception" else train(name, say)


def fetch() -> Path:
    """Download the Inception weights of pytorch-fid's releases into the cache, where they are not at hand.

    They are verified before they have their name. Raises UsageError where they cannot be had.
    """
    from pytorch_fid.inception import FID_WEIGHTS_URL  # slow to import

    if found := inception():
        return found.path
    path = sources.CACHE / WEIGHTS
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with sources.quietly():
            torch.hub.download_url_to_file(FID_WEIGHTS_URL, str(path), hash_prefix=_checksum(), progress=False)
    except (OSError, RuntimeError, HTTPException) as error:
        raise UsageError(
            f"{WEIGHTS} could not be downloaded ({str(error).strip('<>')}): "
            f"put that file of pytorch-fid's releases into {sources.folder()}."
        ) from error
    return path


def _checksum() -> str:
    """How the sha256 of the Inception weights begins."""
    return Path(WEIGHTS).stem.rpartition("-")[2]


def paths(source: str) -> tuple[Path, Path]:
    """Where the weights of a source's small classifier are, and what is said of them."""
    return FOLDER / f"{source}-cnn.safetensors", FOLDER / f"{source}-cnn.json"


def load(found: Found, device: torch.device) -> Extractor:
    """The network of an extractor, on a device."""
    if found.name == "inception":
        from fedrepro.inception import features  # slow to import, and seldom needed

        return Extractor(found, features(found.path, device), None)
    said = json.loads(found.path.with_suffix(".json").read_text(encoding="utf-8"))
    params = nested({name: leaf.to(device) for name, leaf in safetensors.torch.load_file(found.path).items()})
    net = cnn(tuple(said["shape"]), said["classes"])
    of = lambda layer: lambda x: in_parts(lambda part: layer(params, part.to(device)), x)  # noqa: E731
    return Extractor(found, of(net.features), of(net.apply))


def train(source: str, say: Callable[[str], None] = lambda line: None) -> Path:
    """Train the small classifier of a source and write data/extractors/<source>-cnn.{safetensors,json}.

    Seeded, a few epochs of Adam on the training images as they are; its accuracy on the test images is in the .json,
    whose path is returned. Raises UsageError for an unknown source, one without images and missing data.
    """
    if source not in sources.SOURCES:
        raise unknown("source", source, sources.SOURCES)
    raw, epochs = sources.raw(sources.SOURCES[source]), EPOCHS.get(source, OTHERWISE)
    if not raw.classes:
        raise UsageError(f"{source} has no images of classes, which an extractor learns: name a source of images.")
    net = cnn(tuple(images(raw.train_x[:1]).shape[1:]), raw.classes)
    params = trees.stack([net.init(torch_stream(0, 0, 0, "extractor"))])
    rule = optim.adam(LR)
    moments = rule.init(params)
    for epoch in range(epochs):
        order = torch.from_numpy(stream(0, epoch, 0, "extractor batches").permutation(len(raw.train_y)))
        risks = []
        for rows in order.split(BATCH):
            x, y = images(raw.train_x[rows])[None], raw.train_y[rows][None]
            gradient, risk = net.descend(params, x, y, torch.ones_like(y, dtype=torch.bool))
            step, moments = rule.update(gradient, moments)
            params = trees.add(params, step)
            risks.append(risk.item())
        say(f"epoch {epoch + 1} of {epochs}: loss {fmean(risks):.4f}")
    params = trees.one(params, 0)
    return _write(source, params, _accuracy(net, params, raw), epochs, raw)


def images(x: Tensor) -> Tensor:
    """A source's images as [N, C, H, W]: those of one channel have no axis for it."""
    return x[:, None] if x.dim() == 3 else x


def cnn(shape: tuple[int, ...], classes: int) -> Net:
    """The classifier on images [C, H, W]: three 3x3 convolutions with pooling, 128 features, a linear layer "fc2".

    Of 16, 32 and 64 channels on grey images, and of twice as many on others.
    """
    channels, height, width = shape
    return network(lambda: Cnn(channels, height, width, classes), "fc2")


class Cnn(nn.Module):
    """[B, C, H, W] -> [B, classes]. The features are ReLU's output, kept from zero by a small slope.

    With plain ReLU, a feature that is zero for all images would make covariances singular.
    """

    def __init__(self, channels: int, height: int, width: int, classes: int):
        super().__init__()
        first = 16 if channels == 1 else 32
        self.conv1 = nn.Conv2d(channels, first, 3, padding=1)
        self.conv2 = nn.Conv2d(first, 2 * first, 3, padding=1)
        self.conv3 = nn.Conv2d(2 * first, 4 * first, 3, padding=1)
        self.fc1 = nn.Linear(4 * first * (height // 8) * (width // 8), FEATURES)
        self.fc2 = nn.Linear(FEATURES, classes)

    def forward(self, x: Tensor) -> Tensor:
        for convolve in (self.conv1, self.conv2, self.conv3):
            x = F.relu(F.max_pool2d(convolve(x), 2))
        return self.fc2(F.leaky_relu(self.fc1(x.flatten(1)), 0.1))


def fingerprint(source: str) -> str:
    """sha256 of what a source's files are pinned to be, as runs' records have it."""
    return sources.fingerprint(sources.digests(sources.SOURCES[source]))


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


def _accuracy(net: Net, params: State, raw: sources.Raw) -> float | None:
    """On the test images, if the source has any."""
    if not len(raw.test_y):
        return None
    with torch.no_grad():
        return score(in_parts(lambda part: net.apply(params, part), images(raw.test_x)), raw.test_y)[0]


def _write(source: str, params: State, accuracy: float | None, epochs: int, raw: sources.Raw) -> Path:
    """The weights, and then what they are."""
    weights, said = paths(source)
    content = safetensors.torch.save({name: leaf.contiguous() for name, leaf in trees.leaves(params)})
    write_bytes(weights, content)
    return write_json(
        said,
        {
            "source": source,
            "sha256": hashlib.sha256(content).hexdigest(),
            "shape": list(images(raw.train_x[:1]).shape[1:]),
            "classes": raw.classes,
            "features": FEATURES,
            "test_accuracy": accuracy,
            "config": {"epochs": epochs, "batch": BATCH, "lr": LR, "seed": 0},
            "data": fingerprint(source),
            "versions": {"python": platform.python_version()} | {name: version(name) for name in ("torch", "fedrepro")},
        },
    )
