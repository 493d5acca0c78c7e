"""Checkpoints: what lets a run go on after any interruption, to the same bits."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from fedrepro.errors import FedreproError
from fedrepro.files import write_bytes, write_text
from fedrepro.training.train import Training

DAMAGED = (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError)


class Checkpoints:
    """The newest two checkpoints of one run: round-N.safetensors, and round-N.json written after it as its proof."""

    def __init__(self, folder: Path, identity: dict, say: Callable[[str], None]):
        self.folder, self.identity, self.say = folder, identity, say

    def save(self, training: Training, began: dict) -> None:
        """Write a checkpoint and remove all but the newest two; `began` is what `resume` returns."""
        tensors, notes = training.snapshot()
        # Copies, since a buffer's newest entry may be the predictor itself, and safetensors takes no shared memory.
        whole = {name: leaf.clone(memory_format=torch.contiguous_format) for name, leaf in tensors.items()}
        content = safetensors.torch.save(whole)
        name = f"round-{training.round:08d}"
        write_bytes(self.folder / f"{name}.safetensors", content)
        proof = {"identity": self.identity, "began": began, "sha256": hashlib.sha256(content).hexdigest()}
        write_text(self.folder / f"{name}.json", json.dumps(proof | notes))
        for old in self.proofs()[:-2]:
            old.unlink()
            old.with_suffix(".safetensors").unlink(missing_ok=True)

    def resume(self, training: Training) -> dict | None:
        """Bring the training to the newest checkpoint that is whole; returns how it began, None without any.

        Checkpoints of another identity or set of seeds are removed. FedreproError where there are
        checkpoints and none can be read.
        """
        proofs = self.proofs()
        for path in reversed(proofs):
            try:
                notes, tensors = self.read(path)
            except DAMAGED:
                self.say(f"{path} is damaged and passed over")
                continue
            if notes["identity"] != self.identity:
                self.say("the checkpoints are of other settings, numerics or data: training from the start")
                self.clear()
                return None
            training.restore(tensors, notes)
            self.say(f"resumed after round {training.round}")
            return notes["began"]
        if proofs:
            raise FedreproError(f"no checkpoint in {self.folder} can be read: remove that folder to train anew.")
        return None

    def clear(self) -> None:
        """Remove all checkpoints."""
        # Proofs first: tensors without one are no checkpoint.
        for path in [*self.proofs(), *self.folder.glob("round-*.safetensors"), *self.folder.glob(".round-*")]:
            path.unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def proofs(self) -> list[Path]:
        """The checkpoints' proofs, oldest first."""
        return sorted(self.folder.glob("round-*.json"))

    def read(self, path: Path) -> tuple[dict, dict[str, Tensor]]:
        """The notes and tensors of a checkpoint, by the path of its proof; one of DAMAGED where it is not whole."""
        notes = json.loads(path.read_text(encoding="utf-8"))
        content = path.with_suffix(".safetensors").read_bytes()
        if hashlib.sha256(content).hexdigest() != notes["sha256"]:
            raise ValueError("wrong checksum")
        return notes, safetensors.torch.load(content)
