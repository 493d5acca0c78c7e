"""Claims from made seeds: the quantities by hand, and the verdicts on clear and on overlapping data."""

import math

import made
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrepro.errors import FedreproError, UsageError
from fedrepro.papers.load import load_paper
from fedrepro.results import claims, frames, quantities
from fedrepro.results.check import check
from fedrepro.results.evaluate import enforce, evaluate
from fedrepro.results.evaluate import write as write_frames
from fedrepro.results.runs import current

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


def rows_of(loaded):
    """The rows of the claims, in their order, without the rest of the paper."""
    runs, faults = current(loaded, loaded.runs())
    found = claims.rows(loaded, runs, faults)
    assert faults == {}
    return frames.frame("claims", found)


def evidence(loaded):
    """The rows by claim."""
    by_claim = {}
    for each in rows_of(loaded).itertuples():
        by_claim.setdefault(each.claim, []).append(each)
    return by_claim


def verdicts(*rows):
    """The verdicts on the claims of some rows."""
    return claims.verdicts(pd.DataFrame(rows))


def values(loaded, claim, run):
    """A claim's quantity of each seed of a run, None where it has none."""
    found = claims.measured(loaded, claim, *current(loaded, loaded.runs())).values
    seeds = sorted({seed for each in found.values() for seed in each})
    return [found[run].get(seed) for seed in seeds]


# Quantities


def test_oscillation_by_hand():
    assert quantities.oscillation([1, 3, 1, 3], 2) == 1  # each window has deviations of 1 from its mean of 2
    assert quantities.oscillation([0, 1, 2, 3], 2) == 0.5  # a drift of 1 a round: deviations of 1/2
    assert quantities.oscillation([0, 0, 3, 3], 3) == pytest.approx(math.sqrt(2))  # 0 0 3 and 0 3 3: sqrt(18/9) each
    assert quantities.oscillation([5, 5, 5], 3) == 0
    assert math.isnan(quantities.oscillation([5, 5], 3))


def test_a_fast_swing_counts_in_full_and_a_slow_drift_hardly():
    rounds = np.arange(400)
    assert quantities.oscillation(0.1 * (-1.0) ** rounds, 50) == pytest.approx(0.1)
    assert quantities.oscillation(0.1 * np.sin(2 * np.pi * rounds / 4000), 50) < 0.01


def test_first_round_by_hand():
    curve = pd.Series({5: 30.0, 10: 62.0, 15: 50.0, 20: 70.0})
    assert quantities.first_round(curve, 60) == (10, False)
    assert quantities.first_round(curve, 62) == (10, False)
    assert quantities.first_round(curve, 75) == (20, True)
    round, censored = quantities.first_round(pd.Series(dtype=float), 75)
    assert (math.isnan(round), censored) == (True, False)


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


# Verdicts


def test_the_interval_over_seeds_is_that_of_the_paired_t_test():
    assert claims.interval([3, 3, 3]) == (3, 3)
    lo, hi = claims.interval([0, 1])  # 1/2 -+ 12.7062 x 1/2
    assert (lo, hi) == (pytest.approx(-5.8531, abs=1e-4), pytest.approx(6.8531, abs=1e-4))
    high, low = np.array([7.0, 8.5, 6.0, 9.1, 7.7]), np.array([5.0, 5.5, 5.2, 6.1, 6.9])
    wanted = scipy.stats.ttest_rel(high, low).confidence_interval(0.95)
    assert claims.interval(high - low) == pytest.approx((wanted.low, wanted.high), rel=1e-5)


@pytest.mark.parametrize("differences", [[], [4.0]])
def test_a_single_seed_or_group_has_no_interval(differences):
    assert all(math.isnan(end) for end in claims.interval(differences))


@pytest.mark.parametrize(
    ("pairs", "sizes"),
    [
        ([], []),
        ([["a", "b"], ["c", "d"]], [1, 1]),
        ([["a", "b"], ["c", "d"], ["b", "d"]], [3]),  # the last one joins the first two
        ([["a", "b"], ["c", "d"], ["e", "a"]], [1, 2]),
        ([["a"], ["b"], ["a"]], [1, 2]),  # against a level
    ],
)
def test_pairs_that_share_a_run_are_in_one_group(pairs, sizes):
    found = claims.groups(pairs)
    assert [len(group) for group in found] == sizes
    assert sorted(pair for group in found for pair in group) == sorted(pairs)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3), max_size=8))
