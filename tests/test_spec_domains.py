"""The spec of fedaug-2022, and what it is the first to use: metrics by domain, spreads over domains, gaps, panels."""

import json
import shutil
import statistics
from dataclasses import replace

import made
import parts
import pytest
from lifted import REPO, everything, lifted

from fedrepro.errors import UsageError
from fedrepro.papers.load import load_paper
from fedrepro.papers.schema.tables import Tolerance
from fedrepro.results import check, claims
from fedrepro.results.runs import current

NAME = "fedaug-2022"
TWO_PHASE = {"afl", "gen-afl", "vm"}
TESTS = {
    "table7": ["0", "15", "30", "45", "60", "75"],
    "table8": ["photo", "art_painting", "cartoon", "sketch"],
    "table9": ["art", "product", "real_world", "clipart"],
}


def axes(cell):
    """The printed axes of a cell."""
    return {key: value for key, value in cell.facts.items() if key not in ("metric", "dataset", "method")}


def configs(paper, table):
    """(printed axes, configuration) of the cells of a table."""
    return [(axes(cell), paper.drafts[cell.runs[0]].config) for cell in paper.cells(table)]


# Cells and runs


def test_every_published_number_has_a_cell_and_the_reverse():
    paper = load_paper(NAME, REPO)
    cells = [cell.key for table in paper.spec.tables for cell in paper.cells(table)]
    assert sorted(cells) == sorted(made.printed(paper))
    sizes = {table: len(paper.cells(table)) for table in paper.spec.tables}
    assert sizes == {
        "table3": 100,
        "table4": 54,
        "table5": 54,
        "table6": 96,
        "table7": 42,
        "table8": 15,
        "table9": 15,
    } | {"text_b1": 2}


def test_the_published_file_is_as_it_was_printed():
    numbers = made.printed(load_paper(NAME, REPO)).values()
    assert sum(number.unit == "percent" for number in numbers) == 306
    assert [float(number.mean) for number in numbers if "printed as '976'" in number.note] == [97.6, 97.6]
    assert sum(bool(number.spread) for number in numbers) == 6 + 3 + 3  # the summaries of the norms


@pytest.mark.parametrize(
    ("budget", "runs"),
    [
        # Fed-IRM by two readings, FedProx by another, and a model of 60 degrees for that of Table 7
        ("paper", 25 + 25 + 12 + 15 + 48 + 4 + 5 + 1),
        ("desk", 25 + 25 + 12 + 15 + 36 + 4 + 5 + 1),
    ],
)
def test_runs_without_officehome(budget, runs):
    paper = lifted(NAME, budget)
    assert len(paper.drafts) == runs
    assert {draft.config.dataset for draft in paper.drafts.values()} == {
        "rotated-mnist", "pacs" if budget == "paper" else "pacs-112px"
    }  # fmt: skip
    assert paper.table_runs("table5") == paper.table_runs("table9") == []


def test_settings_are_the_paper_s():
    paper = everything(NAME, "paper")
    for table in ("table3", "table4", "table5", "table6"):
        for printed, config in configs(paper, table):
            federated = printed["training"] == "federated"
            rounds = int(printed["rounds"] if federated else printed["steps"])
            assert config.rounds == rounds * (2 if config.method in TWO_PHASE else 1)
            assert config.hyper.get("steps", 1) == int(printed.get("local_steps", 1))
            assert config.hyper.get("keep_optimiser", False) == federated
            small = config.dataset == "rotated-mnist"
            wanted = ("cnn-fair", 1e-3, 64) if small else ("resnet18", 5e-5, 32)
            assert tuple(config.hyper[key] for key in ("net", "lr", "batch")) == wanted
            assert config.data.get("per_domain", 1) == (4 if federated and not small else 1)
            if config.method == "vm":
                assert config.hyper["beta"] == (10 if small else 0.5)
            name = printed["augmentation"]
            kind = {"gaussian_blur": "blur"}.get(name, name.rstrip("0123456789"))
            assert config.data["augmentation"] == kind
            assert config.data.get("degrees", 0) == int(name.removeprefix("rotation") if kind == "rotation" else 0)
            assert len(range(0, config.rounds, config.watch.test_every)) in (2, 8)  # points of a curve


