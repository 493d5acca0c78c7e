"""Datasets of other packages: found, trained on and recorded; what is wrong with one is a sentence that names it."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import foreign
import numpy as np
import pytest
from commands import fedrepro
from foreign import refused

from fedrepro import data, plugins
from fedrepro.data import catalogue, sources
from fedrepro.errors import FedreproError, UsageError

ROOT = Path(__file__).parents[1]
GOOD = '''
"""A plugin without a fault, where CHANGE is none; it imports torch where it is built, so that lists are fast."""

from fedrepro.data import Dataset, Source


def build(raw, seed, *, n: int = 2, rows: int = 6):
    """Rows of one colour for each client."""
    import sys

    import numpy as np
    import torch

    from fedrepro.data import Federation
    from fedrepro.errors import UsageError

    x = torch.arange(n * rows, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 28, 28)
    y = torch.arange(n * rows) % 2
    sizes, classes, tests, groups = (rows,) * n, 2, {"test": (x[:4], y[:4])}, {}
    facts = {"clients": [{"rows": rows} for _ in range(n)], "test": {"rows": 4}}

    CHANGE

    return Federation(x, y, sizes, tests, classes, facts, groups)


def read(source, files):
    import numpy as np
    import torch

    from fedrepro.data import Raw

    ((_, content),) = files
    x = torch.from_numpy(content.reshape(-1, 28, 28).copy())
    READ
    return Raw(x[1:], torch.zeros(len(x) - 1).long(), x[:1], torch.zeros(1).long(), 2)


OWN = {"origin": "here", "licence": "none", "reader": "bad:read", "classes": 2, "patterns": (("hers/*.bin",),)}
row = Dataset(build, source="drawn", shape=(1, 28, 28))
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(code, value, name): a package of its own that adds a dataset; `code` is that of its module `bad`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    monkeypatch.setattr(plugins, "RUN", 30.0)
    monkeypatch.setattr(plugins, "LISTING", 30.0)
    site = tmp_path / "site"

    def installed(code=GOOD.replace("CHANGE", "").replace("READ", ""), value="bad:row", name="hers"):
        foreign.package(site, "fedrepro.datasets", name, value, code)
        forget()

    monkeypatch.syspath_prepend(site)
    yield installed
    forget()


def forget():
    catalogue._plugged.cache_clear()
    sources._raw.cache_clear()
    sys.modules.pop("bad", None)


def good(change="", read="", row=""):
    code = GOOD.replace("CHANGE", textwrap.indent(change, "    ").strip())
    return code.replace("READ", read) + (f"row = {row}\n" if row else "")


def dataset(settings):
    return f"Dataset(build, **{{'source': 'drawn', 'shape': (1, 28, 28)}} | {settings})"


TRAIN = ("train", "--method", "fedsgd", "--dataset", "hers", "--set", "rounds=2", "--set", "batch=2", "--out", "made")


def test_it_is_listed_shown_drawn_and_trained_on(install):
    install(good(row=dataset("{'numerics': 3, 'preset': {'rows': 5}}")))
    listed = " ".join(fedrepro("show", "datasets").out.split())
    assert "hers drawn drawn Rows of one colour for each client." in listed
    assert "rows │ 5" in " ".join(fedrepro("show", "dataset", "hers").out.split())
    assert fedrepro("data", "show", "hers").code == 0
    done = fedrepro(*TRAIN, "--set", "n=3")
    assert (done.code, done.err.count("error")) == (0, 0), done.err
    record = json.loads(Path("made/record.json").read_text())
    assert record["identity"]["numerics"]["data"] == 3
    assert record["data"]["facts"]["0"]["clients"] == [{"rows": 5}] * 3


POINTS = "x, tests, facts = torch.rand(n * rows, {}), {{}}, {{'clients': [{{}}] * n}}"


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        ("facts['clients'] = [{'a': [1], 'b': {'c': None}, 'd': None, 'e': True, 6: 7}] * n", (1, 28, 28)),
        ("tests, facts = {'new': (x[:4], y[:4])}, facts | {'new': {}}", (1, 28, 28)),
        (POINTS.format(1), (1,)),
        (POINTS.format(2), (2,)),
        (POINTS.format(3), (3,)),
        ("x = x[:, 0]; tests = {'test': (x[:4], y[:4])}", (28, 28)),
        ("x = x[:, 0, 0]; tests = {'test': (x[:4], y[:4])}", (28,)),
    ],
    ids=["facts", "tests", "line", "plane", "space", "flat", "row"],
)
def test_a_sheet_of_any_dataset_can_be_drawn(install, change, shape):
    install(good(change, row=dataset(f"{{'shape': {shape}}}")))
    done = fedrepro("data", "show", "hers")
    assert done.code == 0, done.err


def test_its_files_are_in_the_record_and_a_change_trains_again(install):
    install(good(row="Dataset(build, source=Source(name='herself', **OWN), shape=(1, 28, 28))"))
    assert "has no hers" not in fedrepro("show", "datasets").out
    assert "data/cache" in refused(*TRAIN)
    folder = Path("data/cache/hers")
    folder.mkdir(parents=True)
    np.arange(3 * 784, dtype=np.uint8).tofile(folder / "a.bin")
    assert fedrepro(*TRAIN).code == 0
    first = json.loads(Path("made/record.json").read_text())
    assert list(first["data"]["files"]) == ["hers/a.bin"]
    assert first["identity"]["data"] == data.describe("hers")["fingerprint"]
    assert first["data"]["source"] == "herself"
    for name in ("hers", "herself"):
        assert fedrepro("data", "fetch", name).code == 0
    manifest = json.loads(Path("data/manifests/herself.json").read_text())
    assert (manifest["train"]["images"], manifest["test"]["images"]) == (2, 1)
    assert "kept from the earlier record" in fedrepro(*TRAIN).err
    np.arange(4 * 784, dtype=np.uint8).tofile(folder / "a.bin")
    forget()
    assert "stale or damaged" in fedrepro(*TRAIN).err
    assert json.loads(Path("made/record.json").read_text())["identity"]["data"] != first["identity"]["data"]


def test_it_may_be_the_default_of_a_method_and_the_dataset_of_a_paper(install, tmp_path):
    import commands

    install()
    spec = commands.SPEC.replace('dataset = "digits"', 'dataset = "hers"')
    commands.paper(tmp_path, spec)
    done = fedrepro("run", commands.PAPER, "--dry-run")
    assert (done.code, "2 runs planned" in done.out) == (0, True), done.err


# What an entry point may name: (what it names, the module's last line, what the sentence says)
LOADED = {
    "nothing": ("bad:nothing", "", "cannot be loaded: AttributeError"),
    "number": ("bad:row", "row = 7", "is a int, not a Dataset"),
    "builder": ("bad:build", "", "is a function, not a Dataset"),
    "exits": ("bad:row", "import os; os._exit(3)", "ends Python with exit status 3 when it is imported"),
    "raises": ("bad:row", "raise RuntimeError('no licence')", "cannot be loaded: RuntimeError: no licence"),
    "no-source": ("bad:row", "row = Dataset(build, 'mars', (1,))", "unknown source 'mars'"),
    "no-builder": ("bad:row", "row = Dataset(7, 'drawn', (1,))", "is a int, not a builder of a dataset"),
    "named-builder": ("bad:row", "row = Dataset('bad:build', 'drawn', (1,))", "which is to be the function itself"),
    "arguments": ("bad:row", "row = Dataset(lambda raw: 1, 'drawn', (1,))", "TypeError: too many positional"),
    "default": (
        "bad:row",
        "def f(raw, seed, *, p=object()):\n    'A.'\nrow = Dataset(f, 'drawn', (1,))",
        "has a default of p that no record can hold",
    ),
    "preset": ("bad:row", f"row = {dataset({'preset': {'m': 1}})}", "has a wrong preset: unknown preset of it 'm'"),
    "shape": ("bad:row", f"row = {dataset({'shape': (0, 28)})}", "is a wrong Dataset: shape"),
    "shape-word": ("bad:row", f"row = {dataset({'shape': 'flat'})}", "is a wrong Dataset: shape"),
    "numerics": ("bad:row", f"row = {dataset({'numerics': 'one'})}", "is a wrong Dataset: numerics"),
    "source-number": ("bad:row", "row = Dataset(build, 7, (1,))", "cannot be read as a Dataset: TypeError"),
    "source-taken": (
        "bad:row",
        "row = Dataset(build, Source('mnist', **OWN), (1,))",
        "has a source of its own with the name 'mnist', which is taken",
    ),
    "source-name": ("bad:row", "row = Dataset(build, Source('../x', **OWN), (1,))", "has the source '../x'"),
    "source-path": (
        "bad:row",
        "row = Dataset(build, Source('x', **OWN | {'patterns': (('../*.bin',),)}), (1,))",
        "with the path '../*.bin', which is outside of the data folder",
    ),
    "source-field": (
        "bad:row",
        "row = Dataset(build, Source('x', **OWN | {'classes': 'many'}), (1,))",
        "has a wrong Source: classes",
    ),
    "source-empty": (
        "bad:row",
        "row = Dataset(build, Source('x', **OWN | {'patterns': ()}), (1,))",
        "has a source without files and patterns, which is not embedded",
    ),
}


@pytest.mark.parametrize("fault", LOADED)
def test_one_that_cannot_be_loaded_is_one_sentence_and_stops_no_list(install, fault):
    value, line, said = LOADED[fault]
    install(good() + line + "\n", value)
    sentence = refused(*TRAIN)
    assert f"dataset 'hers' is broken: {value} of bad-package" in sentence
    assert said in sentence
    assert not sentence.endswith("..")
    done = fedrepro("show", "datasets")
    assert (done.code, f"hers: {value} of bad-package" in " ".join(done.out.split())) == (0, True)
    assert not Path("made").exists()


@pytest.mark.parametrize("name", ["mnist", "../../x", "a b"])
def test_a_name_that_is_taken_or_none_is_left_out(install, name):
    install(name=name)
    rows, faults = data.discover()
    assert rows == data.DATASETS
    assert "is left out: " in faults[name]


# What a builder may return: (what is put in place of CHANGE, what the sentence says)
MADE = {
    "raises": ("raise KeyError('x')", "raises KeyError: 'x'"),
    "exits": ("sys.exit(0)", "raises SystemExit: 0"),
    "nothing": ("return", "returns a NoneType where a Federation is wanted"),
    "x-list": ("x = [1]", "returns x as a list, and not as uint8"),
    "x-dtype": ("x = x.long()", "returns x as int64 [12, 1, 28, 28], and not as uint8"),
    "x-shape": ("x = x[:, 0]", "returns x as uint8 [12, 28, 28], and not as uint8 (or float32, of points) with 3 axes"),
    "x-nan": (
        "x = x / 0\ntests = {}\nfacts = {'clients': facts['clients']}",
        "returns x with values that are not finite",
    ),
    "y-dtype": ("y = y.int()", "returns y as int32 [12], and not as int64 [12]"),
    "y-length": ("y = y[:4]", "returns y as int64 [4], and not as int64 [12]"),
    "labels": ("y = y + 1", "returns labels from 1 to 2 where there are 2 classes"),
    "classes": ("classes = 2.0", "returns 2.0 as the number of classes"),
    "sizes": ("sizes = (5, 5)", "whose sum is not 12, the number of rows"),
    "empty-client": ("sizes = (12, 0)", "returns sizes of clients that are not at least 1"),
    "test-name": ("tests = {'a b': tests['test']}", "returns a test with the name 'a b'"),
    "test-shape": (
        "tests = {'test': (x[:4, :, 1:], y[:4])}",
        "which is not as x of the clients: uint8 [12, 1, 28, 28]",
    ),
    "test-labels": ("tests = {'test': (x[:4], y[:4] + 7)}", "returns the test 'test' with labels from 7 to 8"),
    "groups": ("groups = {'ood': ('dark',)}", "returns a group of the test 'dark', which is not there"),
    "facts-json": ("facts['clients'][0]['x'] = x", "returns facts that are no JSON"),
    "facts-clients": ("facts['clients'] = []", 'returns facts without "clients", a list with a dict of each client'),
    "facts-test": ("del facts['test']", "returns facts without 'test'"),
}


@pytest.mark.parametrize("fault", MADE)
def test_a_builder_that_fails_is_one_sentence(install, fault):
    change, said = MADE[fault]
    install(good(change))
    sentence = refused(*TRAIN)
    assert "dataset 'hers' of bad: its builder " in sentence
    assert said in sentence
    assert not Path("made/record.json").exists()


def test_what_a_plugin_says_itself_is_passed_on(install):
    install(good("raise UsageError('n and rows do not fit: set n lower.')"))
    assert refused(*TRAIN) == "error: n and rows do not fit: set n lower."


@pytest.mark.parametrize(
    ("read", "said"),
    [
        ("raise KeyError('x')", "the reader bad:read of source herself raises KeyError: 'x'"),
        ("return x", "the reader bad:read of source herself returns a Tensor where Raw is wanted"),
    ],
)
def test_a_reader_that_fails_is_one_sentence(install, read, said):
    install(good(read=read, row="Dataset(build, source=Source(name='herself', **OWN), shape=(1, 28, 28))"))
    folder = Path("data/cache/hers")
    folder.mkdir(parents=True)
    np.arange(3 * 784, dtype=np.uint8).tofile(folder / "a.bin")
    assert said in refused(*TRAIN)


def test_wrong_settings_are_refused_as_those_of_other_datasets(install):
    install()
    assert "data key 'n' of hers cannot be 'x'" in refused("data", "show", "hers", "--set", "n=x")
    with pytest.raises(UsageError, match="unknown data key of hers 'row': did you mean 'rows'"):
        data.check("hers", {"row": 1})
    with pytest.raises(UsageError, match="unknown dataset 'herz': did you mean 'hers'"):
        data.check("herz", {})
    with pytest.raises(FedreproError, match="unknown dataset 'nowhere'"):
        catalogue.source("nowhere")


def test_the_registry_is_read_without_torch(install, tmp_path):
    install()
    code = (
        "import sys; from fedrepro import data; assert 'hers' in data.discover()[0]; sys.exit('torch' in sys.modules)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)])}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0
