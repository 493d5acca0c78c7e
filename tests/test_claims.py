"""Claims from made seeds: the quantities by hand, the verdicts on clear and on overlapping data, and the files."""

import csv
import io
import json
import math

import made
import numpy as np
import pytest
import yaml
from rich.console import Console

from fedrepro import check, claims, plan, quantities, report
from fedrepro.errors import FedreproError, OutsideTolerance, UsageError
from fedrepro.quantities import Reading
from fedrepro.spec import load_paper

GAMES = """{ both = { dataset = "Toys", method = "Game (Smooth)" }, \
high = { type = "sequential" }, low = { type = "parallel" } }"""
CLAIMS = """
[claims.accurate]
statement = "Games beat Plain on test"
place = "section 1"
quantity = { kind = "final", metric = "test_accuracy" }
margin = 25

[[claims.accurate.pairs]]
both = { dataset = "Toys" }
high = { type = ["sequential", "parallel"], method = "Game (Smooth)" }
low = { type = "none", method = "Plain" }

[claims.slow]
statement = "Sequential play needs more rounds"
place = "Figure 1(a)"
quantity = { kind = "rounds" }
margin = 0
pairs = [GAMES]

[claims.early]
statement = "Parallel play is accurate sooner"
place = "Figure 2(b)"
quantity = { kind = "first_round", metric = "test_accuracy", level = 60 }
margin = 0
pairs = [GAMES]

[claims.calm]
statement = "Parallel play swings less"
place = "Figure 2(a)"
quantity = { kind = "oscillation", metric = "train_accuracy", window = 2, until = 14 }
margin = 0
pairs = [GAMES]
""".replace("GAMES", GAMES)
SEQUENTIAL, PARALLEL = "toys-game-sequential", "toys-game-parallel"
SWING = {10: 0.9, 11: 0.5, 12: 0.7, 13: 0.5, 14: 0.7, 15: 0.0}  # the warm start ends with round 10
DRIFT = {10: 0.9, 11: 0.50, 12: 0.52, 13: 0.54, 14: 0.56, 15: 0.0}
LATE, SOON = {5: 0.3, 10: 0.5, 20: 0.6, 30: 0.7}, {5: 0.6, 10: 0.5, 20: 0.5}


@pytest.fixture
def toy(tmp_path):
    """The toy paper with four claims; the sequential game stops in rounds 80, 90, 100, the parallel in 40, 50, 60."""
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + CLAIMS))
    watched(loaded)
    return loaded


def watched(loaded, sequential=LATE, parallel=SOON, final=(0.67, 0.69, 0.71), **entries):
    """Write records and curves of the games: their test accuracies, `final` the parallel game's at the end."""
    later = {f"seed_{seed}": {"rounds": 80 + 10 * seed} for seed in range(3)}
    curves = dict.fromkeys((0, 1, 2), {"train_accuracy": SWING, "test_accuracy": sequential})
    made.watch(loaded, SEQUENTIAL, curves, **(later | entries))
    curves = dict.fromkeys((0, 1, 2), {"train_accuracy": DRIFT, "test_accuracy": parallel})
    ends = {
        f"seed_{seed}": {"metrics": {"train_accuracy": 0.6, "test_accuracy": value}} for seed, value in enumerate(final)
    }
    made.watch(loaded, PARALLEL, curves, **ends)


def evidence(loaded):
    """The evidence by claim."""
    found = quantities.collect(loaded)
    assert found.faults == {}
    by_claim = {}
    for each in claims.weigh(loaded, found.readings):
        by_claim.setdefault(each.claim, []).append(each)
    return by_claim


def values(loaded, claim, run):
    return [r.value for r in quantities.collect(loaded).readings if (r.claim, r.run) == (claim, run)]


# Quantities


