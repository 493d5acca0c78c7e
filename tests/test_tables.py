"""Tables from made records: golden files, and what a reader must find in each format."""

import csv
import io
from pathlib import Path

import made
import pytest
from rich.console import Console

from fedrepro import evaluate, tables
from fedrepro.errors import FedreproError, UsageError
from fedrepro.page import reasons
from fedrepro.results import join, published
from fedrepro.spec import load_paper

GOLDEN = Path(__file__).parent / "golden"
REMARKS = """
[[tables.t1.deviations]]
when = { method = "Plain", metric = "train_accuracy" }
reason = "the toy's budget is unknown"

[[tables.t1.not_run]]
when = { type = "parallel", metric = "test_accuracy" }
reason = "there was no time"
"""


@pytest.fixture
def motley(tmp_path):
    """A table with every status and every footnote, evaluated."""
    made.paper(tmp_path, spec=made.SPEC + REMARKS)
    toy = made.records(tmp_path, toys_plain=[(0.70, 0.10), (0.71, 0.11), (0.72, 0.15)])
    record = made.record(toy, "toys-game-parallel", made.ACCURACIES["toys-game-parallel"])
    record["seeds"]["0"] |= {"status": "diverged", "metrics": {}, "rounds": 12}
    record["seeds"]["1"] |= {"status": "cap", "rounds": 100}
    made.write(tmp_path, "toys-game-parallel", record)
    record = made.record(toy, "toys-game-sequential", [(0.50, 0.66), (0.51, 0.67), (0.52, 0.68)])
    record["data"]["substitute"] = "other toys"
    made.write(tmp_path, "toys-game-sequential", record)
    evaluate.table(made.NAME, "t1", tmp_path)
    return toy


@pytest.mark.parametrize("kind", ["csv", "md", "tex"])
def test_files_equal_the_golden_ones(motley, kind):
    """After a wanted change of the layout: copy the file that pytest names over the golden one, and read the diff."""
    written = {path.suffix[1:]: path for path in tables.render([motley])}
    assert written[kind].read_bytes() == (GOLDEN / f"t1.{kind}").read_bytes(), written[kind]


def test_rendering_again_gives_the_same_bytes(motley):
    first = {path: path.read_bytes() for path in tables.render([motley])}
    assert {path: path.read_bytes() for path in tables.render([motley])} == first


def test_csv_joins_with_published_and_has_the_columns_of_the_design(motley):
    results = join(motley, "t1", evaluate.collect(motley, "t1"))
    rows = list(csv.DictReader(io.StringIO(tables.csv_text(results))))
    assert ",".join(rows[0]) == (
        "paper,table,dataset,variant,method,metric,published,published_spread,reproduced,reproduced_spread,n_seeds,"
        "budget,substitute,status,run,compared_with,threshold_raised,threshold_lowered"
    )
    keys = [tuple(row[key] for key in ("table", "dataset", "variant", "method", "metric")) for row in rows]
    assert keys == list(published(motley))
    assert [row["status"] for row in rows] == ["deviation", "within", "outside", "within", "within", "not-run"]


def test_means_and_spreads_are_percent_over_the_seeds_with_a_value(motley):
    results = join(motley, "t1", evaluate.collect(motley, "t1"))
    plain, parallel = results[1], results[4]
    assert (plain.mean, plain.spread) == ("12.00", "2.16")  # 10, 11, 15: population standard deviation
    assert (parallel.mean, parallel.spread, len(parallel.values)) == ("61.00", "1.00", 2)


@pytest.mark.parametrize(
    ("accuracy", "status"), [(0.8788, "within"), (0.8789, "outside"), (0.8188, "within"), (0.8187, "outside")]
)
def test_tolerance_is_inclusive_and_judged_on_the_printed_digits(tmp_path, accuracy, status):
    made.paper(tmp_path)
    toy = made.records(tmp_path, toys_plain=[(accuracy, 0.1)] * 3)
    assert join(toy, "t1", evaluate.collect(toy, "t1"))[0].status == status


def test_tolerance_widens_with_the_published_spread(tmp_path):
    toy = made.records(made.paper(tmp_path), toys_game_parallel=[(0.7047, 0.67)] * 3)
    results = join(toy, "t1", evaluate.collect(toy, "t1"))
    assert (results[4].difference, results[4].limit, results[4].status) == (12.44, 12.44, "within")


def test_all_seeds_diverged_is_outside_and_never_blank(motley):
    record = made.record(motley, "toys-plain", [(0, 0)] * 3)
    for entry in record["seeds"].values():
        entry |= {"status": "diverged", "metrics": {}}
    made.write(motley.root, "toys-plain", record)
    declared, result, *_ = join(motley, "t1", evaluate.collect(motley, "t1"))
    assert (result.status, str(result), result.difference) == ("outside", "diverged", None)
    assert declared.status == "deviation"
    assert reasons.deviations(motley, [declared])[0].links[0].text.endswith("train accuracy diverged")


