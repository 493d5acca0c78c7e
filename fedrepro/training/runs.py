"""One run on disk: training what its record lacks, under a lock, with checkpoints, until a signal asks to stop."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import filelock
import torch

from fedrepro import data, methods
from fedrepro.core import lift
from fedrepro.core.types import Task
from fedrepro.errors import Busy, Interrupted, UsageError, short
from fedrepro.files import PARTS, write_text
from fedrepro.records import record
from fedrepro.records.config import RunConfig
from fedrepro.records.curves import Curve
from fedrepro.records.record import Identity, Place, Record, Seed
from fedrepro.training import memory
from fedrepro.training.checkpoints import Checkpoints
from fedrepro.training.identity import current, extractor, identity, samples
from fedrepro.training.lanes import Lane
from fedrepro.training.models import to_bytes
from fedrepro.training.provenance import beginning, provenance
from fedrepro.training.signals import signals
from fedrepro.training.train import Training

BRIEFLY = 0.5  # seconds that a lock is waited for: `files.held` has it for a moment
WRITING = 20  # times as long as a checkpoint took to write, training goes on before the next


@dataclass(frozen=True)
class Trained:
    """A trained seed: its part of the record, its curve, its data's facts, samples of a generator, a saved model."""

    seed: Seed
    curve: list[Curve]
    facts: dict
    samples: bytes | None = None
    model: bytes | None = None


def execute(
    config: RunConfig,
    place: Place,
    *,
    device: str = "auto",
    watch: Callable[[Training], None] = lambda training: None,
    say: Callable[[str], None] = lambda line: None,
    every: float = 60.0,
    save_model: bool = False,
) -> Record:
    """Train the seeds that the record at `place` lacks, and return the record.

    Seeds of an earlier record are kept if its identity is the same; those of an ad hoc run stay in it even if they are
    not asked for again. An interrupted run goes on from its last checkpoint; one is written every `every` seconds
    (0: each round), or as much more rarely as large ones take time. `watch` sees the training after each round, `say`
    gets lines for the user. With `save_model` seeds without a saved model are trained again. Raises UsageError for what
    cannot be run, Busy where another process trains it, Interrupted after SIGINT or SIGTERM.
    """
    chosen, wanted = resolve(device), identity(config)
    methods.check(config.method, config.hyper)
    data.check(config.dataset, config.data)
    with locked(place):
        probe(place)
        trained = kept(place, config, wanted, save_model)
        if trained:
            say(f"kept from the earlier record: seeds {', '.join(map(str, trained))}")
        elif record.path(place.folder).exists():
            say(f"the earlier record {_unusable(place, wanted, save_model)}: all seeds are trained again")
        todo = [seed for seed in config.seeds if seed not in trained]
        if todo:
            training = prepare(config, tuple(todo), chosen, save_model)
            checkpoints = Checkpoints(place.state, going_on(wanted, todo, save_model), say)
            began = checkpoints.resume(training, beginning(chosen))
            torch.set_num_threads(began["threads"])  # the same sums after an interruption
            run_through(training, checkpoints, began, watch, every)
            trained |= {lane.seed: outcome(lane, config, chosen, began) for lane in training.lanes}
        written = write(config, place, wanted, trained)
        Checkpoints(place.state, {}, say).clear()
    return written


def _unusable(place: Place, wanted: Identity, save_model: bool) -> str:
    """Why no seed of the record at a place is kept."""
    return "has no models" if save_model and current(place, wanted) else "is stale or damaged"


def going_on(wanted: Identity, seeds: list[int], save_model: bool = False) -> dict:
    """The identity of the checkpoints from which a training goes on."""
    return wanted.model_dump() | {"seeds": seeds} | ({"models": True} if save_model else {})


def prepare(config: RunConfig, seeds: tuple[int, ...], device: torch.device, saving: bool = False) -> Training:
    """The training of some of a run's seeds, at round 0."""
    lift.keep_freed_memory()
    first = data.load(config.dataset, seeds[0], config.data)
    task = Task(tuple(first.x.shape[1:]), first.classes, first.sizes)
    method = methods.build(config.method, task, config.hyper)
    memory.enough(method, first, len(seeds))
    federations = {seed: data.load(config.dataset, seed, config.data) for seed in seeds[1:]}
    return Training(config, method, {seeds[0]: first} | federations, device, saving)


def resolve(device: str) -> torch.device:
    """The device by name; "auto" is CUDA if there is one. UsageError where CUDA is asked for and missing."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no CUDA device here: use --device cpu, or --device auto.")
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"unknown device {short(repr(device))}: there is auto, cpu and cuda.")
    name = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if name == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.allow_tf32 = False  # as convolutions in float32 have it by default, with ten bits
    return torch.device(name)


def probe(place: Place) -> None:
    """Fail before the training, not after it, where the record cannot be written; clear what a killed one left."""
    there = next(each for each in (place.folder, *place.folder.parents) if each.exists())
    trial = there / ".probe"  # no folder is made: another process may look through them
    try:
        write_text(trial, "")
    finally:  # a signal may come while it is written
        with contextlib.suppress(OSError):
            trial.unlink()
    for part in place.folder.glob(PARTS):
        part.unlink()


@contextlib.contextmanager
def locked(place: Place) -> Iterator[None]:
    """Hold the run's lock; the system frees it when the process ends, however it ends."""
    lock = filelock.FileLock(place.lock, timeout=BRIEFLY)
    try:
        place.state.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout as error:
        raise Busy(f"{place.folder} is being trained by another process: wait for it or stop it.") from error
    except OSError as error:
        raise UsageError(f"cannot write {place.state.parent}: {error.strerror}; work in another folder.") from error
    try:
        yield
    finally:
        lock.release()


