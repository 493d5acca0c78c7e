"""The registry of methods: a name, the builder of its `Method`, and what an ad hoc run of it does by default.

A package adds a method by an entry point of the group `fedrepro.methods`: a builder, or a `Row`
that has defaults for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, get_origin, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from fedrepro import PLUGINS
from fedrepro.config import Stop
from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.methods import domains, federated, games, gans
from fedrepro.types import Method, Task


@dataclass(frozen=True)
class Row:
    """A method: `build(task, **hyper)`, whose keyword-only arguments are its hyper-parameters.

    `dataset`, `rounds` and `stop` are the defaults of an ad hoc run.
    """

    build: Callable[..., Method]
    dataset: str = "colored-mnist"
    rounds: int = 500
    stop: Stop | None = None

    @property
    def summary(self) -> str:
        """The builder's first line of documentation."""
        return (inspect.getdoc(self.build) or "").split("\n")[0]

    @property
    def hyper(self) -> dict[str, Any]:
        """The hyper-parameters and their defaults."""
        arguments = inspect.signature(self.build).parameters.values()
        return {each.name: each.default for each in arguments if each.kind is each.KEYWORD_ONLY}


# Thresholds of the code of IRM Games for two clients; planned runs find their own by a pilot.
_F = Stop(threshold=0.60, warm_start=100)
_V = Stop(threshold=0.55, warm_start=117)

REGISTRY: dict[str, Row] = {
    "fedsgd": Row(federated.fedsgd, rounds=500),
    "fedavg": Row(federated.fedavg, rounds=10),
    "fedprox": Row(federated.fedprox, "mnist", rounds=10),
    "scaffold": Row(federated.scaffold, "mnist", rounds=10),
    "fedadam": Row(federated.fedadam, "mnist", rounds=10),
    "fedyogi": Row(federated.fedyogi, "mnist", rounds=10),
    "fedgma": Row(federated.fedgma, "fedgma-colored", rounds=20),
    "afl": Row(domains.afl, "rotated-mnist", rounds=20),
    "gen-afl": Row(domains.gen_afl, "rotated-mnist", rounds=20),
    "vm": Row(domains.vm, "rotated-mnist", rounds=20),
    "fed-irm": Row(domains.fed_irm, "rotated-mnist", rounds=10),
    "erm": Row(domains.erm, "rotated-mnist", rounds=1000),
    "groupdro": Row(domains.groupdro, "rotated-mnist", rounds=1000),
    "mm-rex": Row(domains.mm_rex, "rotated-mnist", rounds=1000),
    "v-rex": Row(domains.v_rex, "rotated-mnist", rounds=1000),
    "irm": Row(domains.irm, "rotated-mnist", rounds=1000),
    "f-irm": Row(games.f_irm, rounds=1000, stop=_F),
    "v-irm": Row(games.v_irm, rounds=1000, stop=_V),
    "f-fl-smooth": Row(games.f_fl_smooth, rounds=1000, stop=_F),
    "v-fl-smooth-fast": Row(games.v_fl_smooth_fast, rounds=300, stop=_V),
    "gan-backbone": Row(gans.backbone, "gan-mnist", rounds=5000),
    "md-gan": Row(gans.md_gan, "gan-mnist", rounds=5000),
    "gman": Row(gans.gman, "gan-mnist", rounds=5000),
    "gman-0": Row(gans.gman_0, "gan-mnist", rounds=5000),
    "f2u": Row(gans.f2u, "gan-mnist", rounds=5000),
    "f2a": Row(gans.f2a, "gan-mnist", rounds=5000),
}


# What these hyper-parameters mean leaves no other values; a builder may say otherwise by annotating its own.
LIMITS = dict.fromkeys(("batch", "steps", "capacity"), Field(ge=1))
LIMITS |= dict.fromkeys(("hidden", "epochs"), Field(ge=1, le=100_000))  # more would only fill the memory
LIMITS |= dict.fromkeys(("lr", "phi_lr", "server_eps"), Field(gt=0))
LIMITS |= dict.fromkeys(
    ("eps", "cohort", "mu", "server_lr", "gamma", "beta", "eta", "v", "nu", "anneal", "c"), Field(ge=0)
)
LIMITS |= dict.fromkeys(("tau", "threshold"), Field(ge=0, le=1)) | dict.fromkeys(("b1", "b2"), Field(ge=0, lt=1))


@cache
def discover() -> tuple[dict[str, Row], dict[str, str]]:
    """All methods, built in and from plugins, and the faults {name: reason} of the plugins that were left out."""
    rows, faults = dict(REGISTRY), {}
    try:
        points = sorted(entry_points(group=PLUGINS), key=lambda point: (point.name, point.value))
    except Exception as error:  # the metadata of some package are damaged
        return rows, {"of plugins": f"no plugin can be found: {type(error).__name__}: {error}"}
    for point in points:
        origin = f"{point.value} of {point.dist.name}" if point.dist else point.value
        try:
            found = point.load()
        except (Exception, SystemExit) as error:  # a plugin may fail in any way, and must stop nothing
            faults[point.name] = f"{origin} cannot be loaded: {type(error).__name__}: {error}"
            continue
        if point.name in rows:
            faults[point.name] = f"{origin} is left out: the name is taken"
        elif isinstance(found, Row) or callable(found):
            rows[point.name] = found if isinstance(found, Row) else Row(found)
        else:
            faults[point.name] = f"{origin} is a {type(found).__name__}, not a builder of a method"
    return rows, faults


def find(name: str) -> Row:
    """A method by name; UsageError with the closest name, or with the fault of the plugin that has it."""
    rows, faults = discover()
    if name not in rows and name in faults:
        raise UsageError(f"method {name!r} is broken: {faults[name]}.")
    if name not in rows:
        raise unknown("method", name, rows)
    return rows[name]


def build(name: str, task: Task, hyper: dict[str, Any]) -> Method:
    """The method on a task.

    Raises UsageError for an unknown hyper-parameter or a value of the wrong type, FedreproError where a plugin fails.
    """
    check(name, hyper)
    row = find(name)
    if name in REGISTRY:
        return row.build(task, **hyper)
    try:
        built = row.build(task, **hyper)
    except FedreproError:
        raise
    except Exception as error:
        raise FedreproError(f"{_plugin(name)} cannot be built: {type(error).__name__}: {error}.") from error
    if not (isinstance(built, Method) and built.phases):
        raise FedreproError(
            f"{_plugin(name)} is built as a {type(built).__name__}: its builder must return a Method with phases."
        )
    return built


def check(name: str, hyper: dict[str, Any]) -> None:
    """Raise UsageError for an unknown method or hyper-parameter, and for a value of the wrong type."""
    row = find(name)
    try:
        types = get_type_hints(row.build, include_extras=True)
    except (NameError, TypeError) as error:
        raise FedreproError(f"{_plugin(name)} has types that cannot be read: {error}.") from error
    for key, value in hyper.items():
        if key not in row.hyper:
            raise unknown(f"hyper-parameter of {name}", key, row.hyper)
        allowed = types.get(key, Any)
        if get_origin(allowed) is not Annotated:
            allowed = Annotated[allowed, LIMITS.get(key)]
        try:
            TypeAdapter(allowed).validate_python(value, strict=True)
        except ValidationError as error:
            wanted = error.errors()[0]["msg"].lower()
            raise UsageError(f"hyper-parameter {key!r} of {name} cannot be {value!r}: {wanted}.") from error


def _plugin(name: str) -> str:
    return f"method {name!r} of {find(name).build.__module__}"
