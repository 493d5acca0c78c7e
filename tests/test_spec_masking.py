"""The specs of gma-2022 and fedgma-2021: their cells, and that runs which are compared differ in one thing alone."""

from dataclasses import replace

import made
import pytest
from lifted import REPO, everything, lifted

from fedrepro import methods
from fedrepro.data import parameters
from fedrepro.errors import UsageError
from fedrepro.papers.load import load_paper
from fedrepro.papers.schema.cells import remark_on
from fedrepro.papers.schema.tuning import Tuned, unset
from fedrepro.pipeline import request
from fedrepro.pipeline.request import Request
from fedrepro.records import paths
from fedrepro.results import thresholds

METHODS = {"fedavg", "fedprox", "scaffold", "fedadam", "fedyogi"}
ABLATIONS = ["tau", "mask-server"]
READ = ("-two-labels", "-rate-0-1", "-rate-0-03")  # readings with rates of their own
EQUAL = "-equal-steps"  # readings with searches of their own
AGAIN = "-own-server-rate"


# Masked averaging


def test_gma_has_a_cell_for_every_published_number():
    paper = load_paper("gma-2022", REPO)
    cells = [cell.key for table in paper.spec.tables for cell in paper.cells(table)]
    assert sorted(cells) == sorted(made.printed(paper))
    assert [len(paper.cells(table)) for table in ("table1", "table2")] == [40, 40]


@pytest.mark.parametrize(("budget", "runs"), [("paper", 86), ("rounds-100", 180)])
def test_gma_has_its_tables_without_femnist_and_its_figures(budget, runs):
    paper = lifted("gma-2022", budget)
    assert len(paper.drafts) == runs
    assert [sum(map(bool, (cell.runs for cell in paper.cells(table)))) for table in paper.spec.tables] == [30, 40]
    assert paper.figures == ["fig1b", "fig1c", *ABLATIONS * (budget == "rounds-100")]
    drawn = {run for run, draft in paper.drafts.items() if len(draft.config.seeds) != 3}
    assert drawn == {run for run in paper.drafts if run.endswith("-ten-draws")}
    for cell in (cell for table in paper.spec.tables for cell in paper.cells(table)):
        for run in cell.runs:
            config = paper.drafts[run].config
            assert (config.rounds, config.watch.test_every) == (100, 1)
            assert config.hyper["epochs"] == {"paper": 5, "rounds-100": 1}[budget]


@pytest.mark.parametrize("budget", ["paper", "rounds-100"])
def test_masked_and_plain_runs_differ_in_the_mask_alone(budget):
    drafts = everything("gma-2022", budget).drafts
    masked = [run for run, draft in drafts.items() if "-gma" in run and draft.config.hyper["tau"] == 0.4]
    masked = [run for run in masked if not run.endswith(AGAIN) and "-rescaled" not in run]
    pairs = [(drafts[run.replace("-gma", "-avg")], drafts[run]) for run in masked]
    more = {"paper": 0, "rounds-100": 10 + 2 + 3 + 5 + 2 + 1 + 8}[budget]  # readings, and server rates
    assert len(pairs) == 40 + 5 + 5 + 3 + more  # the tables, figures 1(a), 1(b) and 1(c)
    for plain, masked in pairs:
        assert (plain.config.hyper["mask"], masked.config.hyper["mask"]) == ("none", "soft")
        unmasked = masked.config.model_copy(update={"hyper": masked.config.hyper | {"mask": "none"}})
        assert unmasked == plain.config
        assert masked.study == plain.study