def test_no_two_groups_share_a_run(pairs):
    found = [{run for pair in group for run in pair} for group in claims.groups(pairs)]
    assert sum(map(len, found)) == len(set().union(*found))


@pytest.mark.parametrize(
    ("lo", "hi", "margin", "censored", "verdict"),
    [
        (26, 30, 25, (0, 0), "holds"),
        (25, 30, 25, (0, 0), "undecided"),
        (24, 30, 25, (0, 0), "undecided"),
        (20, 25, 25, (0, 0), "undecided"),
        (20, 24, 25, (0, 0), "fails"),
        (math.nan, math.nan, 25, (0, 0), "undecided"),  # one seed has no spread
        (26, 30, 25, (5, 0), "holds"),  # high is even larger
        (26, 30, 25, (0, 1), "undecided"),  # low may be larger
        (20, 24, 25, (0, 5), "fails"),
        (20, 24, 25, (1, 0), "undecided"),
    ],
)
def test_a_pair_is_judged_by_its_interval_and_by_what_was_cut_off(lo, hi, margin, censored, verdict):
    assert claims.judge(lo, hi, margin, *censored) == verdict


def test_clear_data_hold_and_overlapping_data_are_undecided(toy):
    found = evidence(toy)
    every = verdicts(*(each for pairs in found.values() for each in pairs))
    assert every == dict.fromkeys(("accurate", "slow", "early", "calm"), "holds")
    [slow] = found["slow"]
    assert (slow.difference, slow.lo, slow.hi, slow.n) == (40, 40, 40, 3)  # seed by seed: 40, 40, 40
    watched(toy, final=(0.2, 0.9, 0.4))
    accurate = evidence(toy)["accurate"]
    assert [each.verdict for each in accurate] == ["holds", "undecided"]
    assert verdicts(*accurate) == {"accurate": "undecided"}


def test_what_is_plainly_the_other_way_round_fails_and_takes_the_claim_with_it(toy):
    watched(toy, final=(0.2, 0.21, 0.22))
    found = evidence(toy)["accurate"]
    assert [(each.difference, each.verdict) for each in found] == [(56, "holds"), (10, "fails")]
    assert verdicts(*found) == {"accurate": "fails"}


def test_a_seed_that_never_arrives_is_cut_off_at_its_last_watched_round(toy):
    low = {"train_accuracy": 0.55, "test_accuracy": 0.3}
    never = {f"seed_{seed}": {"rounds": 80 + 10 * seed, "metrics": dict(low)} for seed in range(3)}
    watched(toy, sequential={5: 0.1, 30: 0.2}, **never)
    [early] = evidence(toy)["early"]
    assert (early.difference, early.censored_high, early.censored_low, early.verdict) == (85, 3, 0, "holds")
    watched(toy, parallel={5: 0.1, 10: 0.2}, final=(0.3, 0.3, 0.3))
    [early] = evidence(toy)["early"]
    assert (early.difference, early.censored_low, early.verdict) == (-30, 3, "fails")  # or less


def test_a_seed_at_the_cap_counts_with_the_cap(toy):
    watched(toy, seed_2={"status": "cap", "rounds": 110})
    [slow] = evidence(toy)["slow"]
    assert (round(slow.difference, 3), slow.censored_high, slow.verdict) == (43.333, 1, "holds")  # 40, 40, 50


def test_a_curve_without_a_window_decides_nothing(toy):
    path = toy.folder / "paper.toml"
    path.write_text(path.read_text().replace("window = 2", "window = 5"))
    [calm] = evidence(load_paper(made.NAME, toy.root))["calm"]
    assert (math.isnan(calm.difference), calm.n, calm.verdict) == (True, 0, "undecided")


