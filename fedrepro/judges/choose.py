"""The choice of a judge: by classes, or by samples for a method that generates."""

from __future__ import annotations

import torch

from fedrepro.core.types import Method
from fedrepro.data import Federation
from fedrepro.judges.classifier import Classified, Judge
from fedrepro.records.config import RunConfig


def judge(config: RunConfig, method: Method, data: Federation, seed: int, device: torch.device) -> Judge:
    """The judge of a seed's model; of the configuration it reads the dataset and what is watched."""
    if method.generate:
        from fedrepro.judges.generator import Generated  # of no concern to other methods

        return Generated(config, method, data, seed, device)
    return Classified(data, device, config.watch.grad_norm)