@pytest.mark.parametrize("budget", ["paper", "rounds-100"])
def test_all_runs_have_the_rates_of_the_plain_cell_in_the_tables(budget):
    paper = everything("gma-2022", budget)
    drafts = paper.drafts
    plain = {run for table in paper.spec.tables for run in paper.table_runs(table) if run.endswith("-avg")}
    own = {run for run in plain if "-fedprox-" not in run}
    fixed = {run for run in drafts if run.endswith((*READ, EQUAL, AGAIN))}
    if budget == "rounds-100":
        fixed |= {run for figure in ("fig1b", "fig1c") for _, run in paper.spots(figure)}
    searched = {run: draft for run, draft in drafts.items() if run not in fixed}
    assert {draft.study.run for draft in searched.values()} == own
    assert (len(plain), len(own)) == (40, 32)
    for run, draft in searched.items():
        assert run.replace("-fedprox-", "-fedavg-").startswith(draft.study.run.removesuffix("-avg"))
        assert draft.study == drafts[draft.study.run].study
        adaptive = draft.config.method in ("fedadam", "fedyogi")
        assert unset(draft.config) == ["lr", "server_lr"][: 1 + adaptive]
        for point in draft.study.points.values():
            assert (point.hyper["mask"], point.data["validation"], point.seeds) == ("none", 0.1, (1000,))
            assert point.hyper["epochs"] == {"paper": 5, "rounds-100": 1}[budget]
        assert bool(draft.study.rule.halvings) == (budget == "rounds-100")
        if budget == "paper":
            assert len(draft.study.points) == (9 if adaptive else 3)
            assert {point.rounds for point in draft.study.points.values()} == {10}


@pytest.mark.parametrize("budget", ["paper", "rounds-100"])
def test_the_values_of_a_figure_are_those_of_its_runs(budget):
    paper = everything("gma-2022", budget)
    drafts = paper.drafts
    for spot, run in paper.spots("fig1b"):
        assert drafts[run].config.hyper["epochs"] == int(spot.x)
    for spot, run in paper.spots("fig1c"):
        assert (drafts[run].config.data["n"], drafts[run].config.hyper["epochs"]) == (int(spot.x), 1)


@pytest.mark.parametrize("budget", ["paper", "rounds-100"])
def test_femnist_is_dealt_by_writer(budget):
    paper = everything("gma-2022", budget)
    for run, draft in paper.drafts.items():
        if draft.config.dataset == "femnist":
            assert draft.config.data["partition"] == "writers"
            assert draft.config.data.get("held_out", 0) == (0.1 if "unseen" in run else 0)
            assert draft.config.data.get("writers_fraction", 1) == {"paper": 1, "rounds-100": 0.1}[budget]
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


# The budget in use of masked averaging, and the pilot that decided on it

TABLES = "rounds-100"


def test_tables_have_their_rounds_and_three_labels_in_table_2():
    paper = lifted("gma-2022", TABLES)
    for table, labels in (("table1", 2), ("table2", 3)):
        for cell in paper.cells(table):
            for config in (paper.drafts[run].config for run in cell.runs):
                assert (config.rounds, config.hyper["epochs"], config.seeds) == (100, 1, (0, 1, 2))
                if config.data["partition"] == "label-count":
                    assert config.data["labels_per_client"] == labels
    assert paper.figures == ["fig1b", "fig1c", *ABLATIONS]


def test_figures_of_epochs_and_clients_have_half_the_rounds_and_rates_of_their_own():
    paper = load_paper("gma-2022", REPO).at(TABLES)
    rates = {"lr": 0.1, "server_lr": 0.01}
    for figure in ("fig1b", "fig1c"):
        for config in (paper.run(run) for _, run in paper.spots(figure)):
            assert (config.rounds, config.hyper | rates) == (50, config.hyper)


def test_the_last_points_of_a_search_by_halves_train_as_long_as_the_runs():
    drafts = lifted("gma-2022", TABLES).drafts
    halved = {run: draft for run, draft in drafts.items() if draft.study and draft.study.rule.halvings}
    assert halved.keys() == {run for run, draft in drafts.items() if draft.study}
    for draft in halved.values():
        rule, (*shorter, last) = draft.study.rule, draft.study.rule.stages(draft.study.config)
        assert {point.rounds for point in last.values()} == {draft.config.rounds}
        assert {point.rounds for point in shorter[0].values()} == {12}
        assert all(max(p.rounds for p in stage.values()) < draft.config.rounds for stage in shorter)
        assert (rule.last, rule.fall, rule.name) == (20, 0.1, "rounds-100")
        assert {point.data["validation"] for point in last.values()} == {0.1}
        if "lr" in unset(draft.study.config):
            assert {point.hyper["lr"] for point in last.values()} == {0.3, 0.1, 0.03, 0.01, 0.003, 0.001}


