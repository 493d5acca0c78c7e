"""The Inception network of 2015 as pytorch-fid has it, with weights that are at hand and verified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F
from pytorch_fid import inception
from torch import Tensor

from fedrepro.nets import pixels

ROWS = 50  # images of 299x299 pixels at once


def features(path: Path, device: torch.device) -> Callable[[Tensor], Tensor]:
    """The function from images uint8 [N, C, H, W], C 1 or 3, to its pool3 features float32 [N, 2048].

    Images are taken to 0..1, a grey channel three times; the network itself brings them to 299x299. `path`: the
    weights, whose checksum the caller has verified.
    """
    weights = torch.load(path, map_location="cpu", weights_only=True)
    # It would download them, and would not look at what it got; the layers that it fills first draw at random.
    given = mock.patch.object(inception, "load_state_dict_from_url", return_value=weights)
    with given, torch.random.fork_rng(devices=[]):
        network = inception.InceptionV3().eval().to(device)

    @torch.no_grad()
    def of(x: Tensor) -> Tensor:
        parts = (pixels(part.to(device)).expand(-1, 3, -1, -1) for part in x.split(ROWS))
        return torch.cat([F.adaptive_avg_pool2d(network(part)[0], 1).flatten(1).cpu() for part in parts])

    return of
