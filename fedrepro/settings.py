"""What the command line asks for as a configuration and a place: defaults or a planned run, then the user's changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedrepro import data, lineage, methods, plan
from fedrepro.config import RunConfig, Stop, Watch
from fedrepro.errors import FedreproError, UsageError, unknown
from fedrepro.evaluate import ADHOC
from fedrepro.runs import Place, planned
from fedrepro.spec import load_paper

JUDGED = Watch(train_every=100, test_every=1000, step_every=100)  # of generators, whose judgement takes long
OPTIONS = ("method", "dataset", "seeds", "precision")


@dataclass(frozen=True)
class Request:
    """What was asked for, as typed; None and () where nothing was."""

    method: str | None = None
    dataset: str | None = None
    paper: str | None = None
    run: str | None = None
    budget: str | None = None
    seeds: str | None = None
    sets: tuple[str, ...] = ()
    precision: str | None = None
    out: Path | None = None


def resolve(request: Request) -> tuple[RunConfig, Place]:
    """The run that is asked for and its place.

    Only a run that is exactly a planned one goes to the planned place; everything else is ad hoc and goes to `out`, or
    to a folder named after its settings. UsageError for what does not exist or does not fit.
    """
    if (request.paper is None) != (request.run is None):
        raise UsageError("--paper and --run go together: `fedrepro show runs` lists them.")
    if request.paper is None:
        if request.budget:
            raise UsageError("--budget is one of a paper's: it needs --paper and --run.")
        config = changed(_defaults(request), request)
        return config, adhoc(config, request.out)
    budget, config = _planned(request.paper, request.run)
    wanted = load_paper(request.paper).run(request.run, request.budget) if request.budget else config
    wanted = changed(wanted, request)
    if wanted == config and request.out is None:
        return config, planned(request.paper, request.run, budget)
    return wanted, adhoc(wanted, request.out)


def adhoc(config: RunConfig, out: Path | None = None) -> Place:
    """Where an ad hoc run goes. UsageError where `out` holds the record of another run, which would be lost."""
    place = Place(out or ADHOC / f"{config.method}-{config.digest()[:8]}")
    try:
        record = json.loads(place.record.read_text(encoding="utf-8"))
        other, planned_run = record["digest"] != config.digest(), record["run"]
    except (OSError, ValueError, KeyError, TypeError):
        return place  # no record, or one that is no use to anybody
    if planned_run is not None:
        raise UsageError(f"{place.folder} holds the record of the planned run {planned_run}: choose another --out.")
    if other:
        raise UsageError(f"{place.folder} holds the record of a run with other settings: choose another --out.")
    return place


def changed(config: RunConfig, request: Request) -> RunConfig:
    """The configuration with the changes that the request asks for."""
    settings = config.model_dump(mode="json")
    typed: dict[str, tuple[str, Any]] = {}  # what was typed for a key: the option and its value
    for option, key, value in _asked(request):
        group, name = _place(settings, option, key)
        typed[f"{group}.{name}" if group else name] = option, value
        if not group:
            settings[name] = None if name == "stop" and value == "none" else value
        elif isinstance(settings[group] or {}, dict):
            settings[group] = (settings[group] or {}) | {name: value}
        else:
            break  # the group itself was given as something else, which is refused below
    try:
        config = RunConfig.model_validate_json(json.dumps(settings), strict=True)
    except ValidationError as error:
        raise UsageError(_fault(error, typed)) from error
    if len(set(config.seeds)) < len(config.seeds):
        raise UsageError("--seeds names a seed twice: leave one out.")
    return config


def _asked(request: Request) -> list[tuple[str, str, Any]]:
    """The changes that a request asks for: the option as typed, its key, and the value."""
    given = {"method": request.method, "dataset": request.dataset, "precision": request.precision}
    pairs = [(f"--{key}", key, value) for key, value in given.items() if value is not None]
    if request.seeds is not None:
        pairs.append(("--seeds", "seeds", seeds(request.seeds)))
    for text in request.sets:
        key, sign, value = text.partition("=")
        if not (key and sign):
            raise UsageError(f"--set takes key=value, such as rounds=50, and not {text!r}.")
        pairs.append((f"--set {key}", key, _value(value)))
    return pairs


def seeds(text: str) -> list[int]:
    """Seeds from "0,1,2"."""
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise UsageError(f"--seeds takes whole numbers with commas between, such as 0,1,2, and not {text!r}.")
    return [int(part) for part in text.split(",")]


def title(config: RunConfig, place: Place) -> str:
    """What is trained, in a few words."""
    seeds = "seed" if len(config.seeds) == 1 else "seeds"
    return f"training {place.run or config.method} on {config.dataset}, {seeds} {', '.join(map(str, config.seeds))}"


def enforce(record: dict) -> None:
    """Raise FedreproError where every seed of an ad hoc run diverged; a table shows how a planned one ended."""
    entries = record["seeds"]
    if record["run"] is None and all(entry["status"] == "diverged" for entry in entries.values()):
        rounds = ", ".join(f"seed {seed} in round {entry['rounds']}" for seed, entry in entries.items())
        raise FedreproError(f"training diverged ({rounds}): a smaller lr may help.")


def parameters(dataset: str, sets: Iterable[str]) -> dict[str, Any]:
    """The data parameters of `--set` for a dataset alone."""
    config = RunConfig(method="", dataset=dataset, rounds=1)
    return changed(config, Request(sets=tuple(f"data.{text.removeprefix('data.')}" for text in sets))).data


def _defaults(request: Request) -> RunConfig:
    if request.method is None:
        raise UsageError("nothing to train: name a --method, or a planned run with --paper and --run.")
    row = methods.find(request.method)
    watch = JUDGED if lineage.generates(request.method) else Watch()
    return RunConfig(method=request.method, dataset=row.dataset, rounds=row.rounds, stop=row.stop, watch=watch)


def _planned(paper: str, run: str) -> tuple[str, RunConfig]:
    """A planned run as in runs.json, which must be what the spec says now: else its record would be refused later."""
    budget, config = plan.planned(paper, run)
    spec = load_paper(paper)
    if (spec.budget, spec.run(run)) != (budget, config):
        raise FedreproError(f"{spec.folder / 'runs.json'} is stale for run {run!r}: run `fedrepro plan` first.")
    return budget, config


def _value(text: str) -> Any:
    """JSON, or else the text itself."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except json.JSONDecodeError:
        return text
    except ValueError as error:
        raise UsageError(f"{text} is not a finite number: --set takes those only.") from error
    return value


