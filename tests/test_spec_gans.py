"""The spec of f2u-2019, and what it is the first to use: medians over a grid, substitutes, rankings, galleries."""

import io
import itertools
import math
import shutil
import statistics
from dataclasses import replace

import made
import numpy as np
import pandas as pd
import parts
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from lifted import REPO, lifted
from PIL import Image

from fedrepro.errors import UsageError
from fedrepro.papers.load import load_paper
from fedrepro.pipeline import request
from fedrepro.pipeline.request import Request
from fedrepro.records import paths
from fedrepro.results import frames, quantities, rankings
from fedrepro.results.cells import reproduced, spread_out

NAME = "f2u-2019"
TABLES = [f"table{number}" for number in range(1, 7)]
METHODS = ["MD-GAN", "GMAN*", "GMAN-0", "F2U", "F2A"]
FD = "fd_mnist_cnn"


@pytest.fixture(scope="module")
def loaded():
    return load_paper(NAME, REPO)


# Cells and runs


def test_every_published_number_has_a_cell_and_the_reverse(loaded):
    cells = [cell.key for table in loaded.spec.tables for cell in loaded.cells(table)]
    assert sorted(cells) == sorted(made.printed(loaded))
    assert [len(loaded.cells(table)) for table in TABLES] == [16, 16, 16, 12, 12, 12]


def test_the_published_medians_lie_in_their_ranges(loaded):
    for number in made.printed(loaded).values():
        low, high = map(float, number.spread.split(".."))
        assert low <= float(number.mean) <= high
        assert len(number.mean.partition(".")[2]) == 2


def test_cells_that_are_printed_twice_are_one_run(loaded):
    paper, numbers = lifted(NAME, "paper"), made.printed(loaded)
    by_run = {}
    for cell in (cell for table in TABLES for cell in paper.cells(table)):
        by_run.setdefault(cell.runs, []).append(numbers[cell.key])
    twice = [found for runs, found in by_run.items() if runs and len(found) > 1]
    assert len(twice) == 6  # F2U and F2A, three overlaps each
    assert all(len({spread_out(number.mean, number.spread) for number in found}) == 1 for found in twice)


@pytest.mark.parametrize(("budget", "runs"), [("paper", 2 * (69 + 12) + 20), ("desk", 69 + 12 + 20 + 1 + 2)])
def test_runs_without_cinic(budget, runs):
    """Of tables 1, 2: 16 each; 4: 9 more; 5, 6: 18 more; Figure 4: 10 more; Figure 5: 20.

    At desk a run of 25,000 iterations, too, and two whose generator has not the critics' loss. By another reading of
    Tables 5 and 6, 12 more.
    """
    paper = lifted(NAME, budget)
    assert len(paper.drafts) == runs
    assert paper.table_runs("table3") == []


def test_settings_are_the_paper_s():
    paper = lifted(NAME, "paper")
    methods = {"Backbone": "gan-backbone", "GMAN*": "gman"}
    for table in ("table1", "table2", "table4", "table5", "table6"):
        for cell in paper.cells(table):
            facts, configs = cell.facts, [paper.drafts[run].config for run in cell.runs]
            assert [config.hyper["batch"] for config in configs] == [32, 64]
            for config in configs:
                assert config.method == methods.get(cell.method, cell.method.lower())
                assert (config.rounds, config.watch.test_every, config.watch.extractor) == (50000, 25000, "inception")
                assert config.data["overlap"] == facts.get("overlap", "pooled")
                assert config.data.get("n", 1) == int(facts.get("clients", 1))
                assert config.hyper["loss"] == facts.get("loss", "mse")
                assert config.hyper["spectral"] == (facts.get("sn", "yes") == "yes")
                if cell.method == "F2A":
                    assert config.hyper["beta"] == float(facts.get("beta", 0.1))
                    strength = {"0": 0.0, "3.6": 3.65, None: "learnt"}[facts.get("lambda")]
                    assert config.hyper.get("strength", "learnt") == strength


