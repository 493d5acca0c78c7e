"""What a reader is shown of fedaug-2022."""

from dataclasses import replace

import parts
import pytest
from test_spec_domains import beside, norms

from fedrepro.report import claims, layout, plots


@pytest.fixture
def made_up(tmp_path):
    return beside(tmp_path)


def sheet(paper, table):
    return layout.sheet(paper, table, parts.frame(paper, "cells", table=table))


def test_a_tolerance_of_half_the_norm_and_its_unit_are_said(made_up):
    paper, write = made_up
    exact = norms("table7", 0.940, 0.233, 0.120, 0.149, 0.532, 1.485)
    for rounds in (80, 320):  # the other reading, too
        write(f"rotated-mnist-fedavg-none-r{rounds}-k200", *[exact | {"id_accuracy": 1, "ood_accuracy": 1}] * 3)
    legend = sheet(paper, "table7").legend
    assert "Tolerance: 50% of the published number, because" in " ".join(legend)
    assert "in l2 norm" in legend[0]


def test_readings_are_footnotes(made_up):
    paper, write = made_up
    write("pacs-fedavg-weak-r80-k200", *[norms("table8", 6.0, 7.0, 3.0, 11.0)] * 3)
    assert any("of the four printed norms is 3.312" in note for note in sheet(paper, "table8").notes)


def test_a_budget_may_say_other_things_of_some_tables(made_up):
    paper, _ = made_up
    desk = replace(paper, budget="desk")
    small, whole = (sheet(desk, table).legend for table in ("table4", "table3"))
    assert "32 px" in small[0]
    assert "The numbers of this budget are never compared with the paper's." in small
    assert "budget: desk (1 seed, of ERM and FedAvg 3 " in whole[0]
    assert "; bf16 products; IRM: a quarter of the steps)" in whole[0]
    assert "32 px" in claims.judged(desk, parts.frame(desk, "claims"))[-1]
    write_one = {"line": "FedAvg", "metric": "m", "x": "none", "n": 1, "diverged": 0, "runs": ["r"]}
    points = parts.frames.frame("points", [write_one | {"mean": 0.0, "spread": 0.0, "capped": 0, "collapsed": 0}])
    assert "32 px" in plots.caption(desk, "fig3-pacs", points.fillna(""))


def test_panels_of_a_figure(made_up):
    paper, write = made_up
    write("rotated-mnist-erm-none", *[{"id_accuracy": 0.98, "ood_accuracy": 0.93}] * 3)
    write("rotated-mnist-fedavg-none-r80-k200", *[{"id_accuracy": 0.97, "ood_accuracy": 0.90}] * 3)
    panels = plots.figure(paper, "fig5b", parts.frame(paper, "points", figure="fig5b")).axes
    assert [axis.get_ylabel() for axis in panels] == ["id accuracy (%)", "ood accuracy (%)"]
    assert [len(axis.lines) for axis in panels] == [2, 2]


def test_rounds_and_local_steps_make_up_the_places_of_a_figure(made_up):
    paper, write = made_up
    for rounds, steps, ood in ((320, 50, 0.92), (2000, 10, 0.93), (2, 128000, 0.71)):
        write(f"rotated-mnist-fedavg-none-r{rounds}-k{steps}", *[{"ood_accuracy": ood}] * 3)
    (axis,) = plots.figure(paper, "fig5a", parts.frame(paper, "points", figure="fig5a")).axes
    assert [label.get_text() for label in axis.get_xticklabels()] == ["2000 × 10", "320 × 50", "2 × 128000"]
    assert axis.get_xlabel() == "rounds × local steps"
    assert list(axis.lines[0].get_ydata()) == [93, 92, 71]
