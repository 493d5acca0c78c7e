"""Trained models: the part of a seed's state that predicts or generates, saved, loaded and evaluated again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from fedrepro import data, methods
from fedrepro.core import trees
from fedrepro.core.streams import torch_stream
from fedrepro.core.types import Method, State, Task
from fedrepro.data import Federation
from fedrepro.errors import FedreproError, UsageError
from fedrepro.judges.choose import judge
from fedrepro.records import record
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Record

Model = dict[str, Tensor]  # by the dotted names of the state's leaves


def model(method: Method, state: State, x: Tensor) -> Model:
    """The leaves of one seed's state that the method's output on x [N, ...] depends on, on the CPU.

    Found by leaving out one part of the state after another: those without which the output is the same, such as a
    server's optimiser or what clients remember, are no part of the model.
    """
    output = method.generate or method.predict
    whole, kept = output(state, x), state
    for key, part in state.items():
        for inner in part if isinstance(part, dict) else ():
            less = {**kept, key: {name: each for name, each in kept[key].items() if name != inner}}
            kept = less if _same(lambda less=less: output(less, x), whole) else kept
    return {name: leaf.detach().cpu().clone().contiguous() for name, leaf in trees.leaves(kept)}


def _same(output: Callable[[], Tensor], whole: Tensor) -> bool:
    """Whether an output can be computed and is bit for bit another one."""
    try:
        return torch.equal(output(), whole)
    except Exception:  # of the method, or of a plugin: what it raises without a part is its own affair
        return False


def to_bytes(model: Model) -> bytes:
    """A model as safetensors."""
    return safetensors.torch.save(model)


def restored(path: Path, method: Method, seed: int, sizes: tuple[int, ...]) -> State:
    """A state of the method with the model of a file; its other parts are those of round 0.

    Raises FedreproError where the model does not fit the method.
    """
    start = method.init(lambda client, part: torch_stream(seed, 0, client, part), sizes)
    leaves, saved = dict(trees.leaves(start)), safetensors.torch.load_file(path)
    if wrong := [name for name in saved if name not in leaves or leaves[name].shape != saved[name].shape]:
        raise FedreproError(f"{path} has {wrong[0]}, which the method does not have: train the run again.")
    return trees.fill(start, leaves | saved)


def saved(folder: Path, found: Record) -> list[int]:
    """The seeds of a record with a saved model. UsageError where there is none."""
    if not found.models:
        raise UsageError(f"{folder} has no saved model: train the run again with --save-model.")
    return sorted(found.models)


def evaluated(folder: Path, found: Record, dataset: str, params: dict, device: torch.device) -> dict[int, dict]:
    """Seed -> the final metrics of its saved model on a dataset with settings, which may be those of its training.

    On these they are those of the record. UsageError for a record without models, and for a dataset whose
    inputs have another shape, or whose classes are more or fewer.
    """
    config, results = found.config, {}
    other = config.model_copy(update={"dataset": dataset, "data": params})
    for seed in saved(folder, found):
        own = data.load(config.dataset, seed, config.data)
        asked = own if other == config else data.load(dataset, seed, params)
        _fits(config, own, other, asked)
        method = methods.build(config.method, Task(tuple(own.x.shape[1:]), own.classes, own.sizes), config.hyper)
        state = restored(record.model(folder, seed), method, seed, own.sizes)
        state = trees.map_tree(lambda leaf: leaf.to(device), state)
        judged = judge(other, method, asked, seed, device)
        results[seed] = judged.metrics(method, state, judged.tests(method, state))
    return results


def _fits(config: RunConfig, own: Federation, other: RunConfig, asked: Federation) -> None:
    """Raise UsageError where a model trained on one dataset cannot be tested on another."""
    for what, had, has in (
        ("inputs of shape", " x ".join(map(str, own.x.shape[1:])), " x ".join(map(str, asked.x.shape[1:]))),
        ("a number of classes of", own.classes, asked.classes),
    ):
        if had != has:
            raise UsageError(
                f"the model was trained on {config.dataset} with {what} {had}, and {other.dataset} has {has}: "
                "choose a dataset of the same shape and classes."
            )