def test_the_two_cells_that_the_labels_are_fitted_to_are_not_compared():
    paper = lifted("gma-2022", TABLES)
    facts = [cell.facts | {"budget": TABLES} for cell in paper.cells("table2")]
    remarks = {frozenset(each.items()): remark_on(paper.table("table2").calibrated, each) for each in facts}
    fitted = [dict(each) for each, remark in remarks.items() if remark]
    assert {each["dataset"] for each in fitted} == {"FedCMNIST", "FedRotMNIST"}
    assert {(e["partition"], e["method"], e["aggregation"]) for e in fitted} == {("noniid", "FedAVG", "AVG")}
    assert {(remark.metric, remark.ends) for remark in remarks.values() if remark} == {("test_accuracy", False)}
    assert thresholds.printed(paper, {}) == {}  # no run ends by it
    assert len(fitted) == 2


def test_two_labels_have_half_the_rounds_and_rates_of_their_own():
    paper = load_paper("gma-2022", REPO).at(TABLES)
    two = [run for run in paper.drafts if run.endswith("-two-labels")]
    assert len(two) == 20
    for run in two:
        config, plain = paper.run(run), paper.drafts[run.removesuffix("-two-labels")].config
        rates = {key: config.hyper[key] for key in unset(plain)}
        change = {"rounds": 50, "data": plain.data | {"labels_per_client": 2}, "hyper": plain.hyper | rates}
        assert config == plain.model_copy(update=change)


@pytest.mark.parametrize(("rate", "cells"), [(0.1, 2), (0.03, 3)])
def test_a_rate_that_the_search_leaves_changes_the_rates_alone(rate, cells):
    drafts = load_paper("gma-2022", REPO).at(TABLES).drafts
    end = f"-rate-{rate}".replace(".", "-")
    left = [run for run in drafts if run.endswith(end)]
    assert len(left) == 2 * cells  # with the mask and without
    for run in left:
        plain = drafts[run.removesuffix(end)].config
        rates = {"lr": rate} | ({"server_lr": 0.01} if plain.method == "fedyogi" else {})
        assert drafts[run].config == plain.model_copy(update={"hyper": plain.hyper | rates})


def test_scaffold_takes_as_many_steps_as_a_client_of_mean_size():
    drafts = load_paper("gma-2022", REPO).at(TABLES).drafts
    own = {run: draft for run, draft in drafts.items() if run.endswith(EQUAL)}
    assert len(own) == 10
    for run, draft in own.items():
        assert draft.config.method == "scaffold"
        assert draft.config.hyper["steps"] == (78 if "cifar" in run else 93)
        plain = drafts[run.removesuffix(EQUAL)]
        assert {k: v for k, v in draft.config.hyper.items() if k != "steps"} == plain.config.hyper
        assert draft.study.run == run.replace("-gma", "-avg")
        assert {point.hyper["steps"] for point in draft.study.points.values()} == {draft.config.hyper["steps"]}