def test_a_cell_that_is_not_run_leaves_the_claim_undecided(tmp_path):
    left_out = '\n[[tables.t1.not_run]]\nwhen = { type = "none" }\nreason = "too dear"\n'
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + left_out + CLAIMS))
    watched(loaded)
    found = evidence(loaded)["accurate"]
    assert [(each.low, each.n, each.verdict) for each in found] == [("", 0, "undecided")] * 2


def test_a_pair_of_which_neither_cell_is_run_is_undecided(tmp_path):
    left_out = '\n[[tables.t1.not_run]]\nwhen = { type = ["none", "sequential"] }\nreason = "too dear"\n'
    only = CLAIMS.partition("[claims.slow]")[0]
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + left_out + only))
    sequential, parallel = evidence(loaded)["accurate"]
    assert (sequential.high, sequential.low, sequential.n, sequential.verdict) == ("", "", 0, "undecided")
    assert (parallel.high, parallel.low, parallel.n, parallel.verdict) == (PARALLEL, "", 0, "undecided")


# Counts, gains and picks, on a paper of masked and plain runs


MASKED = """
title = "A mask"

[defaults]
rounds = 10
seeds = [0, 1, 2]

[axes.dataset.Iid]
dataset = "toys"

[axes.dataset.Skewed]
dataset = "toys-skewed"

[axes.method.One]
method = "one"

[axes.method.Two]
method = "two"

[axes.step.none]
run = ""

[axes.step."0.1"]
run = "small"
hyper = { step = 0.1 }

[axes.step."1"]
run = "large"
hyper = { step = 1.0 }

[budgets.paper]
label = "paper"

[tables.t1]
title = "Table 1"
metrics = ["test_accuracy"]
reduction = "final"
tolerance = { spreads = 2, points = 3, reason = "a toy" }
cells = [{ dataset = ["Iid", "Skewed"], method = ["One", "Two"], step = ["none", "0.1", "1"] }]
"""
CLAIM = """
[claims.c]
statement = "It is so"
place = "here"
quantity = { kind = "final", metric = "test_accuracy" }
margin = 0
"""
PAIRS = """
[[claims.c.pairs]]
both = { dataset = ["Iid", "Skewed"], method = ["One", "Two"] }
high = { step = "0.1" }
low = { step = "none" }
"""
GAIN = """
[[claims.c.gains]]
name = "skewed against i.i.d."
larger = [{ both = { dataset = "Skewed", method = ["One", "Two"] }, high = { step = "0.1" }, low = { step = "none" } }]
smaller = [{ both = { dataset = "Iid", method = ["One", "Two"] }, high = { step = "0.1" }, low = { step = "none" } }]
"""
BEST = """
[[claims.c.pairs]]
both = { dataset = ["Iid", "Skewed"], method = "One" }
high = { step = ["0.1", "1"] }
low = { step = "none" }
pick = { high = "largest" }
"""
UNENDED = {8: 0.2, 9: 0.4}
CURVE = UNENDED | {10: 0.6}


def masked(tmp_path, claim, left_out="", **finals):
    """A paper with one claim; `finals`: run (with _ for -) -> the seeds' percents, None where diverged; else all 50."""
    folder = tmp_path / "papers" / made.NAME
    folder.mkdir(parents=True)
    (folder / "paper.toml").write_text(MASKED + left_out + claim)
    (tmp_path / "params.yaml").write_text(f"{made.NAME}: {{budget: paper}}\n")
    loaded = load_paper(made.NAME, tmp_path)
    curve = UNENDED if 'kind = "final"' in claim else CURVE
    for run in loaded.runs():
        write(loaded, run, finals.get(run.replace("-", "_"), [50, 50, 50]), curve)
    return loaded


def write(loaded, run, percents, curve=UNENDED):
    """The record of a run with these final accuracies, and its curve of test accuracies, the same for every seed.

    Where the curve goes to the last round, the final accuracies are its.
    """
    values = [(0.5, (percent or 0) / 100) for percent in percents]
    content = made.record(loaded, run, values)
    for seed, percent in enumerate(percents):
        if percent is None:
            content["seeds"][str(seed)] |= {"status": "diverged", "metrics": {}}
    curve = curve if isinstance(curve, list) else [curve] * len(percents)
    points = [f"{seed},{t},test_accuracy,{v}\n" for seed, each in enumerate(curve) for t, v in each.items()]
    made.write(loaded.root, run, content, made.UNWATCHED + "".join(points))