def test_oscillation_by_hand():
    assert quantities.oscillation([1, 3, 1, 3], 2) == 1  # each window has deviations of 1 from its mean of 2
    assert quantities.oscillation([0, 1, 2, 3], 2) == 0.5  # a drift of 1 a round: deviations of 1/2
    assert quantities.oscillation([0, 0, 3, 3], 3) == pytest.approx(math.sqrt(2))  # 0 0 3 and 0 3 3: sqrt(18/9) each
    assert quantities.oscillation([5, 5, 5], 3) == 0
    assert quantities.oscillation([5, 5], 3) is None


def test_a_fast_swing_counts_in_full_and_a_slow_drift_hardly():
    rounds = np.arange(400)
    assert quantities.oscillation(0.1 * (-1.0) ** rounds, 50) == pytest.approx(0.1)
    assert quantities.oscillation(0.1 * np.sin(2 * np.pi * rounds / 4000), 50) < 0.01


def test_first_round_by_hand():
    curve = [(5, 30.0), (10, 62.0), (15, 50.0), (20, 70.0)]
    assert quantities.first_round(curve, 60) == (10, False)
    assert quantities.first_round(curve, 62) == (10, False)
    assert quantities.first_round(curve, 75) == (20, True)
    assert quantities.first_round([], 75) == (None, False)


def test_quantities_are_read_off_record_and_curves(toy):
    assert values(toy, "accurate", "toys-plain") == [10, 11, 12]
    assert values(toy, "slow", SEQUENTIAL) == [80, 90, 100]
    assert values(toy, "early", SEQUENTIAL) == [20, 20, 20]
    assert values(toy, "early", PARALLEL) == [5, 5, 5]
    # Within rounds 11 to 14, in percent: 50 70 50 70, and a drift of 2 a round.
    assert values(toy, "calm", SEQUENTIAL) == [10, 10, 10]
    assert values(toy, "calm", PARALLEL) == [1, 1, 1]


def test_a_diverged_seed_has_a_row_without_a_value_and_is_in_no_pair(toy):
    watched(toy, seed_1={"status": "diverged", "metrics": {}, "rounds": 3})
    for claim in ("accurate", "slow", "early", "calm"):
        assert values(toy, claim, SEQUENTIAL)[1] is None
    assert [each.n for each in evidence(toy)["accurate"]] == [2, 3]
    found = quantities.collect(toy).readings
    assert quantities.parse(quantities.text(found)) == found


# Verdicts


def test_the_interval_is_that_of_the_mean_over_resampled_seeds():
    assert claims.interval([3, 3, 3]) == (3, 3)
    lo, hi = claims.interval([0, 1])  # means 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4
    assert (lo, hi) == (0, 1)
    lo, hi = claims.interval([-1, 0, 0, 0, 1])
    assert -0.8 <= lo < -0.3 < 0.3 < hi <= 0.8
    normal = np.random.default_rng(1).normal(10, 2, 400)
    lo, hi = claims.interval(normal)
    assert lo == pytest.approx(normal.mean() - 1.96 * normal.std() / 20, abs=0.03)
    assert hi == pytest.approx(normal.mean() + 1.96 * normal.std() / 20, abs=0.03)
    assert claims.interval(normal) == (lo, hi)


@pytest.mark.parametrize(
    ("lo", "hi", "margin", "n", "censored", "verdict"),
    [
        (26, 30, 25, 5, (0, 0), "holds"),
        (25, 30, 25, 5, (0, 0), "undecided"),
        (24, 30, 25, 5, (0, 0), "undecided"),
        (20, 25, 25, 5, (0, 0), "undecided"),
        (20, 24, 25, 5, (0, 0), "fails"),
        (26, 30, 25, 1, (0, 0), "undecided"),  # one seed has no spread
        (26, 30, 25, 5, (5, 0), "holds"),  # high is even larger
        (26, 30, 25, 5, (0, 1), "undecided"),  # low may be larger
        (20, 24, 25, 5, (0, 5), "fails"),
        (20, 24, 25, 5, (1, 0), "undecided"),
    ],
)
def test_a_pair_is_judged_by_its_interval_and_by_what_was_cut_off(lo, hi, margin, n, censored, verdict):
    assert claims.judge(lo, hi, margin, n, *censored) == verdict


