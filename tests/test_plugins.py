"""Plugins that do whatever is wrong: lists go on without them, and a run of one is one sentence that names it."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import commands
import foreign
import pytest
from commands import fedrepro

from fedrepro import methods, plugins
from fedrepro.data import catalogue

ROOT = Path(__file__).parents[1]

GOOD = '''
"""A plugin without a fault, where CHANGE is none; it imports torch where it is built, so that lists are fast."""


def build(task, *, lr: float = 0.1):
    """A plugin: it moves nothing."""
    import sys

    import torch

    from fedrepro.core.types import Draw, Members, Method, Phase

    draw, members, generate = Draw(size=8), None, None

    def init(streams, sizes):
        return {"clients": {"seen": torch.zeros(len(sizes))}, "server": {"w": torch.zeros(task.classes)}}

    def step(state, batch):
        return state, {"loss": torch.ones(()), "accepted": torch.ones(len(batch.clients), dtype=torch.bool)}

    def predict(state, x):
        return state["server"]["w"].expand(len(x), -1)

    CHANGE

    return Method(init, (Phase(draw, step),), predict, members=members, generate=generate)
'''
ROW = "from fedrepro.methods import Row\n\n\ndef f(task, *, lr: float = 0.1):\n    'A.'\n\n\nbuild = Row(f, {})\n"
DEF = "def build(task, {}):\n    'A builder.'\n"

# What is wrong before anything is built: (entry point's value, module, what the sentence says).
LOADED = {
    "builtin-function": ("builtins:len", "", "is a builtin_function_or_method, not a builder"),
    "builtin-class": ("builtins:dict", "", "cannot be read as a builder of a method: ValueError"),
    "number": ("bad:build", "build = 7", "is a int, not a builder of a method"),
    "module": ("bad", "", "is a module, not a builder of a method"),
    "no-module": ("not_there:build", "", "cannot be loaded: ModuleNotFoundError: No module named 'not_there'"),
    "no-attribute": ("bad:nothing", "", "cannot be loaded: AttributeError"),
    "no-reference": ("!? ::", "", "cannot be loaded: "),
    "syntax": ("bad:build", "def build(:", "cannot be loaded: SyntaxError"),
    "raises": ("bad:build", "raise RuntimeError('no licence')", "cannot be loaded: RuntimeError: no licence"),
    "raises-lines": ("bad:build", "raise OSError('a\\nb\\x1b[2J' + 9999 * 'c')", "OSError: a b\\x1b[2Jccc"),
    "raises-silent": (
        "bad:build",
        "class Mute(Exception):\n    def __str__(self):\n        raise self\n\n\nraise Mute",
        "cannot be loaded: Mute",
    ),
    "interrupts": ("bad:build", "raise KeyboardInterrupt", "cannot be loaded: KeyboardInterrupt"),
    "leaves": ("bad:build", "import sys; sys.exit(3)", "cannot be loaded: SystemExit: 3"),
    "exits": ("bad:build", "import os; os._exit(0)", "ends Python with exit status 0 when it is imported"),
    "aborts": ("bad:build", "import os; os.abort()", "is killed by SIGABRT when it is imported"),
    "hangs": ("bad:build", "import time; time.sleep(999)", "gives no answer in 2 seconds when it is imported"),
    "deaf": (
        "bad:build",
        "import os, signal\n[signal.signal(n, signal.SIG_IGN) for n in (2, 14, 15)]\nos.closerange(0, 99)\n"
        "while True:\n    pass",
        "gives no answer in 2 seconds when it is imported",
    ),
    "no-default": ("bad:build", DEF.format("*, lr"), "TypeError: missing a required argument: 'lr'"),
    "two-positional": ("bad:build", DEF.format("data"), "TypeError: missing a required argument: 'data'"),
    "object": ("bad:build", DEF.format("*, lr=object()"), "has a default of lr that no record can hold"),
    "nan": ("bad:build", DEF.format("*, lr=float('nan')"), "has a default of lr that no record can hold: nan"),
    "types": ("bad:build", DEF.format("*, lr: 'Nothing' = 0.1"), "NameError: name 'Nothing' is not defined"),
    "dividing-types": ("bad:build", DEF.format("*, lr: '1/0' = 0.1"), "ZeroDivisionError"),
    "row-of-a-number": ("bad:build", ROW.format("").replace("Row(f", "Row(7"), "is a int, not a builder"),
    "row-of-nothing": (
        "bad:build",
        ROW.format("").replace("Row(f", "Row('a.b'"),
        "No module named 'fedrepro.methods.a'",
    ),
    "row-rounds": ("bad:build", ROW.format("rounds='ten'"), "has a wrong row: rounds: input should be a valid integer"),
    "row-numerics": ("bad:build", ROW.format("numerics=None"), "has a wrong row: numerics"),
    "row-dataset": ("bad:build", ROW.format("dataset='mars'"), "names a dataset that does not exist: 'mars'"),
}
NAMES = ["../../x", "/tmp/x", "a/b", ".hidden", "-x", "a\x1b[31mb", "a b", "x" * 300, "é", "fedavg"]

# What is wrong in training: (what is put in place of CHANGE, what the sentence says).
PLAYED = {
    "builder-raises": ("raise KeyError('lr')", "its builder raises KeyError: 'lr'"),
    "builder-exits": ("sys.exit(0)", "its builder raises SystemExit: 0"),
    "builder-returns-nothing": ("return", "its builder returns a NoneType where a Method with phases is wanted"),
    "no-phases": ("return Method(init, (), predict)", "returns a Method where a Method with phases is wanted"),
    "other-phases": ("return Method(init, (step,), predict)", "returns a Method where a Method with phases is wanted"),
    "no-predict": ("predict = None", "returns a Method that has no generate, and generates=False"),
    "generates": ("generate = predict", "returns a Method that has generate, and generates=False"),
    "members": ("members = Members(predict, ((0, 9),))", "members.changed does not name clients for each phase"),
    "no-draw": ("draw = None", "its builder raises AttributeError"),
    "draw-of-none": ("draw = Draw(size=0)", "phase 1 a draw that cannot be made: size: input should be greater than 0"),
    "draw-no-steps": ("draw = Draw(size=8, steps=0)", "a draw that cannot be made: steps: input should be greater"),
    "draw-strangers": (
        "draw = Draw(size=8, clients=(0, 9))",
        "cannot be made: clients: there are 2, and it wants (0, 9)",
    ),
    "draw-too-many": ("draw = Draw(size=8, clients=3)", "cannot be made: clients: there are 2, and it wants 3"),
    "init-raises": ("init = lambda *given: 1 / 0", "init raises ZeroDivisionError: division by zero"),
    "init-list": ("init = lambda *given: []", "init returns the state as a list, where states have dicts of tensors"),
    "init-object": ("init = lambda *given: {'clients': {}, 'n': 7}", "init returns n as a int"),
    "init-no-clients": ("init = lambda *given: {'server': {}}", 'init returns a state without "clients"'),
    "init-keys": ("init = lambda *given: {'clients': {0: torch.ones(2)}}", "with the key 0, which is no word"),
    "init-clients": (
        "init = lambda streams, sizes: {'clients': {'seen': torch.zeros(7)}}",
        "init returns clients.seen as float32 [7], whose first axis is not the 2 clients",
    ),
    "step-raises": ("step = lambda state, batch: state['model']", "the step of phase 1 of 1 raises KeyError: 'model'"),
    "step-exits": ("step = lambda state, batch: sys.exit(0)", "the step of phase 1 of 1 raises SystemExit: 0"),
    "step-no-pair": ("step = lambda state, batch: state", "phase 1 of 1 returns a dict where a pair (state, metrics)"),
    **{
        f"step-{name}": (f"old = step\nstep = lambda state, batch: ({new}, old(state, batch)[1])", said)
        for name, new, said in (
            ("shape", "state | {'server': {'w': torch.zeros(9)}}", "changes server.w from float32 [2] to float32 [9]"),
            ("dtype", "state | {'server': {'w': state['server']['w'].double()}}", "from float32 [2] to float64 [2]"),
            ("lost", "{'clients': state['clients']}", "changes server.w from float32 [2] to nothing"),
            ("more", "state | {'n': torch.ones(())}", "changes n from nothing to float32 []"),
            ("float", "state | {'n': 1.0}", "returns n as a float, where states have dicts of tensors alone"),
            (
                "graph",
                "state | {'server': {'w': torch.zeros(2, requires_grad=True)}}",
                "returns server.w with its gradient",
            ),
        )
    },
    **{
        f"metrics-{name}": (f"old = step\nstep = lambda state, batch: (state, old(state, batch)[1] | {new})", said)
        for name, new, said in (
            ("loss", "{'loss': torch.ones(2)}", "returns loss as float32 [2], and not as a tensor of the shape []"),
            ("loss-number", "{'loss': 1.0}", "returns loss as a float, and not as a tensor"),
            (
                "loss-whole",
                "{'loss': torch.tensor(1)}",
                "returns a loss that is no float, or accepted that is not bool",
            ),
            (
                "accepted",
                "{'accepted': torch.ones(9).bool()}",
                "returns accepted as bool [9], and not as a tensor of the",
            ),
            ("accepted-float", "{'accepted': torch.ones(2)}", "returns a loss that is no float, or accepted that is"),
            ("name", "{'a,1\\n0,0,test_accuracy': torch.ones(())}", "which curves cannot have"),
            ("taken", "{'train_accuracy': torch.ones(())}", "'train_accuracy', which curves cannot have"),
        )
    },
    "metrics-none": ("step = lambda state, batch: (state, {})", "returns metrics without loss and accepted"),
    "predict-raises": ("predict = lambda state, x: x.nothing", "predict raises AttributeError"),
    "predict-shape": (
        "predict = lambda state, x: torch.zeros(3)",
        "predict returns float32 [3], and not floats of the",
    ),
    "predict-labels": ("predict = lambda state, x: torch.zeros(len(x), 10).long()", "predict returns int64 ["),
    "predict-nothing": ("predict = lambda state, x: None", "predict returns a NoneType, and not floats of the shape"),
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(name, value, code): a package of its own that adds a method; `code` is that of its module `bad`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    monkeypatch.setattr(plugins, "RUN", 20.0)
    site = tmp_path / "site"

    def installed(name, value="bad:build", code=GOOD, module="bad"):
        foreign.package(site, "fedrepro.methods", name, value, code, module)

    monkeypatch.syspath_prepend(site)
    forget()
    yield installed
    forget()


def forget():
    methods.find.cache_clear()
    catalogue._plugged.cache_clear()
    sys.modules.pop("bad", None)


def left(folder):
    """The files that a command has left, but for the packages and the locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return [path for path in files if "site" not in path.relative_to(folder).parts]