def rows(loaded):
    return evidence(loaded)["c"]


def numbers(row):
    return (round(row.difference, 4), round(row.lo, 4), round(row.hi, 4), row.verdict)


COUNTS = {  # differences of four pairs, by seed -> pairs above, below and with a positive mean
    "clear": ([[2, 2.5, 3], [1, 1, 1], [4, 5, 6], [-2, -2.5, -3]], 3, 1, 3),
    "vague": ([[2, 2.5, 3], [-9, 1, 11], [-11, 1, 9], [0, 0, 0]], 1, 0, 2),
    "equal": ([[0, 0, 0]] * 4, 0, 0, 0),
    "lost": ([[2, 2.5, 3], [1, 1, 1], [2, 2, 2], [None, None, 1]], 3, 0, 4),
}


@pytest.mark.parametrize("case", list(COUNTS))
@pytest.mark.parametrize("published", [1, 3, 4])
def test_a_number_of_pairs_is_judged_by_the_intervals_on_either_side(tmp_path, case, published):
    differences, above, below, positive = COUNTS[case]
    runs = [f"{dataset}_{method}_small" for dataset in ("iid", "skewed") for method in ("one", "two")]
    finals = {run: [None if d is None else 50 + d for d in each] for run, each in zip(runs, differences, strict=True)}
    loaded = masked(tmp_path, CLAIM.replace("margin = 0", f"margin = 0\npublished = {published}") + PAIRS, **finals)
    *pairs, count = rows(loaded)
    placed = [row.verdict for row in pairs]
    assert (placed.count("above"), placed.count("below"), placed.count("neither")) == (above, below, 4 - above - below)
    assert (count.difference, count.lo, count.hi) == (positive, above, 4 - below)
    assert count.n == min(sum(d is not None for d in each) for each in differences)
    verdict = "holds" if above >= published else "fails" if 4 - below < published else "undecided"
    assert verdicts(*rows(loaded)) == {"c": verdict}
    assert count.verdict == verdict


POOLED = CLAIM.replace("margin = 0", "margin = 0\npooled = true") + PAIRS


def test_pooled_pairs_have_one_value_for_each_seed(tmp_path):
    loaded = masked(
        tmp_path, POOLED,
        iid_one_small=[51, 52, 53], iid_two_small=[53, 52, 53],  # with those below 2 3 4, in the mean over the pairs
        skewed_one_small=[54, 56, 58], skewed_two_small=[50, 52, 52],
    )  # fmt: skip
    [row] = rows(loaded)
    assert (row.pair, row.high, row.low) == ("Iid or Skewed, One or Two: step 0.1 against step none", "", "")
    assert (row.kind, row.n) == ("pooled", 3)
    assert numbers(row) == (3, pytest.approx(0.51586, abs=1e-4), pytest.approx(5.48414, abs=1e-4), "holds")
    write(loaded, "iid-two-small", [None, 20, 20])  # two seeds are left: 3 less 32/4, and 4 less 33/4
    [row] = rows(loaded)
    assert (row.kind, row.n, row.difference) == ("pooled", 2, -4.625)


def test_pooled_pairs_of_one_seed_are_judged_by_their_groups(tmp_path):
    loaded = masked(
        tmp_path, POOLED,
        iid_one_small=[51, None, None], iid_two_small=[53, None, None],  # 1 and 3
        skewed_one_small=[54, None, None], skewed_two_small=[None, None, None],  # 4, and none
    )  # fmt: skip
    [row] = rows(loaded)
    assert (row.kind, row.n) == ("groups", 3)
    half = 4.302653 * math.sqrt(7 / 3 / 3)  # of 1, 3 and 4
    assert numbers(row) == (
        pytest.approx(8 / 3, abs=1e-4),
        pytest.approx(8 / 3 - half, abs=1e-4),
        pytest.approx(8 / 3 + half, abs=1e-4),
        "undecided",
    )