def test_clear_data_hold_and_overlapping_data_are_undecided(toy):
    found = evidence(toy)
    every = claims.verdicts([each for pairs in found.values() for each in pairs])
    assert every == dict.fromkeys(("accurate", "slow", "early", "calm"), "holds")
    [slow] = found["slow"]
    assert (slow.difference, slow.lo, slow.hi, slow.n) == (40, 40, 40, 3)  # seed by seed: 40, 40, 40
    watched(toy, final=(0.2, 0.9, 0.4))
    accurate = evidence(toy)["accurate"]
    assert [each.verdict for each in accurate] == ["holds", "undecided"]
    assert claims.verdicts(accurate) == {"accurate": "undecided"}


def test_what_is_plainly_the_other_way_round_fails_and_takes_the_claim_with_it(toy):
    watched(toy, final=(0.2, 0.21, 0.22))
    found = evidence(toy)["accurate"]
    assert [(each.difference, each.verdict) for each in found] == [(56, "holds"), (10, "fails")]
    assert claims.verdicts(found) == {"accurate": "fails"}


def test_a_seed_that_never_arrives_is_cut_off_at_its_last_watched_round(toy):
    watched(toy, sequential={5: 0.1, 30: 0.2})
    [early] = evidence(toy)["early"]
    assert (early.difference, early.censored_high, early.censored_low, early.verdict) == (25, 3, 0, "holds")
    watched(toy, parallel={5: 0.1, 10: 0.2})
    [early] = evidence(toy)["early"]
    assert (early.difference, early.censored_low, early.verdict) == (10, 3, "undecided")


def test_a_seed_at_the_cap_counts_with_the_cap(toy):
    watched(toy, seed_2={"status": "cap", "rounds": 200})
    [slow] = evidence(toy)["slow"]
    assert (round(slow.difference, 3), slow.censored_high, slow.verdict) == (73.333, 1, "holds")  # 40, 40, 140


def test_a_curve_without_a_window_decides_nothing(toy):
    path = toy.folder / "paper.toml"
    path.write_text(path.read_text().replace("window = 2", "window = 5"))
    [calm] = evidence(load_paper(made.NAME, toy.root))["calm"]
    assert (calm.difference, calm.n, calm.verdict) == (None, 0, "undecided")


def test_a_cell_that_is_not_run_leaves_the_claim_undecided(tmp_path):
    left_out = '\n[[tables.t1.not_run]]\nwhen = { type = "none" }\nreason = "too dear"\n'
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + left_out + CLAIMS))
    watched(loaded)
    found = evidence(loaded)["accurate"]
    assert [(each.low, each.n, each.verdict) for each in found] == [("", 0, "undecided")] * 2
    assert "Not run: this budget leaves out one of the cells." in terminal(loaded)


# Pairs and stages


def test_pairs_are_products_named_by_what_tells_their_cells_apart(toy):
    pairs = toy.pairs("accurate")
    assert [(pair.high, pair.low) for pair in pairs] == [(SEQUENTIAL, "toys-plain"), (PARALLEL, "toys-plain")]
    assert pairs[0].name == "Toys: type sequential, Game (Smooth) against type none, Plain"
    assert toy.pairs("slow")[0].name == "Toys, Game (Smooth): type sequential against type parallel"
    assert list(toy.runs()) == list(made.RUNS)


def test_the_stage_depends_on_the_runs_compared_and_on_the_claims(toy):
    sources = plan.Sources(code=lambda method: [f"fedrepro/methods/{method}.py"], data=lambda _: "box")
    plan.write(toy.root, sources)
    stage = yaml.safe_load((toy.folder / "dvc.yaml").read_text())["stages"]["evaluate-claims"]
    assert stage["cmd"] == "fedrepro evaluate --paper toy-2022 --claims"
    assert {f"runs/toy-2022/{run}/{file}" for run in made.RUNS for file in ("record.json", "curves.csv")} <= set(
        stage["deps"]
    )
    assert stage["params"] == [{"papers/toy-2022/paper.toml": ["claims"]}]
    assert stage["plots"] == [{"reports/metrics/toy-2022/claims.csv": {"cache": False}}]
    root = yaml.safe_load((toy.root / "dvc.yaml").read_text())["stages"]
    outs = [name for out in root["report"]["outs"] for name in out]
    assert outs[-2:] == ["reports/claims/toy-2022.csv", "reports/claims/toy-2022.md"]
    assert set(outs) | {"fedrepro/claims.py", "reports/metrics/toy-2022/claims.csv"} <= set(root["check"]["deps"])


