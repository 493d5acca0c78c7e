"""Bad input in bulk: every option of every command, and every file that a user writes, each wrong in many ways.

A case is refused with one sentence that names the place, and nothing is written. A new kind of bad input is one more
`Case`, or one more row of a table below. Nothing here trains: what is not refused before fails.
"""

# ruff: noqa: E501 (a mutation is easier to read in one line)

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import commands
import pytest
import typer
from commands import PAPER, PLAIN, SEARCHED, SMALL, SPEC, fedrepro
from recorded import run

from fedrepro.cli import app
from fedrepro.training import runs

ROOT = Path(__file__).parents[1]
LONG, DEEP, HUGE = "x" * 300, "[" * 50_000, "9" * 5_000
SPECS, PARAMS = f"papers/{PAPER}/paper.toml", "params.yaml"
PUBLISHED, TUNED = f"papers/{PAPER}/published.csv", f"papers/{PAPER}/tuned.json"


class Case(NamedTuple):
    """Bad input: what is done to the project, the command, and words of which its one sentence has at least one."""

    name: str
    prepare: Callable[[], object]
    arguments: tuple[str, ...]
    expected: tuple[str, ...]


def nothing() -> None:
    """The project as it is."""


# Arguments and options

NAMES = ("", " ", "../../evil", "/etc", "a;touch PWNED;b", "$(touch PWNED)", "'", LONG, "\udcff", "ä" * 50, HUGE)
FOLDERS = ("", "\udcff", LONG, "/proc/evil", "/dev/null/evil", "params.yaml/evil", "a/" * 2_000)
NUMBERS = ("", "-1", "1.5", "x", "nan", HUGE, str(2**63), "1e3")
SEEDS = (
    "",
    " ",
    "-1",
    "1,",
    "1.5",
    "x",
    "0,0",
    HUGE,
    str(2**63),
    "٣",
    "0;touch PWNED",
    ",".join(map(str, range(2_000))),
)
KINDS = {"out": FOLDERS, "parquet": FOLDERS, "csv": FOLDERS, "seed": NUMBERS, "seeds": SEEDS}
TRAIN = ("--method", "f-irm", *SMALL)
WITH = {  # (command, argument) or command -> the other arguments
    ("train", "paper"): ("--run", PLAIN),
    ("train", "run"): ("--paper", PAPER),
    ("train", "budget"): ("--paper", PAPER, "--run", PLAIN),
    "train": TRAIN,
    ("tune", "paper"): ("--run", PLAIN),
    ("tune", "run"): ("--paper", PAPER),
    "tune": ("--paper", PAPER, "--run", PLAIN),
    "run": (PAPER,),
    ("run", "names"): (),
    "bench": ("W1",),
    ("bench", "workload"): (),
    "data show": ("digits",),
    ("data show", "dataset"): (),
    ("data show", "paper"): (),
    ("show table", "paper"): ("t1",),
    ("show table", "table"): (PAPER,),
    ("show table", "budget"): (PAPER, "t1"),
    ("show claims", "budget"): (PAPER,),
    ("check", "table"): (PAPER,),
    ("check", "budget"): (PAPER,),
    "test": ("a",),
    ("test", "record"): (),
    "compare": ("a", "b"),
    ("compare", "records"): ("a",),
    "plot": ("a", "b"),
    ("plot", "records"): ("a",),
    ("export", "paper"): ("--csv", "build"),
}
NEEDS = {  # command -> what it needs beside the tiny paper
    "bench": lambda: Path("benchmarks").symlink_to(ROOT / "benchmarks"),
    "tune": lambda: commands.paper(Path(), SEARCHED),
    **dict.fromkeys(("test", "compare", "plot"), lambda: [run(name, {0: 0.5, 1: 0.6}) for name in "ab"]),
}