def run_through(training: Training, checkpoints: Checkpoints, began: dict, watch: Callable, every: float) -> None:
    """Play all rounds, with a checkpoint when one is due and when a signal asks to stop."""
    with signals(partial(heard, say=checkpoints.say)) as asked:
        saved, wait = time.monotonic(), every
        try:
            for _ in training:
                watch(training)
                if asked and training.running:
                    raise KeyboardInterrupt
                due = time.monotonic()
                if training.running and due - saved >= wait:
                    checkpoints.save(training, began)
                    saved = time.monotonic()
                    wait = max(every, WRITING * (saved - due)) if every else 0.0
        except KeyboardInterrupt as stop:
            if not asked:
                raise
            with signals(lambda asked: None):  # a signal during the writing does not cost the round
                reached = checkpoints.save(training, began)
            raise Interrupted(f"stopped after round {reached}; the same command goes on from there.") from stop


def heard(asked: list[int], say: Callable[[str], None]) -> None:
    """Answer a signal: after a first one the round ends; a further one raises KeyboardInterrupt in its midst."""
    if len(asked) > 1:
        raise KeyboardInterrupt
    with contextlib.suppress(OSError, SystemExit):  # where nobody can read it any more, the round ends all the same
        say("stopping after this round; a second signal stops at once, without it")


def kept(place: Place, config: RunConfig, wanted: Identity, models: bool = False) -> dict[int, Trained]:
    """The seeds of a current record that need no training: of a planned run those asked for, of another one all.

    None are kept where the samples in the folder are of a seed that is no longer asked for, and with `models` none of
    those asked for that have a result and no saved model.
    """
    found = current(place, wanted)
    if found is None:
        return {}
    seeds = found.seeds.keys() & set(config.seeds) if place.run else set(found.seeds)
    results = {seed for seed in config.seeds if seed in seeds and found.seeds[seed].status != record.DIVERGED}
    seeds -= results - found.models.keys() if models else set()
    if samples(config) and first_shown(found.seeds) not in seeds:
        return {}
    curves = record.curves(place.folder)
    saved = {seed: record.model(place.folder, seed).read_bytes() for seed in found.models}
    shown = {first_shown(found.seeds): file.read_bytes()} if (file := record.samples(place.folder)) else {}
    facts = found.data.facts
    return {
        seed: Trained(found.seeds[seed], curves.get(seed, []), facts[str(seed)], shown.get(seed), saved.get(seed))
        for seed in sorted(seeds)
    }


def outcome(lane: Lane, config: RunConfig, device: torch.device, began: dict) -> Trained:
    """The result of a finished lane."""
    seed = Seed(
        status=lane.status,
        rounds=lane.rounds,
        metrics=lane.metrics if lane.status != record.DIVERGED else {},
        rejected=lane.rejected,
        collapsed=lane.judge.collapsed(lane.curve),
        seconds=round(lane.seconds, 3),
        provenance=provenance(config.precision, device, began),
    )
    model = to_bytes(lane.model) if lane.model and seed.metrics else None
    return Trained(seed, lane.curve, lane.data.facts, lane.samples, model)


def write(config: RunConfig, place: Place, wanted: Identity, trained: dict[int, Trained]) -> Record:
    """Write the record of all seeds, with curves and samples."""
    trained = {seed: trained[seed] for seed in sorted(trained)}
    seeds = {seed: each.seed for seed, each in trained.items()}
    described, found = data.describe(config.dataset), extractor(config)
    described = {key: value for key, value in described.items() if key != "fingerprint"}
    fields = {
        "paper": place.paper,
        "run": place.run,
        "budget": place.budget,
        "config": config.model_copy(update={"seeds": tuple(trained)}),
        "resolved": methods.resolved(config.method, config.hyper),
        "identity": wanted,
        "data": described | {"facts": {str(seed): each.facts for seed, each in trained.items()}},
        "extractor": found.name if found else "",
        "seeds": seeds,
    }
    name = samples(config)
    shown = (name, content) if name and (content := trained[first_shown(seeds)].samples) else None
    models = {seed: each.model for seed, each in trained.items() if each.model}
    return record.write(place.folder, fields, {seed: each.curve for seed, each in trained.items()}, shown, models)


def first_shown(seeds: dict[int, Seed]) -> int:
    """The seed whose samples a run shows: the first that did not diverge, else the first."""
    return min(seeds, key=lambda seed: (seeds[seed].status == record.DIVERGED, seed))