def refused(*arguments):
    """The sentence with which a command fails, which is short whatever the plugin says."""
    sentence = foreign.refused(*arguments)
    assert len(sentence) < 400
    return sentence


@pytest.mark.parametrize("fault", LOADED)
def test_a_run_of_a_plugin_that_cannot_be_loaded_is_one_sentence(install, monkeypatch, tmp_path, fault):
    value, code, said = LOADED[fault]
    if "no answer" in said:
        monkeypatch.setattr(plugins, "RUN", 2.0)
    install("mine", value, code)
    sentence = refused("train", "--method", "mine")
    assert f"method 'mine' is broken: {value} of bad-package" in sentence
    assert said in sentence
    assert left(tmp_path) == []


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_plugin_with_a_hostile_name_has_no_run(install, tmp_path, name):
    install(name)
    assert "is left out: names have at most 100 letters" in refused("train", f"--method={name}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]


@pytest.mark.parametrize("fault", PLAYED)
def test_a_plugin_that_fails_in_training_is_one_sentence(install, tmp_path, fault):
    change, said = PLAYED[fault]
    install("mine", code=GOOD.replace("CHANGE", textwrap.indent(change, "    ").strip()))
    command = ("train", "--method", "mine", "--dataset", "digits", "--set", "rounds=2")
    sentence = refused(*command)
    assert "method 'mine' of bad: " in sentence
    assert said in sentence
    if fault.startswith(("step", "metrics")):
        assert said in refused(*command, "--seeds", "0,1", "--mode", "vmap")
    assert left(tmp_path) == []


@pytest.mark.parametrize("name", ["mine", "my.own_method-" + 86 * "1"])
def test_a_plugin_without_a_fault_is_trained(install, name):
    install(name, code=GOOD.replace("CHANGE", ""))
    for more in ((), ("--mode", "vmap")):
        done = fedrepro("train", "--method", name, "--dataset", "digits", "--seeds", "0,1", "--set", "rounds=2", *more)
        assert (done.code, done.out.count("finished")) == (0, 2)


def test_a_broken_plugin_as_the_method_of_a_spec_is_one_sentence(install, tmp_path):
    install("mine", code="import os; os._exit(0)")
    commands.paper(tmp_path, commands.SPEC.replace('"fedsgd"', '"mine"'))
    before = left(tmp_path)
    for command in (("run", commands.PAPER), ("train", "--paper", commands.PAPER, "--run", commands.PLAIN)):
        assert "method 'mine' is broken: bad:build of bad-package ends Python with exit status 0" in refused(*command)
    assert left(tmp_path) == before


@pytest.mark.slow
def test_methods_are_listed_in_time_whatever_plugins_do(install, tmp_path):
    for number, (value, code, _) in enumerate(LOADED.values()):
        marked = f"import os; open({str(tmp_path)!r} + f'/{{os.getpid()}}.pid', 'w').close()\n{code}"
        install(f"mine{number}", value.replace("bad", f"bad{number}"), marked, f"bad{number}")
    for number, name in enumerate(NAMES):
        install(name, code="", module=f"named{number}")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)])}
    command = [sys.executable, "-c", "from fedrepro.cli.app import main; main()", "show", "methods"]
    began = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert time.monotonic() - began < 20  # four seconds, and a start of Python on a machine that is busy with tests
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    for number, (value, *_) in enumerate(LOADED.values()):
        value = value.replace("bad", f"bad{number}")
        assert f"mine{number}: {value} of bad{number}-package " in words
    assert words.count("is left out: names have at most 100 letters") == len(NAMES) - 1
    assert "fedavg: bad:build of named9-package is left out: the name is taken" in words
    assert "\x1b" not in done.stdout
    assert done.stdout.count(" federated ") == 7
    alive = [pid for pid in tmp_path.glob("*.pid") if Path("/proc", pid.stem).exists()]
    assert alive == []


