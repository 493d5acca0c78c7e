"""Listings that are kept: as they were made, and only for as long as nothing behind them has changed."""

import io
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import commands
import pytest
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from fedrepro import PLUGINS, kept
from fedrepro.data.sources import kinds


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(tmp_path / "lent"))
    commands.paper(tmp_path)
    return tmp_path


@pytest.fixture
def made(project):
    """made(): whether a listing is made, and not the kept one."""

    def listed():
        found = []
        kept.listing("some", lambda: found.append(None) or Text("listed"))
        return bool(found)

    assert listed()
    assert not listed()
    return listed


def printed(drawn, width=80):
    console = Console(width=width, file=io.StringIO(), force_terminal=True)
    console.print(drawn)
    return console.file.getvalue()


def test_what_is_kept_looks_as_it_did(project):
    table = Table(title=Text("Title", style="bold"), title_justify="left")
    table.add_column("left\nhead", overflow="fold", vertical="bottom")
    table.add_column("right", justify="right", style="dim")
    table.add_row("[one]", Text("a long text that is folded where it has no room", style="bold red"))
    table.add_row("", Text("two"))
    drawn = Group(table, Text("below", style="yellow"))
    first, again = (kept.listing("some", lambda: drawn) for _ in range(2))
    assert first is drawn
    assert again is not drawn
    for width in (30, 80):
        assert printed(again, width) == printed(drawn, width)


def test_what_cannot_be_kept_is_refused(project):
    with pytest.raises(TypeError, match="cannot be kept"):
        kept.listing("some", lambda: Text.assemble(("one", "red"), ("two", "blue")))


@pytest.mark.parametrize(
    "path", ["params.yaml", f"papers/{commands.PAPER}/paper.toml", "runs/some/record.json", "lent/MNIST/raw/images"]
)
def test_a_file_that_changes_is_looked_at(made, path):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write("\n")
    assert made()
    assert not made()
    os.utime(path, ns=(0, 0))  # written again with as many bytes
    assert made()
    if path != "params.yaml":  # by which one knows a project
        Path(path).unlink()
        assert made()


def test_another_data_folder_is_looked_at(made, monkeypatch):
    monkeypatch.setenv("FEDREPRO_DATA_DIR", "elsewhere")
    assert made()
    monkeypatch.delenv("FEDREPRO_DATA_DIR")
    assert made()
    assert not made()
    Path(kinds.CACHE).mkdir(parents=True)
    (Path(kinds.CACHE) / "images").touch()
    assert made()


def test_the_data_are_where_they_are_read_from():
    assert (kinds.FOLDER_VARIABLE, str(kinds.CACHE)) == kept.DATA


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "null", '{"stamp": 1}'])
def test_what_is_damaged_is_made_anew(made, text):
    [path] = kept.FOLDER.glob("*")
    path.write_text(text)
    assert made()
    assert not made()


def test_nothing_is_kept_outside_of_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept.listing("some", lambda: Text("listed"))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_kept_beside_plugins(made, monkeypatch):
    point = EntryPoint("mine", "mine:build", PLUGINS)
    monkeypatch.setattr(kept, "entry_points", lambda group: (point,) if group == PLUGINS else ())
    assert made()
    assert made()


@pytest.mark.parametrize("name", ["methods", "datasets", "papers", "tables", "runs", "claims"])
def test_the_second_time_nobody_waits_for_what_makes_it(project, name):
    slow = {"torch", "numpy", "fedrepro.spec"}
    program = (
        f"import sys; from fedrepro import cli; cli.app(['show', '{name}'], standalone_mode=False); "
        f"sys.exit(any(name in sys.modules for name in {slow}))"
    )
    first, again = (subprocess.run([sys.executable, "-c", program], capture_output=True, text=True) for _ in range(2))
    assert (first.returncode, again.returncode) == (1, 0)
    assert again.stdout == first.stdout != ""
