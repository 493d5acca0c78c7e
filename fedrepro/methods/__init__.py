"""The registry of methods: a name, the builder of its `Method`, and what an ad hoc run of it does by default.

A package adds a method by an entry point of the group `fedrepro.methods`: a builder, or a `Row` that has defaults for
it (`plugged.py`). Nothing here imports torch; the module of a builder is imported when it is used.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from fedrepro import plugins
from fedrepro.core import parameters
from fedrepro.methods.plugged import KIND, load
from fedrepro.records.config import Stop

if TYPE_CHECKING:
    from fedrepro.core.types import Method, Task


@dataclass(frozen=True)
class Row:
    """A method: `build(task, **hyper)`, whose keyword-only arguments are its hyper-parameters.

    builder:   `build` itself; of a method here "family.function", its module in this package and its name there; of a
               plugin that was found "module:name"
    dataset, rounds, stop: the defaults of an ad hoc run
    generates: whether it learns to make samples, in place of predicting classes
    optimiser: the name of the one that local steps are made with, of a centralized method that of its steps
    network:   the name of its network; where there are such hyper-parameters, `optimiser` and `net` decide
    numerics:  of a plugin, as NUMERICS of the families here
    about:     of a plugin that was found, its summary
    """

    builder: str | Callable[..., Method]
    dataset: str = "mnist"
    rounds: int = 20
    stop: Stop | None = None
    generates: bool = False
    optimiser: str = ""
    network: str = ""
    numerics: int = 0
    about: str = ""

    @property
    def build(self) -> Callable[..., Method]:
        """The builder, imported if need be."""
        if callable(self.builder):
            return self.builder
        if ":" in self.builder:
            return load(self.builder)
        family, _, name = self.builder.partition(".")
        return getattr(import_module(f"{__name__}.{family}"), name)

    @property
    def family(self) -> str:
        """The module of its builder."""
        if callable(self.builder):
            return self.builder.__module__.rpartition(".")[2]
        module, plugged, _ = self.builder.partition(":")
        return module.rpartition(".")[2] if plugged else module.partition(".")[0]

    @property
    def summary(self) -> str:
        """The builder's first line of documentation."""
        if self.about or callable(self.builder):
            return self.about or (inspect.getdoc(self.builder) or "").split("\n")[0]
        family, _, name = self.builder.partition(".")
        return _summaries(family).get(name, "")

    @property
    def hyper(self) -> dict[str, Any]:
        """The hyper-parameters and their defaults."""
        return parameters.defaults(self.build)


