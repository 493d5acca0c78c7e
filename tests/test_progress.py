"""What is shown while training: the facts, a bar on a terminal, few plain lines elsewhere."""

import re
from types import SimpleNamespace

import pytest
from screens import Clock, console

from fedrepro.cli import progress


@pytest.fixture
def clock():
    return Clock()


def training_at(round, rounds, running=1, ended=0, accuracies=()):
    """A training as the display sees it, its seeds with these training accuracies."""
    curves = [[(1, "train_accuracy", value)] for value in accuracies]
    lanes = [SimpleNamespace(curve=curve) for curve in curves] or [SimpleNamespace(curve=[])] * (running + ended)
    config = SimpleNamespace(rounds=rounds)
    return SimpleNamespace(round=round, config=config, running=lanes[:running], lanes=lanes)


def test_the_time_left_is_that_of_the_rounds_seen_here(clock):
    with progress.shown("training it", console(), clock) as display:
        for moves, round, left in ((0, 500, None), (10, 520, 240), (10, 530, 470 * 20 / 30), (10, 1000, 0)):
            clock.now += moves
            display.watch(training_at(round, 1000))  # the first round seen: a resumed run has not played those before
            assert display.task.time_remaining == (None if left is None else pytest.approx(left, abs=1))


@pytest.mark.parametrize(
    ("seen", "left", "text"),
    [
        (training_at(7, 100), None, "round 7/100, 1 running"),
        (
            training_at(7, 100, 3, 2, [0.55678, 0.55678, 0.55678, 0, 0]),
            3725.4,
            "round 7/100, 3 running, 2 ended, train accuracy 55.7%, ETA 1:02:05",
        ),
        (
            training_at(100, 100, 0, 5, [0.4, 0.4, 0.5, 0.6, 0.6]),
            0.0,
            "round 100/100, 0 running, 5 ended, train accuracy 50.0%",
        ),
    ],
)
def test_facts_in_words(seen, left, text):
    assert progress.facts(seen, left) == text


def test_facts_of_a_training(training):
    played = training("fedsgd", seeds=(0, 1), rounds=4, watch={"train_every": 2, "test_every": 4})
    seen = [progress.facts(played, None) for _ in played]
    latest = [[value for _, metric, value in lane.curve if metric == "train_accuracy"][0] for lane in played.lanes]
    assert seen[:3] == [
        "round 1/4, 2 running",
        *(f"round {round}/4, 2 running, train accuracy {sum(latest) / 2:.1%}" for round in (2, 3)),
    ]
    assert seen[3].startswith("round 4/4, 0 running, 2 ended, train accuracy ")


def test_the_accuracy_is_that_of_the_seeds_that_run(training):
    played = training("fedsgd", seeds=(0, 1), rounds=4)
    next(iter(played))
    played.lanes[0].status = "stopped"
    own = next(value for _, metric, value in played.lanes[1].curve if metric == "train_accuracy")
    assert f"train accuracy {own:.1%}" in progress.facts(played, None)


def test_plain_lines_come_at_intervals_and_at_the_end(training, clock):
    paper = console()
    played = training("fedsgd", rounds=10)
    with progress.shown("training it", paper, clock) as lines:
        for _ in played:
            lines.watch(played)
            clock.now += progress.INTERVAL / 4
        lines.say(
            "[bold] is not markup, and a line that is longer than the eighty columns of the console is not broken"
        )
    said = paper.file.getvalue().splitlines()
    assert said[0] == "training it"
    assert [int(line.split("/")[0].removeprefix("round ")) for line in said[1:-1]] == [1, 5, 9, 10]
    assert said[-1].startswith("[bold] is not")
    assert len(said[-1]) > 80


def test_a_console_that_is_no_terminal_gets_lines():
    paper = console()
    with progress.shown("training it", paper):
        pass
    assert paper.file.getvalue() == "training it\n"


def test_a_terminal_gets_a_bar_and_lines_above_it(training, clock):
    paper = console(terminal=True, width=100)
    played = training("fedsgd", rounds=3)
    with progress.shown("training it", paper, clock) as display:
        for _ in played:
            clock.now += 2
            display.watch(played)
            display.progress.refresh()
        display.say("a line")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", paper.file.getvalue())
    assert shown.split()[:2] == ["training", "it"]
    assert "preparing the data" in shown
    assert "━" in shown
    assert re.search(r"round 2/3, 1 running, train accuracy \d+\.\d%, ETA 0:00:02", shown)
    assert "a line" in shown


def test_a_line_of_facts_leaves_room_for_a_bar():
    longest = training_at(2925, 2925, 4, 1, [0.999] * 5)
    assert len(progress.facts(longest, 35999)) <= 70
