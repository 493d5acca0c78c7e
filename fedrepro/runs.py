"""Runs on disk: training what a record lacks, the record that proves a run complete, and the lock on both."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import platform
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import filelock
import torch

from fedrepro import fidelity, lift, lineage, methods
from fedrepro.checkpoints import Checkpoints
from fedrepro.config import RunConfig
from fedrepro.curves import curves_text, read_curves
from fedrepro.data import describe, load
from fedrepro.errors import FedreproError, Interrupted, UsageError
from fedrepro.files import file_digest, write_bytes, write_json, write_text
from fedrepro.train import Lane, Training
from fedrepro.types import Task

FORMAT = 1
STATE = Path(".fedrepro/state")
WRITING = 20  # times as long as a checkpoint took to write, training goes on before the next
PACKAGES = ("torch", "torchvision", "numpy", "numba", "fedrepro")


@dataclass(frozen=True)
class Place:
    """Where a run's record and curves go, and what the record says it is."""

    folder: Path
    paper: str | None = None
    run: str | None = None
    budget: str | None = None

    @property
    def record(self) -> Path:
        return self.folder / "record.json"

    @property
    def curves(self) -> Path:
        return self.folder / "curves.csv"

    @property
    def state(self) -> Path:
        """The folder of the run's checkpoints, outside everything that a pipeline removes."""
        if self.paper:
            return STATE / f"{self.paper}--{self.run}"
        return STATE / hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]


def planned(paper: str, run: str, budget: str, root: Path = Path(".")) -> Place:
    """The place of a planned run."""
    return Place(root / "runs" / paper / run, paper, run, budget)


def execute(
    config: RunConfig,
    place: Place,
    *,
    device: str = "auto",
    watch: Callable[[Training], None] = lambda training: None,
    say: Callable[[str], None] = lambda line: None,
    every: float = 60.0,
) -> dict:
    """Train the seeds that the record at `place` lacks, and return the record.

    Seeds of an earlier record are kept if its configuration, code and data are the same; those of an ad hoc run stay in
    it even if they are not asked for again. An interrupted run goes on from its last checkpoint; one is written every
    `every` seconds (0: each round), or as much more rarely as large ones take time. `watch` sees the training after
    each round, `say` gets lines for the user. Raises UsageError for what cannot be run, Interrupted after SIGINT or
    SIGTERM.
    """
    chosen = resolve(device)
    identity = identify(config)
    with locked(place):
        probe(place)
        shown = lineage.samples(config.method, config.dataset)
        kept = kept_seeds(place, identity, config.seeds if place.run else None, shown)
        if place.record.exists() and not kept:
            say("the earlier record is of other code, settings or data, or not whole: all seeds are trained again")
        if kept:
            say(f"kept from the earlier record: seeds {', '.join(map(str, kept))}")
        todo = [seed for seed in config.seeds if seed not in kept]
        if todo:
            training, began = prepare(config, tuple(todo), chosen), {"started": now(), "commit": commit()}
            checkpoints = Checkpoints(place.state, {**identity, "seeds": todo}, say)
            began = checkpoints.resume(training) or began
            run_through(training, checkpoints, began, watch, every)
            kept |= {lane.seed: outcome(lane, config, chosen, began) for lane in training.lanes}
        record = write_record(config, place, identity, kept)
        Checkpoints(place.state, {}, say).clear()
    return record


def prepare(config: RunConfig, seeds: tuple[int, ...], device: torch.device) -> Training:
    """The training of some of a run's seeds, at round 0."""
    lift.keep_freed_memory()
    data = {seed: load(config.dataset, seed, config.data) for seed in seeds}
    first = data[seeds[0]]
    task = Task(tuple(first.x.shape[1:]), first.classes, first.sizes)
    return Training(config, methods.build(config.method, task, config.hyper), data, device)


def identify(config: RunConfig) -> dict:
    """What a seed's numbers depend on: configuration, code, data and what judges images, each as a digest."""
    data = describe(config.dataset)["fingerprint"]  # first, since it knows what datasets there are
    found = extractor(config)
    return {
        "digest": config.digest(),
        "code": lineage.code_digest(config.method),
        "data": data,
        **({"extractor": found.sha256} if found else {}),
    }


def extractor(config: RunConfig) -> fidelity.Found | None:
    """What the images that a run generates are judged by; None of a run that generates none."""
    shown = lineage.samples(config.method, config.dataset) or ""
    return fidelity.extractor(config.dataset, config.watch) if shown.endswith(".png") else None


def resolve(device: str) -> torch.device:
    """The device by name; "auto" is CUDA if there is one. UsageError where CUDA is asked for and missing."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no CUDA device here: use --device cpu, or --device auto.")
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"unknown device {device!r}: there is auto, cpu and cuda.")
    name = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if name == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    return torch.device(name)


def probe(place: Place) -> None:
    """Fail before the training, not after it, where the record cannot be written."""
    write_text(place.folder / ".probe", "").unlink()


@contextlib.contextmanager
def locked(place: Place) -> Iterator[None]:
    """Hold the run's lock; the system frees it when the process ends, however it ends."""
    lock = filelock.FileLock(f"{place.state}.lock", timeout=0)
    try:
        place.state.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout as error:
        raise FedreproError(f"{place.folder} is being trained by another process: wait for it or stop it.") from error
    except OSError as error:
        raise UsageError(f"cannot write {place.state.parent}: {error.strerror}; work in another folder.") from error
    try:
        yield
    finally:
        lock.release()