def test_desk_shortens_irm_makes_pacs_small_and_has_seeds_where_a_claim_hangs_on_them():
    asked = [("fedavg", each, "-r80-k200") for each in ("none", "rot45", "blur")]
    asked += [("erm", each, "") for each in ("none", "rot45")]  # of two ends of a claim each
    asked += [("fed-irm", "rot45", "-r80-k200-as-irm")]
    thrice = {f"rotated-mnist-{method}-{augmentation}{end}" for method, augmentation, end in asked}
    desk, drafts = lifted(NAME, "desk").drafts, lifted(NAME, "paper").drafts
    assert thrice < {*desk}
    for run, draft in desk.items():
        config, own = draft.config, drafts[run].config
        assert (config.precision, config.seeds) == ("bf16", (0, 1, 2) if run in thrice else (0,))
        assert config.watch.grad_norm == own.watch.grad_norm
        if config.dataset == "rotated-mnist":
            part = 4 if config.method == "irm" else 1
            assert (config.rounds * part, config.hyper, config.data) == (own.rounds, own.hyper, own.data)
            assert len(range(0, config.rounds, config.watch.test_every)) in (2, 8)  # points of a curve
        else:
            steps = config.rounds * config.hyper.get("steps", 1) / (2 if config.method in TWO_PHASE else 1)
            assert steps == (400 if "per_domain" not in config.data else 200)
            assert (config.data["size"], config.hyper["init"], config.hyper["lr"]) == (32, "scratch", 5e-4)


def test_desk_is_without_the_two_longest_rows_of_table_6_and_never_compares_accuracies_on_pacs():
    desk, drafts = lifted(NAME, "desk"), lifted(NAME, "paper").drafts
    lacking = {run for run in drafts if run.startswith("rotated-mnist")} - {*desk.drafts}
    assert lacking == {run for run in drafts if run.endswith(("-r320-k800", "-r2-k128000"))}
    budget = desk.spec.budgets["desk"]
    assert [budget.of(part).compare for part in ("table3", "table4", "table8")] == [True, False, False]
    assert "PACS: input 32 px" in budget.of("claims").label


@pytest.mark.parametrize("budget", ["paper", "desk"])
def test_fed_irm_by_another_reading_has_the_loss_of_the_paper_s_irm(budget):
    from fedrepro import methods

    drafts = lifted(NAME, budget).drafts
    for end in ("k1", "r80-k200"):
        plain, other = (drafts[f"rotated-mnist-fed-irm-rot45-{end}{tail}"].config for tail in ("", "-as-irm"))
        form = {"form": "release", "penalty": "weights"}
        assert other == plain.model_copy(update={"hyper": plain.hyper | form, "seeds": other.seeds})
    federated, irm = (methods.find(name).hyper for name in ("fed-irm", "irm"))
    assert irm["penalty"] == "weights"
    assert all(federated[key] == irm[key] for key in ("nu", "anneal", "net", "lr", "batch", "eps"))


@pytest.mark.parametrize("budget", ["paper", "desk"])
def test_fedprox_is_plain_sgd_and_its_other_reading_the_released_form(budget):
    drafts = lifted(NAME, budget).drafts
    released = {run: draft.config for run, draft in drafts.items() if run.endswith("-released")}
    assert len(released) == 5
    for run, config in released.items():
        plain = drafts[run.removesuffix("-released")].config
        assert (plain.hyper["form"], plain.hyper["lr"], plain.hyper["mu"]) == ("plain", 1e-3, 0.3)
        assert config == plain.model_copy(update={"hyper": plain.hyper | {"form": "release"}})