def test_desk_has_three_seeds_where_a_claim_hangs_on_them():
    desk = lifted(NAME, "desk")
    claims = ("forgiving-f2a", "forgiving-f2u", "overlapping", "fixed", "losses", "rise", "saturation")
    decide = {run for name in claims for each in desk.comparisons(name) for run in each.runs}
    images = {run: draft.config.seeds for run, draft in desk.drafts.items() if not run.startswith("mixture")}
    assert images == {run: (0, 1, 2) if run in decide else (0,) for run in images}


def test_other_readings_of_desk_change_what_they_name_alone():
    desk = lifted(NAME, "desk").drafts
    linear = {run for run, draft in desk.items() if draft.config.hyper["loss"] == "bce-linear"}
    for run in linear:
        plain = desk[run.removesuffix("-linear")].config
        wanted = {"hyper": plain.hyper | {"loss": "bce-linear"}, "seeds": (0,)}
        assert desk[run].config == plain.model_copy(update=wanted)
    assert len(linear) == 12
    for dimensions, method in itertools.product((1, 2), ("md-gan", "gman", "gman-0", "f2u", "f2a")):
        plain = desk[f"mixture-{dimensions}d-{method}"].config
        wanted = {"hyper": plain.hyper | {"norm": True}}
        assert desk[f"mixture-{dimensions}d-{method}-norm"].config == plain.model_copy(update=wanted)
    for run, loss, other in (("mnist-f2u-non", "mse", "bce"), ("mnist-f2u-non-bce", "bce", "mse")):
        plain = desk[f"{run}-b32"].config
        assert plain.hyper["loss"] == loss
        wanted = {"hyper": plain.hyper | {"generator_loss": other}, "seeds": (0,)}
        assert desk[f"{run}-generator-{other}-b32"].config == plain.model_copy(update=wanted)
    longer, short = (desk[f"mnist-f2u-non-b32{end}"].config for end in ("-i25000", ""))
    assert (longer, longer.rounds) == (short.model_copy(update={"rounds": 25000, "seeds": (0,)}), 25000)


def test_what_is_of_some_budgets_alone_is_not_there_at_others(loaded):
    shown = {budget: lifted(NAME, budget) for budget in ("desk", "smoke")}
    extra = {"losses-linear", "modes-plain", "modes-others-plain"}
    assert {*shown["desk"].claims} - {*shown["smoke"].claims} == extra
    assert {*shown["desk"].figures} - {*shown["smoke"].figures} >= {"iterations"}
    assert shown["smoke"].left_out("iterations") == []  # and nothing is said of it
    undrawn = "figure 'iterations' of f2u-2019 is not run: it is not drawn at budget smoke"
    with pytest.raises(UsageError, match=undrawn):
        loaded.at("smoke").figure("iterations")


@pytest.mark.parametrize("budget", ["paper", "desk", "smoke"])
def test_every_checkpoint_is_watched(budget):
    paper = lifted(NAME, budget)
    for table in TABLES:
        parts = paper.table(table).checkpoints
        for config in (paper.drafts[run].config for run in paper.table_runs(table)):
            assert config.rounds % parts == 0
            assert config.rounds // parts % config.watch.test_every == 0
    assert [paper.table(table).checkpoints for table in TABLES] == [2, 2, 6, 2, 2, 2]


def test_desk_has_batches_of_32_for_a_tenth_of_the_iterations_and_smoke_a_run_of_each_kind(loaded):
    desk, smoke = lifted(NAME, "desk"), lifted(NAME, "smoke")
    usual = [draft.config for run, draft in desk.drafts.items() if not run.endswith("-i25000")]
    images = [config for config in usual if config.dataset.startswith("gan-")]
    assert {(c.rounds, c.hyper["batch"], c.precision, c.watch.extractor) for c in images} == {(5000, 32, "bf16", "cnn")}
    found = {(draft.config.method, draft.config.dataset) for draft in smoke.drafts.values()}
    kinds = {"gan-backbone", "md-gan", "gman", "gman-0", "f2u", "f2a"}
    assert {method for method, _ in found} == kinds
    assert {dataset for _, dataset in found} == {"gan-digits", "mixture-1d", "mixture-2d"}
    assert len(smoke.drafts) <= 11
    assert set(smoke.figures) == {"fig3-mnist", "fig4", "fig5", "fig6-mnist"}


