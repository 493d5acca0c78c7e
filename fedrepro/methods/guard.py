"""The guard around a plugin's method: what its functions do wrong is an error that names the plugin and the place.

Shapes and dtypes are looked at, values never: a step may run under `torch.vmap`, and looking must cost little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import NonNegativeInt, PositiveInt, ValidationError
from torch import Tensor

from fedrepro.core import trees
from fedrepro.core.types import Batch, Draw, Members, Method, Phase, State, Task
from fedrepro.errors import FedreproError
from fedrepro.plugins import blamed, plain
from fedrepro.records.config import Strict, first_fault

if TYPE_CHECKING:
    from fedrepro.methods import Row

METRIC = re.compile(r"[\w.-]+")  # a name in the file of curves
TAKEN = {"train_accuracy", "train_loss", "generator_loss"}  # curves of the trainer's own


class Wrong(Exception):
    """A fault of a plugin, as the end of a sentence that begins with the name of one of its functions."""


class Wanted(Strict):
    """A `Draw` that batches can be made of; `steps` are its epochs, if it has some."""

    size: PositiveInt | None
    steps: PositiveInt
    chunk: PositiveInt
    clients: Literal["all"] | PositiveInt | tuple[NonNegativeInt, ...]
    noise: tuple[PositiveInt, PositiveInt] | None


def guarded(row: Row, task: Task, hyper: Mapping[str, Any], plugin: str) -> Method:
    """The method that a plugin's row builds, in functions that raise FedreproError; `plugin` names it in a sentence.

    What the plugin itself raises as a FedreproError is passed on.
    """
    guard = lambda where, function, check: _guard(f"{plugin}: {where}", function, check)  # noqa: E731
    built = guard("its builder", row.build, lambda made, *given, **hyper: _method(made, row, task))(task, **hyper)
    phases = [
        replace(phase, step=guard(f"the step of phase {number} of {len(built.phases)}", phase.step, _step))
        for number, phase in enumerate(built.phases, 1)
    ]
    rows = lambda made, state, x: _rows(made, x, (len(x), task.classes))  # noqa: E731
    members = lambda made, state, which, x: _rows(made, x, (len(which), len(x), task.classes))  # noqa: E731
    samples = lambda made, state, z: _rows(made, z, (len(z), *task.shape))  # noqa: E731
    guards = {"predict": rows, "generate": samples, "gradient": lambda made, *given: _kinds(made)}
    own = {name: guard(name, getattr(built, name), check) for name, check in guards.items() if getattr(built, name)}
    if built.members:
        own["members"] = replace(built.members, logits=guard("members.logits", built.members.logits, members))
    return replace(built, init=guard("init", built.init, _init), phases=tuple(phases), **own)


def _guard(where: str, function: Callable, check: Callable) -> Callable:
    """The function, with a check of what it returns, which is also given its arguments."""

    def call(*given: Any, **named: Any) -> Any:
        with blamed(where):
            try:
                made = function(*given, **named)
                check(made, *given, **named)
            except Wrong as fault:
                raise FedreproError(f"{where} {plain(str(fault))}.") from None
        return made

    return call


def _method(made: Any, row: Row, task: Task) -> None:
    if not (isinstance(made, Method) and made.phases and all(isinstance(phase, Phase) for phase in made.phases)):
        raise Wrong(f"returns a {type(made).__name__} where a Method with phases is wanted")
    for number, phase in enumerate(made.phases, 1):
        if fault := _undrawable(phase.draw, task.clients):
            raise Wrong(f"gives phase {number} a draw that cannot be made: {fault}")
    if bool(made.generate) != row.generates or not (made.generate or made.predict):
        raise Wrong(f"returns a Method that has {'no ' * (not made.generate)}generate, and generates={row.generates}")
    if made.generate and not (isinstance(made.noise, int) and made.noise > 0):
        raise Wrong(f"returns a Method that generates from noise of the length {made.noise}")
    if made.members and not _follows(made.members, len(made.phases), task.clients):
        raise Wrong("returns a Method whose members.changed does not name clients for each phase")


def _undrawable(draw: Draw, clients: int) -> str:
    """The fault of a draw from so many clients; "" of one that can be made."""
    fields = {name: getattr(draw, name) for name in Wanted.model_fields}
    try:
        wanted = Wanted(**fields | {"steps": draw.epochs or draw.steps})
    except ValidationError as error:
        return first_fault(error).rstrip(".")
    if wanted.noise and not wanted.size:
        return "noise: it needs a size"
    named = [k + 1 for k in wanted.clients] if isinstance(wanted.clients, tuple) else [wanted.clients]
    wrong = wanted.clients != "all" and not 0 < max(named, default=0) <= clients
    return f"clients: there are {clients}, and it wants {wanted.clients}" if wrong else ""


def _follows(members: Members, phases: int, clients: int) -> bool:
    return len(members.changed) == phases and {k for each in members.changed for k in each} <= {*range(clients)}


def _init(state: Any, streams: Callable, sizes: tuple[int, ...]) -> None:
    _kinds(state)
    if not isinstance(state, dict) or not isinstance(state.get("clients"), dict):
        raise Wrong('returns a state without "clients", a dict of tensors [clients, ...]')
    for name, leaf in trees.leaves(state["clients"], "clients"):
        if list(leaf.shape[:1]) != [len(sizes)]:
            raise Wrong(f"returns {name} as {_words(_kind(leaf))}, whose first axis is not the {len(sizes)} clients")


def _step(made: Any, state: State, batch: Batch) -> None:
    if type(made) is not tuple or len(made) != 2:
        raise Wrong(f"returns a {type(made).__name__} where a pair (state, metrics) is wanted")
    new, metrics = made
    old, new = _kinds(state), _kinds(new)
    if old != new:
        name = next(name for name in {**old, **new} if old.get(name) != new.get(name))
        raise Wrong(f"changes {name} from {_words(old.get(name))} to {_words(new.get(name))}")
    if not isinstance(metrics, dict) or not {"loss", "accepted"} <= metrics.keys():
        raise Wrong("returns metrics without loss and accepted")
    for name, value in metrics.items():
        if not (isinstance(name, str) and METRIC.fullmatch(name)) or name in TAKEN:
            raise Wrong(f"returns a metric with the name {name!r}, which curves cannot have")
        shape = [len(batch.clients)] if name == "accepted" else []
        if not isinstance(value, Tensor) or list(value.shape) != shape or value.is_complex():
            raise Wrong(f"returns {name} as {_words(_kind(value))}, and not as a tensor of the shape {shape}")
    if not metrics["loss"].is_floating_point() or metrics["accepted"].dtype != torch.bool:
        raise Wrong("returns a loss that is no float, or accepted that is not bool")


def _rows(made: Any, x: Tensor, shape: tuple[int, ...]) -> None:
    if not isinstance(made, Tensor) or tuple(made.shape) != shape or not made.is_floating_point():
        raise Wrong(f"returns {_words(_kind(made))}, and not floats of the shape {list(shape)}")
    if made.device != x.device:
        raise Wrong(f"returns a tensor on {made.device} for one on {x.device}")


def _kinds(tree: Any, path: str = "") -> dict[str, tuple]:
    """The kind of each leaf of a state, and of each dict without any, by its dotted name."""
    if isinstance(tree, Tensor):
        if tree.requires_grad:
            raise Wrong(f"returns {path or 'the state'} with its gradient's graph: detach it")
        return {path: _kind(tree)}
    if not isinstance(tree, dict):
        raise Wrong(f"returns {path or 'the state'} as {_words(_kind(tree))}, where states have dicts of tensors alone")
    found = {} if tree else {path: _kind(tree)}
    for key, child in tree.items():
        if not isinstance(key, str):
            raise Wrong(f"returns a state with the key {key!r}, which is no word")
        found |= _kinds(child, f"{path}.{key}" if path else key)
    return found


def _kind(value: Any) -> tuple:
    """Type or dtype, shape and device."""
    if not isinstance(value, Tensor):
        return (type(value),)
    return value.dtype, value.shape, value.device


def _words(kind: tuple | None) -> str:
    if kind is None or len(kind) == 1:
        return "nothing" if kind is None else f"a {kind[0].__name__}"
    dtype, shape, device = kind
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}" + f" on {device}" * (device.type != "cpu")
