"""Randomness by address: every draw comes from a stream named by (seed, round, client, purpose)."""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def stream(seed: int, round: int = 0, client: int = 0, purpose: str = "") -> np.random.Generator:
    """The generator at one address: equal addresses give equal draws, different ones independent draws.

    There is no global state, so a new metric, method or log line moves no other draw.
    """
    address = f"{seed}/{round}/{client}/{purpose}".encode()
    key = np.frombuffer(hashlib.sha256(address).digest()[:16], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def torch_stream(seed: int, round: int = 0, client: int = 0, purpose: str = "") -> torch.Generator:
    """The same address as a torch generator on the CPU, for torch's own initialisers."""
    return torch.Generator().manual_seed(int(stream(seed, round, client, purpose).integers(2**63)))
