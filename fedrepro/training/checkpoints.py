"""Checkpoints: what lets a run go on after any interruption, to the same bits."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from fedrepro.errors import FedreproError
from fedrepro.files import write_bytes
from fedrepro.records.paths import checkpoints
from fedrepro.training.train import Training

DAMAGED = (OSError, ValueError)

Content = tuple[dict[str, Tensor], dict]  # tensors, and notes for JSON


class Checkpoints:
    """The newest two checkpoints of one run, each a file: round-N.checkpoint.

    A line has the sha256 of the rest, a second one the notes as JSON; then come the tensors, as safetensors.
    """

    def __init__(self, folder: Path, identity: dict, say: Callable[[str], None]):
        self.folder, self.identity, self.say = folder, identity, say

    def save(self, training: Training, began: dict) -> int:
        """Write the training's last full round, and return which one it is; `began` is what `resume` returns."""
        tensors, notes = self._content(training, began)
        head = json.dumps(notes).encode() + b"\n"
        # Copies, since a buffer's newest entry may be the predictor itself, and safetensors takes no shared memory.
        copied = lambda leaf: leaf.clone(memory_format=torch.contiguous_format)  # noqa: E731
        body = safetensors.torch.save({name: copied(leaf) for name, leaf in tensors.items()})
        digest = hashlib.sha256(head)
        digest.update(body)
        path = self.folder / f"round-{notes['round']:08d}.checkpoint"
        write_bytes(path, b"".join((digest.hexdigest().encode(), b"\n", head, body)))
        for old in {*self.folder.iterdir()} - {*self.paths()[-2:]}:  # with them, what a killed process was writing
            old.unlink()
        return notes["round"]

    def resume(self, training: Training, began: dict) -> dict:
        """Bring the training to the newest checkpoint that is whole; returns how it began, `began` without any.

        Checkpoints of another identity, set of seeds or version are removed. FedreproError where there are
        checkpoints and none can be read.
        """
        for path in reversed(self.paths()):
            try:
                tensors, notes = self.read(path)
            except DAMAGED:
                self.say(f"{path} is damaged and passed over")
                continue
            mine = names(*self._content(training, began))
            if notes.get("identity") != self.identity or names(tensors, notes) != mine:
                self.say("the checkpoints are of other settings, numerics or data: training from the start")
                self.clear()
                return began
            training.restore(tensors, notes)
            self.say(f"resumed after round {training.round}")
            return notes["began"]
        if self.paths():
            raise FedreproError(f"no checkpoint in {self.folder} can be read: remove that folder to train anew.")
        return began

    def clear(self) -> None:
        """Remove all checkpoints."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def paths(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return checkpoints(self.folder)

    def read(self, path: Path) -> Content:
        """The tensors and notes of a checkpoint; one of DAMAGED where it is not whole."""
        digest, content = path.read_bytes().split(b"\n", 1)
        if hashlib.sha256(content).hexdigest().encode() != digest:
            raise ValueError("wrong checksum")
        head, body = content.split(b"\n", 1)
        return safetensors.torch.load(body), json.loads(head)

    def _content(self, training: Training, began: dict) -> Content:
        tensors, notes = training.snapshot()
        return tensors, {"identity": self.identity, "began": began, **notes}


def names(tensors: dict[str, Tensor], notes: dict) -> tuple:
    """The names of what every checkpoint of a run has; another version may have written others."""
    always = {name for name in tensors if not name.startswith("model.")}
    return always, notes.keys(), notes.get("began", {}).keys(), [lane.keys() for lane in notes.get("lanes", ())]
