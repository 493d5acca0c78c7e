"""What stages depend on beside files: which digests a change moves, and that the committed ones are up to date."""

import json
from pathlib import Path

import made
import pytest

from fedrepro import digests, lineage

ROOT = Path(__file__).parents[1]
MORE = """
[figures.f1]
kind = "levels"
title = "A figure"
x = "type"
lines = "method"
cells = [{ dataset = ["Toys"], type = ["sequential"], method = ["Game (Smooth)"] }]

[sheets.s1]
title = "A sheet"
cell = { dataset = "Toys" }
"""


@pytest.fixture
def moved(tmp_path):
    """The digests, as `a.b` paths, that a change of the toy's paper.toml moves."""
    path = made.paper(tmp_path, spec=made.SPEC + MORE) / "papers" / made.NAME / "paper.toml"

    def change(old, new):
        before = flat(digests.collect(str, "", tmp_path))
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        after = flat(digests.collect(str, "", tmp_path))
        assert set(before) == set(after)
        return {name.removeprefix("papers.toy-2022.") for name in before if before[name] != after[name]}

    return change


def flat(tree, above=""):
    if not isinstance(tree, dict):
        return {above: tree}
    return {k: v for key, each in tree.items() for k, v in flat(each, f"{above}.{key}".strip(".")).items()}


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("[tables.t1]", "# what it is\n[tables.t1]", set()),
        ('title = "A figure"', 'title = "The figure"', {"figures.f1"}),
        ('title = "A sheet"', 'title = "The sheet"', {"sheets.s1"}),
        ("data = { n = 2 }", "data = { n = 3 }", {"sheets.s1"}),
        ('reduction = "final"', 'reduction = "last20"', {"tables.t1"}),
    ],
)
def test_a_change_moves_what_it_is_about(moved, old, new, wanted):
    assert moved(old, new) == wanted


def test_the_committed_digests_are_up_to_date():
    found = digests.collect(lineage.code_digest, lineage.sheet_digest(), ROOT)
    assert json.loads((ROOT / digests.PATH).read_text()) == found, "run `dvc repro digests`"


def test_sheets_depend_on_what_draws_them_and_on_no_method():
    files = lineage.sheet_files()
    assert {"fedrepro/data/sheet.py", "fedrepro/data/synth.py", "fedrepro/data/sources/readers.py"} <= set(files)
    assert not [file for file in files if "methods" in file or file == "fedrepro/train.py"]
