"""What is shown while training: the facts, a bar on a terminal, few plain lines elsewhere."""

import io
import re

import pytest
from rich.console import Console

from fedrepro import progress
from fedrepro.progress import Facts, Lines, Pace


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def console(terminal=False, width=80):
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)


def test_the_time_left_is_that_of_the_rounds_seen_here(clock):
    pace = Pace(clock)
    assert pace.left(500, 1000) is None  # the first round seen: a resumed run has not played the ones before it
    clock.now += 10
    assert pace.left(520, 1000) == pytest.approx(240)
    clock.now += 10
    assert pace.left(1000, 1000) == 0


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (Facts(7, 100, 1, 0, None, None), "round 7/100, 1 running"),
        (Facts(7, 100, 3, 2, 0.55678, 3725.4), "round 7/100, 3 running, 2 ended, train accuracy 55.7%, ETA 1:02:05"),
        (Facts(100, 100, 0, 5, 0.5, 0.0), "round 100/100, 0 running, 5 ended, train accuracy 50.0%"),
    ],
)
def test_facts_in_words(facts, text):
    assert str(facts) == text


def test_facts_of_a_training(training, clock):
    played = training("fedsgd", seeds=(0, 1), rounds=4, watch={"train_every": 2, "test_every": 4})
    pace, seen = Pace(clock), []
    for _ in played:
        seen.append(progress.facts(played, pace))
        clock.now += 3
    assert [(each.round, each.rounds, each.running, each.ended) for each in seen] == [
        *((round, 4, 2, 0) for round in (1, 2, 3)),
        (4, 4, 0, 2),
    ]
    assert [each.left for each in seen] == [None, 6, 3, 0]
    latest = [[value for round, metric, value in lane.curve if metric == "train_accuracy"][0] for lane in played.lanes]
    assert [each.accuracy for each in seen[:3]] == [
        None,
        pytest.approx(sum(latest) / 2),
        pytest.approx(sum(latest) / 2),
    ]


def test_the_accuracy_is_that_of_the_seeds_that_run(training, clock):
    played = training("fedsgd", seeds=(0, 1), rounds=4)
    next(iter(played))
    played.lanes[0].status = "stopped"
    assert progress.facts(played, Pace(clock)).accuracy == next(
        value for _, metric, value in played.lanes[1].curve if metric == "train_accuracy"
    )


def test_plain_lines_come_at_intervals_and_at_the_end(training, clock):
    paper = console()
    lines = Lines("training it", paper, clock)
    played = training("fedsgd", rounds=10)
    for _ in played:
        lines.watch(played)
        clock.now += progress.INTERVAL / 4
    lines.say("[bold] is not markup, and a line that is longer than the eighty columns of the console is not broken")
    said = paper.file.getvalue().splitlines()
    assert said[0] == "training it"
    assert [int(line.split("/")[0].removeprefix("round ")) for line in said[1:-1]] == [1, 5, 9, 10]
    assert said[-1].startswith("[bold] is not")
    assert len(said[-1]) > 80


def test_a_console_that_is_no_terminal_gets_lines():
    paper = console()
    with progress.shown("training it", paper) as display:
        assert isinstance(display, Lines)
    assert paper.file.getvalue() == "training it\n"


def test_a_terminal_gets_a_bar_and_lines_above_it(training):
    paper = console(terminal=True, width=100)
    played = training("fedsgd", rounds=3)
    with progress.shown("training it", paper) as display:
        for _ in played:
            display.watch(played)
            display.progress.refresh()
        display.say("a line")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", paper.file.getvalue())
    assert shown.split()[:2] == ["training", "it"]
    assert "preparing the data" in shown
    assert "━" in shown
    assert re.search(r"round 2/3, 1 running, train accuracy \d+\.\d%, ETA 0:00:00", shown)
    assert "a line" in shown


def test_a_line_of_facts_leaves_room_for_a_bar():
    longest = Facts(round=2925, rounds=2925, running=4, ended=1, accuracy=0.999, left=35999)
    assert len(str(longest)) <= 70