def test_each_block_of_pooled_pairs_is_judged_alone_and_one_group_is_too_few(tmp_path):
    second = PAIRS.replace(', method = ["One", "Two"]', ', method = "One"').replace('["Iid", "Skewed"]', '"Iid"')
    runs = [f"{dataset}_{method}_small" for dataset in ("iid", "skewed") for method in ("one", "two")]
    loaded = masked(tmp_path, POOLED + second, **dict.fromkeys(runs, [51, None, None]))
    assert [(row.n, row.verdict) for row in rows(loaded)] == [(4, "holds"), (1, "undecided")]


def test_a_pooled_pair_with_a_seed_cut_off_counts_as_cut_off(toy):
    path = toy.folder / "paper.toml"
    path.write_text(path.read_text().replace("margin = 0\npairs", "margin = 0\npooled = true\npairs"))
    watched(toy, seed_1={"status": "cap"}, seed_2={"status": "cap"})
    [row] = evidence(load_paper(made.NAME, toy.root))["slow"]
    assert (row.difference, row.n, row.censored_high, row.censored_low) == (13.3333, 3, 2, 0)  # 0, 0, 40


def test_a_gain_is_the_mean_over_its_pairs_seed_by_seed(tmp_path):
    loaded = masked(
        tmp_path, CLAIM + GAIN,
        skewed_one_small=[60, 62, 64], skewed_two_small=[54, 54, 54],  # gains 10 12 14 and 4: 7 8 9
        iid_one_small=[52, 52, 52], iid_two_small=[50, 52, 54],  # gains 2 and 0 2 4: 1 2 3
    )  # fmt: skip
    [row] = rows(loaded)
    assert numbers(row) == (6, 6, 6, "holds")
    assert (row.pair, row.high, row.low, row.n) == ("skewed against i.i.d.", "", "", 3)


def test_a_gain_that_is_smaller_fails_and_one_like_the_other_is_undecided(tmp_path):
    loaded = masked(tmp_path, CLAIM + GAIN, iid_one_small=[60, 62, 64])
    assert rows(loaded)[0].verdict == "fails"
    write(loaded, "iid-one-small", [30, 50, 70])
    assert rows(loaded)[0].verdict == "undecided"
    write(loaded, "iid-one-small", [10, 12, 14])
    assert rows(loaded)[0].verdict == "holds"
    path = loaded.folder / "paper.toml"
    path.write_text(path.read_text().replace("margin = 0", "margin = 25"))
    assert rows(load_paper(made.NAME, loaded.root))[0].verdict == "fails"  # 20, 19, 18


def test_gains_are_over_the_seeds_that_all_cells_have(tmp_path):
    loaded = masked(tmp_path, CLAIM + GAIN, skewed_one_small=[60, None, 64], iid_two=[None, 50, 50])
    [row] = rows(loaded)
    assert (row.n, row.difference, row.verdict) == (1, 7, "undecided")  # of seed 2: (14 + 0) / 2


def test_gains_with_a_pair_that_is_not_run_are_undecided(tmp_path):
    left_out = (
        '\n[[tables.t1.not_run]]\nwhen = { dataset = "Iid", method = "Two", step = "0.1" }\nreason = "too dear"\n'
    )
    loaded = masked(tmp_path, CLAIM + GAIN, left_out, skewed_one_small=[60, 60, 60])
    [row] = rows(loaded)
    assert (row.n, math.isnan(row.difference), row.verdict) == (0, True, "undecided")


def test_gains_of_rounds_that_were_cut_off_decide_nothing_in_favour(tmp_path):
    quantity = '{ kind = "first_round", metric = "test_accuracy", level = 50 }'
    loaded = masked(tmp_path, CLAIM.replace('{ kind = "final", metric = "test_accuracy" }', quantity) + GAIN)
    slow, never = {1: 0.1, 10: 0.6}, {1: 0.1, 10: 0.4}
    for run in loaded.runs():
        write(loaded, run, [50] * 3, {1: 0.6})
    write(loaded, "skewed-one-small", [50] * 3, slow)
    assert (rows(loaded)[0].difference, rows(loaded)[0].verdict) == (4.5, "holds")
    write(loaded, "skewed-one-small", [50] * 3, never)  # even more
    assert (rows(loaded)[0].censored_high, rows(loaded)[0].verdict) == (3, "holds")
    write(loaded, "iid-two-small", [40] * 3, {1: 0.4, 2: 0.4})  # who knows
    assert (rows(loaded)[0].censored_low, rows(loaded)[0].verdict) == (3, "undecided")


