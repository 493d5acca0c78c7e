"""The registry, the methods that other packages add, and what a record says of a method."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedrepro import methods, plugins
from fedrepro.core import trees
from fedrepro.core.types import Task
from fedrepro.errors import FedreproError, UsageError
from fedrepro.records.config import RunConfig
from fedrepro.training import runs

TASK = Task((2, 28, 28), 3, (12, 8))

PLUGIN = '''
"""Methods of another package."""

from fedrepro.core import optim
from fedrepro.core.types import Draw, Method, Task
from fedrepro.methods import Row
from fedrepro.methods.federated import Recipe, federated
from fedrepro.methods.parts import average
from fedrepro.nets.choose import shared_mlp


def plain(task: Task, *, lr: float = 0.1, batch: int = 16, hidden: int = 4) -> Method:
    """Plain: gradient descent."""
    server = average(optim.sgd(lr))  # a step
    return federated(shared_mlp(task, hidden), Recipe(Draw(size=batch), client=optim.sgd(1.0), server=server))


row = Row(plain, dataset="digits", rounds=3)
number = 7
'''
# Without torch, for what is said of a plugin before it is built.
LIGHT = """
from fedrepro.methods import Row


def plain(task, *, lr: float = 0.1, batch: int = 16, hidden: int = 4):
    "Plain: gradient descent."


row = Row(plain, rounds=3)
"""
ENTRIES = """
[fedrepro.methods]
bare = other_package:plain
with-row = other_package:row
f-irm = other_package:plain
absent = other_package:nothing
nowhere = no_such_package:plain
number = other_package:number
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """An installed package with two good entry points and four bad ones; returns its one file."""
    monkeypatch.chdir(tmp_path)
    site = tmp_path / "site"
    info = site / "other_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    (site / "other_package.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(plugins, "LISTING", 60.0)  # torch is slow to import where other tests run beside these
    forget()
    yield site / "other_package.py"
    forget()


def forget():
    methods.find.cache_clear()
    for name in [name for name in sys.modules if name.startswith("other_")]:
        del sys.modules[name]


# The registry


def streams(client, purpose):
    return torch.Generator().manual_seed(client)


def test_every_row_builds_with_its_defaults(variant):
    name, hyper = variant
    row = methods.find(name)
    method = methods.build(name, TASK, row.hyper | hyper)
    state = method.init(streams, TASK.sizes)
    assert set(state) == {"clients", "server"}
    for leaf, values in trees.leaves(state["clients"]):
        assert len(values) == TASK.clients, leaf
    logits = method.predict(state, torch.zeros(5, *TASK.shape, dtype=torch.uint8))
    assert logits.shape == (5, TASK.classes)
    assert len(row.summary) > 20
    assert row.rounds > 0


def test_an_ensemble_is_the_mean_of_its_members(variant):
    name, hyper = variant
    method = methods.build(name, TASK, {"hidden": 4} | hyper)
    if method.members is None:
        pytest.skip(f"{name} has one model")
    x = torch.randint(0, 256, (7, *TASK.shape), dtype=torch.uint8)
    state = method.init(streams, TASK.sizes)
    each = method.members.logits(state, (0, 1), x)
    torch.testing.assert_close(each.mean(0), method.predict(state, x), rtol=0, atol=1e-6)
    torch.testing.assert_close(method.members.logits(state, (1,), x), each[[1]], rtol=0, atol=1e-6)
    assert len(method.members.changed) == len(method.phases)


