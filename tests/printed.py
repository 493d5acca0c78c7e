"""The project's pages for tests: their fences, the commands that they tell a reader to type, and whether these exist.

A fence says what it holds: `sh` commands, `text` what is neither typed nor read by a machine, and otherwise a language.
One that names a file of the project after its language shows that file as it is; one that names another adds to it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import commands
import pytest
import typer
import yaml
from typer.core import TyperCommand

from fedrepro import methods
from fedrepro.cli import app
from fedrepro.data import DATASETS, sources
from fedrepro.papers.load import load_paper
from fedrepro.pipeline import request, run

ROOT = Path(__file__).parents[1]
PLACES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "papers/*/PROTOCOL.md", "examples/*/README.md")
PAGES = sorted(page for place in PLACES for page in ROOT.glob(place))
LANGUAGES = {"sh", "text", "python", "toml", "yaml", "csv"}
TYPED = ("fedrepro", "dvc", "make", "pip", "uv", "pre-commit", "pytest", "git", "python", "source", "export")
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)```$", re.M)
# What a page may write for a name that the reader chooses, and a name to try it with.
PLACEHOLDERS = {"P": "gma-2022", "PAPER": "gma-2022", "R": "mnist-fedavg-noniid-avg", "TABLE": "table1"}


@dataclass(frozen=True)
class Fence:
    """A fenced block: its language, the file that it names (or none), and what is in it."""

    language: str
    file: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The lines to be typed, without comments; a backslash goes on in the next line."""
        if self.language != "sh":
            return []
        lines = re.sub(r"\\\n\s*", "", self.text).splitlines()
        return [line for line in (re.sub(r"(^|\s+)#.*", "", line).strip() for line in lines) if line]


def name(page: Path) -> str:
    """A page as its path from the root."""
    return str(page.relative_to(ROOT))


def fences(page: Path) -> list[Fence]:
    """The fenced blocks of a page, in their order."""
    found = [(*info.partition(" ")[::2], text) for info, text in FENCE.findall(page.read_text())]
    return [Fence(language, file.strip(), text) for language, file, text in found]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


def inline(page: Path) -> list[str]:
    """The commands among the words of a page, such as `fedrepro check`."""
    spans = (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page)))
    return list(dict.fromkeys(span for span in spans if span.split()[0] in ("fedrepro", "dvc", "make") and " " in span))


def parse(command: str) -> None:
    """Fail unless a command could be run: it is there, its options are, and whatever it names exists."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command)]
    kind = words[0]
    if kind == "fedrepro":
        _fedrepro(words[1:])
    elif kind == "dvc":
        _dvc(words[1:])
    elif kind == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
        assert {word for word in words[1:] if "=" not in word} <= set(targets), command
    elif kind in ("pytest", "pip", "uv", "pre-commit", "python"):
        files = [word for word in words[1:] if word.endswith((".lock", ".txt"))]
        assert all((ROOT / word).exists() for word in files), command
        assert all((ROOT / word).exists() for word in words[1:] if "/" in word), command
    else:
        assert command in ("source .venv/bin/activate", "export FEDREPRO_DATA_DIR=~/datasets"), command


def _fedrepro(words: list[str]) -> None:
    """Parse as the command line does, without doing anything; a command's name alone stands for the command."""
    command = typer.main.get_command(app.app)
    for word in words:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
    else:
        return
    seen = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TyperCommand, "invoke", lambda self, context: seen.update(context.params), raising=False)
        done = commands.fedrepro(*words)
    assert done.code == 0, done.err
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        _exists(words, seen)


def _exists(words: list[str], given: dict) -> None:
    """UsageError for a method, dataset, paper, run, table or setting that is not there."""
    if words[0] == "train":
        request.resolve(request.Request(**{key: given[key] for key in ASKED}, sets=tuple(given["sets"] or ())))
    elif words[0] == "run":
        only = run.Only(*(given[key] for key in ("method", "run", "table", "figure")))
        run.wanted(map(load_paper, given["names"] or ()), only)
    elif words[:2] == ["show", "method"]:
        methods.find(given.pop("name"))
    elif given.get("paper"):
        paper = load_paper(given["paper"])
        if given.get("table"):
            paper.table(given["table"])
        if given.get("run"):
            paper.study(given["run"])
    for key in ("name", "dataset", "source"):
        assert given.get(key) is None or given[key] in {*DATASETS, *sources.SOURCES, "inception"}


ASKED = ("method", "dataset", "paper", "run", "budget", "seeds", "precision", "out")


def _dvc(words: list[str]) -> None:
    from dvc.cli import parse_args

    targets = getattr(parse_args(words), "targets", None) or []
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    for target in targets:
        assert target.partition("@")[0] in stages, target