def test_numbers_of_the_smoke_budget_are_not_compared(tmp_path):
    toy = made.records(made.paper(tmp_path, budget="smoke"))
    assert {result.status for result in join(toy, "t1", evaluate.collect(toy, "t1"))} == {"not-compared"}
    assert "never compared" in terminal(toy)


def test_terminal_shows_what_is_there_and_what_is_missing(motley):
    (motley.root / "runs/toy-2022/toys-game-sequential/record.json").unlink()
    shown = terminal(motley)
    assert "71.00 ± 0.82 †" in shown
    assert "missing" in shown
    assert "train-toys-game-sequential" in shown
    assert "not run" in shown


def test_report_needs_measures_of_every_run_and_of_this_budget(motley):
    path = evaluate.path(made.NAME, "t1", motley.root)
    remedy = "run `fedrepro evaluate --paper toy-2022 --table t1`"
    whole = path.read_text()
    path.write_text("\n".join(line for line in whole.splitlines() if "toys-plain" not in line))
    with pytest.raises(FedreproError, match=f"lacks run toys-plain: {remedy}"):
        tables.render([motley])
    path.write_text(whole.replace(",paper,", ",smoke,"))
    with pytest.raises(FedreproError, match=f"is of budget 'smoke' instead of 'paper': {remedy}"):
        tables.render([motley])
    path.write_text("run,seed\n1,2\n")
    with pytest.raises(FedreproError, match=f"cannot be read.*{remedy}"):
        tables.render([motley])
    path.unlink()
    with pytest.raises(FedreproError, match=f"is missing: {remedy}"):
        tables.render([motley])


def test_spec_and_published_must_have_the_same_cells(tmp_path):
    lines = made.PUBLISHED.splitlines(keepends=True)
    toy = made.records(made.paper(tmp_path, published="".join(lines[:-1])))
    with pytest.raises(UsageError, match="no row for the cell t1, Toys, type=parallel"):
        tables.show(made.NAME, "t1", toy.root)
    (toy.folder / "published.csv").write_text(made.PUBLISHED + lines[-1].replace("type=parallel", "type=other"))
    with pytest.raises(UsageError, match="no cell for the published t1, Toys, type=other"):
        tables.show(made.NAME, "t1", toy.root)
    (toy.folder / "published.csv").unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        tables.show(made.NAME, "t1", toy.root)


def test_showing_an_unknown_table_names_the_closest(motley):
    with pytest.raises(UsageError, match="did you mean 't1'"):
        tables.show(made.NAME, "t2", motley.root)


def terminal(toy, table="t1"):
    """What `show` prints on a wide console."""
    console = Console(width=250, file=io.StringIO())
    console.print(tables.show(made.NAME, table, toy.root))
    return console.file.getvalue()


def test_the_committed_published_numbers_parse(tmp_path):
    for printed in published(load_paper("flgames-2022", Path(__file__).parents[1])).values():
        assert float(printed.mean) > 0
        assert printed.unit == "percent"


def test_signs_that_latex_reserves_are_escaped(motley):
    path = motley.folder / "published.csv"
    path.write_text(path.read_text().replace("printed with one decimal", r"50% & a_b #1 {x} \ ^ ~ $"))
    written = {path.suffix: path.read_text() for path in tables.render([motley])}
    assert r"50\% \& a\_b \#1 \{x\} \textbackslash{} \textasciicircum{} \textasciitilde{} \$." in written[".tex"]
    assert r"Published: 50% & a_b #1 {x} \ ^ ~ $." in written[".md"]


def test_a_row_with_one_metric_left_out_still_says_how_it_was_trained(tmp_path):
    remark = '\n[[tables.t1.not_run]]\nwhen = { metric = "train_accuracy" }\nreason = "it is not measured"\n'
    toy = made.records(made.paper(tmp_path, spec=made.SPEC + remark))
    assert "50 (40–60)" in terminal(toy)


SHIFTS = made.SPEC.replace("warm_start = 10 }", "warm_start = 10, shifts = [0.03, -0.03] }")


@pytest.fixture
def shifted(tmp_path):
    """Sequential: every seed would have stopped at T+ and only the first two at T-; parallel: none at either."""
    toy = made.records(made.paper(tmp_path, spec=SHIFTS))
    record = made.record(toy, "toys-game-sequential", made.ACCURACIES["toys-game-sequential"])
    for seed, entry in record["seeds"].items():
        entry["shifted"] = {"+0.03": {"rounds": 9, "train_accuracy": 0.59, "test_accuracy": 0.6 + 0.01 * int(seed)}}
        if seed != "2":
            entry["shifted"]["-0.03"] = {"rounds": 99, "train_accuracy": 0.5, "test_accuracy": 0.7}
    made.write(tmp_path, "toys-game-sequential", record)
    return toy