@pytest.mark.parametrize(
    ("name", "hyper", "message"),
    [
        ("f-irn", {}, "unknown method 'f-irn': did you mean 'f-irm'"),
        ("f-irm", {"stepps": 1}, "unknown hyper-parameter of f-irm 'stepps': did you mean 'steps'"),
        ("f-irm", {"phi_lr": 1.0}, "unknown hyper-parameter of f-irm 'phi_lr'"),
        ("f-irm", {"steps": "2"}, "hyper-parameter 'steps' of f-irm cannot be '2'"),
        ("f-irm", {"steps": 1.5}, "hyper-parameter 'steps' of f-irm cannot be 1.5"),
        ("f-irm", {"steps": True}, "hyper-parameter 'steps' of f-irm cannot be True"),
        ("f-irm", {"steps": 0}, "hyper-parameter 'steps' of f-irm cannot be 0: .*greater than or equal to 1"),
        ("fedsgd", {"lr": 0.0}, "hyper-parameter 'lr' of fedsgd cannot be 0.0: .*greater than 0"),
        ("fedsgd", {"lr": "fast"}, "hyper-parameter 'lr' of fedsgd cannot be 'fast'"),
        ("f-fl-smooth", {"capacity": 0}, "hyper-parameter 'capacity' of f-fl-smooth cannot be 0"),
    ],
)
def test_what_cannot_be_built(name, hyper, message):
    with pytest.raises(UsageError, match=message):
        methods.build(name, TASK, hyper)


def test_whole_numbers_are_learning_rates_too():
    methods.build("fedsgd", TASK, {"lr": 1})


# Methods of other packages


@pytest.mark.slow
def test_plugins_are_found_and_faults_stop_nothing(plugin):
    before = set(methods.REGISTRY)
    rows, faults = methods.discover()
    assert set(rows) == before | {"bare", "with-row"}
    assert rows["f-irm"] is methods.REGISTRY["f-irm"]  # nobody takes a name that is taken
    assert rows["bare"].summary == "Plain: gradient descent."
    assert "other_package" not in sys.modules  # another process has imported it
    assert rows["bare"].hyper == {"lr": 0.1, "batch": 16, "hidden": 4}
    assert (rows["with-row"].dataset, rows["with-row"].rounds) == ("digits", 3)
    assert set(faults) == {"f-irm", "absent", "nowhere", "number"}
    assert "other_package:plain of other-package is left out: the name is taken" in faults["f-irm"]
    assert "cannot be loaded: AttributeError" in faults["absent"]
    assert "cannot be loaded: ModuleNotFoundError: No module named 'no_such_package'" in faults["nowhere"]
    assert "is a int" in faults["number"]
    assert set(methods.REGISTRY) == before
    with pytest.raises(UsageError, match="method 'absent' is broken: .*other_package:nothing of other-package"):
        methods.find("absent")
    assert methods.find("f-irm").build.__module__ == "fedrepro.methods.games"


@pytest.mark.parametrize("content", ["raise RuntimeError('no licence')", "import sys; sys.exit('no licence')"])
def test_a_plugin_that_raises_anything_on_import_is_a_fault(plugin, content):
    plugin.write_text(content)
    rows, faults = methods.discover()
    assert set(rows) == set(methods.REGISTRY)
    assert re.search("(RuntimeError|SystemExit): no licence", faults["bare"])


@pytest.mark.parametrize("content", [b"[fedrepro.methods]\nmine\n", b"[fedrepro.methods]\nm = \xff:x\n"])
def test_a_damaged_list_of_plugins_leaves_the_methods_built_in(plugin, content):
    (plugin.parent / "other_package-1.0.dist-info/entry_points.txt").write_bytes(content)
    rows, faults = methods.discover()
    assert rows == methods.REGISTRY
    assert [fault for fault in faults.values() if "no plugin can be found" in fault]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('lr')", "method 'bare' of other_package: its builder raises KeyError: 'lr'"),
        (
            "return None",
            "method 'bare' of other_package: its builder returns a NoneType where a Method with phases is wanted",
        ),
        ("return Method(None, (), None)", "its builder returns a Method where a Method with phases is wanted"),
    ],
)
def test_a_plugin_that_cannot_be_built_is_named(plugin, body, message):
    head = "from fedrepro.core.types import Method\n\n\ndef plain(task, *, lr: float = 0.1):\n    "
    plugin.write_text(f"{head}{body}\n\n\nrow, number = plain, 7\n")
    with pytest.raises(FedreproError, match=re.escape(message)):
        methods.build("bare", TASK, {})


