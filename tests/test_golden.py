"""Short runs and federations against stored numbers: numbers move only in a commit that raises their NUMERICS.

Every method, every network in both precisions, and every module of builders of federations has an entry in
tests/golden/numbers.json, which also has the NUMERICS that it was written with. After a change that is meant to move
numbers, raise what they belong to, and `python tests/test_golden.py` writes the file anew; it refuses where numbers
moved and their NUMERICS did not.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
import torch
from conftest import GANS, VARIANTS

from fedrepro import data, methods
from fedrepro.core import trees
from fedrepro.core.precision import PRECISIONS, products
from fedrepro.core.streams import torch_stream
from fedrepro.core.types import Task
from fedrepro.data.draws import Feeder
from fedrepro.nets.choose import Nets
from fedrepro.records.config import RunConfig
from fedrepro.training.identity import ENGINE
from fedrepro.training.train import Training

STORED = Path(__file__).parent / "golden" / "numbers.json"
WRITE = "write the stored numbers anew with `python tests/test_golden.py`"
CPU = torch.device("cpu")


def numerics() -> dict:
    """What the code of today says of its numbers: {part: {name: integer}}."""
    return {"engine": {"engine": ENGINE}, "methods": dict(methods.NUMERICS), "data": dict(data.NUMERICS)}


# What is measured


def few(federation: data.Federation, rows: int, tests: int) -> data.Federation:
    """The first rows of each client and of each test."""
    own = [each[:rows] for each in torch.arange(len(federation.y)).split(federation.sizes)]
    chosen, sizes = torch.cat(own), tuple(map(len, own))
    shown = {name: (x[:tests], y[:tests]) for name, (x, y) in federation.tests.items()}
    return replace(federation, x=federation.x[chosen], y=federation.y[chosen], sizes=sizes, tests=shown)


def norms(state: dict) -> dict:
    return {leaf: float(f"{values.double().norm().item():.9g}") for leaf, values in trees.leaves(state)}


def trained(
    name: str, hyper: dict, dataset: str, params: dict | None = None, rows: int = 0, rounds: int = 7, **settings
) -> dict:
    """A run of one seed of a method that predicts, on all or some rows: losses by round, metrics, norms of tensors."""
    federation = data.load(dataset, 0, params or {})
    federation = few(federation, rows, rows) if rows else federation
    task = Task(tuple(federation.x.shape[1:]), federation.classes, federation.sizes)
    watch = {"samples": 200, "test_every": rounds}
    config = RunConfig(method=name, dataset=dataset, hyper=hyper, rounds=rounds, watch=watch, **settings)
    run = Training(config, methods.build(name, task, hyper), {0: federation}, CPU)
    for _ in run:
        pass
    losses = [value for _, metric, value in run.lanes[0].curve if metric == "train_loss"]
    return {"losses": losses, "metrics": {} if rows else run.lanes[0].metrics, "norms": norms(run.state)}


def generated(name: str, hyper: dict, federation: Callable[[], data.Federation], rounds: int, precision: str) -> dict:
    """Iterations of a method that generates: losses of each, norms of all tensors, and of samples."""
    made = federation()
    method = methods.build(name, Task(tuple(made.x.shape[1:]), 10, made.sizes), hyper)
    state = method.init(lambda client, purpose: torch_stream(0, 0, client, purpose), made.sizes)
    feeder, losses = Feeder(0, made.x, made.y, made.sizes), []
    for turn in range(rounds):
        phase = method.phases[turn % len(method.phases)]
        with products("cpu", precision):
            state, shown = phase.step(state, feeder.draw(phase.draw, turn))
        losses.append([shown["loss"].item(), shown["critic_loss"].item()])
    samples = method.generate(state, torch.randn(4, method.noise, generator=torch_stream(0)))
    return {"losses": losses, "norms": norms(state), "samples": samples.double().norm().item()}


def blots(sizes: tuple[int, ...]) -> data.Federation:
    """Random colour images, for the GAN of 3x32x32."""
    x = torch.randint(0, 256, (sum(sizes), 3, 32, 32), generator=torch_stream(0), dtype=torch.uint8)
    return data.Federation(x, torch.zeros(len(x), dtype=torch.int64), sizes, {}, 10, {})


# Between two kinds of processors a turned image differs by one grey level, in 24 of a million pixels.
TURNED = ("fedrotmnist-digits", "rotated-mnist-digits")


def dealt(dataset: str, params: dict) -> dict:
    """A federation's sizes, and sha256 of its training rows and of its tests, with their labels.

    In place of turned images their product with random numbers, all positive, which a few grey levels hardly move.
    """
    federation, found, near = data.load(dataset, 0, params), {}, {}
    for name, (x, y) in {"rows": (federation.x, federation.y), **federation.tests}.items():
        if dataset in TURNED:
            random = torch.rand(x.numel(), generator=torch_stream(0), dtype=torch.float64)
            near[name], pixels = (x.flatten().double() @ random).item(), b""
        else:
            pixels = x.contiguous().numpy().tobytes()
        content = f"{tuple(x.shape)} {x.dtype}".encode() + pixels + y.numpy().tobytes()
        found[name] = hashlib.sha256(content).hexdigest()
    return {"sizes": list(federation.sizes), "digests": found} | ({"near": near} if near else {})


@dataclass(frozen=True)
class Case:
    """An entry: how it is measured, which NUMERICS it belongs to [(part, name)], how near two machines come."""

    measure: Callable[[], dict]
    owners: tuple[tuple[str, str], ...]
    rel: float = 1e-4


def case(measure: Callable, method: str = "", dataset: str = "", rel: float = 1e-4) -> Case:
    owners = [("methods", methods.find(method).family)] if method else []
    owners += [("data", module(dataset))] if dataset else []
    return Case(measure, (("engine", "engine"), *owners), rel)


def module(dataset: str) -> str:
    """The module of the builder of a dataset, as NUMERICS has it."""
    build = data.DATASETS[dataset].build
    return getattr(build, "func", build).__module__.rpartition(".")[2]


def cases() -> dict[str, Case]:
    return {**of_methods(), **of_networks(), **of_gans(), **of_federations()}


HYPER = {"batch": 16, "hidden": 6, "lr": 0.01, "phi_lr": 0.005, "capacity": 2, "epochs": 1}
HYPER |= {"net": "mlp", "optimiser": "adam"}
# Many small steps of a fresh Adam would let rounding decide what the risks that weigh clients make large.
SMOOTH = {"lr": 0.001, "eps": 1e-3}
ROUGH = ("afl", "f-fl-smooth", "fed-irm", "fedavg", "gen-afl", "mm-rex", "vm")
OWN = dict.fromkeys(ROUGH, SMOOTH) | {"fedyogi": {"net": "cnn"}}


def of_methods() -> dict[str, Case]:
    """Seven rounds of every method that predicts."""
    found = {}
    for name, hyper in VARIANTS:
        if name in methods.REGISTRY:
            fitting = {key: value for key, value in HYPER.items() if key in methods.find(name).hyper}
            measure = partial(trained, name, fitting | hyper | OWN.get(name, {}), "digits")
            found["-".join([name, *hyper.values()])] = case(measure, name, "digits")
    turned = {"augmentation": "rotation", "degrees": 15}
    hyper = {"net": "mlp", "lr": 0.05, "batch": 8, "hidden": 6}
    measure = partial(trained, "fedavg", hyper, "rotated-mnist-digits", turned, rows=24, rounds=2)
    return found | {"fedavg augmented": case(measure, "fedavg", "rotated-mnist-digits")}


# In bfloat16 another order of sums is another rounding of the products, to 0.4% each; a second moment is their square.
NEAR = {"fp32": 1e-4, "bf16": 2e-2}
# Gradients of ResNet-18 and of the GAN of 32x32 are sums that nearly cancel: as measured between a processor's vectors
# and none, 3% in bfloat16, and 0.4% of the GAN's in float32.
CANCELLING = {"resnet18 bf16": 0.1, "gan 32x32 fp32": 2e-2, "gan 32x32 bf16": 0.1}


def of_networks() -> dict[str, Case]:
    """Two rounds of FedAVG on a few rows by every network that a method chooses from, in both precisions."""
    found = {}
    for net in get_args(Nets):
        large = net == "resnet18"
        dataset = "fedcmnist-digits" if large else "digits"  # of three channels
        hyper = {"net": net, "optimiser": "sgd", "lr": 0.02, "batch": 2 if large else 8}
        size = {"params": {"n": 2, "partition": "iid"}, "rows": 2, "rounds": 1} if large else {"rows": 16, "rounds": 2}
        for precision in PRECISIONS:
            measure = partial(trained, "fedavg", hyper, dataset, precision=precision, **size)
            label = f"{net} {precision}"
            found[label] = case(measure, "fedavg", dataset, CANCELLING.get(label, NEAR[precision]))
    return found


def of_gans() -> dict[str, Case]:
    """Three iterations of every GAN on points, and one of every pair of networks in both precisions."""
    found, few_steps = {}, {"batch": 4, "lr": 0.01, "eps": 1e-3}
    for label, (name, hyper) in GANS.items():
        params = {"overlap": "pooled"} if name == "gan-backbone" else {}
        points = partial(data.load, "mixture-2d", 0, params)
        measure = partial(generated, name, few_steps | hyper, points, 3, "fp32")
        found[label] = case(measure, name, "mixture-2d")
    digits = lambda: few(data.load("gan-digits", 0, {}), 8, 0)  # noqa: E731
    pairs = {"points": partial(data.load, "mixture-1d", 0, {}), "28x28": digits, "32x32": partial(blots, (8, 8))}
    for pair, federation in pairs.items():
        for precision in PRECISIONS:
            measure = partial(generated, "f2a", few_steps, federation, 1, precision)
            dataset, label = {"points": "mixture-1d", "28x28": "gan-digits"}.get(pair, ""), f"gan {pair} {precision}"
            found[label] = case(measure, "f2a", dataset, CANCELLING.get(label, NEAR[precision]))
    return found


def of_federations() -> dict[str, Case]:
    """Every dataset that needs no files, and every partition of rows."""
    settings = [(name, {}) for name, row in data.DATASETS.items() if row.source in ("digits", "drawn")]
    settings += [("digits-plain", {"partition": how, "n": 7}) for how in ("iid", "shards", "dirichlet")]
    settings += [("digits-plain", {"partition": "dirichlet-size", "n": 7, "alpha": 2.0, "validation": 0.1})]
    settings += [("gan-digits", {"overlap": "mod"}), ("gan-digits", {"overlap": "full", "overlap_mode": "copy"})]
    return {
        " ".join(["data", name, *map(str, params.values())]): case(partial(dealt, name, params), "", name)
        for name, params in settings
    }


CASES = cases()


# Held against what is stored


def same(got: object, wanted: object, rel: float) -> bool:
    """Whether two measurements agree: other processors round otherwise, so an accuracy moves by a row or two."""
    if isinstance(wanted, dict):
        return got.keys() == wanted.keys() and all(
            abs(got[key] - value) <= 0.004 if key.endswith("accuracy") else same(got[key], value, rel)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(same(a, b, rel) for a, b in zip(got, wanted, strict=True))
    return got == pytest.approx(wanted, rel=rel, abs=1e-9) if isinstance(wanted, float) else got == wanted


def fault(label: str, case: Case, got: dict, stored: dict, today: dict) -> str:
    """The sentence on an entry that is not as it was stored; empty if it is."""
    if label not in stored["numbers"]:
        return f"{label} has no stored numbers: {WRITE}."
    if same(got, stored["numbers"][label], case.rel):
        return ""
    raised = [owner for owner in case.owners if today[owner[0]][owner[1]] != stored["numerics"][owner[0]].get(owner[1])]
    if raised:
        return f"the numbers of {label} moved, and so did NUMERICS: {WRITE}."
    owners = " or ".join(f"{name} ({part})" for part, name in case.owners)
    return f"the numbers of {label} moved: if they are meant to, raise NUMERICS of {owners}, and {WRITE}."


@pytest.fixture(scope="module")
def stored():
    return json.loads(STORED.read_text())


def test_the_stored_numbers_are_of_todays_numerics(stored):
    assert stored["numerics"] == numerics(), f"NUMERICS moved: {WRITE}."


def test_there_are_stored_numbers_for_every_case_and_no_others(stored):
    assert set(stored["numbers"]) == set(CASES), f"the cases are others: {WRITE}."


@pytest.mark.parametrize("label", CASES)
def test_the_numbers_are_the_stored_ones(stored, label):
    got = CASES[label].measure()
    assert not fault(label, CASES[label], got, stored, numerics())
    if label.endswith("bf16"):  # else half precision could be lost within what two machines differ by
        assert not same(got, stored["numbers"][label.replace("bf16", "fp32")], 1e-6)


def test_all_methods_networks_and_builders_are_covered():
    owners = {owner for each in CASES.values() for owner in each.owners}
    assert owners == {(part, name) for part, names in numerics().items() for name in names}
    assert {name for name, _ in (*VARIANTS, *GANS.values())} >= set(methods.REGISTRY)


CASE = Case(dict, (("engine", "engine"), ("methods", "games")))
WAS = {"numerics": {"engine": {"engine": 1}, "methods": {"games": 3}}, "numbers": {"a": {"loss": [1.0], "digest": "x"}}}


@pytest.mark.parametrize(
    ("label", "got", "today", "says"),
    [
        ("a", {"loss": [1.00001], "digest": "x"}, 3, ""),
        ("a", {"loss": [1.001], "digest": "x"}, 3, "if they are meant to, raise NUMERICS of engine (engine) or games"),
        ("a", {"loss": [1.0], "digest": "y"}, 3, "if they are meant to, raise NUMERICS of"),
        ("a", {"loss": [1.0, 1.0], "digest": "x"}, 3, "if they are meant to, raise NUMERICS of"),
        ("a", {"loss": [1.001], "digest": "x"}, 4, "moved, and so did NUMERICS: write the stored numbers anew"),
        ("b", {}, 3, "b has no stored numbers: write the stored numbers anew"),
    ],
)
def test_a_number_that_moved_says_what_to_do(label, got, today, says):
    found = fault(label, CASE, got, WAS, {"engine": {"engine": 1}, "methods": {"games": today}})
    assert says in found
    assert bool(found) == bool(says)


def write() -> None:
    """Write the file anew, unless numbers moved whose NUMERICS did not."""
    torch.set_num_threads(1)
    content = {"numerics": numerics(), "numbers": {label: each.measure() for label, each in CASES.items()}}
    old = json.loads(STORED.read_text()) if STORED.exists() else {"numerics": {}, "numbers": {}}
    kept = [label for label in CASES if label in old["numbers"]]
    faults = [fault(label, CASES[label], content["numbers"][label], old, numerics()) for label in kept]
    if refused := [each for each in faults if "raise NUMERICS" in each]:
        sys.exit("\n".join(refused))
    STORED.write_text(json.dumps(content, indent=1) + "\n")
    print(f"wrote {STORED}")


if __name__ == "__main__":
    write()