def test_what_another_threshold_would_have_given(shifted):
    results = join(shifted, "t1", evaluate.collect(shifted, "t1"))
    rows = list(csv.DictReader(io.StringIO(tables.csv_text(results))))
    moved = [(row["threshold_raised"], row["threshold_lowered"]) for row in rows]
    assert moved == [("", ""), ("", ""), ("59.00", "50.00"), ("61.00", "70.00"), ("", ""), ("", "")]
    assert "61.00, 70.00 (2)" in terminal(shifted)
    evaluate.table(made.NAME, "t1", shifted.root)
    assert tables.stored(shifted, "t1").measures == evaluate.collect(shifted, "t1").measures


INSTEAD = """
[tables.t2]
title = "Table 2: mislabelled"
metrics = ["test_accuracy"]
reduction = "final"
tolerance = { spreads = 0, points = 3, reason = "a toy" }

[[tables.t2.instead]]
when = { size = "small" }
table = "t1"
reason = "the row is mislabelled"

[[tables.t2.cells]]
dataset = ["Toys"]
method = ["Game (Smooth)"]
type = ["sequential"]
size = ["small", "large"]
"""
SIZES = """
[axes.size.small]
run = ""

[axes.size.large]
rounds = 70
"""
MISLABELLED = """\
toy-2022,t2,Toys,type=sequential;size=small,Game (Smooth),test_accuracy,12.34,0.5,percent,
toy-2022,t2,Toys,type=sequential;size=large,Game (Smooth),test_accuracy,80.00,0.5,percent,
"""


def test_a_mislabelled_number_is_shown_and_another_compared(tmp_path):
    spec = made.SPEC.replace("[budgets.paper]", SIZES + "[budgets.paper]") + INSTEAD
    toy = made.records(
        made.paper(tmp_path, spec=spec, published=made.PUBLISHED + MISLABELLED),
        toys_game_sequential_large=[(0.5, 0.79)] * 3,
    )
    small, large = join(toy, "t2", evaluate.collect(toy, "t2"))
    assert (str(small.published), str(small.reference)) == ("12.34 ± 0.5", "66.56 ± 1.58")
    assert (small.difference, small.status) == (0.44, "within")  # 67.00 - 66.56
    assert (large.difference, large.status, large.reference) == (-1.0, "within", large.published)
    rows = list(csv.DictReader(io.StringIO(tables.csv_text([small, large]))))
    assert [row["published"] for row in rows] == ["12.34", "80.00"]
    assert [row["compared_with"] for row in rows] == ["66.56 ± 1.58", ""]
    assert "Compared with 66.56 ± 1.58: the row is mislabelled." in terminal(toy, "t2")


def test_a_comparison_needs_a_number(tmp_path):
    spec = made.SPEC.replace("[budgets.paper]", SIZES + "[budgets.paper]") + INSTEAD
    with pytest.raises(UsageError, match=r"tables\.t2: unknown table 't9'"):
        made.paper(tmp_path, spec=spec.replace('table = "t1"', 'table = "t9"'))
    others = [row for row in (made.PUBLISHED + MISLABELLED).splitlines() if ",t1,Toys,type=sequential" not in row]
    made.paper(tmp_path, spec=spec, published="\n".join(others))
    toy = made.records(tmp_path, toys_game_sequential_large=[(0.5, 0.79)] * 3)
    with pytest.raises(UsageError, match="t1 has no number to compare toy-2022, t2, Toys, type=sequential;size=small"):
        join(toy, "t2", evaluate.collect(toy, "t2"))


def test_the_tolerance_of_the_paper_is_that_of_a_table_without_one(tmp_path):
    own = 'tolerance = { spreads = 2, points = 3, reason = "the toy says little" }\n'
    shared = own.replace("points = 3", "points = 7")
    spec = made.SPEC.replace(own, "").replace("[defaults]", f"{shared}\n[defaults]", 1)
    assert load_paper(made.NAME, made.paper(tmp_path, spec=spec)).table("t1").tolerance.points == 7
    spec = made.SPEC.replace("[defaults]", f"{shared}\n[defaults]", 1)
    assert load_paper(made.NAME, made.paper(tmp_path, spec=spec)).table("t1").tolerance.points == 3


def test_a_single_seed_has_no_spread(tmp_path):
    toy = made.records(made.paper(tmp_path, spec=made.SPEC.replace("seeds = [0, 1, 2]", "seeds = [0]")))
    found = {str(result) for result in join(toy, "t1", evaluate.collect(toy, "t1"))}
    assert found == {f"{100 * value:.2f}" for (values, *_) in made.ACCURACIES.values() for value in values}


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
    evaluate.table(made.NAME, "t1", loaded.root)
    assert all(said in path.read_text() for path in tables.render([loaded]) if path.suffix != ".csv")