@pytest.mark.parametrize("budget", ["paper", "desk", "smoke"])
def test_methods_and_datasets_know_every_setting(budget):
    from fedrepro import data, methods

    for draft in lifted(NAME, budget).drafts.values():
        assert draft.config.hyper.keys() <= methods.find(draft.config.method).hyper.keys()
        assert draft.config.data.keys() <= data.parameters(draft.config.dataset).keys()


def test_a_part_of_a_grid_may_be_left_out_and_is_said():
    paper = lifted(NAME, "desk")
    cell = paper.cells("table1")[1]
    assert cell.runs == ("mnist-md-gan-non-b32",)
    assert cell.lacks == ("the desk budget has batches of 32 alone",)
    assert cell.grid == (("batch", "32"),)
    whole = lifted(NAME, "paper").cells("table1")[1]
    assert whole.runs == ("mnist-md-gan-non-b32", "mnist-md-gan-non-b64")
    assert (whole.grid, whole.lacks) == ((("batch", "32"), ("batch", "64")), ())


def test_a_run_that_another_budget_alone_has_can_be_asked_for(monkeypatch):
    monkeypatch.chdir(REPO)
    asked = Request(paper=NAME, run="mnist-md-gan-non-n20-b64", budget="paper")
    config, place = request.resolve(asked)
    assert config == lifted(NAME, "paper").run(asked.run)
    assert place.folder.parent == paths.ADHOC
    with pytest.raises(UsageError, match=f"unknown run of {NAME} '{asked.run}'"):
        request.resolve(replace(asked, budget=None))


# What the paper prints


def test_claims_are_true_of_the_printed_numbers(loaded):
    numbers = made.printed(loaded)
    found = {}
    for name in ("forgiving-f2a", "forgiving-f2u", "overlapping", "fixed", "losses"):
        pairs = [pair for block in loaded.spec.claims[name].pairs for pair in block.cells()]
        ordered = [printed(numbers, high) > printed(numbers, low) for (high,), (low,) in pairs]
        found[name] = (sum(ordered), len(ordered))
    forgiving = {"forgiving-f2a": (12, 12), "forgiving-f2u": (12, 12)}
    assert found == forgiving | {"overlapping": (8, 8), "fixed": (4, 4), "losses": (6, 6)}


def printed(numbers, cell):
    """The printed median of a cell: of any table that has it."""
    wanted = {axis: value for axis, value in cell.items() if axis not in ("dataset", "method", "batch")}
    keys = (key for key in numbers if (key[1], key[3]) == (cell["dataset"], cell["method"]))
    (found,) = {numbers[key].mean for key in keys if dict(p.split("=") for p in key[2].split(";")) == wanted}
    return float(found)


# Medians, ranges and rankings, by hand


@pytest.fixture
def made_up(tmp_path):
    return beside(tmp_path)


def beside(tmp_path):
    """start(budget) -> the paper in a folder of its own, all to be run, and write(run, {metric: {round: value}}).

    All seeds of a run are alike.
    """

    def start(budget):
        shutil.copytree(REPO / "papers" / NAME, tmp_path / "papers" / NAME)
        (tmp_path / "params.yaml").write_text(f"{NAME}:\n  budget: {budget}\n")
        paper = replace(lifted(NAME, budget), root=tmp_path)

        def write(run, curves, samples=None, status="finished", **metrics):
            seeds = paper.drafts[run].config.seeds
            record = made.record(paper, run, [(0, 0)] * len(seeds))
            for entry in record["seeds"].values():
                entry |= {"metrics": metrics, "status": status}
            points = [(metric, *point) for metric, curve in curves.items() for point in curve.items()]
            lines = (f"{seed},{at},{metric},{value:.6g}\n" for seed in seeds for metric, at, value in points)
            parts.write(paper, run, record, made.UNWATCHED + "".join(lines), samples)

        return paper, write

    return start