@cache
def _summaries(family: str) -> dict[str, str]:
    """The first line of each function's documentation, read without importing the module."""
    tree = ast.parse(Path(__file__).with_name(f"{family}.py").read_text(encoding="utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return {each.name: (ast.get_docstring(each) or "").split("\n")[0] for each in functions}


# Thresholds of the code of IRM Games for two clients; planned runs look for their own in their records.
_F = Stop(threshold=0.60, warm_start=100)
_V = Stop(threshold=0.55, warm_start=117)
_GAME = {"dataset": "colored-mnist", "optimiser": "adam", "network": "mlp"}
_GAN = {"dataset": "gan-mnist", "rounds": 5000, "generates": True, "optimiser": "adam", "network": "gan"}

# Family -> a number that is raised in the commit that changes the numbers of its methods.
NUMERICS = {"federated": 1, "domains": 1, "games": 1, "gans": 1}

REGISTRY: dict[str, Row] = {
    "fedsgd": Row("federated.fedsgd", rounds=1000),
    "fedavg": Row("federated.fedavg"),
    "fedprox": Row("federated.fedprox", optimiser="sgd"),
    "scaffold": Row("federated.scaffold", optimiser="sgd"),
    "fedadam": Row("federated.fedadam", optimiser="sgd"),
    "fedyogi": Row("federated.fedyogi", optimiser="sgd"),
    "fedgma": Row("federated.fedgma", optimiser="sgd"),
    "afl": Row("domains.afl", "rotated-mnist", rounds=20, optimiser="adam"),
    "gen-afl": Row("domains.gen_afl", "rotated-mnist", rounds=20, optimiser="adam"),
    "vm": Row("domains.vm", "rotated-mnist", rounds=20, optimiser="adam"),
    "fed-irm": Row("domains.fed_irm", "rotated-mnist", rounds=10),
    "erm": Row("domains.erm", "rotated-mnist", rounds=1000, optimiser="adam"),
    "groupdro": Row("domains.groupdro", "rotated-mnist", rounds=1000, optimiser="adam"),
    "mm-rex": Row("domains.mm_rex", "rotated-mnist", rounds=1000, optimiser="adam"),
    "v-rex": Row("domains.v_rex", "rotated-mnist", rounds=1000, optimiser="adam"),
    "irm": Row("domains.irm", "rotated-mnist", rounds=1000, optimiser="adam"),
    "f-irm": Row("games.f_irm", rounds=1000, stop=_F, **_GAME),
    "v-irm": Row("games.v_irm", rounds=1000, stop=_V, **_GAME),
    "f-fl-smooth": Row("games.f_fl_smooth", rounds=1000, stop=_F, **_GAME),
    "v-fl-smooth-fast": Row("games.v_fl_smooth_fast", rounds=300, stop=_V, **_GAME),
    "gan-backbone": Row("gans.backbone", **_GAN),
    "md-gan": Row("gans.md_gan", **_GAN),
    "gman": Row("gans.gman", **_GAN),
    "gman-0": Row("gans.gman_0", **_GAN),
    "f2u": Row("gans.f2u", **_GAN),
    "f2a": Row("gans.f2a", **_GAN),
}


# What these hyper-parameters mean leaves no other values; a builder may say otherwise by annotating its own.
LIMITS = dict.fromkeys(("batch", "steps", "capacity", "repeat"), Field(ge=1))
LIMITS |= dict.fromkeys(("hidden", "epochs"), Field(ge=1, le=100_000))  # more would only fill the memory
LIMITS |= dict.fromkeys(("lr", "phi_lr", "server_eps"), Field(gt=0))
LIMITS |= dict.fromkeys(
    ("eps", "cohort", "mu", "server_lr", "gamma", "beta", "eta", "v", "nu", "anneal", "c"), Field(ge=0)
)
LIMITS |= dict.fromkeys(("tau", "threshold"), Field(ge=0, le=1)) | dict.fromkeys(("b1", "b2"), Field(ge=0, lt=1))


def discover() -> tuple[dict[str, Row], dict[str, str]]:
    """All methods, built in and from plugins, and the faults {name: reason} of the plugins that are left out."""
    found, faults = plugins.listed(KIND, REGISTRY)
    return REGISTRY | {name: Row(**fields) for name, fields in found.items()}, faults


@cache
def find(name: str) -> Row:
    """A method by name; UsageError with the closest name, or with the fault of the plugin that has it."""
    return REGISTRY[name] if name in REGISTRY else Row(**plugins.wanted(KIND, REGISTRY, name, "method"))


def numerics(name: str) -> int:
    """The NUMERICS of a method: a run whose record has another one is trained again."""
    row = find(name)
    return NUMERICS[row.family] if name in REGISTRY else row.numerics


def resolved(name: str, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """All hyper-parameters with their values, defaults included, and the names of `network` and `optimiser`.

    The names are the row's where no hyper-parameter decides; a plugin that does not say them has none.
    """
    row = find(name)
    values = row.hyper | hyper
    named = {"network": values.get("net", row.network), "optimiser": row.optimiser}
    return {key: value for key, value in named.items() if value} | values


def build(name: str, task: Task, hyper: Mapping[str, Any]) -> Method:
    """The method on a task.

    Raises UsageError for an unknown hyper-parameter or a value of the wrong type, FedreproError where a plugin fails.
    """
    check(name, hyper)
    row = find(name)
    if name in REGISTRY:
        return row.build(task, **hyper)
    from fedrepro.methods.guard import guarded  # torch

    return guarded(row, task, hyper, f"method {name!r} of {row.builder.partition(':')[0]}")


def check(name: str, hyper: Mapping[str, Any]) -> None:
    """Raise UsageError for an unknown method or hyper-parameter, and for a value of the wrong type."""
    parameters.check(find(name).build, hyper, f"hyper-parameter of {name}", LIMITS)