def test_norms_are_of_the_runs_of_other_tables_which_alone_measure_them():
    paper = everything(NAME, "paper")
    longer, shorter = ({run for run in paper.table_runs("table7") if each in run} for each in ("-r320-", "-r80-"))
    assert longer < set(paper.table_runs("table6"))
    assert shorter - set(paper.table_runs("table3")) == {"rotated-mnist-fedavg-rot60-r80-k200"}  # the other reading
    assert {config.rounds * config.hyper["steps"] for _, config in configs(paper, "table7")} == {320 * 200}
    assert set(paper.table_runs("table8")) < set(paper.table_runs("table4"))
    assert set(paper.table_runs("table9")) < set(paper.table_runs("table5"))
    measuring = {run for run, draft in paper.drafts.items() if draft.config.watch.grad_norm}
    assert measuring == {run for table in TESTS for run in paper.table_runs(table)}
    assert len(measuring) == 6 + 6 + 3 + 3


def test_smoke_has_a_run_of_each_kind():
    paper = load_paper(NAME, REPO)
    runs = paper.at("smoke").runs()
    assert len(runs) <= 8
    assert {config.dataset for config in runs.values()} == {"rotated-mnist-digits"}
    assert {config.method for config in runs.values()} >= {"fedavg", "afl", "fedprox", "fed-irm", "erm", "v-rex", "irm"}
    assert any(config.watch.grad_norm for config in runs.values())
    steps = [config.rounds * config.hyper.get("steps", 1) for config in runs.values()]
    assert max(steps) <= 40
    assert {config.data["augmentation"] for config in runs.values()} == {"none", "rotation", "blur"}


@pytest.mark.parametrize("budget", ["paper", "desk", "smoke"])
def test_methods_and_datasets_know_every_setting(budget):
    from fedrepro import data, methods

    paper = lifted(NAME, budget) if budget == "smoke" else everything(NAME, budget)
    for draft in paper.drafts.values():
        assert draft.config.hyper.keys() <= methods.find(draft.config.method).hyper.keys()
        assert draft.config.data.keys() <= data.parameters(draft.config.dataset).keys()


# What the paper prints


def test_the_printed_summaries_are_the_mean_and_spreads_of_the_printed_norms():
    paper = load_paper(NAME, REPO)
    norms = {}
    for key, number in made.printed(paper).items():
        if key[0] in TESTS:
            norms.setdefault((key[0], key[2].split(";")[1]), []).append(number)
    assert len(norms) == 12
    for (table, augmentation), (*domains, whole) in norms.items():
        values = [float(number.mean) for number in domains]
        assert statistics.fmean(values) == pytest.approx(float(whole.mean), abs=6e-4)
        right = statistics.stdev(values)
        if table == "table7":
            assert right == pytest.approx(float(whole.spread), abs=6e-4)
            continue
        slip = statistics.stdev([*values[:-1], statistics.fmean(values)])
        assert slip == pytest.approx(float(whole.spread), abs=1.1e-3)
        facts = {"augmentation": augmentation.split("=")[1], "domain": "all"}
        (said,) = [r.reason for r in paper.spec.tables[table].readings if dict(r.when) == facts]
        assert f" is {right:.3f}; {whole.spread} is" in said


PRINTED = {  # claim -> how many of its pairs or gains have the ordering in print
    "augmentation": (15, 15), "augmentation-pacs": (2, 2), "blur": (5, 5), "norms": (4, 4), "norms-80": (4, 4),
    "norms-pacs": (2, 2), "norms-blur": (1, 1), "norms-blur-80": (1, 1), "gap-training": (1, 1), "gap-domains": (2, 2),
    "gap-enlarged": (5, 5),
}  # fmt: skip


