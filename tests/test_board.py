"""The display of many jobs: one live table on a terminal, plain lines elsewhere, and how they went."""

import re
from types import SimpleNamespace

import pytest
from screens import Clock, console

from fedrepro.cli.board import Board, summary
from fedrepro.cli.progress import INTERVAL
from fedrepro.pipeline.local import Work
from fedrepro.pipeline.plan import Job
from fedrepro.pipeline.process import At


@pytest.fixture
def clock():
    return Clock()


def work(name, at=None, **how):
    job = Job("run", ("gma-2022", name), f"fedrepro train --paper gma-2022 --run {name}")
    return Work(job, at=at and At(*at), began=100.0, **how)


def driver(*running, waiting=0):
    return SimpleNamespace(running=dict(enumerate(running)), waiting=dict.fromkeys(range(waiting)))


def shown(paper):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", paper.file.getvalue())


def test_a_terminal_gets_a_row_for_each_job_that_runs(clock):
    paper = console(terminal=True)
    long, new = work("cifar-10-fedyogi-noniid-avg-n100-e1-and-more", (10, 50, 1.23456, 0.4567)), work("new")
    with Board(paper, 9, clock) as board:
        board.started(long)
        board.look(driver(long, new, waiting=3))
        clock.now += 60
        long.at = At(20, 50, 1.1, 0.5)
        board.look(driver(long, new, waiting=3))
    text = shown(paper)
    assert "started" not in text
    assert re.search(r"gma-2022 cifar-10-fedyogi-noniid-avg-n100-e1-and-\S+ +10/50 +1\.235 +45\.7% +–", text)
    assert re.search(r"gma-2022 cifar-10-fedyogi-noniid-avg-n100-e1-and-\S+ +20/50 +1\.1 +50\.0% +0:03:00", text)
    assert re.search(r"gma-2022 new +– +– +– +–", text)
    assert "0 done, 2 running, 3 waiting, 0 failed" in text
    assert max(map(len, text.splitlines())) <= 80


def test_elsewhere_there_are_plain_lines(clock):
    paper = console()
    first, second = work("a", process=True), work("b", (7, 50, None, None))
    with Board(paper, 3, clock) as board:
        board.started(first)
        board.look(driver(first, second, waiting=1))
        clock.now += INTERVAL
        first.ended = "done"
        board.over(first)
        board.look(driver(second, waiting=1))
        board.look(driver(second, waiting=1))
        board.said(second, "resumed after round 5")
        board.said(second, "stopping after this round; a second signal stops at once, without it")
    assert shown(paper).splitlines() == [
        "gma-2022 a: started",
        "[1/3] gma-2022 a: done in 0:00:30",
        "1 done, 1 running, 1 waiting, 0 failed: b 7/50",
        "gma-2022 b: resumed after round 5",
    ]


def test_the_summary_has_the_command_of_each_job_that_did_not_end():
    over = [work("a", ended="done"), work("b", ended="kept"), work("c", ended="failed", why="no disk")]
    assert summary([*over, work("d", ended="stopped")], [work("e").job]) == [
        "1 done, 1 done by another process, 1 stopped, 1 failed, 1 not started",
        "gma-2022 c failed: no disk",
        "  fedrepro train --paper gma-2022 --run c",
        "gma-2022 d stopped",
        "  fedrepro train --paper gma-2022 --run d",
    ]