def parts(command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """(command, argument) for every argument of every command that takes a value."""
    for name, each in getattr(command, "commands", {}).items():
        yield from parts(each, (*words, name))
    if not hasattr(command, "commands"):
        yield from ((" ".join(words), each) for each in command.params if not getattr(each, "is_flag", False))


def arguments() -> Iterator[Case]:
    for command, each in parts(typer.main.get_command(app.app)):
        if each.name in ("sets", "folder"):
            continue
        others = WITH.get((command, each.name), WITH.get(command, ()))
        for bad in KINDS.get(each.name, NAMES):
            bad = f"{bad}.png" if command in ("data show", "plot") and each.name == "out" and bad else bad
            own = (each.opts[0], bad) if each.param_type_name == "option" else (bad,)
            given = (*own, *others) if (command, each.name) == ("show table", "paper") else (*others, *own)
            words = {"names": "paper", "name": "dataset", "records": "record", "metrics": "metric"}.get(
                each.name, each.name
            )
            expected = (words, words.upper(), "method", "source", "picture", "place", "UTF-8")
            yield Case(
                f"{command} {each.name} {bad[:20]!r}", NEEDS.get(command, nothing), (*command.split(), *given), expected
            )


# Settings: --set of train and of data show

VALUES = {
    "huge": HUGE,
    "beyond": "9" * 30,
    "nan": "NaN",
    "infinite": "-Infinity",
    "1e400": "1e400",
    "table": "{}",
    "deep": DEEP,
}
SETTINGS = {
    "f-irm": "rounds stop.threshold stop.warm_start stop.margin watch.samples "
    "watch.train_every watch.test_every watch.precision watch.grad_norm watch.step_every batch hidden lr phi_lr order "
    "n p label_noise",
    "fedadam": "steps epochs cohort server_lr server_eps b1 tau net deal",
}
BIG = {  # more than any machine has
    "f-irm": ["hidden=100000", "n=1000000", "batch=2000000000", "rounds=0", "capacity=100000000"],
    "fedavg": [
        "hidden=100000",
        "steps=1000000000000",
        "epochs=1000000000000",
        "steps=100000000",
        "cohort=1000000000000",
    ],
    "f2u": ["watch.judged=10000000", "watch.judged=10000000000000000000", "batch=1000000000", "noise=1000000000000"],
}


def settings() -> Iterator[Case]:
    for method, keys in SETTINGS.items():
        for key in keys.split():
            for kind, value in VALUES.items():
                if kind == "beyond" and key in ("stop.margin", "lr", "server_lr", "server_eps"):
                    continue  # a large number is one
                given = ("train", "--method", method, *SMALL, "--set", f"{key}={value}")
                yield Case(f"{method} {key} {kind}", nothing, given, (key.rpartition(".")[2],))
    for method, pairs in BIG.items():
        dataset = "mixture-2d" if method == "f2u" else "digits"
        for pair in pairs:
            net = ("--set", "net=mlp") if pair.startswith("hidden") and method == "fedavg" else ()
            given = ("train", "--method", method, "--dataset", dataset, *net, "--set", pair)
            yield Case(f"{method} {pair}", nothing, given, (pair.partition("=")[0].rpartition(".")[2], "memory"))
    for key in ("n", "label_noise", "p"):
        for kind, value in VALUES.items():
            yield Case(
                f"data show {key} {kind}", nothing, ("data", "show", "digits", "--set", f"{key}={value}"), (key,)
            )
    for text in (
        "",
        "=",
        "=1",
        "rounds",
        "\udcff=1",
        f"{LONG}=1",
        "a;b=1",
        "..=1",
        "hyper.=1",
        ".lr=1",
        "data=1",
        "stop.=1",
    ):
        for words in (("train", *TRAIN), ("data", "show", "digits")):
            yield Case(
                f"{words[0]} --set {text[:20]!r}", nothing, (*words, "--set", text), ("--set", "setting", "UTF-8")
            )


# paper.toml

MORE = """
[figures.f1]
kind = "levels"
title = "Levels"
x = "type"
lines = "method"
cells = [{ dataset = ["Digits"], type = ["none"], method = ["FedSGD"] }]

[sheets.s1]
title = "Digits"
cell = { dataset = "Digits" }

[claims.c1]
statement = "Games win"
place = "nowhere"
quantity = { kind = "final", metric = "test_accuracy" }
margin = 0.5
published = 1
pairs = [{ both = { dataset = "Digits" }, high = { method = "F-IRM", type = "parallel" }, low = { method = "FedSGD", type = "none" } }]
"""
NUMBERS_OF_SPEC = (
    "rounds = 6", "batch = 64", "hidden = 16", "rounds = 2", "threshold = 0.6", "warm_start = 2", "spreads = 2",
    "points = 100", "margin = 0.5", "published = 1", "seeds = [0, 1]", "seeds = [0]",
)  # fmt: skip
NO_NUMBERS = {
    "nan": "nan", "inf": "inf", "-inf": "-inf", "1e400": "1e400", "word": '"5"', "true": "true", "date": "1979-05-27",
    "huge": HUGE, "beyond": "9" * 30, "table": "{}", "deep": "[" * 3_000 + "]" * 3_000, "below": "-9223372036854775809",
}  # fmt: skip
NO_NAMES = (
    "",
    " ",
    ".",
    "..",
    "../../evil",
    "/etc/evil",
    "a;touch PWNED",
    "$(touch PWNED)",
    "a b",
    "a/b",
    "-x",
    "x" * 300,
    "ä",
    "a\\u0000b",
)
NAMED = {
    "tables.t1": "[tables.{}]",
    "figures.f1": "[figures.{}]",
    "sheets.s1": "[sheets.{}]",
    "claims.c1": "[claims.{}]",
    "axes.type.none": "[axes.{}.none]",
}
MANY = "cells = [\n    { dataset = [" + "'Digits', " * 30_000 + "]"
REPLACED = [  # name, what is replaced in the spec, by what, words of the sentence
    ("bool for int", "rounds = 6", "rounds = false", "rounds"),
    ("float for int", "rounds = 6", "rounds = 6.0", "rounds"),
    ("word among seeds", "seeds = [0, 1]", 'seeds = [0, "1"]', "seeds"),
    ("negative seed", "seeds = [0, 1]", "seeds = [0, -1]", "seeds"),
    ("seed beyond", "seeds = [0, 1]", f"seeds = [0, {2**63}]", "seeds"),
    ("seed twice", "seeds = [0, 1]", "seeds = [0, 0]", "seeds"),
    ("no seeds", "seeds = [0, 1]", "seeds = []", "seeds"),
    ("floats for seeds", "seeds = [0, 1]", "seeds = [0.5]", "seeds"),
    ("nan in a list", "hidden = 16", "hidden = [16, nan]", "nan"),
    ("lr inf", "hidden = 16", "lr = inf", "inf"),
    ("lr nan", "hidden = 16", "lr = nan", "nan"),
    ("nan in a value that no run has", 'run = ""', 'run = ""\nhyper = { lr = nan }', "nan"),
    ("word for a flag", "compare = false", 'compare = "no"', "compare"),
    ("number for a flag", "compare = false", "compare = 0", "compare"),
    ("number for a title", 'title = "Tiny"', "title = 5", "title"),
    ("number for a method", 'method = "fedsgd"', "method = 5", "method"),
    ("method that leaves", 'method = "fedsgd"', 'method = "../../evil"', "method"),
    ("method for a shell", 'method = "fedsgd"', 'method = "a;touch PWNED"', "method"),
    ("method of no name", 'method = "fedsgd"', 'method = ""', "method"),
    ("dataset that leaves", 'dataset = "digits"', 'dataset = "../../evil"', "dataset"),
    ("duplicate cell", 'type = ["none"], method = ["FedSGD"] },\n    {', 'type = ["none"], method = ["FedSGD"] },\n    { dataset = ["Digits"], type = ["none"], method = ["FedSGD"] },\n    {', "twice"),
    ("duplicate value of a cell", 'cells = [\n    { dataset = ["Digits"]', 'cells = [\n    { dataset = ["Digits", "Digits"]', "twice"),
    ("many values of a cell", 'cells = [\n    { dataset = ["Digits"]', MANY, "twice"),
    ("cell of no axis", 'type = ["none"], method = ["FedSGD"] },\n    {', 'typ = ["none"], method = ["FedSGD"] },\n    {', "typ"),
    ("cell of no value", 'type = ["none"], method = ["FedSGD"] },\n    {', 'type = ["nonne"], method = ["FedSGD"] },\n    {', "nonne"),
    ("value for a shell", "[axes.type.none]", '[axes.type."a;b"]', "axes"),
    ("value with a sign", "[axes.type.none]", '[axes.type."a=b"]', "axes"),
    ("value of two lines", "[axes.type.none]", '[axes.type."a\\nb"]', "axes"),
    ("value of no letters", "[axes.type.none]", '[axes.type.""]', "axes"),
    ("budget that leaves", "[budgets.smoke]", '[budgets."../evil"]', "budgets"),
    ("budget for a shell", "[budgets.smoke]", '[budgets."a;b"]', "budgets"),
    ("budget of no name", "[budgets.smoke]", '[budgets.""]', "budgets"),
    ("reduction of no end", 'reduction = "final"', f'reduction = "last{HUGE}"', "reduction"),
    ("reduction beyond", 'reduction = "final"', f'reduction = "median{"9" * 30}"', "reduction"),
    ("metric of no name", 'metrics = ["test_accuracy"]', 'metrics = [""]', "metrics"),
    ("metric that leaves", 'metrics = ["test_accuracy"]', 'metrics = ["../evil"]', "metrics"),
    ("metric twice", 'metrics = ["test_accuracy"]', 'metrics = ["test_accuracy", "test_accuracy"]', "metrics"),
    ("a read with a width", 'reduction = "final"', 'reduction = "final"\nreads = [{ metric = "{dataset:>999999999999}", reason = "" }]', "reads"),
    ("a read of a width", 'reduction = "final"', 'reduction = "final"\nreads = [{ metric = "{dataset:>999999999}" }]', "reads"),
    ("a read of an attribute", 'reduction = "final"', 'reduction = "final"\nreads = [{ metric = "{dataset.__class__}" }]', "reads"),
    ("a read of an open brace", 'reduction = "final"', 'reduction = "final"\nreads = [{ metric = "{dataset" }]', "reads"),
    ("tolerance below zero", "spreads = 2", "spreads = -2", "spreads"),
    ("no tolerance", 'tolerance = { spreads = 2, points = 100, reason = "digits are few" }', "", "tolerance"),
    ("reason of no words", 'reason = "digits are few"', 'reason = ""', "reason"),
    ("widened nan", "spreads = 2", "widened = nan, spreads = 2", "nan"),
    ("share as a word", "spreads = 2", 'share = "0.1", spreads = 2', "share"),
    ("threshold as a word", "threshold = 0.6", 'threshold = "0.6"', "threshold"),
    ("threshold beyond", "threshold = 0.6", "threshold = 60", "threshold"),
    ("key twice", "rounds = 6", "rounds = 6\nrounds = 7", "line 6"),
    ("table twice", "[tables.t1]", "[tables.t1]\n[tables.t1]", "t1"),
    ("unknown key", 'title = "Tiny"', 'title = "Tiny"\ntitel = 5', "titel"),
    ("unknown table", "[tables.t1]", "[tabels.t1]", "tabels"),
    ("no tables of that kind", "[figures.f1]", "[[figures.f1]]", "figures"),
    ("unknown budget", "[budgets.paper]", "[budgets.papper]", "paper"),
    ("unknown setting", "hidden = 16", "hiddden = 16", "hiddden"),
    ("hidden of the wrong type", "hidden = 16", 'hidden = "wide"', "hidden"),
    ("hidden out of range", "hidden = 16", "hidden = 0", "hidden"),
    ("steps without end", "hidden = 16", "hidden = 16, steps = 1000000000000", "steps"),
    ("hidden as a float", "hidden = 16", "hidden = 16.0", "hidden"),
    ("settings as a list", "hyper = { batch = 64, hidden = 16 }", "hyper = [1]", "hyper"),
    ("settings as a word", "hyper = { batch = 64, hidden = 16 }", 'hyper = "x"', "hyper"),
    ("unknown claim key", "margin = 0.5", "margn = 0.5", "margn"),
    (
        "place of a figure twice",
        'cells = [{ dataset = ["Digits"],',
        'cells = [{ dataset = ["Digits"], type = ["none"], method = ["FedSGD"] }, { dataset = ["Digits"],',
        "two cells",
    ),
    ("figure of no kind", 'kind = "levels"', 'kind = "level"', "kind"),
    ("kind as a number", 'kind = "levels"', "kind = 5", "kind"),
    ("axes as a number", 'lines = "method"', "lines = 5", "lines"),
    ("a sheet without a dataset", 'cell = { dataset = "Digits" }', "cell = {}", "dataset"),
    ("a figure of no budget", 'kind = "levels"', 'kind = "levels"\nbudgets = ["papper"]', "papper"),
    ("a claim of no budget", "margin = 0.5", 'margin = 0.5\nbudgets = ["papper"]', "papper"),
    ("a budget on nothing", "[budgets.smoke]", '[budgets.smoke]\non = "papper"', "papper"),
    ("a budget on itself", "[budgets.smoke]", '[budgets.smoke]\non = "smoke"', "itself"),
    ("prepared as a word", "[budgets.smoke]", '[budgets.smoke]\nprepared = "yes"', "prepared"),
    ("a bottomless minimum", "[budgets.paper]", '[surfaces.s1]\ntitle = "S"\nabout = "S"\nclients = { a = [{ at = [0.0, 0.0], depth = inf, width = 1.0 }] }\n\n[budgets.paper]', "inf"),
    ("a sheet of no budget", 'title = "Digits"', 'title = "Digits"\nbudgets = ["papper"]', "papper"),
]  # fmt: skip


NAMELESS = SPEC.replace('method = "', 'run = ""\nmethod = "').replace(
    'dataset = "digits"', 'run = ""\ndataset = "digits"'
)


def edited(path: str, old: str, new: str) -> None:
    text = Path(path).read_text()
    assert old in text, old
    Path(path).write_text(text.replace(old, new, 1))


def written(path: str, content: str | bytes) -> None:
    Path(path).write_bytes(content.encode() if isinstance(content, str) else content)


def folder(path: str) -> None:
    Path(path).unlink(missing_ok=True)
    Path(path).mkdir()


def specs() -> Iterator[Case]:
    for number in NUMBERS_OF_SPEC:
        for kind, value in NO_NUMBERS.items():
            key = number.partition(" ")[0]
            if kind == "beyond" and key in ("spreads", "points", "margin") or (kind, key) == ("below", "margin"):
                continue  # a large number is one
            yield (
                "paper.toml",
                f"{number} {kind}",
                partial(edited, SPECS, number, f"{key} = {value}"),
                (key, "no finite number", "digits", "nested", "date"),
            )
    for place, head in NAMED.items():
        for bad in NO_NAMES:
            new = head.format(f'"{bad}"')
            yield (
                "paper.toml",
                f"{place} {bad[:20]!r}",
                partial(edited, SPECS, f"[{place}]", new),
                (place.partition(".")[0],),
            )
    for name, old, new, word in REPLACED:
        yield "paper.toml", name, partial(edited, SPECS, old, new), (word,)
    for name, content in (
        ("empty", ""),
        ("runs of no name", NAMELESS),
        ("not text", b"\xff"),
        ("no TOML", "= 5"),
        ("nul", "\0"),
        ("deep", f"x = {DEEP}"),
        ("deep tables", f"[{'a.' * 5_000}a]"),
        ("json", "{}"),
        ("utf-16", SPEC.encode("utf-16")),
    ):
        yield "paper.toml", name, partial(written, SPECS, content), ("",)
    yield "paper.toml", "a folder", partial(folder, SPECS), ("",)
    for bad in ("a;touch PWNED;b", "$(touch PWNED)", "a b", "-x", "x" * 200, "ä"):

        def other(bad: str = bad) -> None:
            Path("papers", bad).mkdir()
            Path("papers", bad, "paper.toml").write_text(SPEC)

        yield "papers", f"a folder of the name {bad[:20]!r}", other, ("name",)


# published.csv, params.yaml, tuned.json

HEAD = "paper,table,dataset,variant,method,metric,mean,std,unit,note"
ROW = f"{PAPER},t1,Digits,type=none,FedSGD,test_accuracy,20.5,1,percent,"
NO_PRINTED = (
    "nan",
    "NAN",
    "inf",
    "-inf",
    "Infinity",
    "1e400",
    "1e5",
    "1_0",
    " 5",
    "5 ",
    "٣",
    "0x1F",
    "5,5",
    "5.",
    ".5",
    "--5",
    "+5",
    "five",
    "5%",
    HUGE,
)
MEDIANS = (
    HEAD.replace("mean,std", "median,min,max"),
    ROW.replace("20.5,1,", "{},"),
    ROW.replace("type=none,FedSGD", "type=parallel,F-IRM").replace("20.5,1,", "30,20,40,"),
)


def published() -> Iterator[tuple]:
    for digits in (*NO_PRINTED, ""):
        yield "published.csv", f"mean {digits[:20]!r}", partial(edited, PUBLISHED, "20.5", digits), ("line 2",)
    for digits in (*NO_PRINTED, "-1"):
        yield (
            "published.csv",
            f"std {digits[:20]!r}",
            partial(edited, PUBLISHED, "20.5,1,", f"20.5,{digits},"),
            ("line 2",),
        )
    for numbers in ("5,6,7", "5,3,4", "5,7,3", "5,,6", "5,4,", "nan,4,6", "5,nan,6", "5,4,inf", ",4,6"):
        text = "\n".join(MEDIANS).format(numbers) + "\n"
        yield "published.csv", f"median {numbers}", partial(written, PUBLISHED, text), ("line 2",)
    for name, old, new, word in (
        ("twice", ROW, f"{ROW}\n{ROW}", "line 3"),
        ("twice, other digits", ROW, f"{ROW}\n{ROW.replace('20.5', '21')}", "line 3"),
        ("unit", "1,percent", "1,", "unit"),
        ("unit with a blank", "1,percent", "1,per cent", "unit"),
        ("unit that leaves", "1,percent", "1,../evil", "unit"),
        ("other paper", f"{PAPER},t1,Digits,type=none", "other,t1,Digits,type=none", "other"),
        ("no table", "t1,Digits,type=none", "t9,Digits,type=none", "t9"),
        ("no dataset", "t1,Digits,type=none", "t1,Digit,type=none", "Digit"),
        ("no axis", "type=none", "typ=none", "typ"),
        ("no variant", "type=none", "", "FedSGD"),
        ("variant without a sign", "type=none", "none", "none"),
        ("variant with an axis twice", "type=none", "type=none;type=none", "type=none"),
        ("variant with blanks", "type=none", "type = none", "type = none"),
        ("no method", "FedSGD", "FedSG", "FedSG"),
        ("no metric", "FedSGD,test_accuracy", "FedSGD,accuracy", "accuracy"),
        ("too few fields", "percent,\n", "percent\n", "line 2"),
        ("too many fields", "percent,\n", "percent,,\n", "line 2"),
        ("a quote", "percent,\n", 'percent,"\n', ""),
        ("columns", "mean,std", "std,mean", "columns"),
        ("a column twice", "mean,std", "mean,mean", "columns"),
        ("no columns", f"{HEAD}\n", "", "columns"),
        ("no row", f"{ROW}\n", "", "FedSGD"),
        ("a row more", ROW, f"{ROW}\n{ROW.replace('none', 'parallel')}", "parallel"),
        ("a long field", "percent,\n", f"percent,{'x' * 200_000}\n", ""),
    ):
        yield "published.csv", name, partial(edited, PUBLISHED, old, new), (word,)
    for name, content in (
        ("empty", ""),
        ("not text", b"\xff"),
        ("nul", "\0"),
        ("utf-16", HEAD.encode("utf-16")),
        ("returns", f"{HEAD}\r{ROW}\r"),
    ):
        yield "published.csv", name, partial(written, PUBLISHED, content), ("",)
    yield "published.csv", "a folder", partial(folder, PUBLISHED), ("",)
    yield "published.csv", "missing", partial(Path(PUBLISHED).unlink), ("",)


IN_USE = f"{PAPER}: {{budget: paper}}\n"


def params() -> Iterator[tuple]:
    for name, text, word in (
        ("empty", "", ""), ("a list", "[]", ""), ("a word", "x", ""), ("a number", "5", ""), ("no YAML", "{", ""),
        ("not text", b"\xff", ""), ("deep", DEEP, ""), ("deep blocks", "".join(" " * i + "a:\n" for i in range(1_500)), ""),
        ("no paper", "other-2020: {budget: paper}\n", "other-2020"),
        ("a paper more", f"{IN_USE}other-2020: {{budget: paper}}\n", "other-2020"),
        ("twice", IN_USE * 2, "twice"), ("twice, other", IN_USE + IN_USE.replace("paper}", "smoke}"), "twice"),
        ("budget twice", f"{PAPER}: {{budget: paper, budget: smoke}}\n", "twice"),
        ("null", f"{PAPER}: null\n", PAPER), ("no budget", f"{PAPER}: {{}}\n", "budget"),
        ("a list for a paper", f"{PAPER}: [paper]\n", PAPER), ("a word for a paper", f"{PAPER}: paper\n", PAPER),
        ("unknown key", f"{PAPER}: {{budget: paper, buget: smoke}}\n", "buget"),
        *((f"budget {bad[:20]}", f"{PAPER}: {{budget: {bad}}}\n", "") for bad in (
            "5", "true", "null", "[]", "[paper]", "{}", "papper", "''", "'../evil'", "1.5", "2020-01-01", ".nan", HUGE, "'a;b'",
            "&a [*a]", "!!python/object:os.system x", "!!binary aGk=")),
        *((f"{key} {bad[:20]}", f"{IN_USE}{key}: {bad}\n", key) for key in ("sources", "extractors") for bad in (
            "digits", "5", "null", "{}", "[5]", "[[digits]]", "['a;touch PWNED']", "[../evil]", "[nosuch]", "[digits, digits]", "true", "['']")),
        ("source", f"{IN_USE}source: [digits]\n", "source"),
        ("a name of no word", f"{IN_USE}5: {{budget: paper}}\n", "5"),
        ("a name of a list", f"{IN_USE}? [a]\n: 5\n", ""),
        ("two documents", f"{IN_USE}---\n{IN_USE}", ""),
        ("tabs", f"{PAPER}:\n\tbudget: paper\n", ""),
    ):  # fmt: skip
        yield "params.yaml", name, partial(written, PARAMS, text), (word,)
    yield "params.yaml", "a folder", partial(folder, PARAMS), ("",)
    yield "params.yaml", "missing", partial(Path(PARAMS).unlink), ("",)


def found(**changed) -> None:
    """A tuned.json of a run that needs a search, with changes; None leaves a key out."""
    from fedrepro.papers.load import load_paper

    commands.paper(Path(), SEARCHED)
    entry = {"chosen": {"lr": 0.01}, "config_digest": load_paper(PAPER).study(PLAIN).digest()} | changed
    entry = {key: value for key, value in entry.items() if value is not None}
    Path(TUNED).write_text(json.dumps({PLAIN: entry}))


def raw(text: str | bytes) -> None:
    found()
    written(TUNED, text)


def tuned() -> Iterator[tuple]:
    nan, inf = float("nan"), float("inf")
    for key, values in {
        "config_digest": (5, True, None, [], {}, "", "x", HUGE),
        "chosen": ([], 5, None, {"lr": nan}, {"lr": inf}, {"lr": "x"}, {"lr": [0.1]}, {"lr": True}),
    }.items():
        for value in values:
            yield "tuned.json", f"{key} {str(value)[:20]}", partial(found, **{key: value}), (key, "tune")
    for name, text in (
        ("empty", ""), ("no JSON", "{"), ("a list", "[]"), ("a number", "5"), ("not text", b"\xff"), ("deep", DEEP),
        ("deep tables", '{"a":' * 50_000), ("huge", HUGE), ("null", "null"), ("entry null", f'{{"{PLAIN}": null}}'),
        ("entry a list", f'{{"{PLAIN}": []}}'), ("entry nested", f'{{"{PLAIN}": {{"chosen": {"[" * 200}{"]" * 200}}}}}'),
        ("two documents", "{}{}"),
    ):  # fmt: skip
        yield "tuned.json", name, partial(raw, text), ("",)

    def place() -> None:
        found()
        folder(TUNED)

    yield "tuned.json", "a folder", place, ("",)


COMMANDS = {
    "paper.toml": (
        ("show", "papers"),
        ("run", PAPER),
        ("evaluate",),
        ("check",),
        ("train", "--paper", PAPER, "--run", PLAIN),
    ),
    "papers": (("show", "tables"), ("evaluate",), ("run", "--dry-run"), ("report", "--overview")),
    "published.csv": (("evaluate",), ("check", PAPER), ("check", "--json")),
    "params.yaml": (("run", "--dry-run"), ("show", "runs"), ("report",), ("train", "--paper", PAPER, "--run", PLAIN)),
    "tuned.json": (("run",), ("run", "--dry-run", PAPER), ("train", "--paper", PAPER, "--run", PLAIN)),
}


def files() -> Iterator[Case]:
    for place, (file, name, prepare, expected) in enumerate((*specs(), *published(), *params(), *tuned())):
        chosen = COMMANDS[file][place % len(COMMANDS[file])]
        if {"batch", "hidden", "steps"} & {*name.split(), *expected}:
            chosen = ("run", PAPER)  # which alone knows what a method takes
        yield Case(f"{file}: {name}", prepare, chosen, (file, "papers/", PLAIN) if expected == ("",) else expected)


CASES = [*arguments(), *settings(), *files()]


def there() -> dict[Path, bytes | None]:
    """Everything under the working folder but the locks of runs."""
    return {
        path: path.read_bytes() if path.is_file() else None
        for path in Path().rglob("*")
        if ".fedrepro" not in path.parts
    }


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """The tiny paper of `commands`, and a trainer that must not be reached."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(runs, "Training", lambda *given: pytest.fail("it was trained", pytrace=False))
    commands.paper(tmp_path, SPEC + MORE)


def test_what_the_mutations_start_from_is_accepted():
    assert fedrepro("run", "--dry-run").code == 0
    assert fedrepro("show", "tables").code == 0
    assert "is missing: run `fedrepro" in fedrepro("evaluate").fault  # its records, after published.csv was read
    found()
    assert fedrepro("run", "--dry-run").code == 0


def test_there_are_many():
    assert len(CASES) >= 500
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: ascii(case.name))
def test_bad_input_is_refused_with_a_sentence(case):
    case.prepare()
    before = there()
    done = fedrepro(*case.arguments)
    assert done.code in (1, 2), done
    assert there() == before
    assert not re.search("Traceback|internal error", done.err), done
    if "Usage: " in done.err:  # of typer, which names the argument in a box
        return
    assert done.fault.startswith("error: "), done
    assert done.fault.endswith((".", "?", ")")), done
    assert len(done.fault) < 1_000, done
    assert any(word in done.fault for word in case.expected), (case.expected, done.fault)