def ranked(paper, table):
    """The rankings of a table."""
    return rankings.rankings(paper, table, frames.frame("cells", [row._asdict() for row in parts.part(paper, "cells")]))


def distances(metric, first, second, rounds=25000, floor=1.5):
    floors = {rounds: floor, 2 * rounds: floor}
    return {metric: {rounds: first, 2 * rounds: second}, f"{metric.partition('_')[0]}_floor": floors}


def test_a_cell_is_the_median_and_the_range_over_batches_and_checkpoints(made_up):
    paper, write = made_up("paper")
    write("mnist-f2u-non-b32", distances("fid", 20, 30))
    write("mnist-f2u-non-b64", distances("fid", 24, 40))
    (found,) = parts.only(paper, "table1", method="F2U", overlap="non")  # published: 22.19 (16.64 - 29.23)
    assert (found.reproduced, found.reproduced_spread, found.n_seeds) == ("27.00", "20.00..40.00", 1)
    assert reproduced(found) == "27.00 (20.00 – 40.00)"
    assert spread_out(found.published, found.published_spread) == "22.19 (16.64 – 29.23)"
    assert (found.least, found.greatest, found.status) == (12.48, 36.5375, "within")
    runs = ["mnist-f2u-non-b32", "mnist-f2u-non-b64"]
    looks = [[run, 0, at, value] for run, own in zip(runs, ((20, 30), (24, 40)), strict=True)
             for at, value in zip((25000, 50000), own, strict=True)]  # fmt: skip
    assert (found.measured, found.rounds, found.runs, found.floor) == (looks, [25000, 50000], runs, ["1.50"])
    # The same runs are a cell of Table 5, too.
    assert reproduced(parts.only(paper, "table5", loss="mse", sn="yes", overlap="non")[0]) == reproduced(found)


@pytest.mark.parametrize(
    ("median", "status"), [(12.48, "within"), (36.53, "within"), (12.47, "outside"), (36.54, "outside")]
)
def test_each_end_of_the_published_range_moves_outwards_by_a_quarter(made_up, median, status):
    paper, write = made_up("paper")
    for batch in (32, 64):
        write(f"mnist-f2u-non-b{batch}", distances("fid", median, median))
    assert parts.only(paper, "table1", method="F2U", overlap="non")[0].status == status


def test_a_checkpoint_that_was_not_watched_is_a_fault_of_the_run(made_up):
    paper, write = made_up("desk")
    write("mnist-f2u-non-b32", {FD: {2500: 3.0}, "fd_floor": {2500: 1, 5000: 1}})
    fault = parts.faults(paper, "cells")["mnist-f2u-non-b32"]
    assert "has fd_mnist_cnn at 1 of 2 equal parts of training of seed 0, and all are asked for" in fault
    assert parts.only(paper, "table1", method="F2U", overlap="non")[0].status == "missing"


def test_a_run_that_diverged_is_a_stated_result(made_up):
    paper, write = made_up("desk")
    write("mnist-f2u-non-b32", {}, status="diverged")
    (found,) = parts.only(paper, "table1", method="F2U", overlap="non")
    assert (reproduced(found), found.status, found.measured) == ("diverged", "not-compared", [])
    assert found.diverged == [[0, 5000], [1, 5000], [2, 5000]]
    assert (math.isnan(found.limit), math.isnan(found.least)) == (True, True)


def test_a_substitute_is_never_compared_and_ranked_within_each_column(made_up):
    paper, write = made_up("desk")
    # Published order in `non`: F2A < F2U < MD-GAN < GMAN* < GMAN-0. Here the last two and the first two swap.
    for method, value in zip(("f2u", "f2a", "md-gan", "gman-0", "gman"), (3.0, 4.0, 5.0, 6.0, 7.0), strict=True):
        write(f"mnist-{method}-non-b32", distances(FD, value - 1, value + 1, 2500))
    write("mnist-md-gan-full-b32", distances(FD, 8, 8, 2500))
    measured = [row for row in parts.part(paper, "cells", table="table1") if row.reproduced]
    assert {row.status for row in measured} == {"not-compared"}
    assert {(row.read, row.metric, tuple(row.floor)) for row in measured} == {(FD, "fid", ("1.50",))}
    assert all("no FID" in row.substitute_metric for row in measured)
    first, alone = map(str, ranked(paper, "table1"))
    assert first == (
        "MNIST, overlap non: paper F2A < F2U < MD-GAN < GMAN* < GMAN-0; here F2U < F2A < MD-GAN < GMAN-0 < GMAN*; "
        "Kendall's tau 0.60, undecided."
    )
    assert alone == "MNIST, overlap full: paper MD-GAN; here MD-GAN; Kendall's tau –, undecided."


