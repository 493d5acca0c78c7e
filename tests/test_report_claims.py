"""Claims as a reader is told of them: words and files."""

import io
from pathlib import Path

import made
import pandas as pd
import pytest
from rich.console import Console
from test_claims import (
    BEST,
    CLAIM,
    CLAIMS,
    FASTER,
    GAIN,
    PAIRS,
    PARALLEL,
    SEQUENTIAL,
    SHARE,
    masked,
    rows_of,
    watched,
    write,
)

from fedrepro.cli import show
from fedrepro.errors import FedreproError
from fedrepro.papers.load import load_paper
from fedrepro.records import paths
from fedrepro.report import claims, layout, verdict
from fedrepro.report import write as report
from fedrepro.results import evaluate
from fedrepro.results.check import check

ROOT = Path(__file__).parents[1]


@pytest.fixture
def toy(tmp_path):
    """The toy paper with four claims, as that of test_claims."""
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + CLAIMS))
    watched(loaded)
    return loaded


def stored(loaded):
    evaluate.write(loaded, evaluate.evaluate(loaded))


def rendered(loaded):
    """The files of the paper, of what its records give now."""
    stored(loaded)
    return {path: path.read_bytes() for path in report.render(loaded)}


def terminal(loaded):
    """What a terminal shows of what the records give now."""
    return drawn(layout.terminal(claims.sheet(loaded, rows_of(loaded))))


def drawn(shown):
    console = Console(width=300, file=io.StringIO())
    console.print(shown)
    return console.file.getvalue()


def test_a_cell_that_is_not_run_is_said(tmp_path):
    left_out = '\n[[tables.t1.not_run]]\nwhen = { type = "none" }\nreason = "too dear"\n'
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + left_out + CLAIMS))
    watched(loaded)
    assert "Not run: this budget leaves out one of the cells." in terminal(loaded)


def test_a_count_stands_beside_the_published_one(tmp_path):
    claim = CLAIM.replace("margin = 0", "margin = 0\npublished = 3") + PAIRS
    loaded = masked(
        tmp_path, claim, iid_one_small=[51, 52, 53], iid_two_small=[49, 48, 49], skewed_one_small=[20, 80, 60]
    )
    text = terminal(loaded)
    assert "Measured: final test accuracy; 3 pairs in the paper; margin: 0 points." in text
    [line] = [line for line in text.splitlines() if "the paper: 3 of 4" in line]
    assert [part.strip() for part in line.split("│")[2:-1]] == [
        *("pairs above the margin; the paper: 3 of 4", "2 of 4", "0 above, 0 below, 4 neither", "3", "undecided"),
    ]
    assert "as many intervals as the paper has pairs lie above" in " ".join(text.split())


def test_of_one_seed_groups_are_counted_in_place_of_seeds(tmp_path):
    claim = CLAIM.replace("margin = 0", "margin = 0\npooled = true") + PAIRS
    loaded = masked(
        tmp_path, claim,
        iid_one_small=[51, None, None], iid_two_small=[53, None, None],
        skewed_one_small=[54, None, None], skewed_two_small=[None, None, None],
    )  # fmt: skip
    [line] = [line for line in terminal(loaded).splitlines() if "Iid or Skewed" in line]
    assert "Iid or Skewed, One or Two: step 0.1 against step none" in line
    assert "3 groups" in line
    assert "the interval is over groups of pairs, of which none shares a run" in " ".join(terminal(loaded).split())


def test_only_claims_that_count_or_compare_gains_explain_it(toy):
    legend = claims.sheet(toy, rows_of(toy)).legend
    assert legend[-2].startswith("Difference: mean over the seeds of the first cell less the second")
    assert legend[-1].startswith("Budget: ")
    assert not any(line.startswith(("Where a number of pairs", "A comparison of gains")) for line in legend)


@pytest.mark.parametrize("thresholds", [[[], []], [[], ["holds"] * 3]])
def test_the_legend_says_how_intervals_are_made(thresholds):
    shown = pd.DataFrame({"substitute_data": [["digits"], []], "by_threshold": thresholds})
    legend = claims.judged(load_paper("fedaug-2022", ROOT), shown)
    moved = "with all such T three points higher and lower, too"
    assert any(moved in line for line in legend) == any(thresholds)
    assert "interval: 95% paired t interval over the seeds." in legend[0]
    assert any(line.startswith("Pairs that are judged together have one row") for line in legend)
    assert legend[-1] == "Data: digits, in place of the paper's own."