def test_claims_are_true_of_the_printed_numbers():
    paper = load_paper(NAME, REPO)
    numbers = made.printed(paper)

    def value(cell, metric):
        table = {"RotatedMNIST": "table3", "PACS": "table4"}[cell["dataset"]]
        if metric == "grad_norm_all":
            table, metric = {"table3": "table7", "table4": "table8"}[table], "grad_norm"
            kept = {"training": cell["training"], "augmentation": cell["augmentation"], "domain": "all"}
            kept |= {"role": "summary"}
        else:
            order = ("training", "augmentation", "steps", "rounds", "local_steps")
            kept = {axis: cell[axis] for axis in order if axis in cell}
        variant = ";".join(f"{axis}={each}" for axis, each in kept.items())
        return float(numbers[table, cell["dataset"], variant, cell["method"], metric].mean)

    def quantity(claim, cell):
        less = value(cell, claim.quantity.less) if claim.quantity.kind == "gap" else 0
        return value(cell, claim.quantity.metric) - less

    def gain(claim, blocks):
        pairs = [pair for block in blocks for pair in block.cells()]
        return statistics.fmean(quantity(claim, high) - quantity(claim, low) for (high,), (low,) in pairs)

    found = {}
    for name, claim in paper.claims.items():
        blocks = [((pair,), ()) for pair in _single(claim.pairs)] + [(g.larger, g.smaller) for g in claim.gains]
        differences = [gain(claim, large) - (gain(claim, small) if small else 0) for large, small in blocks]
        found[name] = (sum(difference > claim.margin for difference in differences), len(differences))
    assert found == PRINTED


class _Pair:
    """One pair of a block, as a block of its own."""

    def __init__(self, cells):
        self.one = cells

    def cells(self):
        return [self.one]


def _single(blocks):
    return [_Pair(cells) for block in blocks for cells in block.cells()]


# Readings, by hand


@pytest.fixture
def made_up(tmp_path):
    return beside(tmp_path)


def beside(tmp_path):
    """The paper in a folder of its own, with all but OfficeHome to be run; `write(run, metrics of each seed)`.

    What is declared of the real runs says nothing of these, so no deviation is.
    """
    shutil.copytree(REPO / "papers" / NAME, tmp_path / "papers" / NAME)
    (tmp_path / "params.yaml").write_text(f"{NAME}:\n  budget: paper\n")
    real = lifted(NAME, "paper")
    tables = {name: table.model_copy(update={"deviations": ()}) for name, table in real.spec.tables.items()}
    paper = replace(real, root=tmp_path, spec=real.spec.model_copy(update={"tables": tables}))

    def write(run, *metrics):
        record = made.record(paper, run, [(0, 0)] * len(metrics)) | {"paper": NAME, "run": run}
        for entry, own in zip(record["seeds"].values(), metrics, strict=True):
            entry["metrics"] = own
        parts.write(paper, run, record)

    return paper, write


def norms(table, *values):
    """The metrics of a record: the domains' norms, their mean and sample standard deviation."""
    each = {f"grad_norm_{test}": value for test, value in zip(TESTS[table], values, strict=True)}
    return each | {"grad_norm_all": statistics.fmean(values), "grad_norm_std": statistics.stdev(values)}


def test_a_cell_is_the_norm_of_its_domain_and_the_summary_has_the_spread_over_domains(made_up):
    paper, write = made_up
    # By hand: seed 0 is 1, 2, ..., 6: mean 3.5, sum of squares 17.5, spread sqrt(17.5 / 5) = 1.8708; seed 1 is its
    # double; seed 2 is all ones. Means over the seeds: 4/3, 7/3, 10/3, 13/3, 16/3, 19/3; of the means (3.5 + 7 + 1)/3.
    rising = [1, 2, 3, 4, 5, 6]
    seeds = [norms("table7", *(factor * value for value in rising)) for factor in (1, 2)] + [norms("table7", *[1] * 6)]
    write("rotated-mnist-fedavg-none-r320-k200", *seeds)
    found = parts.only(paper, "table7", augmentation="none")
    assert [row.reproduced for row in found] == ["1.333", "2.333", "3.333", "4.333", "5.333", "6.333", "3.833"]
    assert found[0].reproduced_spread == "0.471"  # of 1, 2, 1 over the seeds (population)
    assert found[-1].reproduced_spread == "1.871"  # (1.8708 + 3.7417 + 0) / 3, of the domains
    assert {run for row in found for run in row.runs} == {"rotated-mnist-fedavg-none-r320-k200"}
    assert [len(row.measured) for row in found] == [3] * 7