def run_through(training: Training, checkpoints: Checkpoints, began: dict, watch: Callable, every: float) -> None:
    """Play all rounds, with a checkpoint when one is due and when a signal asks to stop."""
    with signals() as asked:
        saved, wait = time.monotonic(), every
        for _ in training:
            watch(training)
            if asked and training.running:
                checkpoints.save(training, began)
                raise Interrupted(f"stopped after round {training.round}; the same command goes on from there.")
            due = time.monotonic()
            if training.running and due - saved >= wait:
                checkpoints.save(training, began)
                saved = time.monotonic()
                wait = max(every, WRITING * (saved - due)) if every else 0.0


@contextlib.contextmanager
def signals() -> Iterator[list[int]]:
    """Inside the block, SIGINT and SIGTERM are noted in the list that it yields, so that the round can end."""
    asked: list[int] = []
    old = {each: signal.signal(each, lambda number, frame: asked.append(number)) for each in STOPPING}
    if "DVC_STAGE" in os.environ:
        die_with_parent()
    try:
        yield asked
    finally:
        for each, handler in old.items():
            signal.signal(each, handler)


STOPPING = (signal.SIGINT, signal.SIGTERM)


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the pipeline that started this trainer is gone (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def kept_seeds(place: Place, identity: dict, seeds: tuple[int, ...] | None, shown: str | None) -> dict[int, dict]:
    """Results of wanted seeds (None: all) in an earlier record with the same identity: {seed: entry and curve}.

    `shown`: the file of samples, which must be that of the record, too, and of a seed that is still wanted.
    """
    try:
        record = json.loads(place.record.read_text(encoding="utf-8"))
        curves = read_curves(place.curves)
        had = {"digest": record["digest"], "code": record["code"], "data": record["data"]["fingerprint"]}
        had |= {"extractor": record["extractor"]["sha256"]} if "extractor" in record else {}
        same = had == identity
        facts = record["data"]["facts"]
        found = {int(seed): entry for seed, entry in record["seeds"].items()}
        # Of the record's own seeds: a run that was cut off before its record may have left another one's curve.
        text = curves_text({seed: curves[seed] for seed in found})
        whole = hashlib.sha256(text.encode()).hexdigest() == record["curves"]
        whole &= shown is None or file_digest(place.folder / shown) == record["samples"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # no record, or not a whole one: nothing to keep
    if not (same and whole):
        return {}
    wanted = found if seeds is None else found.keys() & set(seeds)
    if shown and first_shown(found) not in wanted:
        return {}
    return {seed: {"entry": found[seed], "curve": curves[seed], "facts": facts[str(seed)]} for seed in wanted}


def outcome(lane: Lane, config: RunConfig, device: torch.device, began: dict) -> dict:
    """What a finished lane leaves: its entry in the record, its curve and its data's facts."""
    entry = {
        "status": lane.status,
        "rounds": lane.rounds,
        "metrics": lane.metrics if lane.status != "diverged" else {},
        "shifted": {shift: found for shift, found in lane.crossed.items() if shift != "+0"},
        "rejected": lane.rejected,
        "seconds": round(lane.seconds, 3),
        "provenance": provenance(config, device, began),
    }
    return {"entry": entry, "curve": lane.curve, "facts": lane.data.facts, "samples": lane.samples}


def provenance(config: RunConfig, device: torch.device, began: dict) -> dict:
    """How, with what and when a seed was trained; `began`: when training started, and the commit then."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    return {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "versions": versions,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {platform.machine()}",
        "threads": torch.get_num_threads(),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "precision": config.precision,
        **began,
        "finished": now(),
    }


def write_record(config: RunConfig, place: Place, identity: dict, results: dict[int, dict]) -> dict:
    """Write curves.csv, the samples of a run that generates, and then, as the proof that all is there, record.json."""
    results = {seed: results[seed] for seed in sorted(results)}
    write_text(place.curves, curves_text({seed: result["curve"] for seed, result in results.items()}))
    described = describe(config.dataset) | {"facts": {str(seed): result["facts"] for seed, result in results.items()}}
    found = extractor(config)
    record = {
        "format": FORMAT,
        "paper": place.paper,
        "run": place.run,
        "budget": place.budget or "ad hoc",
        "config": config.model_dump(mode="json") | {"seeds": list(results)},
        "digest": identity["digest"],
        "code": identity["code"],
        "data": described,
        "curves": file_digest(place.curves),
        **write_samples(config, place, results),
        **({"extractor": {"name": found.name, "sha256": found.sha256}} if found else {}),
        "seeds": {str(seed): result["entry"] for seed, result in results.items()},
    }
    write_json(place.record, record)
    return record


def write_samples(config: RunConfig, place: Place, results: dict[int, dict]) -> dict[str, str]:
    """Write the samples of one seed, unless it was kept with them; the record's entry."""
    shown = lineage.samples(config.method, config.dataset)
    if shown is None:
        return {}
    first = first_shown({seed: result["entry"] for seed, result in results.items()})
    if content := results[first].get("samples"):
        write_bytes(place.folder / shown, content)
    return {"samples": file_digest(place.folder / shown)}


def first_shown(entries: dict[int, dict]) -> int:
    """The seed whose samples a run shows: the first that did not diverge, else the first."""
    return min(entries, key=lambda seed: (entries[seed]["status"] == "diverged", seed))


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def commit() -> str | None:
    """The commit of this package's sources, with "+" where they differ from it; None where they are not in git."""
    asked = ["ls-files", "."], ["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "."]
    try:
        tracked, head, changed = map(_git, asked)
    except (OSError, subprocess.SubprocessError):
        return None
    return head + "+" * bool(changed) if tracked else None


def _git(words: list[str]) -> str:
    """What git says in the folder of this package."""
    done = subprocess.run(
        ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