def test_the_server_rate_is_searched_again_with_and_without_the_mask_once_plain_averaging_has_the_clients():
    run = f"mnist-fedavg-noniid-gma{AGAIN}"
    paper = replace(load_paper("gma-2022", REPO).at(TABLES), tuned={})  # as before any search
    first = paper.drafts[run]
    assert first.study == paper.drafts["mnist-fedavg-noniid-avg"].study
    missing = f"run '{run}' .*has no lr and server_lr yet: .*--run mnist-fedavg-noniid-avg`"
    with pytest.raises(UsageError, match=missing):
        paper.run(run)
    found = Tuned(chosen={"lr": 0.03}, config_digest=first.study.digest())
    second = replace(paper, tuned={first.study.name: found}).drafts[run]
    assert (second.study.run, unset(second.study.config)) == (run, ["server_lr"])
    points = second.study.points.values()
    assert {(point.hyper["lr"], point.hyper["mask"]) for point in points} == {(0.03, "soft")}
    assert {point.hyper["server_lr"] for point in points} == {0.5, 1.0, 1.5, 2.0, 3.0}
    plain = replace(paper, tuned={first.study.name: found}).drafts[run.replace("gma", "avg")].study.points.values()
    tried = {("none", point.hyper["server_lr"]) for point in points}
    assert {(point.hyper["mask"], point.hyper["server_lr"]) for point in plain} == tried
    stale = found.model_copy(update={"config_digest": "0" * 64})
    assert replace(paper, tuned={first.study.name: stale}).drafts[run] == first
    both = Tuned(chosen={"server_lr": 2.0}, config_digest=second.study.digest())
    done = replace(paper, tuned={first.study.name: found, second.study.name: both}).run(run)
    assert (done.hyper["lr"], done.hyper["server_lr"], done.hyper["mask"]) == (0.03, 2.0, "soft")


def test_the_pilot_is_a_seed_of_the_tables_with_five_epochs():
    paper = load_paper("gma-2022", REPO)
    pilot, whole = paper.at("pilot").drafts, paper.at(TABLES).drafts
    assert len(pilot) == 8
    for run, draft in pilot.items():
        plain = whole[run].config
        five = {"seeds": (0,), "rounds": 50, "hyper": plain.hyper | {"epochs": 5}}
        found = {key: draft.config.hyper[key] for key in unset(plain)}
        assert draft.config == plain.model_copy(update=five | {"hyper": five["hyper"] | found})
        stages = draft.study.rule.stages(draft.study.config)
        assert [{point.rounds for point in stage.values()} for stage in stages] == [{6}, {12}, {25}, {50}]
        assert draft.study.name == f"{draft.study.run}-epochs-5"


def test_a_run_of_a_prepared_budget_has_a_place_of_its_own(monkeypatch):
    monkeypatch.chdir(REPO)
    asked = Request(paper="gma-2022", run="mnist-fedavg-noniid-avg", budget="pilot")
    (config, prepared), (usual, own) = (request.resolve(replace(asked, budget=each)) for each in ("pilot", None))
    assert (config.seeds, usual.seeds) == ((0,), (0, 1, 2))
    assert prepared.folder == paths.prepared(asked.paper, "pilot", asked.run)
    assert own.folder == paths.runs(asked.paper, f"fedavg/{asked.run}")


def test_ablations_change_the_mask_or_the_server_alone():
    paper = load_paper("gma-2022", REPO).at(TABLES)
    drafts = paper.drafts
    plain = {name: drafts[f"{name}-fedavg-noniid-avg"] for name in ("mnist", "fedcmnist")}
    own = {"mask", "tau", "rescale", "server_lr"}
    for figure, count in (("tau", 22), ("mask-server", 30)):
        spots = paper.spots(figure)
        assert len({run for _, run in spots}) == count
        for spot, run in spots:
            base, config = plain[run.split("-")[0]], drafts[run].config
            assert drafts[run].study == base.study
            assert {k: v for k, v in config.hyper.items() if k not in own} == {
                k: v for k, v in base.config.hyper.items() if k not in own
            }
            assert config.model_copy(update={"hyper": {}}) == base.config.model_copy(update={"hyper": {}})
            assert config.hyper.get("server_lr", 1.0) == float(spot.cell.get("server_rate", 1))
            assert config.hyper.get("rescale", False) == (spot.cell["rescale"] == "rescaled")
            assert config.hyper["tau"] == float(spot.cell.get("tau", 0.4))
            assert config.hyper["mask"] == {"AVG": "none", "GMA": "soft"}[spot.cell["aggregation"]]
    tables = {run for table in paper.spec.tables for run in paper.table_runs(table)}
    assert {run for spot, run in paper.spots("tau") if (spot.x, spot.cell["rescale"]) == ("0.4", "unscaled")} <= tables


