"""Cells, figures and tables of a made paper whose runs end at thresholds that are found from printed accuracies."""

from pathlib import Path

import made
import pytest

from fedrepro.papers.load import load_paper
from fedrepro.records.config import RunConfig
from fedrepro.report import brief, claims, layout, plots
from fedrepro.report.page import provenance
from fedrepro.results.cells import with_readings
from fedrepro.results.evaluate import evaluate, read, write

IN_TURN = """
[axes.reading."in turn"]
run = "in-turn"
hyper = { order = "in-turn" }

[axes.type.none]
"""


def reread(calibrated, type):
    """The made spec with numbers of table t1 that are not compared, and with its cells of a type read in turn too."""
    tables = f"""
[[tables.t1.calibrated]]
{calibrated}

[[tables.t1.readings]]
reading = "in turn"
when = {{ type = "{type}" }}
reason = "Clients may answer in turn"

[[tables.t1.cells]]"""
    spec = made.SPEC.replace("\n[axes.type.none]\n", IN_TURN)
    return spec.replace("\n[[tables.t1.cells]]", tables, 1)


CALIBRATED = 'when = { type = ["sequential", "parallel"] }\nreason = "it prints no threshold"'
SPEC = (
    reread(CALIBRATED, "parallel")
    .replace("stop = { threshold = 0.575, warm_start = 10 }", "watch = { crossings = { warm_start = 2 } }")
    .replace("settings = { stop = { threshold = 0.6 } }", "settings = { rounds = 4 }")
    + """
[figures.any]
kind = "thresholds"
title = "Any threshold"

[[figures.any.cells]]
dataset = ["Toys"]
type = ["sequential", "parallel"]
method = ["Game (Smooth)"]

[[figures.any.cells]]
dataset = ["Toys"]
type = ["parallel"]
method = ["Game (Smooth)"]
reading = ["in turn"]
"""
)
TRAINING = {1: 0.86, 2: 0.86, 3: 0.72, 4: 0.86, 5: 0.56, 6: 0.86, 7: 0.50}
HIGH = {round: max(value, 0.70) for round, value in TRAINING.items()}
OTHER = TRAINING | {5: 0.58}
TESTS = {3: 0.30, 5: 0.66, 7: 0.80}
RUNS = ("toys-game-sequential", "toys-game-parallel", "toys-game-parallel-in-turn")