def test_the_largest_of_several_is_compared_and_said_to_be_optimistic(tmp_path):
    loaded = masked(tmp_path, CLAIM + BEST, iid_one_small=[55, 56, 57], iid_one_large=[58, 50, 57])
    first, second = rows(loaded)
    assert first.pair == "Iid, One: largest of step 0.1 or 1 against step none"
    assert (first.high, first.low, numbers(first)) == ("iid-one-small", "iid-one", (6, 3.5159, 8.4841, "holds"))
    assert (second.high, second.verdict) == ("skewed-one-small", "undecided")  # the first of equals
    write(loaded, "iid-one-large", [80, 80, 80])
    assert rows(loaded)[0].high == "iid-one-large"
    write(loaded, "iid-one-large", [80, 80, None])  # it lost a seed, so it is out
    assert rows(loaded)[0].high == "iid-one-small"
    write(loaded, "iid-one-small", [None, None, None])
    assert (rows(loaded)[0].high, rows(loaded)[0].n) == ("iid-one-large", 2)


def test_the_spread_between_cells_is_the_largest_less_the_smallest(tmp_path):
    spread = """
[[claims.c.pairs]]
both = { dataset = "Skewed", method = "Two" }
high = { step = ["none", "0.1", "1"] }
low = { step = ["none", "0.1", "1"] }
pick = { high = "largest", low = "smallest" }
"""
    loaded = masked(tmp_path, CLAIM + spread, skewed_two_large=[40, 41, 42], skewed_two_small=[52, 51, 53])
    [row] = rows(loaded)
    assert row.pair == "Skewed, Two: largest of step none or 0.1 or 1 against smallest of step none or 0.1 or 1"
    assert (row.high, row.low, row.difference) == ("skewed-two-small", "skewed-two-large", 11)  # 12, 10, 11


def test_a_gain_of_the_best_cells(tmp_path):
    gain = GAIN.replace('high = { step = "0.1" }', 'pick = { high = "largest" }, high = { step = ["0.1", "1"] }')
    loaded = masked(tmp_path, CLAIM + gain, skewed_one_large=[60, 60, 60], iid_two_small=[53, 53, 53])
    assert numbers(rows(loaded)[0]) == (3.5, 3.5, 3.5, "holds")  # (10 + 0) / 2 - (0 + 3) / 2


def test_cells_that_are_not_run_are_not_picked(tmp_path):
    left_out = '\n[[tables.t1.not_run]]\nwhen = { step = "1" }\nreason = "too dear"\n'
    loaded = masked(tmp_path, CLAIM + BEST, left_out, iid_one_small=[55, 56, 57])
    assert [row.high for row in rows(loaded)] == ["iid-one-small", "skewed-one-small"]


def test_the_mean_of_the_last_rounds_is_a_quantity(tmp_path):
    quantity = '{ kind = "last", metric = "test_accuracy", rounds = 2 }'
    loaded = masked(tmp_path, CLAIM.replace('{ kind = "final", metric = "test_accuracy" }', quantity) + PAIRS)
    assert set(values(loaded, "c", "iid-one")) == {50}  # 40 and 60, in percent
    write(loaded, "iid-one-small", [50] * 3, {8: 0.2, 10: 0.6})
    runs, faults = current(loaded, loaded.runs())
    claims.rows(loaded, runs, faults)
    assert list(faults) == ["iid-one-small"]
    assert "test_accuracy at 1 of the last 2 rounds of seed 0" in faults["iid-one-small"]


SHARE = (
    '{ kind = "first_round", metric = "test_accuracy", level = { share = 0.9, rounds = 2, of = { step = "none" } } }'
)
FASTER = PAIRS.replace('high = { step = "0.1" }', 'high = { step = "none" }').replace(
    'low = { step = "none" }', 'low = { step = ["0.1", "1"] }'
)