def test_readings_of_the_colours_change_the_colours_alone():
    drafts = load_paper("gma-2022", REPO).at(TABLES).drafts
    for end, runs, change in (
        ("ten-draws", 2, {"seeds": tuple(range(10))}),
        ("any-colours", 4, {"data": {"distance": 0.0, "contrast": 0.0}}),
    ):
        found = {run: draft for run, draft in drafts.items() if run.endswith(f"-{end}")}
        assert len(found) == runs
        for run, draft in found.items():
            assert run.startswith("fedcmnist-fedavg")
            plain = drafts[run.removesuffix(f"-{end}")]
            whole = change if "seeds" in change else {"data": plain.config.data | change["data"]}
            assert draft.config == plain.config.model_copy(update=whole)
            assert draft.study == plain.study


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
    assert [len(paper.figure_runs(figure)) for figure in paper.figures] == [6] * 4
    assert len(paper.drafts) == 24


@pytest.mark.parametrize(("budget", "net"), [("paper", "cnn-large"), ("small-cnn", "cnn")])
def test_fedgma_trains_its_clients_as_its_baseline_does(budget, net):
    drafts = lifted("fedgma-2021", budget).drafts
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


def test_every_run_of_fedgma_is_in_a_claim():
    paper = load_paper("fedgma-2021", REPO).at("small-cnn")
    assert list(paper.claims) == ["masking", "heterogeneity", "step", "speed", "learned-two", "learned-ten"]
    steps = {run.partition("-step-")[2].replace("-", ".", 1) for run in paper.drafts}
    assert steps == {"", "0.05", "0.1", "0.2", "0.5", "1"}
    compared = {run for claim in paper.claims for each in paper.comparisons(claim) for run in each.runs}
    assert compared == paper.drafts.keys()


def test_fedgma_smoke_has_both_methods_and_both_datasets():
    runs = load_paper("fedgma-2021", REPO).at("smoke").runs().values()
    assert {config.method for config in runs} == {"fedavg", "fedgma"}
    assert {config.dataset for config in runs} == {"fedgma-binary-digits", "fedgma-colored-digits"}
    assert {config.rounds for config in runs} == {12}


# Both


@pytest.mark.parametrize("name", ["gma-2022", "fedgma-2021"])
@pytest.mark.parametrize("budget", ["paper", "in use", "smoke"])
def test_methods_and_datasets_know_every_setting(name, budget):
    budget = load_paper(name, REPO).budget if budget == "in use" else budget
    paper = lifted(name, budget) if budget == "smoke" else everything(name, budget)
    for draft in paper.drafts.values():
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
    assert list(paper.at("smoke").drafts) == ["toys-plain"]
    some = load_paper(made.NAME, made.paper(tmp_path, spec=spec.replace('{ budget = "smoke" }', '{ type = "none" }')))
    some = replace(some, budget="smoke")
    assert (some.figures, some.figure_runs("f1"), some.left_out("f1")) == (["f1"], [made.RUNS[1]], ["too dear"])
    assert (paper.not_shown("f1"), some.not_shown("f1")) == ([], ["Not shown: type parallel: too dear."])
    assert list(some.drafts) == list(made.RUNS[:2])


def test_a_figure_without_any_cell_says_why(tmp_path):
    paper = replace(load_paper(made.NAME, made.paper(tmp_path, spec=TABLELESS + FIGURE)), budget="smoke")
    assert paper.figures == []
    with pytest.raises(UsageError, match="figure 'f1' of toy-2022 is not run: dearer still"):
        paper.figure("f1")
    with pytest.raises(
        UsageError, match=r"figures\.f1\.not_run\.\d\.when: unknown budget 'smok': did you mean 'smoke'"
    ):
        made.paper(tmp_path, spec=(TABLELESS + FIGURE).replace('budget = "smoke" }', 'budget = "smok" }'))
