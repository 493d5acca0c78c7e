"""Tables from made records: golden files, and what a reader must find in each format."""

import io
from pathlib import Path

import made
import pytest
from rich.console import Console

from fedrepro.cli import show
from fedrepro.errors import FedreproError, UsageError
from fedrepro.papers.load import load_paper
from fedrepro.records import paths
from fedrepro.report import layout, write
from fedrepro.results import evaluate
from fedrepro.results.evaluate import evaluate as fresh

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def motley(tmp_path):
    """A table with every status and every footnote, evaluated."""
    toy = made.motley(tmp_path)
    stored(toy)
    return toy


def stored(toy):
    evaluate.write(toy, fresh(toy))


def rendered(toy):
    """The files of the table by their kind."""
    list(write.render(toy))
    return {path.suffix[1:]: path for path in paths.table(made.NAME, "t1", toy.root)}


@pytest.mark.parametrize("kind", ["csv", "md", "tex"])
def test_files_equal_the_golden_ones(motley, kind):
    """After a wanted change of the layout: copy the file that pytest names over the golden one, and read the diff."""
    written = rendered(motley)
    assert written[kind].read_bytes() == (GOLDEN / f"t1.{kind}").read_bytes(), written[kind]


def test_rendering_again_gives_the_same_bytes(motley):
    first = {path: path.read_bytes() for path in write.render(motley)}
    assert {path: path.read_bytes() for path in write.render(motley)} == first


def test_a_file_that_is_no_longer_rendered_goes(motley):
    written = list(write.render(motley))
    old = written[0].with_name("t0.md"), paths.figure(made.NAME, "f0", motley.root)
    for path in old:
        path.parent.mkdir(exist_ok=True)
        path.write_text("the spec had it once")
    assert list(write.render(motley)) == written
    assert [path for path in old if path.exists()] == []
    assert all(path.exists() for path in written)


def test_numbers_of_the_smoke_budget_are_not_compared(tmp_path):
    toy = made.records(made.paper(tmp_path, budget="smoke"))
    assert set(fresh(toy).cells.status) == {"not-compared"}
    assert "never compared" in terminal(toy)


def test_terminal_shows_what_is_there_and_what_is_missing(motley):
    shown = terminal(motley)
    assert "71.00 ± 0.82 †" in shown
    assert "not run" in shown
    (motley.root / "runs/toy-2022/game/toys-game-sequential/record.json").unlink()
    shown = terminal(motley)
    assert "missing" in shown
    assert "fedrepro train --paper toy-2022 --run toys-game-sequential" in shown


def test_a_table_is_shown_from_the_frames(motley, monkeypatch):
    monkeypatch.chdir(motley.root)
    assert drawn(show.table(load_paper(made.NAME), "t1", 80, wide=True)) == terminal(motley)


def test_report_needs_frames_of_every_run_and_of_this_budget(motley):
    path = paths.frame(made.NAME, "cells", motley.root)
    remedy = "run `fedrepro evaluate toy-2022`"
    whole = path.read_text()
    path.write_text("\n".join(line for line in whole.splitlines() if "toys-plain" not in line))
    with pytest.raises(FedreproError, match=f"lacks toys-plain: {remedy}"):
        list(write.render(motley))
    path.write_text(whole.replace(",paper,", ",smoke,"))
    with pytest.raises(FedreproError, match=f"is of budget 'smoke' instead of 'paper': {remedy}"):
        list(write.render(motley))
    path.write_text("run,seed\n1,2\n")
    with pytest.raises(FedreproError, match=f"cannot be read.*{remedy}"):
        list(write.render(motley))
    path.unlink()
    with pytest.raises(FedreproError, match=f"is missing: {remedy}"):
        list(write.render(motley))


def test_showing_an_unknown_table_names_the_closest(motley, monkeypatch):
    monkeypatch.chdir(motley.root)
    with pytest.raises(UsageError, match="unknown table of toy-2022 't2': there is t1"):
        show.table(motley, "t2", 80, wide=False)


def terminal(toy):
    """What `show` prints of what the records give now, on a wide console."""
    return drawn(layout.terminal(layout.sheet(toy, "t1", fresh(toy).cells)))


def drawn(shown):
    console = Console(width=250, file=io.StringIO())
    console.print(shown)
    return console.file.getvalue()


def test_signs_that_latex_reserves_are_escaped(motley):
    path = motley.folder / "published.csv"
    path.write_text(path.read_text().replace("printed with one decimal", r"50% & a_b #1 {x} \ ^ ~ $"))
    stored(motley)
    written = {f".{kind}": path.read_text() for kind, path in rendered(motley).items()}
    assert r"50\% \& a\_b \#1 \{x\} \textbackslash{} \textasciicircum{} \textasciitilde{} \$." in written[".tex"]
    assert r"Published: 50% & a_b #1 {x} \ ^ ~ $." in written[".md"]


def test_a_row_with_one_metric_left_out_still_says_how_it_was_trained(tmp_path):
    remark = '\n[[tables.t1.not_run]]\nwhen = { metric = "train_accuracy" }\nreason = "it is not measured"\n'
    toy = made.records(made.paper(tmp_path, spec=made.SPEC + remark))
    assert "50 (40–60)" in terminal(toy)


def test_the_reduction_is_said_below_the_table(tmp_path):
    said = "The number of a seed is the mean over its last 3 rounds."
    assert said not in terminal(made.records(made.paper(tmp_path)))
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC.replace('"final"', '"last3"')))
    flat = {metric: dict.fromkeys(range(1, 101), 0.5) for metric in ("train_accuracy", "test_accuracy")}
    for run in made.RUNS:
        made.watch(loaded, run, dict.fromkeys((0, 1, 2), flat))
    shown = terminal(loaded)
    assert said in shown
    assert "50.00 ± 0.00" in shown
    stored(loaded)
    assert all(said in path.read_text() for kind, path in rendered(loaded).items() if kind != "csv")