def test_the_norms_of_table_3s_models_stand_below_those_of_table_6s(made_up):
    paper, write = made_up
    seeds = [norms("table7", *[value] * 6) for value in (1, 2, 6)]
    for run, own in (("r320", seeds[:1] * 3), ("r80", seeds)):
        made_run = f"rotated-mnist-fedavg-none-{run}-k200"
        record = made.record(paper, made_run, [(0, 0)] * len(own)) | {"paper": NAME, "run": made_run}
        for entry, values in zip(record["seeds"].values(), own, strict=True):
            entry["metrics"] = values | {"id_accuracy": 0.9, "ood_accuracy": 0.8}
        parts.write(paper, made_run, record)
    found = parts.only(paper, "table7", augmentation="none")
    assert [row.reproduced for row in found] == ["1.000"] * 7
    others = [other for row in found for other in row.readings]
    assert {(other["reading"], other["reproduced"], other["n_seeds"]) for other in others} == {("80 x 200", "3.000", 3)}
    assert len(others) == 7
    assert {run for other in others for run in other["runs"]} == {"rotated-mnist-fedavg-none-r80-k200"}
    own = parts.only(paper, "table3", augmentation="none", rounds="80")
    assert [row.reproduced for row in own if row.method == "FedAvg"] == ["90.00", "80.00"]  # of the same run


def test_half_of_the_published_norm_is_tolerated_and_nothing_for_its_spread(made_up):
    paper, write = made_up
    # Published: 0.940, 0.233, 0.120, 0.149, 0.532, 1.485, and 0.577 with a spread of 0.542.
    exact = norms("table7", 0.940, 0.233, 0.120, 0.149, 0.532, 1.485)
    moved = exact | {"grad_norm_0": 1.410, "grad_norm_15": 0.350, "grad_norm_60": 0.266, "grad_norm_75": 0.742}
    write("rotated-mnist-fedavg-none-r320-k200", *[moved] * 3)
    write("rotated-mnist-fedavg-none-r80-k200", *[exact | {"id_accuracy": 0.9, "ood_accuracy": 0.8}] * 3)
    found = parts.only(paper, "table7", augmentation="none")
    assert [row.limit for row in found[:2]] == [0.47, 0.1165]
    verdicts = ["within", "outside", "within", "within", "within", "outside", "within"]
    assert [row.status for row in found] == verdicts  # 0.350 and 0.742 are more than half away
    assert check.allowed(paper.table("table7").tolerance) == "50% of the published number"
    assert {row.unit for row in found} == {"l2_norm"}


def test_percents_have_two_decimals_and_other_numbers_those_of_the_printed_one(tmp_path):
    printed = made.PUBLISHED.replace("84.88,0.16", "84.885,0.16").replace("10.4,,percent", "0.104,,l2_norm")
    toy = made.records(made.paper(tmp_path, published=printed))
    accuracy, norm = parts.part(toy, "cells")[:2]
    assert (accuracy.reproduced, norm.reproduced, norm.reproduced_spread) == ("85.00", "0.110", "0.008")


def test_the_largest_part_of_a_tolerance_counts():
    tolerance = Tolerance(spreads=2, points=3, share=0.1, reason="why")
    assert [tolerance.limit(number, spread) for number, spread in ((20, 1), (20, 2), (-50, 2))] == [3, 4, 5]
    assert check.allowed(tolerance) == (
        "the largest of 2 published standard deviations, 3 points, 10% of the published number"
    )


