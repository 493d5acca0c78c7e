"""Runs on disk: what a record holds, what is kept, and that no interruption changes a number."""

import copy
import csv
import hashlib
import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import kills
import pytest
import torch

from fedrepro import methods
from fedrepro.errors import FedreproError, Interrupted, UsageError
from fedrepro.files import file_digest
from fedrepro.records import paths
from fedrepro.records import record as records
from fedrepro.records.config import RunConfig, Stop
from fedrepro.records.curves import curves_text, read_curves
from fedrepro.records.record import Place
from fedrepro.training import identity, provenance, runs
from fedrepro.training.checkpoints import Checkpoints
from fedrepro.training.lanes import Lane
from fedrepro.training.signals import STOPPING
from fedrepro.training.train import Training

ROOT = Path(__file__).parents[1]
RUN = Path("runs/one")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(**changes):
    hyper = {"batch": 16, "hidden": 4, "lr": 0.01} | changes.pop("hyper", {})
    defaults = {"method": "f-irm", "dataset": "digits", "rounds": 7, "watch": {"samples": 100, "test_every": 3}}
    return RunConfig(**(defaults | {"hyper": hyper, "seeds": (0,)} | changes))


def execute(config, folder=RUN, **how):
    """The record that was written, as JSON."""
    runs.execute(config, Place(Path(folder)), device="cpu", **how)
    return on_disk(folder)


@pytest.fixture
def trained(monkeypatch):
    """The seeds of each training that is prepared."""
    seeds, prepare = [], runs.prepare
    monkeypatch.setattr(runs, "prepare", lambda *args: seeds.append(args[1]) or prepare(*args))
    return seeds


def numbers(record):
    """A record without what says how, when and how fast it came about."""
    record = copy.deepcopy(record)
    del record["seal"]  # which is of that, too
    for entry in record["seeds"].values():
        del entry["seconds"], entry["provenance"]
    return record


def on_disk(folder=RUN):
    return json.loads((Path(folder) / "record.json").read_text())


def lines(folder=RUN):
    with open(Path(folder) / "curves.csv", newline="") as file:
        return list(csv.DictReader(file))


# The record


def test_a_record_says_what_was_run_on_what_and_what_came_out():
    wanted = config(seeds=(1, 0))
    written = runs.execute(wanted, Place(RUN, "toy", "one", "smoke"), device="cpu")
    record = on_disk()
    assert written == records.read(RUN)
    heads = ["format", "paper", "run", "budget", "config", "resolved", "identity", "data", "curves"]
    assert list(record) == [*heads, "seeds", "seal"]
    assert [record[key] for key in ("format", "paper", "run", "budget")] == [4, "toy", "one", "smoke"]
    assert record["config"] == wanted.model_dump(mode="json") | {"seeds": [0, 1]}
    assert record["resolved"] == methods.resolved("f-irm", wanted.hyper)
    assert record["resolved"]["batch"] == 16
    assert record["identity"]["config"] == wanted.digest()
    assert record["identity"]["numerics"] == {"engine": identity.ENGINE, "method": methods.NUMERICS["games"], "data": 1}
    assert record["data"]["source"] == "digits"
    assert record["data"]["facts"].keys() == record["seeds"].keys() == {"0", "1"}
    assert [part["rows"] for part in record["data"]["facts"]["0"]["clients"]] == [750, 750]
    for entry in record["seeds"].values():
        fields = ["status", "rounds", "metrics", "rejected", "collapsed", "seconds", "provenance"]
        assert list(entry) == fields
        assert [entry[field] for field in fields[:2] + fields[3:5]] == ["finished", 7, 0, False]
        assert list(entry["metrics"]) == ["train_accuracy", "train_loss", "test_accuracy", "test_loss"]
        assert 0 < entry["metrics"]["train_accuracy"] < 1
        assert entry["seconds"] > 0
        provenance = entry["provenance"]
        assert provenance["versions"]["torch"] == version("torch")
        assert (provenance["threads"], provenance["precision"]) == (1, "fp32")
        assert provenance["started"] <= provenance["finished"]
    assert record["curves"] == file_digest(RUN / "curves.csv")