# Files


def written(loaded):
    list(report.evaluate(root=loaded.root))
    return {path: path.read_bytes() for path in report.render(loaded.root)}


def terminal(loaded):
    console = Console(width=300, file=io.StringIO())
    console.print(claims.show(made.NAME, loaded.root))
    return console.file.getvalue()


def test_files_are_the_evidence_and_have_the_same_bytes_each_time(toy):
    first = written(toy)
    assert written(toy) == first
    [path] = [path for path in first if path == toy.root / "reports/claims/toy-2022.csv"]
    rows = list(csv.DictReader(io.StringIO(first[path].decode())))
    assert list(rows[0]) == [
        *("claim", "pair", "high", "low", "difference", "lo", "hi", "n"),
        *("censored_high", "censored_low", "verdict"),
    ]
    assert rows[2]["claim"] == "slow"
    assert [rows[2][key] for key in ("high", "low", "difference", "n", "verdict")] == [
        *(SEQUENTIAL, PARALLEL, "40.0", "3", "holds"),
    ]
    text = path.with_suffix(".md").read_text()
    assert (
        "- slow: holds. “Sequential play needs more rounds” (Figure 1(a)). Measured: rounds trained; margin: 0 rounds."
        in text
    )
    assert "within 2 watched rounds, from the warm start to round 14; margin: 0 points." in text
    assert "+40.00 to +40.00" in text
    assert "never compared" not in text


def test_only_the_claims_are_written_if_they_are_asked_for(toy):
    [path] = report.evaluate(made.NAME, only_claims=True, root=toy.root)
    assert path == toy.root / "reports/metrics/toy-2022/claims.csv"
    assert path.read_text().splitlines()[:2] == [
        "claim,run,seed,value,censored,budget,substitute",
        f"accurate,{SEQUENTIAL},0,66.0,False,paper,",
    ]


def test_smoke_is_judged_and_says_nothing_about_the_paper(tmp_path):
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + CLAIMS, budget="smoke"))
    for run in (SEQUENTIAL, PARALLEL):
        made.watch(loaded, run, {0: {"train_accuracy": {5: 0.2}, "test_accuracy": {5: 0.2}}})
    text = written(loaded)[loaded.root / "reports/claims/toy-2022.md"].decode()
    assert "Budget: smoke." in text
    assert "never compared with the paper's: they say nothing about it." in text
    assert "accurate: undecided." in text  # one seed


def test_show_has_the_verdicts_and_what_is_missing(toy):
    assert "calm: holds. “Parallel play swings less”" in terminal(toy)
    (toy.root / "runs" / made.NAME / PARALLEL / "record.json").unlink()
    shown = terminal(toy)
    assert "slow: undecided" in shown
    assert f"train-{PARALLEL}" in shown
    with pytest.raises(UsageError, match="unknown paper 'toy-2023': did you mean 'toy-2022'"):
        claims.show("toy-2023", toy.root)


def test_papers_without_claims_write_nothing_and_say_so(tmp_path):
    loaded = made.records(made.paper(tmp_path))
    assert not [path for path in written(loaded) if "claims" in str(path.relative_to(loaded.root))]
    assert "there are no claims" in terminal(loaded)


def test_a_missing_record_is_named_with_the_remedy(toy):
    (toy.root / "runs" / made.NAME / PARALLEL / "record.json").unlink()
    with pytest.raises(FedreproError, match=rf"record\.json is missing: run `dvc repro .*:train-{PARALLEL}`"):
        quantities.claims(toy)