def test_domains_are_named_in_the_paper_s_way(made_up):
    paper, write = made_up
    write("pacs-fedavg-weak-r80-k200", *[norms("table8", 6.0, 7.0, 3.0, 11.0)] * 3)
    found = parts.only(paper, "table8", augmentation="weak")
    domains = [dict(pair.split("=") for pair in row.variant.split(";"))["domain"] for row in found]
    assert domains == ["Photo", "Art", "Cartoon", "Sketch", "all"]
    assert [row.reproduced for row in found] == ["6.000", "7.000", "3.000", "11.000", "6.750"]
    assert any("of the four printed norms is 3.312" in remark.reason for remark in paper.table("table8").readings)
    assert paper.table_runs("table9") == []
    whole = everything(NAME, "paper")
    first = [cell.read for cell in whole.cells("table9") if whole.table_runs("table9")[0] in cell.runs]
    assert [*(read.metric for read in first), *{read.spread for read in first if read.spread}] == [
        *(f"grad_norm_{test}" for test in TESTS["table9"]), "grad_norm_all", "grad_norm_std"
    ]  # fmt: skip


def test_a_record_without_norms_is_a_fault_of_its_run(made_up):
    paper, write = made_up
    write("rotated-mnist-fedavg-none-r320-k200", *[{"id_accuracy": 0.9, "ood_accuracy": 0.8}] * 3)
    assert parts.only(paper, "table6", augmentation="none", local_steps="200")[0].reproduced == "90.00"
    run = "rotated-mnist-fedavg-none-r320-k200"
    remedy = f"run `fedrepro train --paper fedaug-2022 --run {run}`"
    assert f"lacks grad_norm_0 of seed 0: {remedy}" in parts.faults(paper, "cells")[run]


def test_a_budget_may_say_other_things_of_some_tables(made_up):
    paper, _ = made_up
    desk = replace(paper, budget="desk")
    label = {table: parts.part(desk, "cells", table=table)[0].label for table in ("table4", "table3")}
    assert [desk.spec.budgets["desk"].of(table).compare for table in label] == [False, True]
    assert "32 px" in label["table4"]
    assert label["table3"] == (
        "desk (1 seed, of ERM and FedAvg 3 with no augmentation and rotation45, of FedAvg with blur; bf16 products; "
        "IRM: a quarter of the steps)"
    )


# Figures, by hand


def test_gap_and_panels_by_hand(made_up):
    paper, write = made_up
    erm = [{"id_accuracy": i, "ood_accuracy": o} for i, o in ((0.98, 0.93), (0.97, 0.94), (0.99, 0.95))]
    fed = [{"id_accuracy": i, "ood_accuracy": o} for i, o in ((0.97, 0.90), (0.96, 0.90), (0.98, 0.90))]
    write("rotated-mnist-erm-none", *erm)
    write("rotated-mnist-fedavg-none-r80-k200", *fed)
    drawn = parts.part(paper, "points", figure="fig5b")
    found = [(point.metric, point.line, point.x, point.mean, point.spread) for point in drawn]
    assert found == [
        ("id_accuracy", "centralized", "none", 98, 0.816497),
        ("id_accuracy", "federated", "none", 97, 0.816497),
        ("ood_accuracy", "centralized", "none", 94, 0.816497),
        ("ood_accuracy", "federated", "none", 90, 0),
    ]
    values = claims.measured(paper, "gap-enlarged", *current(paper, paper.runs())).values
    assert {run: own for run, own in values.items() if own} == {
        "rotated-mnist-fedavg-none-r80-k200": {0: 7, 1: 6, 2: 8},
        "rotated-mnist-erm-none": {0: 5, 1: 3, 2: 4},
    }
    [row] = parts.part(paper, "claims", claim="gap-enlarged")
    assert (row.difference, row.n, row.verdict) == (3, 3, "holds")  # seed by seed 2, 3, 4; of five pairs one is run


def test_one_seed_decides_nothing(made_up):
    paper, write = made_up
    spec = paper.spec.model_copy(update={"defaults": paper.spec.defaults | {"seeds": [0]}})
    alone = replace(paper, spec=spec)
    for run, ood in (("none", 0.90), ("rot15", 0.99)):
        name = f"rotated-mnist-fedavg-{run}-r80-k200"
        write(name, norms("table7", *[1] * 6) | {"id_accuracy": 0.99, "ood_accuracy": ood}, *[{}] * 2)
        record = json.loads((parts.folder(alone, name) / "record.json").read_text())
        assert record["identity"]["config"] == alone.run(name).digest()
    row = parts.part(alone, "claims")[0]
    assert (row.difference, row.n, row.verdict) == (9, 1, "undecided")