def curves(training=TRAINING, tests=TESTS):
    return {
        seed: {
            "train_accuracy": training,
            "test_accuracy": {round: value + 0.01 * seed for round, value in tests.items()},
        }
        for seed in range(3)
    }


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A paper of which the parallel run never reaches the printed accuracy of 58%, but the one in turn does."""
    monkeypatch.setitem(made.ACCURACIES, RUNS[2], made.ACCURACIES[RUNS[1]])
    loaded = made.records(made.paper(tmp_path, spec=SPEC))
    for run, training in zip(RUNS, (TRAINING, HIGH, OTHER), strict=True):
        made.watch(loaded, run, curves(training))
    return loaded


def test_training_is_calibrated_and_test_is_compared(toy):
    cells = evaluate(toy).cells
    sequential = cells[cells.variant == "type=sequential"].set_index("metric")
    assert list(sequential.status) == ["calibrated", "within"]
    assert list(sequential.reproduced) == ["56.00", "67.00"]
    assert sequential.thresholds.iloc[0] == [0.72]
    assert sequential.loc["test_accuracy"].rounds == [5, 5, 5]
    assert (sequential.loc["test_accuracy"].raised, sequential.loc["test_accuracy"].lowered) == ("31.00", "67.00")


def test_a_seed_that_a_moved_threshold_would_not_have_stopped_has_no_value_there(toy):
    deep = TRAINING | {5: 0.49, 7: 0.45}
    own = {seed: each | {"train_accuracy": HIGH if seed == 2 else deep} for seed, each in curves().items()}
    made.watch(toy, RUNS[0], own)
    cells = evaluate(toy).cells
    row = cells[cells.variant == "type=sequential"].iloc[-1]
    assert (row.raised, row.n_raised, row.lowered, row.n_lowered) == ("31.00", 3, "66.50", 2)


def test_a_seed_that_ends_at_chance_after_the_round_reported_has_not_collapsed(toy):
    made.watch(toy, RUNS[0], curves(), seed_1={"collapsed": True})
    cells = evaluate(toy).cells
    assert not sum(cells[cells.variant == "type=sequential"].collapsed, [])


def test_a_mean_over_the_last_rounds_has_no_value_at_another_threshold(toy):
    spec = toy.folder / "paper.toml"
    spec.write_text(spec.read_text().replace('"final"', '"last3"'))
    made.watch(toy, RUNS[0], curves(tests=TESTS | {4: 0.54}))
    cells = evaluate(load_paper(made.NAME, toy.root)).cells
    row = cells[cells.variant == "type=sequential"].iloc[-1]
    assert (row.reproduced, row.raised, row.lowered) == ("51.00", "", "")


FITTED = """
when = { type = "sequential" }
metric = "test_accuracy"
ends = false
reason = "its labels were chosen by it"
"""


def test_a_number_that_a_setting_was_fitted_to_is_not_compared_but_its_readings_are(tmp_path, monkeypatch):
    monkeypatch.setitem(made.ACCURACIES, f"{RUNS[0]}-in-turn", made.ACCURACIES[RUNS[0]])
    spec = reread(FITTED, "sequential").replace("settings = { stop", "settings = { rounds = 4, stop")
    found = evaluate(made.records(made.paper(tmp_path, spec=spec)))
    rows = [(row.variant, row.metric, row.status) for row in with_readings(found.cells) if "sequential" in row.variant]
    assert rows == [
        ("type=sequential", "train_accuracy", "within"),
        ("type=sequential", "test_accuracy", "calibrated"),
        ("type=sequential;reading=in turn", "train_accuracy", "within"),
        ("type=sequential;reading=in turn", "test_accuracy", "within"),
    ]
    fitted = found.cells[found.cells.status == "calibrated"]
    assert list(fitted.reason) == ["its labels were chosen by it."]
    assert fitted.difference.isna().all()


def test_where_no_threshold_comes_near_both_cells_are_outside_and_say_so(toy):
    cells = evaluate(toy).cells
    parallel = cells[cells.variant == "type=parallel"]
    assert list(parallel.status) == ["outside"] * 2
    assert set(parallel.reason) == {"training accuracy not reached."}


def test_a_reading_stands_below_the_row_that_it_reads_and_is_not_counted(toy):
    found = evaluate(toy)
    assert len(found.cells) == 6
    rows = with_readings(found.cells)
    assert [row.variant for row in rows[-2:]] == ["type=parallel;reading=in turn"] * 2
    assert [row.status for row in rows[-2:]] == ["calibrated", "within"]
    assert rows[-1].runs == [RUNS[2]]
    text = layout.markdown(layout.sheet(toy, "t1", found.cells))
    assert "| in turn | Game (Smooth) [" in text
    assert "Clients may answer in turn." in text
    assert "Calibrated: it prints no threshold." in text


def test_a_short_table_has_the_readings_and_does_not_count_them(toy):
    cells = evaluate(toy).cells
    sheet = layout.sheet(toy, "t1", cells)
    counts = cells.status.value_counts()
    *lines, told = brief.table(sheet, 200).plain.splitlines()
    (place,) = [place for place, line in enumerate(lines) if "in turn" in line]
    assert lines[place][lines[place - 1].index("Game (Smooth)") :].startswith("  in turn ")
    assert f"= {counts['calibrated']} fitted" in told
    assert "Indented rows are other readings, marked alike and not counted." in told


def test_no_threshold_hangs_on_a_test_accuracy(toy):
    before = evaluate(toy).cells.thresholds
    for run, training in zip(RUNS, (TRAINING, HIGH, OTHER), strict=True):
        made.watch(toy, run, curves(training, {3: 0.9, 5: 0.1, 7: 0.2}))
    after = evaluate(toy).cells
    assert list(after.thresholds) == list(before)
    assert set(after[after.variant == "type=sequential"].reproduced) == {"56.00", "11.00"}


def test_a_crossing_that_was_not_tested_is_a_fault(toy):
    made.watch(toy, RUNS[0], curves(tests={3: 0.3, 7: 0.8}))
    found = evaluate(toy)
    assert "test_accuracy at 0 of the last round of seed 0" in found.faults[RUNS[0]]


def test_frames_with_readings_are_read_as_they_were_written(toy):
    found = evaluate(toy)
    write(toy, found)
    assert read(toy).cells.equals(found.cells)


CLAIM = """
[claims.accurate]
statement = "Games beat Plain"
place = "section 1"
quantity = {{ kind = "final", metric = "test_accuracy" }}
margin = {margin}