def test_a_plugin_takes_the_rest_of_its_package_with_it_but_only_in_lists(install, tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "LISTING", 20.0)
    install("first", "bad:build", GOOD.replace("CHANGE", ""))
    entries = "[fedrepro.methods]\nfirst = bad:build\nsecond = worse:build\nthird = bad:build\n"
    (tmp_path / "site/bad_package-1.0.dist-info/entry_points.txt").write_text(entries)
    (tmp_path / "site/worse.py").write_text("import os; os._exit(1)")
    rows, faults = methods.discover()
    assert "first" in rows
    assert faults == {
        "second": "worse:build of bad-package ends Python with exit status 1 when it is imported",
        "third": "bad:build of bad-package is not tried: second, of its package, ends Python with exit status 1 "
        "when it is imported",
    }
    assert methods.find("third").summary == "A plugin: it moves nothing."


def test_what_a_plugin_prints_and_says_of_itself_moves_no_cursor(install):
    code = 'print(9999 * "noise")\n\n\ndef build(task, *, lr: float = 0.1):\n    "Title \\x1b[2J\\x07."\n'
    install("mine", code=code)
    for command in (("show", "methods"), ("show", "method", "mine")):
        done = fedrepro(*command)
        assert (done.code, done.err) == (0, "")
        assert "Title \\x1b[2J\\x07." in done.out


def test_nothing_is_started_where_no_package_adds_a_method(install, monkeypatch):
    monkeypatch.setattr(plugins.subprocess, "Popen", lambda *given, **named: pytest.fail("starts a process"))
    monkeypatch.setattr(plugins, "entry_points", lambda group: [])
    assert fedrepro("show", "methods").code == 0
    assert fedrepro("train", "--method", "fedavgx").code == 2