def test_a_level_may_be_a_share_of_another_cell_of_the_same_seed(tmp_path):
    claim = CLAIM.replace('{ kind = "final", metric = "test_accuracy" }', SHARE) + FASTER
    loaded = masked(tmp_path, claim)
    slow = [{1: 0.1, 5: 0.3, 9: 0.4, 10: 0.6}, {1: 0.1, 5: 0.3, 9: 0.2, 10: 0.4}, {5: 0.1, 9: 0.9, 10: 0.9}]
    write(loaded, "iid-one", [50] * 3, slow)  # levels 45, 27 and 81%
    write(loaded, "iid-one-small", [50] * 3, [{1: 0.5}, {1: 0.2, 2: 0.27}, {3: 0.8, 7: 0.82}])
    write(loaded, "iid-one-large", [26] * 3, [{4: 0.46}, {4: 0.26}, {4: 0.9}])
    assert values(loaded, "c", "iid-one") == [10, 5, 9]
    assert values(loaded, "c", "iid-one-small") == [1, 2, 7]
    assert values(loaded, "c", "iid-one-large") == [4, 10, 4]
    first, second = rows(loaded)[:2]
    assert (first.pair, first.censored_low) == ("Iid, One: step none against step 0.1", 0)
    assert numbers(first) == (4.6667, -4.7381, 14.0715, "undecided")  # 9, 3 and 2
    assert (second.censored_low, second.verdict) == (1, "undecided")  # seed 1 never gets there


def test_without_its_reference_a_share_has_no_value(tmp_path):
    claim = CLAIM.replace('{ kind = "final", metric = "test_accuracy" }', SHARE)
    claim += FASTER.replace('high = { step = "none" }', 'high = { step = "1" }').replace('["0.1", "1"]', '"0.1"')
    loaded = masked(tmp_path, claim, iid_one=[50, None, 50])
    assert loaded.references("c")["iid-one-small"] == "iid-one"  # though no pair has it
    assert values(loaded, "c", "iid-one-small") == [
        10,
        None,
        10,
    ]  # 45%, which is 0.9 x (40 + 60) / 2, is reached in round 10


# Pairs and stages


def test_pairs_are_products_named_by_what_tells_their_cells_apart(toy):
    pairs = toy.comparisons("accurate")
    assert [pair.runs for pair in pairs] == [[SEQUENTIAL, "toys-plain"], [PARALLEL, "toys-plain"]]
    assert pairs[0].name == "Toys: type sequential, Game (Smooth) against type none, Plain"
    assert toy.comparisons("slow")[0].name == "Toys, Game (Smooth): type sequential against type parallel"
    assert list(toy.runs()) == list(made.RUNS)


def test_smoke_is_of_one_seed_and_undecided(tmp_path):
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + CLAIMS, budget="smoke"))
    for run in (SEQUENTIAL, PARALLEL):
        made.watch(loaded, run, {0: {"train_accuracy": {5: 0.2}, "test_accuracy": {5: 0.2}}})
    assert set(rows_of(loaded).verdict) == {"undecided"}


def test_a_missing_record_is_named_with_the_remedy_and_leaves_its_claims_undecided(toy):
    (toy.root / "runs" / made.NAME / "game" / PARALLEL / "record.json").unlink()
    found = evaluate(toy)
    assert claims.verdicts(found.claims)["slow"] == "undecided"
    with pytest.raises(FedreproError, match=rf"record\.json is missing: run `fedrepro train .*--run {PARALLEL}`"):
        enforce(toy, found)


def test_a_claim_that_fails_is_a_finding_and_no_problem(toy):
    watched(toy, final=(0.2, 0.21, 0.22))
    write_frames(toy, evaluate(toy))
    found = check([toy])
    assert found.claims["toy-2022"]["accurate"] == "fails"
    assert all("test_accuracy: reproduced" in problem for problem in found.problems)


