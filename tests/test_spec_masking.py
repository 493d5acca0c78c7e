"""The specs of gma-2022 and fedgma-2021: their cells, and that runs which are compared differ in one thing alone."""

from dataclasses import replace

import made
import pytest
from lifted import REPO, everything, lifted

from fedrepro import methods
from fedrepro.data import parameters
from fedrepro.errors import UsageError
from fedrepro.papers.load import load_paper

METHODS = {"fedavg", "fedprox", "scaffold", "fedadam", "fedyogi"}


# Masked averaging


def test_gma_has_a_cell_for_every_published_number():
    paper = load_paper("gma-2022", REPO)
    cells = [cell.key for table in paper.spec.tables for cell in paper.cells(table)]
    assert sorted(cells) == sorted(made.printed(paper))
    assert [len(paper.cells(table)) for table in ("table1", "table2")] == [40, 40]


@pytest.mark.parametrize(("budget", "runs"), [("paper", 96), ("desk", 92)])
def test_gma_has_its_tables_without_femnist_and_its_figures(budget, runs):
    paper = lifted("gma-2022", budget)
    assert len(paper.drafts()) == runs
    assert [len(paper.table_runs(table)) for table in ("table1", "table2")] == [30, 40]
    assert paper.figures == ["fig1b", "fig1c", "tau"]
    assert {len(draft.config.seeds) for draft in paper.drafts().values()} == {3}
    rounds, epochs = {"paper": (100, 5), "desk": (50, 1)}[budget]
    for run in (run for table in paper.spec.tables for run in paper.table_runs(table)):
        config = paper.drafts()[run].config
        assert (config.rounds, config.hyper["epochs"], config.watch.test_every) == (rounds, epochs, 1)


@pytest.mark.parametrize("budget", ["paper", "desk"])
def test_masked_and_plain_runs_differ_in_the_mask_alone(budget):
    drafts = everything("gma-2022", budget).drafts()
    masked = [run for run, draft in drafts.items() if "-gma" in run and draft.config.hyper["tau"] == 0.4]
    pairs = [(drafts[run.replace("-gma", "-avg")], drafts[run]) for run in masked]
    assert len(pairs) == 40 + 5 + 5 + 3  # the tables, figures 1(a), 1(b) and 1(c)
    for plain, masked in pairs:
        assert (plain.config.hyper["mask"], masked.config.hyper["mask"]) == ("none", "soft")
        unmasked = masked.config.model_copy(update={"hyper": masked.config.hyper | {"mask": "none"}})
        assert unmasked == plain.config
        assert masked.study == plain.study


@pytest.mark.parametrize("budget", ["paper", "desk"])
def test_all_runs_have_the_rates_of_the_plain_cell_in_the_tables(budget):
    paper = everything("gma-2022", budget)
    drafts = paper.drafts()
    plain = {run for table in paper.spec.tables for run in paper.table_runs(table) if run.endswith("-avg")}
    assert {draft.study.run for draft in drafts.values()} == plain
    assert len(plain) == 40
    for run, draft in drafts.items():
        assert run.startswith(draft.study.run.removesuffix("-avg"))
        assert draft.study == drafts[draft.study.run].study
        adaptive = draft.config.method in ("fedadam", "fedyogi")
        assert draft.study.rule.open(draft.config) == ["lr", "server_lr"][: 1 + adaptive]
        assert len(draft.study.points) == (9 if adaptive else 3)
        for point in draft.study.points.values():
            assert (point.hyper["mask"], point.data["validation"], point.seeds) == ("none", 0.1, (1000,))
            slow = budget == "desk" and run.startswith(("fedcmnist", "cifar-10")) and "-noniid-" in run
            assert (point.rounds, point.hyper["epochs"]) == (25 if slow else 10, {"paper": 5, "desk": 1}[budget])


@pytest.mark.parametrize("budget", ["paper", "desk"])
def test_the_values_of_a_figure_are_those_of_its_runs(budget):
    paper = everything("gma-2022", budget)
    drafts = paper.drafts()
    for spot, run in paper.spots("fig1b"):
        assert drafts[run].config.hyper["epochs"] == int(spot.x)
    for spot, run in paper.spots("fig1c"):
        assert (drafts[run].config.data["n"], drafts[run].config.hyper["epochs"]) == (int(spot.x), 1)
    for spot, run in paper.spots("tau"):
        assert (drafts[run].config.hyper["tau"], drafts[run].config.hyper["mask"]) == (float(spot.x), "soft")
    assert {run for spot, run in paper.spots("tau") if spot.x == "0.4"} <= set(paper.table_runs("table2"))


@pytest.mark.parametrize("budget", ["paper", "desk"])
def test_femnist_is_dealt_by_writer(budget):
    paper = everything("gma-2022", budget)
    for run, draft in paper.drafts().items():
        if draft.config.dataset == "femnist":
            assert draft.config.data["partition"] == "writers"
            assert draft.config.data.get("held_out", 0) == (0.1 if "unseen" in run else 0)
            assert draft.config.data.get("writers_fraction", 1) == {"paper": 1, "desk": 0.1}[budget]
    assert len(paper.figure_runs("fig1a")) == 10


def test_the_count_of_the_claim_is_that_of_the_printed_numbers():
    paper = load_paper("gma-2022", REPO)
    claim = paper.claims["masking"]
    printed = {(k[1], k[2], k[3]): float(number.mean) for k, number in made.printed(paper).items()}
    gains = [
        printed[high["dataset"], variant.format("GMA"), high["method"]]
        - printed[high["dataset"], variant.format("AVG"), high["method"]]
        for block in claim.pairs
        for (high,), (low,) in block.cells()
        for variant in [f"partition={high['partition']};aggregation={{}}"]
        if low == high | {"aggregation": "AVG"}
    ]
    assert (len(gains), sum(gain > 0 for gain in gains)) == (35, claim.published)


