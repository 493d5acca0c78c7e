"""Pilots: the stopping threshold of a run, from a seed that no table reports (docs/protocol-flgames-2022.md)."""

from __future__ import annotations

import json
from pathlib import Path

import filelock
import numpy as np

from fedrepro import runs
from fedrepro.errors import FedreproError
from fedrepro.files import write_json
from fedrepro.schema import Pilot
from fedrepro.spec import load_paper


def find(paper: str, run: str, root: Path = Path("."), **how) -> dict:
    """Train the pilot of a run and enter what it found in papers/<paper>/pilots.json; `how` as in `runs.execute`.

    The pilot's record and curves go to runs/<paper>/pilots/<run>/. Only its training accuracy is looked at.
    """
    spec = load_paper(paper, root)
    pilot, config = spec.pilot(run), spec.pilot_config(run)
    place = runs.Place(root / "runs" / paper / "pilots" / run, paper, f"pilot-{run}", "pilot")
    ended = runs.execute(config, place, **how)["seeds"][str(pilot.seed)]
    if ended["status"] == "diverged":
        raise FedreproError(f"the pilot of {run} diverged in round {ended['rounds']}: there is no threshold to find.")
    found = threshold(pilot, runs.read_curves(place.curves)[pilot.seed])
    entry = {**found, "seed": pilot.seed, "rounds": config.rounds, "config_digest": config.digest()}
    enter(spec.folder / "pilots.json", run, entry)
    return entry


def threshold(pilot: Pilot, curve: list[runs.Curve]) -> dict[str, float]:
    """lo, hi and the threshold lo + fraction (hi - lo) of a curve's training accuracy after the warm start."""
    accuracies = [value for round, name, value in curve if name == "train_accuracy" and round > pilot.rule.warm_start]
    lo, hi = np.quantile(accuracies, pilot.quantiles)
    found = {"threshold": lo + pilot.fraction * (hi - lo), "lo": lo, "hi": hi}
    return {key: round(float(value), 4) for key, value in found.items()}


def enter(path: Path, run: str, entry: dict) -> None:
    """Set one entry of pilots.json or searches.json, in the order of the runs' names."""
    lock = Path(".fedrepro") / f"{path.stem}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(lock):
        entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        write_json(path, dict(sorted((entries | {run: entry}).items())))
