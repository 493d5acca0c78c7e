"""Cells from made records: each published number beside ours, and how the two compare, by hand."""

import math
from pathlib import Path

import made
import pytest

from fedrepro.errors import UsageError
from fedrepro.papers.load import load_paper
from fedrepro.results import cells
from fedrepro.results.cells import published, reproduced, spread_out, with_readings
from fedrepro.results.evaluate import evaluate


@pytest.fixture
def motley(tmp_path):
    """A table with every status and every footnote, evaluated."""
    return made.motley(tmp_path)


def rows(paper, table="t1"):
    """The cells of a table."""
    found = evaluate(paper).cells
    return list(found[found.table == table].itertuples())


def test_cells_join_with_published(motley):
    found = rows(motley)
    keys = [(row.table, row.dataset, row.variant, row.method, row.metric) for row in found]
    assert keys == list(published(motley))
    assert [row.status for row in found] == ["deviation", "within", "outside", "within", "within", "not-run"]
    assert [row.deviation for row in found] == ["the toy's budget is unknown", "", "", "", "", ""]
    reasons = ["the toy's budget is unknown.", "", "no deviation is declared.", "", "", "there was no time."]
    assert [row.reason for row in found] == reasons
    assert (found[1].note, found[2].substitute_data, found[5].runs) == ("printed with one decimal", ["other toys"], [])
    assert (found[4].capped, found[4].diverged) == ([1], [[0, 12]])


def test_means_and_spreads_are_percent_over_the_seeds_with_a_value(motley):
    _, plain, _, _, parallel, _ = rows(motley)
    assert (plain.reproduced, plain.reproduced_spread) == ("12.00", "2.16")  # 10, 11, 15: population standard deviation
    assert (parallel.reproduced, parallel.reproduced_spread, parallel.n_seeds) == ("61.00", "1.00", 2)


@pytest.mark.parametrize(
    ("accuracy", "status"), [(0.8788, "within"), (0.8789, "outside"), (0.8188, "within"), (0.8187, "outside")]
)
def test_tolerance_is_inclusive_and_judged_on_the_printed_digits(tmp_path, accuracy, status):
    made.paper(tmp_path)
    toy = made.records(tmp_path, toys_plain=[(accuracy, 0.1)] * 3)
    assert rows(toy)[0].status == status


def test_tolerance_widens_with_the_published_spread(tmp_path):
    toy = made.records(made.paper(tmp_path), toys_game_parallel=[(0.7047, 0.67)] * 3)
    row = rows(toy)[4]
    assert (row.difference, row.limit, row.status) == (12.44, 12.44, "within")


def test_all_seeds_diverged_is_outside_and_never_blank(motley):
    record = made.record(motley, "toys-plain", [(0, 0)] * 3)
    for entry in record["seeds"].values():
        entry |= {"status": "diverged", "metrics": {}}
    made.write(motley.root, "toys-plain", record)
    declared, row, *_ = rows(motley)
    assert (row.status, reproduced(row), math.isnan(row.difference)) == ("outside", "diverged", True)
    assert declared.status == "deviation"


def test_numbers_of_the_smoke_budget_are_not_compared(tmp_path):
    toy = made.records(made.paper(tmp_path, budget="smoke"))
    assert {row.status for row in rows(toy)} == {"not-compared"}


def test_spec_and_published_must_have_the_same_cells(tmp_path):
    lines = made.PUBLISHED.splitlines(keepends=True)
    toy = made.records(made.paper(tmp_path, published="".join(lines[:-1])))
    with pytest.raises(UsageError, match="no row for the cell t1, Toys, type=parallel"):
        evaluate(toy)
    (toy.folder / "published.csv").write_text(made.PUBLISHED + lines[-1].replace("type=parallel", "type=other"))
    with pytest.raises(UsageError, match="no cell for the published t1, Toys, type=other"):
        evaluate(toy)
    (toy.folder / "published.csv").write_text(made.PUBLISHED + lines[-1])
    with pytest.raises(UsageError, match=r"t1, Toys, type=parallel, Game \(Smooth\), test_accuracy is there twice"):
        evaluate(toy)
    (toy.folder / "published.csv").unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        evaluate(toy)


def test_the_committed_published_numbers_parse():
    for printed in published(load_paper("flgames-2022", Path(__file__).parents[1])).values():
        assert float(printed.mean) > 0
        assert printed.unit == "percent"


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
    small, large = rows(toy, "t2")
    assert spread_out(small.published, small.published_spread) == "12.34 ± 0.5"
    assert spread_out(small.compared_with, small.compared_with_spread) == "66.56 ± 1.58"
    assert (small.difference, small.status, small.compared_because) == (0.44, "within", "the row is mislabelled")
    assert (large.difference, large.status, large.compared_with, large.compared_because) == (-1, "within", "80.00", "")


def test_a_comparison_needs_a_number(tmp_path):
    spec = made.SPEC.replace("[budgets.paper]", SIZES + "[budgets.paper]") + INSTEAD
    with pytest.raises(UsageError, match=r"tables\.t2\.instead: unknown table 't9'"):
        made.paper(tmp_path, spec=spec.replace('table = "t1"', 'table = "t9"'))
    others = [row for row in (made.PUBLISHED + MISLABELLED).splitlines() if ",t1,Toys,type=sequential" not in row]
    spec = spec.replace('type = ["sequential", "parallel"]', 'type = ["parallel"]')
    toy = made.records(
        made.paper(tmp_path, spec=spec, published="\n".join(others)), toys_game_sequential_large=[(0.5, 0.79)] * 3
    )
    with pytest.raises(UsageError, match="t1 has no number to compare toy-2022, t2, Toys, type=sequential;size=small"):
        evaluate(toy)


def test_the_tolerance_of_the_paper_is_that_of_a_table_without_one(tmp_path):
    own = 'tolerance = { spreads = 2, points = 3, reason = "the toy says little" }\n'
    shared = own.replace("points = 3", "points = 7")
    spec = made.SPEC.replace(own, "").replace("[defaults]", f"{shared}\n[defaults]", 1)
    assert load_paper(made.NAME, made.paper(tmp_path, spec=spec)).table("t1").tolerance.points == 7
    spec = made.SPEC.replace("[defaults]", f"{shared}\n[defaults]", 1)
    assert load_paper(made.NAME, made.paper(tmp_path, spec=spec)).table("t1").tolerance.points == 3


def test_a_single_seed_has_no_spread(tmp_path):
    toy = made.records(made.paper(tmp_path, spec=made.SPEC.replace("seeds = [0, 1, 2]", "seeds = [0]")))
    found = {reproduced(row) for row in rows(toy)}
    assert found == {f"{100 * value:.2f}" for (values, *_) in made.ACCURACIES.values() for value in values}


READING = """
[axes.reading.none]
run = ""

[axes.reading.slow]
hyper = { lr = 0.01 }

[[tables.t1.readings]]
reading = "slow"
when = { method = "Plain" }
reason = "a tenth of the rate"
"""


def test_a_reading_names_the_rates_that_were_found_for_its_own_run(tmp_path, monkeypatch):
    made.paper(tmp_path, spec=made.SPEC + READING)
    loaded = made.load_paper(made.NAME, tmp_path)
    for run in loaded.runs():
        made.write(tmp_path, run, made.record(loaded, run, made.ACCURACIES["toys-plain"]))
    monkeypatch.setattr(cells, "_chosen", lambda paper, run: run)
    plain = [row for row in with_readings(evaluate(loaded).cells) if row.method == "Plain"]
    assert [row.chosen for row in plain] == ["toys-plain"] * 2 + ["toys-plain-slow"] * 2