def test_gains_are_explained(tmp_path):
    loaded = masked(tmp_path, CLAIM + GAIN, skewed_one_small=[60, 62, 64])
    text = terminal(loaded)
    assert "skewed against i.i.d." in text
    assert "the mean over one group of pairs" in " ".join(text.split())


def test_gains_with_a_pair_that_is_not_run_say_so(tmp_path):
    left_out = (
        '\n[[tables.t1.not_run]]\nwhen = { dataset = "Iid", method = "Two", step = "0.1" }\nreason = "too dear"\n'
    )
    loaded = masked(tmp_path, CLAIM + GAIN, left_out, skewed_one_small=[60, 60, 60])
    assert "Not run: this budget leaves out one of the cells." in terminal(loaded)


def test_gains_of_rounds_that_were_cut_off_say_on_which_side(tmp_path):
    quantity = '{ kind = "first_round", metric = "test_accuracy", level = 50 }'
    loaded = masked(tmp_path, CLAIM.replace('{ kind = "final", metric = "test_accuracy" }', quantity) + GAIN)
    for run in loaded.runs():
        write(loaded, run, [50] * 3, {1: 0.6})
    write(loaded, "skewed-one-small", [40] * 3, {1: 0.1, 10: 0.4})
    assert "3 of 3 seeds are cut off: the true difference may be larger." in terminal(loaded)
    write(loaded, "iid-two-small", [40] * 3, {1: 0.4, 2: 0.4})
    assert "3 of 3 seeds are cut off: the true difference may be smaller." in terminal(loaded)


def test_the_largest_of_several_is_said_to_be_optimistic(tmp_path):
    loaded = masked(tmp_path, CLAIM + BEST, iid_one_small=[55, 56, 57], iid_one_large=[58, 50, 57])
    said = "The first cell is iid-one-small, the largest of 2 by the mean over the same seeds that are then compared"
    assert f"{said}, which is optimistic." in terminal(loaded)


def test_the_spread_between_cells_names_both(tmp_path):
    spread = """
[[claims.c.pairs]]
both = { dataset = "Skewed", method = "Two" }
high = { step = ["none", "0.1", "1"] }
low = { step = ["none", "0.1", "1"] }
pick = { high = "largest", low = "smallest" }
"""
    loaded = masked(tmp_path, CLAIM + spread, skewed_two_large=[40, 41, 42], skewed_two_small=[52, 51, 53])
    text = terminal(loaded)
    assert "Skewed, Two: largest of step none or 0.1 or 1 against smallest of step none or 0.1 or 1" in text
    assert "The second cell is skewed-two-large, the smallest of 3" in text


def test_a_gain_of_the_best_cells_says_so_once(tmp_path):
    gain = GAIN.replace('high = { step = "0.1" }', 'pick = { high = "largest" }, high = { step = ["0.1", "1"] }')
    loaded = masked(tmp_path, CLAIM + gain, skewed_one_large=[60, 60, 60], iid_two_small=[53, 53, 53])
    assert terminal(loaded).count("The first cell is the largest of 2 by the mean over the same seeds") == 1


def test_cells_that_are_not_run_are_not_picked(tmp_path):
    left_out = '\n[[tables.t1.not_run]]\nwhen = { step = "1" }\nreason = "too dear"\n'
    loaded = masked(tmp_path, CLAIM + BEST, left_out, iid_one_small=[55, 56, 57])
    assert "the largest of 1 (1 more are not run)" in terminal(loaded)


MEASURED = {
    '{ kind = "last", metric = "test_accuracy", rounds = 2 }':
        "mean test accuracy of the last 2 rounds; margin: 0 points",
    '{ kind = "gap", metric = "train_accuracy", less = "test_accuracy" }':
        "final train accuracy less the test accuracy; margin: 0 points",
    '{ kind = "median", metric = "test_loss", checkpoints = 2 }':
        "median of the test loss at the ends of 2 equal parts of training; margin: 0",
    '{ kind = "growth", metric = "test_loss" }':
        "growth of the test loss from its first to its last watched value; margin: 0",
    '{ kind = "growth", metric = "test_loss", by = 0.5 }':
        "growth of the test loss from its first to its last watched value, the part of it by 50% of training; "
        "margin: 0",
    '{ kind = "first_round", metric = "test_accuracy", level = 50 }':
        "first watched round with a test accuracy of at least 50%; margin: 0 rounds",
    '{ kind = "oscillation", metric = "test_loss", window = 3 }':
        "standard deviation of the test loss within 3 watched rounds, from the warm start on; margin: 0",
}  # fmt: skip