def test_rows_of_a_column_are_named_by_what_tells_them_apart(made_up):
    paper, write = made_up("desk")
    for run, value in (("lambda-0", 9), ("lambda-3-6", 5), ("beta-0-01", 4)):
        write(f"mnist-f2a-non-{run}-b32", distances(FD, value, value, 2500))
    write("mnist-f2a-non-b32", distances(FD, 3, 3, 2500))
    (found,) = ranked(paper, "table4")
    weak, strong = "lambda mode learned, beta 0.01", "lambda mode learned, beta 0.1"
    order = (strong, weak, "lambda mode fixed, lambda 3.6", "lambda mode fixed, lambda 0")
    assert (found.printed, found.ours, found.tau, found.verdict) == (order, order, 1, "agrees")  # 1 of 24 orders


def test_cells_that_show_the_same_number_have_one_place(made_up):
    paper, write = made_up("desk")
    for run, value in (("md-gan", 5), ("f2a", 5.001), ("gman", 7), ("gman-0", 9), ("f2u", 8)):
        write(f"mnist-{run}-full-b32", distances(FD, value, value, 2500))
    (found,) = ranked(paper, "table1")
    assert found.ours == ("MD-GAN = F2A", "GMAN*", "F2U", "GMAN-0")


def test_the_rankings_of_a_budget_that_is_not_compared_are_not_said(made_up):
    paper, write = made_up("smoke")
    write("mnist-gman-mod-b32", distances("fd_digits_cnn", 3, 4, 2))
    write("mnist-gman-0-mod-b32", distances("fd_digits_cnn", 4, 5, 2))
    assert ranked(paper, "table1") == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=5))
def test_kendall_s_tau_is_scipy_s(pairs):
    left, right = zip(*pairs, strict=True)
    tau, above, below = rankings.kendall(left, right)
    if len(set(left)) == 1 or len(set(right)) == 1:
        assert (tau, above, below) == (None, 1, 1)
        return
    assert tau == pytest.approx(scipy.stats.kendalltau(left, right).statistic)
    every = [scipy.stats.kendalltau(left, order).statistic for order in itertools.permutations(right)]
    assert above == pytest.approx(sum(each > tau - 1e-9 for each in every) / len(every))
    assert below == pytest.approx(sum(each < tau + 1e-9 for each in every) / len(every))
    assert rankings.kendall(left, [-each for each in right])[0] == pytest.approx(-tau)


@pytest.mark.parametrize("n", [3, 4, 5])
def test_the_share_of_orders_is_scipy_s_exact_p(n):
    for order in itertools.permutations(range(n)):
        tau, above, below = rankings.kendall(range(n), order)
        for share, side in ((above, "greater"), (below, "less")):
            p = scipy.stats.kendalltau(range(n), order, method="exact", alternative=side).pvalue
            assert share == pytest.approx(p)


@pytest.mark.parametrize("n", [8, 9, 30])
def test_the_share_of_orders_of_many_cells_is_scipy_s(n):
    order = [*range(1, n, 2), *range(0, n, 2)]
    tau, above, below = rankings.kendall(range(n), order)
    assert tau == pytest.approx(scipy.stats.kendalltau(range(n), order).statistic)
    for share, side in ((above, "greater"), (below, "less")):
        p = scipy.stats.kendalltau(range(n), order, method="exact", alternative=side).pvalue
        assert share == pytest.approx(p)


