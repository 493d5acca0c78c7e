"""What reproduces, in counts, verdicts and reasons: by hand from made records, and that the committed files agree."""

import json
from pathlib import Path

import made
import pandas as pd
import pytest

from fedrepro.papers.load import load_papers
from fedrepro.records import paths
from fedrepro.report import reasons, summary, write
from fedrepro.results import evaluate, frames
from fedrepro.results.claims import verdicts
from fedrepro.results.evaluate import read

ROOT = Path(__file__).parents[1]
REMARKS = """
[[tables.t1.deviations]]
when = { method = "Plain", metric = "train_accuracy" }
reason = "its budget is unknown"

[[tables.t1.not_run]]
when = { type = "parallel" }
reason = "there was no time"

[figures.f1]
title = "Figure 1: toys over rounds"
not_run = [{ reason = "there was no time" }]
kind = "curves"
metrics = ["test_accuracy"]
cells = [{ dataset = ["Toys"], method = ["Plain"], type = ["none"] }]

[figures.f2]
title = "Figure 2: toys at last"
not_run = [{ reason = "nobody drew it" }]
kind = "curves"
metrics = ["test_accuracy"]
cells = [{ dataset = ["Toys"], method = ["Plain"], type = ["none"] }]

[claims.c1]
statement = "the game is more accurate than the plain method | at test"
place = "section 1"
quantity = { kind = "final", metric = "test_accuracy" }
margin = 0
pairs = [{ high = { dataset = "Toys", type = "sequential", method = "Game (Smooth)" }, low = { dataset = "Toys", type = "none", method = "Plain" } }]
"""  # noqa: E501
OWN = """\
| table         | numbers | within tolerance | outside, declared | not run |
| :------------ | ------: | ---------------: | ----------------: | ------: |
| Table 1: toys |       6 |                3 |                 1 |       2 |
| all           |       6 |                3 |                 1 |       2 |

| claim | verdict | what the paper says                                                      |
| :---- | :------ | :----------------------------------------------------------------------- |
| c1    | holds   | “the game is more accurate than the plain method \\| at test” (section 1) |

Outside tolerance, declared, and why:

- Table 1, type none, Plain (1): its budget is unknown.

Not run, and why:

- Table 1, type parallel, Game (Smooth) (2); Figure 1, toys over rounds: there was no time.
- Figure 2, toys at last: nobody drew it.
"""
ALL = """\
| paper    | budget | numbers | within tolerance | outside, declared | not run | claims: holds | claims: fails | claims: undecided |
| :------- | :----- | ------: | ---------------: | ----------------: | ------: | ------------: | ------------: | ----------------: |
| toy-2022 | paper  |       6 |                3 |                 1 |       2 |             1 |             0 |                 0 |
"""  # noqa: E501


@pytest.fixture
def summed(tmp_path):
    """A toy paper with a deviation, a part that is not run and a claim, rendered."""
    made.paper(tmp_path, spec=made.SPEC + REMARKS)
    loaded = made.load_paper(made.NAME, tmp_path)
    wanted = made.ACCURACIES | {"toys-plain": [(0.70, 0.10), (0.71, 0.11), (0.72, 0.12)]}
    for run in loaded.runs():
        made.write(tmp_path, run, made.record(loaded, run, wanted[run]))
    evaluate.write(loaded, evaluate.evaluate(loaded))
    list(write.render(loaded))
    write.overview([loaded])
    return loaded


def test_what_reproduces(summed):
    assert paths.summary(made.NAME, summed.root).read_text() == OWN
    assert (summed.root / paths.OVERVIEW).read_text() == ALL


def test_a_paper_without_numbers_says_so(summed):
    found = evaluate.evaluate(summed)
    bare = found._replace(cells=frames.frame("cells", []), claims=found.claims.assign(verdict="undecided"))
    own = summary.text(summed, bare)
    assert own.startswith("The paper prints no numbers that could be compared.\n\n| claim | verdict   |")


def test_a_place_names_no_axis_that_some_of_its_rows_lack(summed):
    rows = ["type=none;steps=8", "type=none", "type=sequential;steps=9"]
    cell = {"table": "t1", "reason": "r", "dataset": "Toys", "method": "Plain", "metric": "train_accuracy"}
    cells = pd.DataFrame([cell | {"variant": row, "status": "deviation"} for row in rows])
    cells.loc[2, "status"] = "within"
    assert reasons.of_tables(summed, cells, "deviation") == [("r", 2, "Table 1, type none (2)", "toy-2022.t1")]


@pytest.mark.slow
def test_the_committed_summaries_have_the_counts_and_verdicts_of_the_frames():
    every = (ROOT / paths.OVERVIEW).read_text()
    for paper in load_papers(ROOT):
        counts = json.loads(paths.metrics(paper.name, ROOT).read_text())["cells"]
        row = next(line for line in every.splitlines() if line.startswith(f"| {paper.name} "))
        assert f"| {counts['all']:>7} | {counts['within']:>16} |" in row
        text = paths.summary(paper.name, ROOT).read_text()
        shown = {tuple(map(str.strip, line.split("|")[1:3])) for line in text.splitlines() if line.startswith("| ")}
        assert verdicts(read(paper).claims).items() <= shown