[[claims.accurate.pairs]]
both = {{ dataset = "Toys" }}
high = {{ type = "sequential", method = "Game (Smooth)" }}
low = {{ type = "none", method = "Plain" }}
"""


def claiming(loaded, margin):
    """The paper with the claim."""
    (loaded.folder / "paper.toml").write_text(SPEC + CLAIM.format(margin=margin))
    return load_paper(made.NAME, loaded.root)


# Plain has 10, 11 and 12%, the game 66, 67 and 68 where it stops, and 30, 31 and 32 with T three points higher.
@pytest.mark.parametrize(
    ("margin", "by_threshold", "verdict"),
    [
        (15, ["holds", "holds", "holds"], "holds"),
        (25, ["holds", "fails", "holds"], "undecided"),
        (60, ["fails", "fails", "fails"], "fails"),
    ],
)
def test_a_claim_is_decided_where_no_moved_threshold_changes_its_verdict(toy, margin, by_threshold, verdict):
    claimed = claiming(toy, margin)
    row = evaluate(claimed).claims.iloc[0]
    assert (row.difference, row.n) == (56, 3)
    assert (row.by_threshold, row.verdict) == (by_threshold, verdict)
    hangs = "Hangs on T: holds where it was found, fails three points higher, holds three lower."
    assert (hangs in claims.sheet(claimed, evaluate(claimed).claims).notes) == (verdict == "undecided")


def test_a_seed_that_a_moved_threshold_would_not_have_stopped_judges_no_claim_there(toy):
    deep = TRAINING | {5: 0.49, 7: 0.45}
    own = {seed: each | {"train_accuracy": deep if seed == 2 else HIGH} for seed, each in curves().items()}
    made.watch(toy, RUNS[0], own)  # of two seeds three points lower nothing is left, and one has no interval
    row = evaluate(claiming(toy, 15)).claims.iloc[0]
    assert (row.n, row.by_threshold, row.verdict) == (3, ["holds", "holds", "undecided"], "undecided")


def test_without_a_found_threshold_a_claim_is_judged_once(toy):
    for run in RUNS:
        made.watch(toy, run, curves(dict.fromkeys(TRAINING, 0.86), {7: 0.66}))
    row = evaluate(claiming(toy, 15)).claims.iloc[0]
    assert (row.difference, row.by_threshold, row.verdict) == (56, [], "holds")


def test_the_figure_has_a_point_for_each_threshold_and_the_printed_pairs(toy):
    points = evaluate(toy).points
    own = points[points.line == "Game (Smooth), type sequential"]
    assert list(own.x) == ["72.00", "56.00", "50.00"]
    assert list(own["mean"]) == [31.0, 67.0, 81.0]
    figure = plots.figure(toy, "any", points)
    stars = [line.get_xydata().tolist()[0] for line in figure.axes[0].lines if line.get_marker() == "*"]
    assert stars == [[55.76, 66.56], [58.03, 67.14]]
    assert "a star at the pair that the paper prints" in plots.caption(toy, "any", points)


def test_runs_that_no_threshold_stops_have_a_printed_pair_and_no_line(toy):
    for run in RUNS:
        made.watch(toy, run, curves(dict.fromkeys(TRAINING, 0.86)))
    points = evaluate(toy).points
    figure = plots.figure(toy, "any", points)
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [0, 1, 0, 1, 0]
    assert "Game (Smooth), type parallel, test accuracy: no value" in plots.caption(toy, "any", points)


def test_a_paper_with_two_printed_accuracies_of_one_run_is_refused(toy):
    from fedrepro.errors import UsageError

    spec = Path(toy.folder / "paper.toml")
    t1 = SPEC[SPEC.index("[tables.t1]") : SPEC.index("[figures.any]")]
    spec.write_text(SPEC + t1.replace("t1", "t2"))
    rows = made.PUBLISHED.splitlines()[1:]
    moved = "\n".join(row.replace(",t1,", ",t2,").replace(",55.76,", ",60.00,") for row in rows)
    (toy.folder / "published.csv").write_text(made.PUBLISHED + moved + "\n")
    with pytest.raises(UsageError, match="ends at a training accuracy of 55.76% here and 60.00% there"):
        evaluate(load_paper(made.NAME, toy.root))


def test_the_page_says_that_what_a_run_ended_with_is_not_what_its_table_has(toy):
    facts = dict(provenance.runs(toy)[0][f"{made.NAME}/{RUNS[0]}"]["facts"])
    assert facts["stopping rule"] == (
        "none in training. A table reports the round in which its own threshold is crossed; the list below has the "
        "last round of each seed."
    )


@pytest.mark.parametrize("watch", [{}, {"crossings": {}}])
def test_the_page_has_the_rule_by_which_a_run_stopped(watch):
    rule = {"threshold": 0.6, "warm_start": 20, "margin": 0.05}
    config = RunConfig(method="f-irm", dataset="digits", rounds=50, stop=rule, watch=watch)
    said = "training accuracy below 60.00%, after 20 rounds and once above 65.00%"
    assert provenance._stop(config) == said