@pytest.mark.parametrize(
    ("order", "verdict"),
    [
        ((0, 1, 2, 3, 4), "agrees"),
        ((0, 1, 2, 4, 3), "agrees"),  # 5 of 120 orders have tau >= 0.8
        ((1, 0, 2, 4, 3), "undecided"),
        ((4, 3, 2, 0, 1), "reversed"),
        ((0, 1, 2, 3), "agrees"),
        ((0, 1, 3, 2), "undecided"),  # 4 of 24 have tau >= 0.67
        ((0, 1, 2), "undecided"),  # 1 of 6
    ],
)
def test_a_verdict_needs_an_order_that_is_rare_by_chance(order, verdict):
    assert rankings.verdict(*rankings.kendall(range(len(order)), order)) == verdict


# Figures and claims, by hand


def test_figure_4_has_the_median_over_all_batches_and_checkpoints(made_up):
    paper, write = made_up("paper")
    write("mnist-f2u-non-n10-b32", distances("fid", 20, 30))
    write("mnist-f2u-non-n10-b64", distances("fid", 21, 90))
    (point,) = parts.part(paper, "points", figure="fig4")
    assert (point.line, point.x, point.metric, point.mean, point.n) == ("F2U", "10", "fid", 25.5, 4)
    assert point.runs == ["mnist-f2u-non-n10-b32", "mnist-f2u-non-n10-b64"]
    assert point.spread == float(f"{statistics.pstdev([20, 30, 21, 90]):.6g}")


def test_figure_4_shows_what_stands_in_for_the_fid(made_up):
    paper, write = made_up("desk")
    write("mnist-f2u-non-n20-b32", distances(FD, 2, 3, 2500))
    (point,) = parts.part(paper, "points", figure="fig4")
    assert (point.metric, point.mean) == (FD, 2.5)


def test_figure_3_has_a_line_for_each_overlap(made_up):
    paper, write = made_up("desk")
    for overlap in ("non", "mod", "full"):
        write(f"mnist-f2a-{overlap}-b32", {"lambda": {25: 0.1, 50: 0.2}})
    points = parts.part(paper, "points", figure="fig3-mnist")
    lines = [f"F2A, overlap {overlap}, batch 32" for overlap in ("non", "mod", "full")]
    assert [(p.line, p.x, p.mean) for p in points] == [
        (line, x, y) for line in lines for x, y in (("25", 0.1), ("50", 0.2))
    ]


@pytest.mark.parametrize(
    ("curve", "until", "grown"),
    [
        ([(1, 0.1), (2, 0.6), (4, 1.1)], None, 1.0),
        ([(1, 0.1), (2, 0.6), (4, 1.1)], 2, 0.5),
        ([(1, 0.1), (2, 0.6), (4, 1.1)], 3.9, 0.5),
        ([(1, 0.1), (2, 1.1), (4, 1.1)], 3, 1.0),
        ([(1, 0.1), (2, 0.1)], 1, math.nan),
        ([(1, 0.1)], None, math.nan),
    ],
)
def test_growth_and_the_part_of_it_that_came_early(curve, until, grown):
    assert quantities.growth(pd.Series(dict(curve)), until) == pytest.approx(grown, nan_ok=True)


def test_claims_about_lambda_and_distances_by_hand(made_up):
    paper, write = made_up("desk")
    rise = {"non": [0.1, 0.9, 1.0], "full": [0.1, 0.2, 0.3]}
    for overlap, (first, late, last) in rise.items():
        curves = {"lambda": {25: first, 3750: late, 5000: last}} | distances(FD, 4, 6, 2500)
        write(f"mnist-f2a-{overlap}-b32", curves)
    write("mnist-md-gan-non-b32", distances(FD, 8, 8, 2500))
    evidence = parts.part(paper, "claims")
    found = {row.claim: row for row in evidence}
    blocks = [name for name, claim in paper.claims.items() for _ in claim.pairs]
    assert [row.claim for row in evidence] == blocks  # the pairs of each are judged together
    assert found["rise"].difference == 0.7
    assert (found["saturation"].difference, found["saturation"].n) == (0.888889, 3)
    assert found["forgiving-f2a"].difference == 3  # 8 less the median of 4, 6
    assert math.isnan(found["forgiving-f2u"].difference)
    verdicts = {"rise": "holds", "saturation": "fails", "forgiving-f2a": "holds"}  # three seeds that agree
    assert {row.claim: row.verdict for row in evidence} == dict.fromkeys(paper.claims, "undecided") | verdicts


