"""The registry, the methods that other packages add, and the source files behind a method's numbers."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch

from fedrepro import lineage, methods, plan, runs, trees
from fedrepro.config import RunConfig
from fedrepro.errors import FedreproError, UsageError
from fedrepro.types import Task

TASK = Task((2, 28, 28), 3, (12, 8))

PLUGIN = '''
"""Methods of another package."""

from fedrepro import optim
from fedrepro.methods import Row
from fedrepro.methods.federated import federated, shared_mlp
from fedrepro.methods.parts import average
from fedrepro.types import Draw, Method, Task


def plain(task: Task, *, lr: float = 0.1, batch: int = 16, hidden: int = 4) -> Method:
    """Plain: gradient descent."""
    server = average(optim.sgd(lr))  # a step
    return federated(task, shared_mlp(task, hidden), Draw(size=batch), client=optim.sgd(1.0), server=server)


row = Row(plain, dataset="digits", rounds=3)
number = 7
'''
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
    forget()
    yield site / "other_package.py"
    for name in [name for name in sys.modules if name.startswith("other_")]:
        del sys.modules[name]
    forget()


def forget():
    methods.discover.cache_clear()
    lineage._closure.cache_clear()


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


def test_plugins_are_found_and_faults_stop_nothing(plugin):
    before = set(methods.REGISTRY)
    rows, faults = methods.discover()
    assert set(rows) == before | {"bare", "with-row"}
    assert rows["f-irm"] is methods.REGISTRY["f-irm"]  # nobody takes a name that is taken
    assert rows["bare"].summary == "Plain: gradient descent."
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


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('lr')", "method 'bare' of other_package cannot be built: KeyError: 'lr'"),
        ("return None", "method 'bare' of other_package is built as a NoneType: its builder must return a Method"),
        ("return Method(None, (), None)", "is built as a Method: its builder must return a Method with phases"),
    ],
)
def test_a_plugin_that_cannot_be_built_is_named(plugin, body, message):
    head = "from fedrepro.types import Method\n\n\ndef plain(task, *, lr: float = 0.1):\n    "
    plugin.write_text(f"{head}{body}\n\n\nrow, number = plain, 7\n")
    with pytest.raises(FedreproError, match=re.escape(message)):
        methods.build("bare", TASK, {})


def test_a_plugin_whose_types_cannot_be_read_is_named(plugin):
    plugin.write_text("def plain(task, *, lr: 'Nothing' = 0.1):\n    pass\n\n\nrow, number = plain, 7\n")
    with pytest.raises(FedreproError, match="method 'bare' of other_package has types that cannot be read: name 'Noth"):
        methods.build("bare", TASK, {})


def test_a_plugin_is_trained(plugin):
    config = RunConfig(method="bare", dataset="digits", rounds=4, hyper={"lr": 0.5}, watch={"samples": 100})
    record = runs.execute(config, runs.Place(Path("runs/bare")), device="cpu")
    assert record["seeds"]["0"]["status"] == "finished"
    assert record["seeds"]["0"]["metrics"]["train_loss"] < 0.7
    assert json.loads(Path("runs/bare/record.json").read_text())["code"] == lineage.code_digest("bare")


# What numbers depend on

CORE = {
    f"fedrepro/{name}.py"
    for name in (
        *("config", "judges", "lift", "nets", "optim", "products", "scoring", "streams", "train", "trees", "types"),
    )
}
DATA = {
    f"fedrepro/data/{name}.py"
    for name in (
        *("__init__", "augment", "clients", "domains", "draws", "fedgma", "femnist", "gans", "images", "palettes"),
        *("partition", "pictures", "plain", "rotated", "synth"),
        *(f"sources/{name}" for name in plan.SOURCES),
    )
}
FAMILY = [f"methods/{name}" for name in ("federated", "local", "networks", "options", "parts", "penalties")]


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("f-irm", ["methods/games"]),
        ("v-fl-smooth-fast", ["methods/games"]),
        ("fedavg", ["compiled", "convnets", "kernels", "modules", "resnets", *FAMILY]),
        (
            "erm",
            ["compiled", "convnets", "kernels", "modules", "resnets", "methods/domains", "methods/weightings", *FAMILY],
        ),
    ],
)
def test_the_files_behind_a_method(name, own):
    files = lineage.source_files(name)
    assert files == sorted(CORE | DATA | {f"fedrepro/{each}.py" for each in own})


def test_methods_of_one_family_have_one_digest():
    digests = {name: lineage.code_digest(name) for name in methods.REGISTRY}
    assert len(set(digests.values())) == len({row.build.__module__ for row in methods.REGISTRY.values()})
    assert digests["f-irm"] == digests["v-irm"] != digests["fedavg"]


CHANGES = {  # of the plugin's text: does the digest change?
    "a comment": (("# a step", "# one step"), False),
    "a docstring": (("Plain: gradient descent.", "Plain: descent."), False),
    "the module's docstring": (("Methods of another package.", "Another text."), False),
    "layout": (("def plain(task: Task, *,", "def plain(\n    task: Task, *,"), False),
    "a number": (("optim.sgd(1.0)", "optim.sgd(1.5)"), True),
    "a default": (("batch: int = 16", "batch: int = 8"), True),
    "an import": (("import optim\n", "import optim, nets\n"), True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_edit_of_a_plugin(plugin, change):
    (old, new), differs = CHANGES[change]
    before, others = lineage.code_digest("bare"), lineage.code_digest("f-irm")
    assert PLUGIN.count(old) == 1
    plugin.write_text(PLUGIN.replace(old, new))
    lineage._closure.cache_clear()
    assert (lineage.code_digest("bare") != before) == differs
    assert lineage.code_digest("f-irm") == others


def test_a_plugin_depends_on_its_file_and_on_ours(plugin):
    assert set(lineage.source_files("bare")) >= set(lineage.source_files("fedavg"))
    assert plugin.resolve() in {path.resolve() for path in lineage._closure("bare")}


@pytest.mark.parametrize("how", ["import other_helper", "from other_package import helper", "from . import helper"])
def test_a_plugin_depends_on_the_other_modules_of_its_own_package(plugin, how):
    package = plugin.with_suffix("")
    package.mkdir()
    plugin.rename(package / "__init__.py")
    (package / "helper.py").write_text("RATE = 1\n")
    (package.parent / "other_helper.py").write_text("RATE = 1\n")
    (package / "__init__.py").write_text(PLUGIN + how + "\n")
    forget()
    found = package / "helper.py" in lineage._closure("bare")
    assert found == ("other_helper" not in how)
    assert package.parent / "other_helper.py" not in lineage._closure("bare")
