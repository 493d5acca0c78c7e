"""Crossings and thresholds: found on made curves, and against a slow reference."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.records.config import Crossings
from fedrepro.records.crossings import Passed, first, levels
from fedrepro.results import thresholds

RULE = Crossings(warm_start=3, margin=0.05, step=0.0025)
ROWS = 400  # watched rows: accuracies are multiples of 1/400, as levels are, so that equal ones occur


def slow_first(rule, accuracies, plateau):
    """The definition, level by level and round by round, in whole rows."""
    found = {}
    unit = round(1 / rule.step)
    for level in range(1, unit):
        margin = max(min(math.floor(rule.margin * unit + 1e-9), math.floor((plateau * unit - level) / 2 + 1e-9)), 0)
        enabled = False
        for after, accuracy in accuracies.items():
            enabled |= accuracy * unit > level + margin + 1e-9
            if enabled and after >= rule.warm_start and accuracy * unit < level - 1e-9:
                found[level] = after
                break
    return found


curves = st.lists(st.integers(0, ROWS), min_size=1, max_size=40).map(
    lambda rows: {after: each / ROWS for after, each in enumerate(rows, 1)}
)


@given(curves, st.integers(0, ROWS))
def test_the_first_crossings_are_those_of_the_definition(curve, plateau):
    assert first(RULE, curve, plateau / ROWS) == slow_first(RULE, curve, plateau / ROWS)


@given(curves, st.integers(0, ROWS))
def test_a_run_tests_wherever_any_plateau_may_put_a_crossing(curve, plateau):
    passed = Passed(RULE)
    tested = {after for after, accuracy in curve.items() if passed.new(after, accuracy)}
    assert set(first(RULE, curve, plateau / ROWS).values()) <= tested


def test_a_run_does_not_test_at_every_dip():
    passed = Passed(RULE)
    swinging = [0.86, 0.60] * 100
    assert [after for after, each in enumerate(swinging, 1) if passed.new(after, each)] == [4]


@given(curves, st.integers(0, ROWS), st.integers(1, ROWS))
def test_a_seed_is_over_once_no_plateau_can_move_the_crossings_from_its_floor_up(curve, plateau, floor):
    passed, highest, over = Passed(RULE.model_copy(update={"floor": floor / ROWS})), 0, None
    for after, accuracy in curve.items():
        passed.new(after, accuracy)
        highest = max(highest, round(accuracy * ROWS))
        if after >= RULE.warm_start and round(accuracy * ROWS) < floor and highest > floor + 20:
            over = after
            break
    assert passed.over == (over is not None)
    if over:
        cut = {after: accuracy for after, accuracy in curve.items() if after <= over}
        whole, found = (first(RULE, each, plateau / ROWS) for each in (curve, cut))
        assert all(found[level] == whole[level] for level in range(floor, highest - 20))


def test_there_are_levels_between_zero_and_one():
    assert levels(RULE) == range(1, 400)
    assert levels(Crossings(step=0.1)) == range(1, 10)


def swinging(depths, cycle=4, plateau=0.86):
    """A curve with a dip at the end of each cycle."""
    curve = {}
    for depth in depths:
        for place in range(cycle):
            curve[len(curve) + 1] = depth if place == cycle - 1 else plateau
    return curve


def test_the_threshold_is_found_from_the_printed_training_accuracy():
    shallow_to_deep = swinging([0.84, 0.80, 0.72, 0.61, 0.50])
    found = thresholds.stopped(RULE, {0: shallow_to_deep, 1: shallow_to_deep}, 0.70)
    assert found.rounds == {0: 12, 1: 12}
    assert found.accuracy == pytest.approx(0.72)
    assert found.threshold == pytest.approx(0.80)  # the highest that 0.80 is not below
    assert not found.reached  # two points away
    assert thresholds.stopped(RULE, {0: shallow_to_deep}, 0.715).reached
    assert found.raised == {0: 8, 1: 8}  # 0.83
    assert found.lowered == {0: 12, 1: 12}  # 0.77


def test_seeds_may_stop_in_different_rounds_under_one_threshold():
    early, late = swinging([0.70, 0.50]), swinging([0.85, 0.85, 0.66, 0.50])
    found = thresholds.stopped(RULE, {0: early, 1: late}, 0.68)
    assert found.rounds == {0: 4, 1: 12}
    assert found.accuracy == pytest.approx(statistics.fmean([0.70, 0.66]))
    assert found.reached


def test_where_no_threshold_stops_all_seeds_there_is_none():
    flat, dipping = dict.fromkeys(range(1, 21), 0.86), swinging([0.70, 0.60])
    found = thresholds.stopped(RULE, {0: flat, 1: dipping}, 0.60)
    assert (found.threshold, found.reached) == (None, False)
    assert found.rounds == {0: 20, 1: 8}


def test_a_curve_seen_in_every_phase_shows_dips_that_every_fifth_round_misses():
    # Five clients in sequence: the dip is after the turn of client 1, and every fifth round is after that of client 5.
    curve = swinging([0.75, 0.57, 0.57], cycle=5)
    shifted = {after - 4: accuracy for after, accuracy in curve.items() if after > 4}  # dips in rounds 1, 6, 11
    every_fifth = {after: accuracy for after, accuracy in shifted.items() if after % 5 == 0}
    assert thresholds.stopped(RULE, {0: shifted}, 0.57).reached
    assert not thresholds.stopped(RULE, {0: every_fifth}, 0.57).reached


def test_a_length_is_the_first_round_that_reaches_the_printed_training_accuracy():
    rising = {10: 0.70, 20: 0.80, 30: 0.848, 40: 0.85, 50: 0.849}
    assert thresholds.reached({0: rising, 1: rising}, 0.845).rounds == {0: 30, 1: 30}
    never = thresholds.reached({0: rising}, 0.95)
    assert (never.rounds, never.reached) == ({0: 40}, False)