def test_a_claim_of_a_level_holds_or_fails_by_its_interval(made_up):
    paper, write = made_up("desk")
    runs = [f"mixture-{dimensions}-{method}" for dimensions in ("1d", "2d") for method in ("f2u", "f2a")]
    for covered, verdict in (([3, 3, 3, 3], "holds"), ([2, 1, 2, 2], "fails"), ([3, 3, 1, 3], "undecided")):
        for run, value in zip(runs, covered, strict=True):
            write(run, {}, **{paper.claims["modes-plain"].quantity.metric: value})
        [row] = parts.part(paper, "claims", claim="modes-plain")
        assert (row.difference, row.n, row.kind, row.verdict) == (sum(covered) / 4, 3, "pooled", verdict)


def test_a_generator_with_one_mode_of_three_is_behind_one_with_all(made_up):
    paper, write = made_up("desk")
    for dimensions, (method, covered) in itertools.product(("1d", "2d"), {"f2u": 1, "f2a": 3, "gman": 1}.items()):
        write(f"mixture-{dimensions}-{method}", {}, modes_covered=covered, samples_near_modes=0.99)
    [row] = parts.part(paper, "claims", claim="modes-others-plain")
    assert (row.difference, row.n) == (1, 3)  # of F2U 0, of F2A 2, in one dimension and in two, whatever the seed


def test_another_reading_of_a_table_with_a_grid_has_the_median_of_its_own_runs(made_up):
    paper, write = made_up("paper")
    write("mnist-f2u-non-bce-b32", distances("fid", 20, 30))
    write("mnist-f2u-non-bce-b64", distances("fid", 24, 40))
    write("mnist-f2u-non-bce-b32-linear", distances("fid", 50, 60))
    write("mnist-f2u-non-bce-b64-linear", distances("fid", 52, 90))
    for batch in (32, 64):
        write(f"mnist-f2u-non-b{batch}", distances("fid", 40, 44))
    (found,) = parts.only(paper, "table5", loss="bce", sn="yes", overlap="non")
    (other,) = found.readings
    assert (found.reproduced, other["reproduced"], other["reproduced_spread"]) == ("27.00", "56.00", "50.00..90.00")
    assert (other["reading"], other["status"]) == ("linear output", "outside")
    assert other["runs"] == ["mnist-f2u-non-bce-b32-linear", "mnist-f2u-non-bce-b64-linear"]
    assert parts.only(paper, "table5", loss="mse", sn="yes", overlap="non")[0].readings == []
    own, other = ranked(paper, "table5")  # mse 40 to 44: between both readings of bce
    assert [each.reading for each in (own, other)] == ["", "linear output"]
    assert own.ours == other.ours[::-1]
    assert f"{own.column}, reading linear output: paper" in str(other)
    own, read = (parts.part(paper, "claims", claim=claim)[0] for claim in ("losses", "losses-linear"))
    assert (own.difference, read.difference) == (25 - 42, 55 - 42)  # of batches of 32 alone


# Galleries

CLOUD = "who,x1,x2\ngenerator,0,3\ngenerator,99,0\n" + "".join(
    f"client{k},{k},{k}\nclient{k},{-k},{k}\n" for k in (1, 2, 3)
)
LINE = "who,x1\ngenerator,0.5\ngenerator,0.7\nclient1,-4\nclient2,0\nclient3,4\n"
EMPTY = "who,x1\nclient1,-4\nclient2,0\nclient3,4\n"


def sheet(value):
    out = io.BytesIO()
    Image.fromarray(np.full((20, 20), value, np.uint8)).save(out, format="PNG")
    return out.getvalue()