def test_gma_smoke_has_one_of_each_kind():
    runs = load_paper("gma-2022", REPO).at("smoke").runs()
    assert len(runs) <= 12
    assert {config.method for config in runs.values()} == METHODS
    assert {config.hyper["mask"] for config in runs.values()} == {"none", "soft"}
    datasets = {"digits-plain", "fedcmnist-digits", "fedrotmnist-digits"}
    assert {config.dataset for config in runs.values()} == datasets
    assert {(config.rounds, config.seeds) for config in runs.values()} == {(20, (0, 1))}
    assert lifted("gma-2022", "smoke").figures == ["fig1b", "fig1c", "tau"]


# FedGMA


def test_fedgma_prints_no_number_and_draws_four_figures():
    paper = lifted("fedgma-2021", "paper")
    assert (made.printed(paper), paper.spec.tables) == ({}, {})
    assert paper.figures == ["fig2a", "fig2b", "fig2c", "fig2d"]
    assert [len(paper.figure_runs(figure)) for figure in paper.figures] == [5] * 4
    assert len(paper.drafts()) == 20


@pytest.mark.parametrize(("budget", "net"), [("paper", "cnn-large"), ("desk", "cnn")])
def test_fedgma_trains_its_clients_as_its_baseline_does(budget, net):
    drafts = lifted("fedgma-2021", budget).drafts()
    own = {"threshold": 0.8, "mask_rule": "formula", "gradient": "initial"}
    for run, draft in ((run, draft) for run, draft in drafts.items() if "-fedgma" in run):
        plain = drafts[run.split("-step")[0].replace("fedgma", "fedavg")].config
        shared = {key: value for key, value in plain.hyper.items() if key != "optimiser"}
        assert shared == {"net": net, "cohort": 10, "lr": 0.001, "batch": 10, "epochs": 3}
        assert plain.hyper["optimiser"] == "sgd"
        step = float(run.split("-step-")[1].replace("-", ".", 1))
        assert draft.config.hyper == shared | own | {"server_lr": step}
        changed = {"method": "fedavg", "hyper": plain.hyper}
        assert draft.config.model_copy(update=changed) == plain


def test_fedgma_smoke_has_both_methods_and_both_datasets():
    runs = load_paper("fedgma-2021", REPO).at("smoke").runs().values()
    assert {config.method for config in runs} == {"fedavg", "fedgma"}
    assert {config.dataset for config in runs} == {"fedgma-binary-digits", "fedgma-colored-digits"}
    assert {config.rounds for config in runs} == {12}


# Both


@pytest.mark.parametrize("name", ["gma-2022", "fedgma-2021"])
@pytest.mark.parametrize("budget", ["paper", "desk", "smoke"])
def test_methods_and_datasets_know_every_setting(name, budget):
    paper = lifted(name, budget) if budget == "smoke" else everything(name, budget)
    for draft in paper.drafts().values():
        assert draft.config.hyper.keys() <= methods.find(draft.config.method).hyper.keys()
        assert draft.config.data.keys() <= parameters(draft.config.dataset).keys()


FIGURE = """
[figures.f1]
kind = "levels"
title = "Rounds"
x = "type"
lines = "method"

[[figures.f1.not_run]]
when = { budget = "smoke", type = "parallel" }
reason = "too dear"

[[figures.f1.not_run]]
when = { budget = "smoke" }
reason = "dearer still"

[[figures.f1.cells]]
dataset = ["Toys"]
method = ["Game (Smooth)"]
type = ["sequential", "parallel"]
"""
TABLELESS = made.SPEC + '\n[[tables.t1.not_run]]\nwhen = { type = ["parallel", "sequential"] }\nreason = "elsewhere"\n'


def test_a_budget_may_leave_out_cells_of_a_figure(tmp_path):
    spec = TABLELESS + FIGURE
    paper = load_paper(made.NAME, made.paper(tmp_path, spec=spec))
    assert (paper.figure_runs("f1"), paper.left_out("f1")) == (list(made.RUNS[1:]), [])
    assert list(paper.at("smoke").drafts()) == ["toys-plain"]
    some = load_paper(made.NAME, made.paper(tmp_path, spec=spec.replace('{ budget = "smoke" }', '{ type = "none" }')))
    some = replace(some, budget="smoke")
    assert (some.figures, some.figure_runs("f1"), some.left_out("f1")) == (["f1"], [made.RUNS[1]], ["too dear"])
    assert (paper.not_shown("f1"), some.not_shown("f1")) == ([], ["Not shown: type parallel: too dear."])
    assert list(some.drafts()) == list(made.RUNS[:2])


def test_a_figure_without_any_cell_says_why(tmp_path):
    paper = replace(load_paper(made.NAME, made.paper(tmp_path, spec=TABLELESS + FIGURE)), budget="smoke")
    assert paper.figures == []
    with pytest.raises(UsageError, match="figure 'f1' of toy-2022 is not run: dearer still"):
        paper.figure("f1")
    with pytest.raises(
        UsageError, match=r"figures\.f1\.not_run\.\d\.when: unknown budget 'smok': did you mean 'smoke'"
    ):
        made.paper(tmp_path, spec=(TABLELESS + FIGURE).replace('budget = "smoke" }', 'budget = "smok" }'))