def test_rounds_and_local_steps_make_up_the_places_of_a_figure(made_up):
    paper, write = made_up
    for rounds, steps, ood in ((320, 50, 0.92), (2000, 10, 0.93), (2, 128000, 0.71)):
        write(f"rotated-mnist-fedavg-none-r{rounds}-k{steps}", *[{"ood_accuracy": ood}] * 3)
    drawn = parts.part(paper, "points", figure="fig5a")
    assert [(point.line, point.x, point.mean) for point in drawn] == [
        ("none", "2000 × 10", 93), ("none", "320 × 50", 92), ("none", "2 × 128000", 71)
    ]  # fmt: skip


@pytest.mark.parametrize("figure", ["fig3-mnist", "fig4-mnist"])
def test_levels_have_the_order_of_the_paper(made_up, figure):
    paper, _ = made_up
    order = ["none", "rotation15", "rotation30", "rotation45", "rotation60", "gaussian_blur"]
    shown = [x for x in order if figure == "fig4-mnist" or x != "rotation60"]
    lines = {}
    for spot, _ in paper.spots(figure):
        lines.setdefault(spot.line, []).append(spot.x)
    assert set(map(tuple, lines.values())) == {tuple(shown)}
    assert list(lines) == (["FedAvg"] if figure == "fig4-mnist" else ["FedAvg", "AFL", "Gen-AFL", "VM", "FedProx"])
    assert [x for x in paper.spec.axes["augmentation"] if x in shown] == shown


# Mistakes

TABLE = "[[tables.t1.cells]]"
LEVELS = """
[figures.f1]
kind = "levels"
title = "Rounds"
x = ["type", "tip"]
lines = "method"
panels = ["test_accuracy"]
cells = [{ dataset = ["Toys"], type = ["none"], method = ["Plain"] }]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            TABLE,
            'implied = { type = "none" }\n' + TABLE,
            r"tables\.t1: axis 'type' is in `implied` and again in `cells`",
        ),
        (TABLE, 'implied = { typ = "none" }\n' + TABLE, r"tables\.t1\.implied: unknown axis 'typ'"),
        (
            TABLE,
            'reads = [{ metric = "x_{typ}" }]\n' + TABLE,
            r"tables\.t1: reads: unknown axis 'typ': did you mean 'type'",
        ),
        (
            TABLE,
            'reads = [{ when = { typ = "none" }, metric = "x" }]\n' + TABLE,
            r"tables\.t1\.reads\.0\.when: unknown axis 'typ'",
        ),
        (
            "[budgets.smoke]",
            '[budgets.paper.own]\nt2.label = "x"\n[budgets.smoke]',
            r"own: unknown table or figure 't2'",
        ),
        (
            "[budgets.smoke]",
            LEVELS.replace("panels", "# panels") + "[budgets.smoke]",
            r"figures\.f1\.x: unknown axis 'tip'",
        ),
        (
            "[budgets.smoke]",
            LEVELS.replace('["type", "tip"]', '"type"') + "[budgets.smoke]",
            r"figures\.f1: `panels` are metrics, and its quantity is none",
        ),
    ],
)
def test_a_mistake_in_the_spec_is_one_sentence_with_its_place(tmp_path, old, new, said):
    with pytest.raises(UsageError, match=said):
        made.paper(tmp_path, spec=made.SPEC.replace(old, new, 1))


def test_an_unknown_metric_of_a_gap_is_one_sentence(made_up):
    paper, write = made_up
    write("rotated-mnist-erm-none", *[{"id_accuracy": 0.9}] * 3)
    with pytest.raises(UsageError, match=r"claims\.gap-\w+: run rotated-mnist-erm-none: unknown metric 'ood_accuracy'"):
        parts.part(paper, "claims")
    assert "lacks ood_accuracy of seed 0" in parts.faults(paper, "cells")["rotated-mnist-erm-none"]