@pytest.mark.parametrize("quantity", list(MEASURED))
def test_every_quantity_says_how_it_is_measured(tmp_path, quantity):
    loaded = masked(tmp_path, CLAIM.replace('{ kind = "final", metric = "test_accuracy" }', quantity) + PAIRS)
    assert claims.measured(loaded.spec.claims["c"], ()) == f"Measured: {MEASURED[quantity]}."


def test_a_metric_that_stands_in_is_said_to():
    claim = load_paper("f2u-2019", ROOT).spec.claims["forgiving-f2a"]
    assert "median of the stand-in for the fid at" in claims.measured(claim, {"fid": "a distance"})
    assert "median of the fid at" in claims.measured(claim, ())


def test_the_level_of_a_share_is_said(tmp_path):
    claim = CLAIM.replace('{ kind = "final", metric = "test_accuracy" }', SHARE) + FASTER
    said = "of at least 90% of the mean over the last 2 rounds of step none; margin: 0 rounds"
    assert said in terminal(masked(tmp_path, claim))


def test_files_say_the_evidence_and_have_the_same_bytes_each_time(toy):
    first = rendered(toy)
    assert rendered(toy) == first
    text = first[paths.claims(made.NAME, toy.root)].decode()
    assert (
        "- slow: holds. “Sequential play needs more rounds” (Figure 1(a)). Measured: rounds trained; margin: 0 rounds."
        in text
    )
    assert "within 2 watched rounds, from the warm start to round 14, or the seed's end; margin: 0 points." in text
    assert "+40.00 to +40.00" in text
    assert "never compared" not in text


def test_smoke_is_judged_and_says_nothing_about_the_paper(tmp_path):
    loaded = made.records(made.paper(tmp_path, spec=made.SPEC + CLAIMS, budget="smoke"))
    for run in (SEQUENTIAL, PARALLEL):
        made.watch(loaded, run, {0: {"train_accuracy": {5: 0.2}, "test_accuracy": {5: 0.2}}})
    text = rendered(loaded)[paths.claims(made.NAME, tmp_path)].decode()
    assert "Budget: smoke." in text
    assert "never compared with the paper's: they say nothing about it." in text
    assert "accurate: undecided." in text  # one seed


def test_show_has_the_verdicts_of_the_frames(toy):
    stored(toy)
    shown = drawn(show.claims([toy], wide=True))
    assert shown == terminal(toy)
    assert "calm: holds. “Parallel play swings less”" in shown
    (toy.root / "runs" / made.NAME / "game" / PARALLEL / "record.json").unlink()
    assert drawn(show.claims([toy], wide=True)) == shown  # the records are not looked at
    path = paths.frame(made.NAME, "claims", toy.root)
    path.write_text("\n".join(line for line in path.read_text().splitlines() if PARALLEL not in line))
    with pytest.raises(FedreproError, match=f"lacks {PARALLEL}: run `fedrepro evaluate toy-2022`"):
        show.claims([toy], wide=True)


def test_the_short_form_counts_the_comparisons_of_each_claim(toy):
    stored(toy)
    lines = drawn(show.claims([toy], wide=False)).splitlines()
    assert lines[0] == "toy-2022: A toy"
    at = next(place for place, line in enumerate(lines) if " calm " in line)
    assert lines[at].split() == ["holds", "calm", "1", "holds"]
    assert lines[at + 1].startswith(" " * 11 + "“Parallel play swings less” (")


def test_papers_without_claims_write_nothing_and_say_so(tmp_path):
    loaded = made.records(made.paper(tmp_path))
    assert not [path for path in rendered(loaded) if "claims" in path.name]
    assert "there are no claims" in drawn(show.claims([loaded], wide=False))


def test_a_claim_that_fails_is_a_finding_and_no_problem(toy):
    watched(toy, final=(0.2, 0.21, 0.22))
    stored(toy)
    found = check([toy])
    assert found.claims["toy-2022"]["accurate"] == "fails"
    assert all("test_accuracy: reproduced" in problem for problem in found.problems)
    assert "claims of toy-2022: 3 holds, 1 fails" in drawn(verdict.show(found))


def test_a_single_seed_has_no_interval(toy):
    lost = {"status": "diverged", "metrics": {}, "rounds": 3}
    watched(toy, seed_1=lost, seed_2=lost)
    shown = terminal(toy)
    assert "+40.00" in shown
    assert "+40.00 to" not in shown