def _place(settings: dict[str, Any], option: str, key: str) -> tuple[str, str]:
    """The group ("" of the run's own) and name of a key, which may be typed without its group."""
    if key in OPTIONS and option.startswith("--set"):
        raise UsageError(f"{key} has an option of its own: use --{key} in place of {option}.")
    groups = _groups(settings["method"], settings["dataset"])
    group, _, name = key.rpartition(".")
    if not group and key not in RunConfig.model_fields:
        group = "data" if key in groups["data"] and key not in groups["hyper"] else "hyper"
    if group and (group not in groups or name not in groups[group]):
        dotted = {f"{each}.{name}" for each in groups for name in groups[each]}
        bare = {*RunConfig.model_fields, *groups["hyper"], *groups["data"]}
        raise unknown("setting", key, dotted if "." in key else bare)
    return group, name


def _groups(method: str, dataset: str) -> dict[str, Iterable[str]]:
    """The keys that may stand after a dot."""
    return {
        "stop": Stop.model_fields,
        "watch": Watch.model_fields,
        "hyper": methods.find(method).hyper if method else (),
        "data": data.parameters(dataset),
    }


def _fault(error: ValidationError, typed: dict[str, tuple[str, Any]]) -> str:
    """The first thing that is wrong, by what was typed; a value of a method or dataset fails as each type that it may
    have.
    """
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    if first["type"] == "missing":
        missing, option = ".".join(place), [typed[key][0] for key in typed if key.startswith(place[0])][-1]
        return f"{option} needs {missing}, too: add --set {missing}=VALUE."
    key = next(key for key in (".".join(place[:2]), place[0]) if key in typed)
    if key.startswith(("hyper.", "data.")):
        reason = "it must be a number, a word, true or false, or a list of numbers or of words"
    else:
        reason = ": ".join([*place[1 + key.count(".") :], first["msg"][0].lower() + first["msg"][1:]])
    option, value = typed[key]
    return f"{option} cannot be {json.dumps(value)}: {reason}."
