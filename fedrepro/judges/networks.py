"""The networks of extractors: Inception and the small classifier of a source, which is trained here.

The classifier learns the source's own training images, once and from a fixed seed, so that its bytes are the same for
all methods.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from unittest import mock

import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedrepro import data
from fedrepro.core import optim, trees
from fedrepro.core.streams import stream, torch_stream
from fedrepro.core.types import Net, State
from fedrepro.data import sources
from fedrepro.errors import UsageError
from fedrepro.files import sha256, write_bytes, write_json
from fedrepro.judges.extractors import Found, fetch, fingerprint, paths
from fedrepro.judges.scoring import in_parts, score
from fedrepro.nets.mlp import pixels
from fedrepro.nets.modules import nested, network

INCEPTION_ROWS = 50  # images of 299x299 pixels at once
FEATURES = 128
BATCH, LR = 128, 1e-3
EPOCHS = {"digits": 20, "mnist": 3, "fashion-mnist": 3}  # of colour pictures OTHERWISE
OTHERWISE = 10


@dataclass(frozen=True)
class Extractor:
    """A network that is loaded.

    features: uint8 [N, C, H, W] -> float32 [N, F]; logits: the same images -> [N, classes], None where it is no
    classifier of the source's classes.
    """

    found: Found
    features: Callable[[Tensor], Tensor]
    logits: Callable[[Tensor], Tensor] | None


def load(found: Found, device: torch.device) -> Extractor:
    """The network of an extractor, on a device."""
    if found.name == "inception":
        return Extractor(found, _inception(found.path, device), None)
    said = json.loads(found.path.with_suffix(".json").read_text(encoding="utf-8"))
    params = nested({name: leaf.to(device) for name, leaf in safetensors.torch.load_file(found.path).items()})
    net = cnn(tuple(said["shape"]), said["classes"])
    of = lambda layer: lambda x: in_parts(lambda part: layer(params, part.to(device)), x)  # noqa: E731
    return Extractor(found, of(net.features), of(net.apply))


def _inception(path: Path, device: torch.device) -> Callable[[Tensor], Tensor]:
    """The function from images uint8 [N, C, H, W], C 1 or 3, to pool3 features float32 [N, 2048] of Inception.

    It is the network of 2015 as pytorch-fid has it. Images are taken to 0..1, a grey channel three times; the network
    itself brings them to 299x299. `path`: the weights, whose checksum the caller has verified.
    """
    from pytorch_fid import inception  # slow to import, and seldom needed

    weights = torch.load(path, map_location="cpu", weights_only=True)
    # It would download them, and would not look at what it got; the layers that it fills first draw at random.
    given = mock.patch.object(inception, "load_state_dict_from_url", return_value=weights)
    with given, torch.random.fork_rng(devices=[]):
        network = inception.InceptionV3().eval().to(device)

    @torch.no_grad()
    def of(x: Tensor) -> Tensor:
        parts = (pixels(part.to(device)).expand(-1, 3, -1, -1) for part in x.split(INCEPTION_ROWS))
        return torch.cat([F.adaptive_avg_pool2d(network(part)[0], 1).flatten(1).cpu() for part in parts])

    return of


def make(name: str, say: Callable[[str], None] = lambda line: None) -> Path:
    """The extractor by name: "inception" is downloaded, the small classifier of a source trained. The file written."""
    return fetch() if name == "inception" else train(name, say)


def train(source: str, say: Callable[[str], None] = lambda line: None) -> Path:
    """Train the small classifier of a source and write data/extractors/<source>-cnn.{safetensors,json}.

    Seeded, a few epochs of Adam on the training images as they are; its accuracy on the test images is in the .json,
    whose path is returned. Raises UsageError for an unknown source, one without images and missing data.
    """
    found = data.source(source, "source")
    source = found.name
    raw, epochs = sources.raw(found), EPOCHS.get(source, OTHERWISE)
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
    return _write(source, net, trees.one(params, 0), raw)


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


def _write(source: str, net: Net, params: State, raw: sources.Raw) -> Path:
    """The weights, and then what they are, with the accuracy on the test images if the source has any."""
    weights, said = paths(source)
    content = safetensors.torch.save({name: leaf.contiguous() for name, leaf in trees.leaves(params)})
    write_bytes(weights, content)
    with torch.no_grad():
        logits = in_parts(lambda part: net.apply(params, part), images(raw.test_x)) if len(raw.test_y) else None
    found = {
        "source": source,
        "sha256": sha256(content),
        "shape": list(images(raw.train_x[:1]).shape[1:]),
        "classes": raw.classes,
        "features": FEATURES,
        "test_accuracy": None if logits is None else score(logits, raw.test_y)[0],
        "config": {"epochs": EPOCHS.get(source, OTHERWISE), "batch": BATCH, "lr": LR, "seed": 0},
        "data": fingerprint(source),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in ("torch", "fedrepro")},
    }
    return write_json(said, found)