def test_the_rows_say_their_kind_their_runs_and_their_data(toy):
    found = rows_of(toy)
    assert found.kind.tolist() == ["pair"] * 5
    assert found.runs.tolist() == [[SEQUENTIAL, "toys-plain"], [PARALLEL, "toys-plain"], *[[SEQUENTIAL, PARALLEL]] * 3]
    assert (set(found.budget), found.substitute_data.tolist()) == ({"paper"}, [[]] * 5)


# Mistakes


MISTAKES = {
    "axis": ('low = { type = "none"', 'low = { tpye = "none"', "claims.accurate.pairs.0.low: unknown axis 'tpye'"),
    "value": ('method = "Plain"', 'method = "Plian"', "pairs.0.low: unknown method 'Plian': did you mean 'Plain'"),
    "cell": ('low = { type = "none"', 'low = { type = "parallel"',
             "claims.accurate: no table and no figure has the cell Toys, type parallel, Plain"),
    "kind": ('"rounds"', '"round"', "claims.slow.quantity: unknown kind 'round': did you mean 'rounds'"),
    "key": ("window = 2,", "width = 2,", "claims.calm.quantity.width: there is no such key"),
    "both": ('both = { dataset = "Toys" }', 'both = { dataset = "Toys", type = "none" }',
             "claims.accurate.pairs.0: axis 'type' is in `both` and again"),
    "margin": ("margin = 25\n", "", "claims.accurate.margin: field required"),
    "no pairs": (f"margin = 0\npairs = [{GAMES}]\n", "margin = 0\n", "slow: a claim has either `pairs` or `gain"),
    "too many": ("margin = 25", "margin = 25\npublished = 3", "accurate: 3 pairs are published, and there are 2"),
    "pooled and counted": ("margin = 25", "margin = 25\npublished = 2\npooled = true",
                           "accurate: `pooled` pairs can neither be counted"),
    "reduction": ('{ kind = "rounds" }', '{ kind = "last", metric = "test_accuracy", rounds = 0 }',
                  "claims.slow.quantity.rounds: input should be greater"),
    "reference": ("level = 60", 'level = { share = 0.9, rounds = 3, of = { type = "paralel" } }',
                  "claims.early.quantity.level.Share.of: unknown type 'paralel': did you mean 'parallel'"),
    "cell of a reference": ("level = 60", 'level = { share = 0.9, rounds = 3, of = { type = "none" } }',
                            "claims.early: no table and no figure has the cell"),
    "pick": ("low = { type = \"none\", method = \"Plain\" }", 'low = { method = "Plain" }\npick = { low = "best" }',
             "claims.accurate.pairs.0.pick.low: input should be 'largest' or 'smallest'"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_mistake_in_the_spec_is_one_sentence_with_its_place(tmp_path, mistake):
    old, new, message = MISTAKES[mistake]
    made.paper(tmp_path)
    assert old in CLAIMS
    (tmp_path / "papers" / made.NAME / "paper.toml").write_text(made.SPEC + CLAIMS.replace(old, new, 1))
    with pytest.raises(UsageError, match=rf"paper\.toml.*({message})") as raised:
        load_paper(made.NAME, tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("claim", "kind"), [("accurate", "final"), ("early", "first_round"), ("calm", "oscillation")])
def test_an_unknown_metric_is_one_sentence_with_its_place(toy, claim, kind):
    path = toy.folder / "paper.toml"
    old = {"calm": "train_accuracy"}.get(claim, "test_accuracy")
    path.write_text(path.read_text().replace(f'"{kind}", metric = "{old}"', f'"{kind}", metric = "acuracy"'))
    with pytest.raises(UsageError, match=rf"claims\.{claim}: run [a-z-]+: unknown metric 'acuracy': did you mean"):
        rows_of(load_paper(made.NAME, toy.root))


def test_a_single_seed_has_a_difference_and_no_interval(toy):
    lost = {"status": "diverged", "metrics": {}, "rounds": 3}
    watched(toy, seed_1=lost, seed_2=lost)
    [slow] = evidence(toy)["slow"]
    assert (slow.difference, slow.n, math.isnan(slow.lo), math.isnan(slow.hi)) == (40, 1, True, True)