def test_curves_are_tidy():
    record = execute(config(seeds=(0, 2)))
    assert list(lines()[0]) == ["seed", "round", "metric", "value"]
    for seed in ("0", "2"):
        mine = [row for row in lines() if row["seed"] == seed]
        rounds = lambda metric, mine=mine: [int(row["round"]) for row in mine if row["metric"] == metric]  # noqa: E731
        assert rounds("train_accuracy") == rounds("train_loss") == [1, 2, 3, 4, 5, 6, 7]
        assert rounds("test_accuracy") == rounds("test_loss") == [3, 6, 7]
        last = {row["metric"]: float(row["value"]) for row in mine if row["round"] == "7"}
        assert last["test_accuracy"] == pytest.approx(record["seeds"][seed]["metrics"]["test_accuracy"], rel=1e-5)
    curves = read_curves(RUN / "curves.csv")
    assert curves_text(curves).encode() == (RUN / "curves.csv").read_bytes()


def test_the_same_run_twice_is_the_same_bit_for_bit(variant):
    name, hyper = variant
    records = [execute(config(method=name, hyper=hyper, rounds=4, seeds=(0, 1)), folder) for folder in ("a", "b")]
    assert numbers(records[0]) == numbers(records[1])
    assert Path("a/curves.csv").read_bytes() == Path("b/curves.csv").read_bytes()


def test_a_diverged_seed_is_recorded_and_not_trained_again(trained):
    record = execute(config(hyper={"lr": 1e30}))
    entry = record["seeds"]["0"]
    assert (entry["status"], entry["rounds"], entry["metrics"]) == ("diverged", 1, {})
    execute(config(hyper={"lr": 1e30}))
    assert trained == [(0,)]


def test_a_seed_that_diverged_before_its_curve_had_a_point_is_kept(trained):
    """Its test is not finite in a round in which training accuracy is not watched."""
    wanted = config(hyper={"lr": 1e30}, watch={"samples": 100, "train_every": 5, "test_every": 1})
    record = execute(wanted)
    assert (record["seeds"]["0"]["status"], lines()) == ("diverged", [])
    execute(wanted)
    assert trained == [(0,)]


# What is kept


def test_a_seed_more_trains_that_seed_only(trained):
    execute(config(seeds=(1,)))
    before, curve = on_disk()["seeds"]["1"], [row for row in lines() if row["seed"] == "1"]
    said = []
    record = execute(config(seeds=(0, 1, 2)), say=said.append)
    assert trained == [(1,), (0, 2)]
    assert said == ["kept from the earlier record: seeds 1"]
    assert record["seeds"]["1"] == before  # its seconds and provenance too
    assert [row for row in lines() if row["seed"] == "1"] == curve
    assert list(record["seeds"]) == list(record["data"]["facts"]) == ["0", "1", "2"]
    assert record["config"]["seeds"] == [0, 1, 2]
    alone = execute(config(seeds=(2,)), "runs/two")
    for metric, value in alone["seeds"]["2"]["metrics"].items():
        assert record["seeds"]["2"]["metrics"][metric] == pytest.approx(value, abs=2e-3)


def test_a_complete_run_trains_nothing_and_stays_as_it_is(trained):
    execute(config(seeds=(0, 1)))
    before = (RUN / "record.json").read_bytes(), (RUN / "curves.csv").read_bytes()
    execute(config(seeds=(1,)))  # an ad hoc run keeps seeds that are not asked for again
    assert trained == [(0, 1)]
    assert ((RUN / "record.json").read_bytes(), (RUN / "curves.csv").read_bytes()) == before


def test_a_planned_run_has_the_planned_seeds(trained):
    place = Place(paths.run("toy", "f-irm", "one"), "toy", "one", "paper")
    runs.execute(config(seeds=(0, 1)), place)
    assert list(runs.execute(config(seeds=(1,)), place).seeds) == [1]
    assert trained == [(0, 1)]
    assert {row["seed"] for row in lines("runs/toy/f-irm/one")} == {"1"}


def other_engine(monkeypatch):
    monkeypatch.setattr(identity, "ENGINE", identity.ENGINE + 1)


