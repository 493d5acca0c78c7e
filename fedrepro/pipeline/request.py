"""A request of the command line as a configuration and a place: defaults or a planned run, then the user's changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from fedrepro import data, methods
from fedrepro.errors import FedreproError, UsageError, short, unknown
from fedrepro.papers.load import load_paper
from fedrepro.pipeline.run import place
from fedrepro.records import paths, record
from fedrepro.records.config import RunConfig, Stop, Watch, first_fault, strictly
from fedrepro.records.record import DIVERGED, Place, Record

JUDGED = Watch(train_every=100, test_every=1000, step_every=100)  # of generators, whose judgement takes long
TESTED = Watch(test_every=1)
SHORT = 100  # rounds, of runs whose default is a test in each
CHANCE = 0.05  # of accuracies: as near to the share of a class
OPTIONS = ("method", "dataset", "precision")


@dataclass(frozen=True)
class Request:
    """A request as typed; None and () where nothing was."""

    method: str | None = None
    dataset: str | None = None
    paper: str | None = None
    run: str | None = None
    budget: str | None = None
    seeds: str | None = None
    sets: tuple[str, ...] = ()
    precision: str | None = None
    out: Path | None = None
    compare: bool = False
    save_model: bool = False


def resolve(request: Request) -> tuple[RunConfig, Place]:
    """The run that is asked for and its place.

    Only a run that is exactly a planned one, at the budget in use or a prepared one, goes to the planned place, and not
    even that where it is to be compared with its record, or its model is to be saved. Everything else is ad hoc and
    goes to `out`, or to a folder named after its method, dataset and settings. UsageError for what does not exist or
    does not fit.
    """
    if (request.paper is None) != (request.run is None):
        raise UsageError("--paper and --run go together: `fedrepro show runs` lists them.")
    if request.paper is None:
        if request.compare:
            raise UsageError("--compare is with the record of a planned run: it needs --paper and --run.")
        if request.budget is not None:
            raise UsageError("--budget is one of a paper's: it needs --paper and --run.")
        config = changed(_defaults(request), request)
        return config, adhoc(config, request.out)
    paper = load_paper(request.paper)
    asked = paper.at(request.budget)
    home = asked if asked.prepared and not request.compare else paper
    planned = home.run(request.run) if request.run in home.drafts else None  # another budget may have more runs
    config = changed(asked.run(request.run), request)
    if request.compare:
        if config != planned:
            raise UsageError("--compare trains a planned run as it is: leave out what changes it.")
        return config, adhoc(config, request.out or paths.ADHOC / f"{request.paper}-{request.run}-again")
    if config == planned and request.out is None and not request.save_model:
        return config, place(home, request.run, config)
    return config, adhoc(config, request.out)


def adhoc(config: RunConfig, out: Path | None = None) -> Place:
    """Where an ad hoc run goes. UsageError where `out` holds the record of another run, which would be lost."""
    place = Place(out or paths.ADHOC / f"{config.method}-{config.dataset}-{config.digest()[:8]}")
    try:
        found = record.read(place.folder)
    except FedreproError:
        return place  # no record, or one that is no use to anybody
    if found.run is not None or found.identity.config != config.digest():
        other = f"the planned run {found.run}" if found.run else "a run with other settings"
        raise UsageError(f"{place.folder} holds the record of {other}: choose another --out.")
    return place


def changed(config: RunConfig, request: Request) -> RunConfig:
    """The configuration with the changes that the request asks for."""
    settings = config.model_dump(mode="json")
    given = {key: getattr(request, key) for key in OPTIONS if getattr(request, key) is not None}
    settings |= given | ({"seeds": seeds(request.seeds)} if request.seeds is not None else {})
    for text in request.sets:
        group, name, value = _setting(settings, text)
        if not group:
            settings[name] = None if (name, value) == ("stop", "none") else value
        elif isinstance(settings[group] or {}, dict):  # else it was given as something else, which is refused below
            settings[group] = (settings[group] or {}) | {name: value}
    try:
        return strictly(RunConfig, settings)
    except ValidationError as error:
        fault = first_fault(error)
        option = re.split("[.:]", fault)[0] in (*OPTIONS, "seeds")
        raise UsageError(f"--{'' if option else 'set '}{fault}") from error


def seeds(text: str) -> list[int]:
    """Seeds from "0,1,2"."""
    if not re.fullmatch(r"[0-9]{1,19}(,[0-9]{1,19})*", text):
        wanted = "takes whole numbers with commas between, such as 0,1,2"
        raise UsageError(f"--seeds {wanted}, and not {short(repr(text))}.")
    return [int(part) for part in text.split(",")]


def enforce(record: Record) -> None:
    """Raise FedreproError where every seed of an ad hoc run diverged; a table shows how a planned one ended."""
    if record.run is None and all(seed.status == DIVERGED for seed in record.seeds.values()):
        rounds = ", ".join(f"seed {seed} in round {ended.rounds}" for seed, ended in record.seeds.items())
        raise FedreproError(f"training diverged ({rounds}): a smaller lr may help.")


def at_chance(record: Record) -> str:
    """A hint for an ad hoc run that ends near chance, or below it, on its test data; else ""."""
    found = [each.metrics["test_accuracy"] for each in record.seeds.values() if "test_accuracy" in each.metrics]
    shares = _shares(record)
    if record.run is not None or not found or not shares or fmean(found) > max(shares) + CHANCE:
        return ""
    chance = f"chance ({max(shares):.1%})"
    if fmean(found) >= min(shares) - CHANCE:
        return f"The test accuracy is hardly above {chance}: more rounds or another lr usually help."
    shown = f"`fedrepro show dataset {record.config.dataset}` says how it differs from the training data"
    return f"The test accuracy is below {chance}, as where the test data mislead: {shown}."


def _shares(record: Record) -> list[float]:
    """The shares of the classes in the test data, as far as the record has them or there are equally many of each."""
    facts = next(iter(record.data.facts.values())).get("test", {})
    if labels := facts.get("labels"):
        counts = [int(each.rpartition(": ")[2]) for each in labels.split(", ")]
        return [count / sum(counts) for count in counts]
    classes = (data.parameters(record.config.dataset) | record.config.data).get("classes", 0)
    return [1 / classes] * classes if classes else []


def parameters(dataset: str, sets: Iterable[str]) -> dict[str, Any]:
    """The data parameters of `--set` for a dataset alone."""
    config = RunConfig.model_construct(method="fedsgd", dataset=dataset, rounds=1)  # any method: only data count
    return changed(config, Request(sets=tuple(f"data.{text.removeprefix('data.')}" for text in sets))).data


def _defaults(request: Request) -> RunConfig:
    if request.method is None:
        raise UsageError("nothing to train: name a --method, or a planned run with --paper and --run.")
    row = methods.find(request.method)
    watch = JUDGED if row.generates else TESTED if row.rounds <= SHORT else Watch()
    known = {"dataset": row.dataset, "rounds": row.rounds, "stop": row.stop, "watch": watch}
    return RunConfig.model_construct(method=request.method, **known)  # checked once changed


def _setting(settings: dict[str, Any], text: str) -> tuple[str, str, Any]:
    """The group ("" of the run's own), name and value of a --set, whose key may be typed without its group."""
    key, sign, typed = text.partition("=")
    if not (key and sign):
        raise UsageError(f"--set takes key=value, such as rounds=50, and not {short(repr(text))}.")
    if key in (*OPTIONS, "seeds"):
        raise UsageError(f"{key} has an option of its own: use --{key} in place of --set {key}.")
    try:
        value = json.loads(typed)
        json.dumps(value, allow_nan=False)
    except json.JSONDecodeError:
        value = typed  # a word
    except (ValueError, RecursionError) as error:
        fault = f"{short(typed)} is not a finite number, a word or a list of these"
        raise UsageError(f"--set {short(key)}: {fault}.") from error
    groups: dict[str, Iterable[str]] = {"": RunConfig.model_fields, "stop": Stop.model_fields}
    groups |= {"watch": Watch.model_fields, "data": data.parameters(settings["dataset"])}
    groups["hyper"] = methods.find(settings["method"]).hyper
    group, dot, name = key.rpartition(".")
    if not dot and name in groups["data"] and name in groups["hyper"]:
        raise UsageError(f"--set {key} is of the method and of the data: write hyper.{key} or data.{key}.")
    bare = {name: each for each in ("data", "hyper", "") for name in groups[each]}
    group = group if dot else bare.get(name)
    if name not in groups.get(group, ()):
        raise unknown("setting", key, {f"{each}.{name}" for each in groups for name in groups[each]} if dot else bare)
    return group, name, value