def test_a_plugin_whose_types_cannot_be_read_is_named(plugin):
    plugin.write_text("def plain(task, *, lr: 'Nothing' = 0.1):\n    pass\n\n\nrow, number = plain, 7\n")
    with pytest.raises(
        FedreproError,
        match="method 'bare' is broken: other_package:plain of other-package .* NameError: name 'Nothing'",
    ):
        methods.build("bare", TASK, {})


@pytest.mark.slow
def test_a_plugin_is_trained(plugin):
    config = RunConfig(method="bare", dataset="digits", rounds=4, hyper={"lr": 0.5}, watch={"samples": 100})
    record = runs.execute(config, runs.Place(Path("runs/bare")), device="cpu")
    assert record.seeds[0].status == "finished"
    assert record.seeds[0].metrics["train_loss"] < 0.7
    assert record.resolved == {"lr": 0.5, "batch": 16, "hidden": 4}
    assert record.identity.numerics.method == 0


# What a record says


def test_the_numerics_of_a_method_are_its_familys(monkeypatch):
    assert {row.family for row in methods.REGISTRY.values()} == set(methods.NUMERICS)
    before = {name: methods.numerics(name) for name in methods.REGISTRY}
    monkeypatch.setitem(methods.NUMERICS, "games", methods.NUMERICS["games"] + 1)
    moved = {name for name in methods.REGISTRY if methods.numerics(name) != before[name]}
    assert moved == {"f-irm", "v-irm", "f-fl-smooth", "v-fl-smooth-fast"}


def test_the_numerics_of_a_plugin_are_its_rows_or_its_modules(plugin):
    plugin.write_text(LIGHT)
    assert (methods.numerics("bare"), methods.numerics("with-row")) == (0, 0)
    plugin.write_text(LIGHT.replace("rounds=3", "rounds=3, numerics=4") + "NUMERICS = 2\n")
    forget()
    assert (methods.numerics("bare"), methods.numerics("with-row")) == (2, 4)


@pytest.mark.parametrize(
    ("name", "hyper", "network", "optimiser"),
    [
        ("fedavg", {}, "cnn", "sgd"),
        ("fedavg", {"optimiser": "adam", "net": "lenet"}, "lenet", "adam"),
        ("fed-irm", {"optimiser": "sgd"}, "cnn-fair", "sgd"),
        ("scaffold", {}, "cnn", "sgd"),
        ("erm", {"net": "resnet18"}, "resnet18", "adam"),
        ("v-irm", {}, "mlp", "adam"),
        ("f2a", {}, "gan", "adam"),
    ],
)
def test_settings_are_resolved_with_defaults_network_and_optimiser(name, hyper, network, optimiser):
    found = methods.resolved(name, hyper)
    assert (found["network"], found["optimiser"]) == (network, optimiser)
    assert {key: found[key] for key in methods.find(name).hyper} == methods.find(name).hyper | hyper
    assert set(found) == {"network", "optimiser", *methods.find(name).hyper}


def test_every_method_says_its_network_and_its_optimiser():
    for name in methods.REGISTRY:
        assert {"network", "optimiser"} <= set(methods.resolved(name, {})), name


def test_a_plugin_says_its_network_and_its_optimiser_in_its_row(plugin):
    plugin.write_text(LIGHT.replace("rounds=3", 'network="mlp", optimiser="sgd"'))
    assert methods.resolved("bare", {"lr": 0.2}) == {"lr": 0.2, "batch": 16, "hidden": 4}
    assert methods.resolved("with-row", {}) == {"network": "mlp", "optimiser": "sgd"} | methods.find("bare").hyper


# Lists do not wait for torch


@pytest.mark.slow
def test_the_registry_is_read_without_torch():
    code = """
import sys
from fedrepro import methods
rows, _ = methods.discover()
assert rows.keys() >= methods.REGISTRY.keys()
for name, row in methods.REGISTRY.items():
    assert row.summary and row.family and row.dataset and methods.numerics(name) > 0
assert "torch" not in sys.modules
rows["f-irm"].build
assert "torch" in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""


def test_summaries_are_the_builders_first_lines():
    for row in methods.REGISTRY.values():
        assert row.summary == row.build.__doc__.split("\n")[0]
        assert row.family == row.build.__module__.rpartition(".")[2]