def other_numerics(monkeypatch):
    monkeypatch.setitem(methods.NUMERICS, "games", methods.NUMERICS["games"] + 1)


def other_data(monkeypatch):
    describe = identity.data.describe
    monkeypatch.setattr(identity.data, "describe", lambda dataset: describe(dataset) | {"fingerprint": "other"})


def cut_record(monkeypatch):
    text = (RUN / "record.json").read_text()
    (RUN / "record.json").write_text(text[: len(text) // 2])


def edited_curves(monkeypatch):
    text = (RUN / "curves.csv").read_text()
    (RUN / "curves.csv").write_text(text.replace("train_loss,0", "train_loss,1", 1))


def lost_curves(monkeypatch):
    (RUN / "curves.csv").unlink()


@pytest.mark.parametrize("change", [other_engine, other_numerics, other_data, cut_record, edited_curves, lost_curves])
def test_what_is_not_surely_the_same_is_trained_again(trained, monkeypatch, change):
    execute(config(seeds=(0, 1)))
    change(monkeypatch)
    said = []
    execute(config(seeds=(0,)), say=said.append)
    assert said == ["the earlier record is stale or damaged: all seeds are trained again"]
    assert trained == [(0, 1), (0,)]
    assert list(on_disk()["seeds"]) == ["0"]
    execute(config(seeds=(0,)))
    assert len(trained) == 2


@pytest.mark.parametrize("change", [{"rounds": 8}, {"hyper": {"lr": 0.02}}, {"watch": {"samples": 99}}], ids=str)
def test_other_settings_are_trained_again(trained, change):
    execute(config())
    assert execute(config(**change))["identity"]["config"] == config(**change).digest()
    assert trained == [(0,), (0,)]


def test_the_look_for_a_place_to_write_makes_no_folder(monkeypatch):
    """One that is removed again fails another process that looks for records at that moment."""
    monkeypatch.setattr(Path, "rmdir", lambda path: pytest.fail(f"removed {path}"))
    runs.probe(Place(Path("studies/toy/one")))
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("at", ["open", "fsync", "replace"])
def test_a_signal_during_the_look_leaves_nothing(monkeypatch, at):
    done = getattr(os, at)

    def interrupted(*arguments):
        done(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, at, interrupted)
    with pytest.raises(KeyboardInterrupt):
        runs.probe(Place(Path("studies/toy/one")))
    assert list(Path().iterdir()) == []


def test_the_commit_is_that_of_the_sources_wherever_a_run_is_started(folder):
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout
    subprocess.run(["git", "init", "-q", folder], check=True)
    assert head.startswith((provenance.commit() or "").removesuffix("+"))
    assert bool(provenance.commit()) == bool(head)


def test_the_commit_is_marked_where_the_sources_differ_from_it(folder, monkeypatch):
    git = lambda *words: subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)  # noqa: E731
    (folder / "package/training").mkdir(parents=True)
    source = folder / "package/training/runs.py"
    monkeypatch.setattr(provenance, "__file__", str(source))
    assert provenance.commit() is None
    source.write_text("a = 1\n")
    git("init", "-q")
    git("add", "package")
    git("commit", "-qm", "one")
    (folder / "results").write_text("new")
    assert len(provenance.commit()) == 12
    source.write_text("a = 2\n")
    assert provenance.commit()[12:] == "+"


# What cannot be run


def test_a_run_that_is_being_trained_is_left_alone(trained):
    place = Place(RUN)
    with runs.locked(place), pytest.raises(FedreproError, match="is being trained by another process"):
        execute(config())
    assert not trained
    assert not RUN.exists()
    execute(config())  # the lock is free again


def test_two_runs_at_two_places_do_not_wait_for_each_other():
    with runs.locked(Place(Path("runs/two"))):
        execute(config(rounds=1))


def test_a_record_that_cannot_be_written_fails_before_the_training(trained):
    Path("runs").write_text("")
    with pytest.raises(UsageError, match="cannot write runs/.probe"):
        execute(config())
    assert not trained


def test_state_that_cannot_be_written_fails_before_the_training(trained):
    Path(".fedrepro").write_text("")
    with pytest.raises(UsageError, match="cannot write .fedrepro/state"):
        execute(config())
    assert not trained


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert runs.resolve("auto") == runs.resolve("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="no CUDA device here: use --device cpu"):
        runs.resolve("cuda")
    with pytest.raises(UsageError, match="unknown device 'tpu'"):
        runs.resolve("tpu")


# Interruptions


def reached():
    """The round of the newest checkpoint at RUN, 0 without one."""
    paths = Checkpoints(Place(RUN).state, {}, print).paths()
    return int(paths[-1].stem.removeprefix("round-")) if paths else 0


@pytest.mark.slow
@pytest.mark.parametrize("method", kills.CASES)
def test_a_killed_run_ends_as_one_that_was_left_alone(method):
    tried = [sys.executable, ROOT / "tests/kills.py", "--kills=4", method]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(tried, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[-1].split()[:2] == [method, "4"]


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_last_full_round(asked):
    handler = signal.getsignal(asked)
    stop = lambda training: training.round == 5 and os.kill(os.getpid(), asked)  # noqa: E731
    with pytest.raises(Interrupted, match="stopped after round 5") as raised:
        execute(config(seeds=(0, 1)), watch=stop)
    assert raised.value.exit_code == 130
    assert signal.getsignal(asked) is handler
    assert reached() == 5
    assert not (RUN / "record.json").exists()
    said, rounds = [], []
    record = execute(config(seeds=(0, 1)), say=said.append, watch=lambda training: rounds.append(training.round))
    assert said == ["resumed after round 5"]
    assert rounds == [6, 7]
    assert numbers(record) == numbers(execute(config(seeds=(0, 1)), "runs/two"))


def test_a_second_signal_loses_the_round_under_way_and_no_more(monkeypatch):
    whole, plain = execute(config(seeds=(0, 1)), "runs/two"), Training._watch

    def watched(training, lane, row, loss):  # when the state is that of the next round already
        status = plain(training, lane, row, loss)
        for number in STOPPING if (training.round, lane.seed) == (6, 0) else ():
            signal.raise_signal(number)
        return status

    said = []
    with monkeypatch.context() as patch:
        patch.setattr(Training, "_watch", watched)
        with pytest.raises(Interrupted, match="stopped after round 5; the same command goes on from there"):
            execute(config(seeds=(0, 1)), say=said.append)
    assert said == ["stopping after this round; a second signal stops at once, without it"]
    assert reached() == 5
    assert numbers(execute(config(seeds=(0, 1)))) == numbers(whole)


def test_a_signal_while_the_last_checkpoint_is_written_does_not_cost_its_round(monkeypatch):
    plain = Checkpoints.save

    def saved(checkpoints, *state):
        for number in STOPPING:
            signal.raise_signal(number)
        return plain(checkpoints, *state)

    monkeypatch.setattr(Checkpoints, "save", saved)
    stop = lambda training: training.round == 5 and signal.raise_signal(signal.SIGINT)  # noqa: E731
    with pytest.raises(Interrupted, match="stopped after round 5; the same command goes on from there"):
        execute(config(seeds=(0, 1)), watch=stop)
    assert reached() == 5


def test_a_signal_in_the_last_round_lets_the_run_end():
    stop = lambda training: training.round == 7 and os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
    assert execute(config(), watch=stop)["seeds"]["0"]["status"] == "finished"


def test_a_crash_between_curves_and_record_loses_nothing(monkeypatch):
    def crash(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(records, "write_json", crash)
        with pytest.raises(KeyboardInterrupt):
            execute(config(), every=0)
    assert (RUN / "curves.csv").exists()
    assert not (RUN / "record.json").exists()
    rounds = []
    record = execute(config(), watch=lambda training: rounds.append(training.round))
    assert rounds == [7]  # one checkpoint interval
    assert numbers(record) == numbers(execute(config(), "runs/two"))


def test_a_crash_while_a_seed_is_added_keeps_the_others(monkeypatch, trained):
    def crash(*args):
        raise KeyboardInterrupt

    execute(config())
    with monkeypatch.context() as patch:
        patch.setattr(records, "write_json", crash)
        with pytest.raises(KeyboardInterrupt):
            execute(config(seeds=(0, 1)), every=0)
    execute(config(seeds=(0, 1)))
    assert trained == [(0,), (1,), (1,)]


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (0.5, [3, 6, 9]),  # after 30 seconds, at 60.5 and at 91
        (2.0, [3, 7, 11]),  # twenty times two seconds after 32, and after 74
    ],
)
def test_checkpoints_come_when_they_are_due_and_rarely_where_they_are_slow(monkeypatch, cost, expected):
    now, saved = [0.0], []

    def play(training):
        now[0] += 10

    def save(self, training, started):
        saved.append(training.round)
        now[0] += cost

    monkeypatch.setattr(runs.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Checkpoints, "save", save)
    execute(config(rounds=12), watch=play, every=25)
    assert saved == expected


def test_a_run_that_goes_on_elsewhere_says_both(monkeypatch):
    def stop(training):
        if training.round == 2:
            raise KeyboardInterrupt

    there = {"torch": "1.0", "python": provenance.versions()["python"]}
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(provenance, "name", lambda device: "a GPU")
        elsewhere.setattr(provenance, "versions", lambda: there)
        with pytest.raises(KeyboardInterrupt):
            execute(config(), watch=stop, every=0)
    found = execute(config())["seeds"]["0"]["provenance"]
    assert found["device"] == f"a GPU, then {provenance.name(torch.device('cpu'))}"
    assert found["versions"] == provenance.versions() | {"torch": f"1.0, then {version('torch')}"}


def test_a_run_at_another_budget_leaves_the_checkpoints_alone():
    def stop(training):
        if training.round == 4:
            raise KeyboardInterrupt

    long, said = Place(RUN, "toy", "one", "long"), []
    with pytest.raises(KeyboardInterrupt):
        runs.execute(config(), long, device="cpu", watch=stop, every=0)
    runs.execute(config(rounds=2), Place(RUN, "toy", "one", "short"), device="cpu")
    runs.execute(config(), long, device="cpu", say=said.append)
    assert said[-1] == "resumed after round 3"


# Checkpoints of a training


def began(when):
    """How a training began."""
    return {"started": when, "commit": None}


def snapshot(run):
    """Everything of a training that may be compared: tensors, and notes but for the time."""
    tensors, notes = copy.deepcopy(run.snapshot())
    for lane in notes["lanes"]:
        del lane["seconds"]
    return tensors, notes


@pytest.mark.parametrize("cut", [3, 4])
def test_a_resumed_training_goes_on_bit_for_bit(training, variant, same, monkeypatch, cut):
    def stops(self, lane, accuracy):
        return (lane.seed, self.round) == (5, 4)

    monkeypatch.setattr(Training, "_stops", stops)  # one seed ends before the second cut
    settings = {"seeds": (3, 5, 8), "hyper": variant[1], "rounds": 9, "watch": {"train_every": 2, "test_every": 4}}
    settings["stop"] = Stop(threshold=0.5)
    whole, half, rest = (training(variant[0], **settings) for _ in range(3))
    for _ in whole:
        pass
    checkpoints = Checkpoints(Path("state"), {"digest": "d"}, print)
    for _ in zip(range(cut), half, strict=False):
        pass
    checkpoints.save(half, began("then"))
    assert checkpoints.resume(rest, began("now")) == began("then")
    assert [lane.status for lane in rest.lanes].count("stopped") == (cut == 4)
    assert list(rest) == list(range(cut + 1, 10))
    (left, notes), (right, wanted) = snapshot(rest), snapshot(whole)
    same(left, right)
    assert notes == wanted
    for left, right in zip(rest.lanes, whole.lanes, strict=True):
        assert all(getattr(left, name) == getattr(right, name) for name in Lane.SAVED if name != "seconds")
        assert type(left.curve[0]) is tuple


def test_the_time_of_a_lane_is_kept(training):
    run, again = training("f-irm"), training("f-irm")
    next(iter(run))
    again.restore(*run.snapshot())
    assert again.lanes[0].seconds == run.lanes[0].seconds > 0


@pytest.fixture
def saved(training):
    """A checkpoints folder after rounds 1, 2 and 3, what it says, and a training to resume."""
    said = []
    run, checkpoints = training("f-fl-smooth"), Checkpoints(Path("state"), {"digest": "d"}, said.append)
    for _ in zip(range(3), run, strict=False):
        checkpoints.save(run, began(f"at {run.round}"))
    return checkpoints, said, training("f-fl-smooth")


def test_the_newest_two_are_kept(saved):
    checkpoints, said, run = saved
    names = ["round-00000002.checkpoint", "round-00000003.checkpoint"]
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == names
    assert checkpoints.resume(run, began("now")) == began("at 3")
    assert run.round == 3
    assert said == ["resumed after round 3"]
    checkpoints.clear()
    assert not checkpoints.folder.exists()


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def empty(path):
    path.write_bytes(b"")


def edited(path):
    path.write_bytes(path.read_bytes().replace(b'"round": 3', b'"round": 1'))


@pytest.mark.parametrize("damage", [cut_short, flip, empty, edited])
def test_a_damaged_checkpoint_is_passed_over(saved, damage):
    checkpoints, said, run = saved
    damage(checkpoints.folder / "round-00000003.checkpoint")
    assert checkpoints.resume(run, began("now")) == began("at 2")
    assert run.round == 2
    assert said == ["state/round-00000003.checkpoint is damaged and passed over", "resumed after round 2"]
    cut_short(checkpoints.folder / "round-00000002.checkpoint")
    with pytest.raises(FedreproError, match="no checkpoint in state can be read: remove that folder"):
        checkpoints.resume(run, began("now"))
    assert list(checkpoints.folder.iterdir())  # for the user to look at


def resealed(path, change):
    """Change the notes of a checkpoint as another version would have written them."""
    _, notes, body = path.read_bytes().split(b"\n", 2)
    notes = json.loads(notes)
    change(notes)
    content = json.dumps(notes).encode() + b"\n" + body
    path.write_bytes(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


OTHERS = {
    "identity": lambda notes: notes["identity"].update(digest="other"),
    "no identity": lambda notes: notes.pop("identity"),
    "a name more": lambda notes: notes.update(more=1),
    "a name of a lane less": lambda notes: notes["lanes"][0].pop("idle"),
    "a name of a lane more": lambda notes: notes["lanes"][0].update(more=1),
    "no lanes": lambda notes: notes.update(lanes=[]),
    "another name": lambda notes: notes.update(turn=notes.pop("lanes")),
    "a beginning less": lambda notes: notes["began"].pop("commit"),
}


@pytest.mark.parametrize("change", OTHERS)
def test_checkpoints_of_something_else_are_removed(saved, change):
    checkpoints, said, run = saved
    resealed(checkpoints.folder / "round-00000003.checkpoint", OTHERS[change])
    assert checkpoints.resume(run, began("now")) == began("now")
    assert run.round == 0
    assert not checkpoints.folder.exists()
    assert said == ["the checkpoints are of other settings, numerics or data: training from the start"]


def test_a_state_of_other_names_is_removed(saved, training):
    checkpoints, said, _ = saved
    assert checkpoints.resume(training("f-irm"), began("now")) == began("now")
    assert len(said) == 1


def test_what_a_killed_process_was_writing_is_removed(saved, training):
    checkpoints, _, run = saved
    (checkpoints.folder / ".round-00000003.checkpoint.1.part").touch()
    next(iter(run))
    checkpoints.save(run, began("now"))
    assert len(list(checkpoints.folder.iterdir())) == 2
    RUN.mkdir(parents=True)
    (RUN / ".curves.csv.1.part").touch()
    execute(config(rounds=1))
    assert sorted(path.name for path in RUN.iterdir()) == ["curves.csv", "record.json"]


def test_no_checkpoint_is_a_start(training):
    run = training("f-irm")
    assert Checkpoints(Path("state"), {}, print).resume(run, began("now")) == began("now")
    assert run.round == 0