def test_a_gallery_has_a_panel_for_each_run_with_the_sum_of_its_samples(made_up):
    paper, write = made_up("desk")
    write("mixture-1d-md-gan", {}, samples=("samples.csv", EMPTY.encode()), status="diverged")
    write("mixture-1d-f2u", {}, samples=("samples.csv", LINE.encode()), modes_covered=2)
    write("mixture-2d-f2u", {}, samples=("samples.csv", CLOUD.encode()), modes_covered=3)
    found = parts.part(paper, "points", figure="fig5-plain")
    assert [(p.x, p.line, p.runs, p.diverged) for p in found] == [
        ("1D", "MD-GAN", ["mixture-1d-md-gan"], 3),
        ("1D", "F2U", ["mixture-1d-f2u"], 0),
        ("2D", "F2U", ["mixture-2d-f2u"], 0),
    ]
    sums = [made.sha256(text) for text in (EMPTY, LINE, CLOUD)]
    assert [p.samples for p in found] == sums
    assert [(p.metric, p.n) for p in found] == [("modes_covered", 0), ("modes_covered", 3), ("modes_covered", 3)]
    assert [p.mean for p in found[1:]] == [2, 3]


def test_samples_that_are_not_those_of_their_record_are_a_fault(made_up):
    paper, write = made_up("desk")
    write("mixture-1d-f2u", {}, samples=("samples.csv", LINE.encode()), modes_covered=1)
    write("mixture-1d-f2a", {}, samples=("samples.csv", LINE.encode()), modes_covered=1)
    write("mixture-2d-f2a", {}, modes_covered=1)
    path = parts.folder(paper, "mixture-1d-f2u") / "samples.csv"
    path.write_text(CLOUD)
    faults = parts.faults(paper, "points")
    remedy = "run `fedrepro train --paper f2u-2019 --run"
    assert f"does not belong to the record beside it: {remedy} mixture-1d-f2u`" in faults["mixture-1d-f2u"]
    assert f"samples.csv is missing: {remedy} mixture-2d-f2a`" in faults["mixture-2d-f2a"]
    assert "mixture-1d-f2a" not in faults
    path.unlink()
    assert f"has no samples, which belong to its record: {remedy}" in parts.faults(paper, "points")["mixture-1d-f2u"]


# Mistakes

CELLS = "[[tables.t1.cells]]"
BUDGET = "[budgets.smoke]"
CLAIM = """
[claims.c]
statement = "s"
place = "p"
quantity = { kind = "rounds" }
margin = 0
pairs = [{ high = { dataset = "Toys", type = "none", method = "Plain" }, pick = { low = "smallest" } }]
"""
OTHER = CLAIM.replace(', pick = { low = "smallest" }', "").replace("margin = 0", 'margin = 0\nbudgets = ["smok"]')


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (CELLS, 'grid = { type = ["none"] }\n' + CELLS, r"tables\.t1: a `grid` has several runs behind a cell: reduce"),
        ('"final"', '"median2"\ngrid = { type = ["none"] }', r"axis 'type' is in `grid` and again in `cells`"),
        ('"final"', '"median2"\ngrid = { tip = ["none"] }', r"tables\.t1\.grid: unknown axis 'tip'"),
        ('"final"', '"median"', r"unknown reduction 'median'"),
        (CELLS, 'ranked = ["tip"]\n' + CELLS, r"tables\.t1\.ranked: unknown axis 'tip'"),
        (BUDGET, '[[reads]]\nwhen = { metric = "x" }\nmetric = "y"\n' + BUDGET, r"reads\.0\.when: unknown metric 'x'"),
        (BUDGET, '[[reads]]\nmetric = "y_{type}"\n' + BUDGET, r"has an axis in braces, which only a table's own may"),
        (BUDGET, CLAIM + BUDGET, r"claims\.c\.pairs\.0: `pick` chooses a low, and there is none"),
        (BUDGET, OTHER + BUDGET, r"claims\.c: unknown budget 'smok': did you mean 'smoke'"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_spec_is_one_sentence_with_its_place(tmp_path, old, new, said):
    with pytest.raises(UsageError, match=said):
        made.paper(tmp_path, spec=made.SPEC.replace(old, new, 1))
