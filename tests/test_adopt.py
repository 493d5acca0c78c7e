"""Seeds that another record of the paper has already: taken over where everything is the same, and else trained."""

import json
from pathlib import Path

import pytest

from fedrepro import methods
from fedrepro.errors import Busy
from fedrepro.pipeline.adopt import adopt
from fedrepro.records import record
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Place
from fedrepro.training import runs

TOY = {"method": "fedsgd", "dataset": "digits", "hyper": {"batch": 16, "lr": 0.01}, "rounds": 3, "seeds": (0,)}
THERE = Path("studies/toy/long/one")
HERE = Place(Path("runs/toy/fedsgd/two"), "toy", "two", "paper")


@pytest.fixture
def once(tmp_path, monkeypatch):
    """A record of seed 0 in the working folder, at another budget and of another name."""
    monkeypatch.chdir(tmp_path)
    return runs.execute(RunConfig(**TOY), Place(THERE, "toy", "one", "long"), device="cpu")


@pytest.fixture
def trained(monkeypatch):
    """The seeds of each training that is prepared."""
    seeds, prepare = [], runs.prepare
    monkeypatch.setattr(runs, "prepare", lambda *args: seeds.append(args[1]) or prepare(*args))
    return seeds


def test_a_seed_with_the_same_settings_is_taken_over_and_the_others_are_trained(once, trained):
    wanted, said = RunConfig(**TOY | {"seeds": (0, 1)}), []
    adopt(wanted, HERE, said.append)
    assert said == [f"seeds 0 have these settings in {THERE}: taken over"]
    runs.execute(wanted, HERE, device="cpu")
    assert trained == [(1,)]
    found = record.read(HERE.folder)
    assert (found.paper, found.run, found.budget, tuple(found.seeds)) == ("toy", "two", "paper", (0, 1))
    assert found.seeds[0] == once.seeds[0]
    assert record.curves(HERE.folder)[0] == record.curves(THERE)[0]
    again = runs.execute(RunConfig(**TOY | {"seeds": (1,)}), Place(Path("again")), device="cpu")
    assert found.seeds[1].metrics == again.seeds[1].metrics


def test_of_a_generator_the_samples_come_along(tmp_path, monkeypatch, trained):
    monkeypatch.chdir(tmp_path)
    config = RunConfig(method="f2u", dataset="mixture-2d", hyper={"batch": 16}, rounds=1, seeds=(0,))
    once = runs.execute(config, Place(THERE, "toy", "one", "long"), device="cpu")
    adopt(config, HERE, lambda line: None)
    assert runs.execute(config, HERE, device="cpu").seeds == once.seeds
    assert trained == [(0,)]
    assert (HERE.folder / "samples.csv").read_bytes() == (THERE / "samples.csv").read_bytes()
    assert record.read(HERE.folder).samples == once.samples


def test_no_other_process_writes_the_record_meanwhile(once):
    """One that ended between the look at the record and its writing would lose its seeds."""
    wanted = RunConfig(**TOY | {"seeds": (0, 1)})

    def other(line):
        with pytest.raises(Busy):
            runs.execute(wanted, HERE, device="cpu")

    adopt(wanted, HERE, other)
    assert list(record.read(HERE.folder).seeds) == [0]


@pytest.mark.parametrize("change", [{"rounds": 4}, {"hyper": {"batch": 16, "lr": 0.02}}, {"seeds": (1,)}])
def test_other_settings_are_left_alone(once, change):
    adopt(RunConfig(**TOY | change), HERE, pytest.fail)
    assert not HERE.folder.exists()


def test_older_numbers_damaged_records_and_other_papers_are_left_alone(once, monkeypatch):
    adopt(RunConfig(**TOY), Place(Path("runs/other/fedsgd/two"), "other", "two", "paper"), pytest.fail)
    with monkeypatch.context() as patch:
        patch.setitem(methods.NUMERICS, "federated", 99)
        adopt(RunConfig(**TOY), HERE, pytest.fail)
    file = THERE / "record.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"budget": "short"}))
    adopt(RunConfig(**TOY), HERE, pytest.fail)
    assert not HERE.folder.exists()


def test_an_ad_hoc_run_takes_nothing_over(once):
    adopt(RunConfig(**TOY), Place(Path("runs/adhoc/three")), pytest.fail)
    assert not Path("runs/adhoc").exists()