def test_report_needs_the_readings_of_every_run(toy):
    written(toy)
    path = quantities.path(made.NAME, toy.root)
    path.write_text("\n".join(line for line in path.read_text().splitlines() if PARALLEL not in line))
    with pytest.raises(FedreproError, match=f"lacks run {PARALLEL}: run `fedrepro evaluate --paper toy-2022 --claims`"):
        report.render(toy.root)


@pytest.mark.parametrize("file", ["metrics/toy-2022/claims.csv", "claims/toy-2022.csv", "claims/toy-2022.md"])
def test_check_finds_a_file_that_its_records_do_not_render(toy, file):
    written(toy)
    found = check.run(toy.root)
    found.enforce()
    verdicts = {"toy-2022": dict.fromkeys(("accurate", "slow", "early", "calm"), "holds")}
    assert found.claims == json.loads((toy.root / "reports/check.json").read_text())["claims"] == verdicts
    path = toy.root / "reports" / file
    path.write_text(path.read_text().replace("0", "1", 1))
    with pytest.raises(OutsideTolerance, match=f"{file} does not equal what its records render"):
        check.run(toy.root).enforce()


def test_a_claim_that_fails_is_a_finding_and_no_problem(toy):
    watched(toy, final=(0.2, 0.21, 0.22))
    written(toy)
    found = check.run(toy.root)
    assert found.claims["toy-2022"]["accurate"] == "fails"
    assert all("test_accuracy: reproduced" in problem for problem in found.problems)
    console = Console(width=250, file=io.StringIO())
    console.print(check.show(found))
    assert "claims of toy-2022: 1 fails, 3 holds" in console.file.getvalue()


# Mistakes


MISTAKES = {
    "axis": ('low = { type = "none"', 'low = { tpye = "none"', "claims.accurate: unknown axis 'tpye'"),
    "value": ('method = "Plain"', 'method = "Plian"', "claims.accurate: unknown method 'Plian': did you mean 'Plain'"),
    "cell": ('low = { type = "none"', 'low = { type = "parallel"',
             "claims.accurate: no table and no figure has the cell Toys, type parallel, Plain"),
    "kind": ('"rounds"', '"round"', "claims.slow.quantity: input tag 'round'"),
    "key": ("window = 2,", "width = 2,", "claims.calm.quantity.oscillation.width: there is no such key"),
    "both": ('both = { dataset = "Toys" }', 'both = { dataset = "Toys", type = "none" }',
             "claims.accurate: axis 'type' is in `both` and again"),
    "margin": ("margin = 25\n", "", "claims.accurate.margin: field required"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_mistake_in_the_spec_is_one_sentence_with_its_place(tmp_path, mistake):
    old, new, message = MISTAKES[mistake]
    made.paper(tmp_path)
    assert old in CLAIMS
    (tmp_path / "papers" / made.NAME / "paper.toml").write_text(made.SPEC + CLAIMS.replace(old, new))
    with pytest.raises(UsageError, match=rf"paper\.toml.*({message})") as raised:
        load_paper(made.NAME, tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("claim", "kind"), [("accurate", "final"), ("early", "first_round"), ("calm", "oscillation")])
def test_an_unknown_metric_is_one_sentence_with_its_place(toy, claim, kind):
    path = toy.folder / "paper.toml"
    old = {"calm": "train_accuracy"}.get(claim, "test_accuracy")
    path.write_text(path.read_text().replace(f'"{kind}", metric = "{old}"', f'"{kind}", metric = "acuracy"'))
    with pytest.raises(UsageError, match=rf"claims\.{claim}: run [a-z-]+: unknown metric 'acuracy': did you mean"):
        quantities.collect(load_paper(made.NAME, toy.root))


def test_a_reading_keeps_its_kinds():
    row = Reading("c", "run", 3, None, True, "paper", "other toys")
    assert quantities.parse(quantities.text([row])) == [row]
