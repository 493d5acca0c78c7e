"""Tuning: scores and choices by hand, and what a small search trains, keeps and enters."""

import contextlib
import json
import math
import shutil
from pathlib import Path

import made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrepro.errors import FedreproError, UsageError
from fedrepro.papers.expand import Study
from fedrepro.papers.load import load_paper
from fedrepro.papers.schema.tuning import Search
from fedrepro.pipeline import tune
from fedrepro.pipeline.job import perform
from fedrepro.pipeline.plan import plan
from fedrepro.pipeline.request import Request, resolve
from fedrepro.pipeline.run import Only
from fedrepro.records import paths, record
from fedrepro.records.config import RunConfig
from fedrepro.records.curves import read_curves
from fedrepro.records.record import Seed
from fedrepro.training import runs

SEARCH = """
title = "A toy"

[defaults]
rounds = 50
seeds = [0, 1]
hyper = { batch = 64, hidden = 4, lr = "search" }
watch = { samples = 100 }

[defaults.search]
seed = 1000
rounds = 4
metric = "train_accuracy"
last = 2
data = { label_noise = 0.0 }
grid = { lr = [1e-5, 0.05, 0.01] }

[search]
base = { aggregation = "AVG" }

[axes.dataset.Digits]
dataset = "digits"

[axes.method.Plain]
method = "fedsgd"
hyper = { net = "mlp", optimiser = "adam" }

[axes.method.Fixed]
method = "fedavg"
hyper = { net = "mlp", optimiser = "adam", lr = 0.01 }

[axes.aggregation.AVG]
run = ""

[axes.aggregation.GMA]
run = "gma"
hyper = { eps = 1e-6 }

[budgets.paper]
label = "paper"

[tables.t1]
title = "Table 1"
metrics = ["test_accuracy"]
reduction = "final"
tolerance = { spreads = 2, points = 3, reason = "a toy" }

[[tables.t1.cells]]
dataset = ["Digits"]
method = ["Plain", "Fixed"]
aggregation = ["AVG", "GMA"]
"""
STUDY = Path("studies/toy")
TUNED = Path("papers/toy/tuned.json")


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """The paper "toy", in the working folder, with runs that need a search; returns its spec."""
    monkeypatch.chdir(tmp_path)
    return made.bare(SEARCH) / "paper.toml"


class Log:
    """What tuning shows: the titles, and per title the rounds that were trained and the lines that were said."""

    def __init__(self):
        self.titles, self.rounds, self.lines = [], [], []

    @contextlib.contextmanager
    def __call__(self, title):
        self.titles.append(title)
        self.rounds.append([])
        yield self

    def watch(self, training):
        self.rounds[-1].append(training.round)

    def say(self, line):
        self.lines.append(line)


def find(run):
    """The run that the study is named after, its entry, and what it showed."""
    log = Log()
    return *tune.tune("toy", run, log, device="cpu"), log


def search(**changes):
    return Search(**({"seed": 1, "rounds": 9, "metric": "validation_accuracy", "last": 3, "grid": {}} | changes))


def curve(*values, metric="validation_accuracy"):
    return [(2 * (t + 1), metric, value) for t, value in enumerate(values)]


# Score and choice of a search


def test_the_score_by_hand():
    assert tune.score(search(), curve(0.9, 0.1, 0.2, 0.6)) == 0.3
    assert tune.score(search(last=1), curve(0.9, 0.1, 0.2, 0.6)) == 0.6
    assert tune.score(search(last=4), curve(0.9, 0.1, 0.2, 0.6)) == 0.45


def test_nothing_but_its_metric_is_looked_at():
    others = curve(0.9, 0.9, 0.9, 0.9, metric="test_accuracy") + curve(0.8, 0.8, metric="train_accuracy")
    assert tune.score(search(), others[:3] + curve(0.1, 0.2, 0.6) + others[3:]) == 0.3


def test_a_score_that_is_not_finite_is_none():
    assert tune.score(search(), curve(0.1, math.nan, 0.2)) is None


def test_a_curve_without_the_metric_or_with_too_little_of_it_is_refused():
    with pytest.raises(UsageError, match="unknown metric of a search 'validation_accuracy'.*'train_accuracy'"):
        tune.score(search(), curve(0.1, 0.2, 0.3, metric="train_accuracy"))
    with pytest.raises(
        UsageError, match="validation_accuracy was watched in 2 rounds, and the mean over the last 3 is"
    ):
        tune.score(search(), curve(0.1, 0.2))


def test_ties_go_to_the_first_and_diverged_points_lose():
    assert tune.ranked({"a": 0.5, "b": 0.7, "c": 0.7}) == ["b", "c", "a"]
    assert tune.ranked({"a": None, "b": 0.0}) == ["b"]
    assert tune.ranked({"a": None, "b": None}) == []


@pytest.mark.slow
@given(st.dictionaries(st.text(), st.none() | st.floats(0, 1)))
def test_the_choice_is_the_first_that_no_other_beats(scores):
    best = next(iter(tune.ranked(scores)), None)
    there = [score for score in scores.values() if score is not None]
    if best is None:
        assert there == []
    else:
        assert scores[best] == max(there)
        assert next(name for name, score in scores.items() if score == max(there)) == best


# The whole search


def test_every_point_is_trained_and_the_best_one_entered(searched):
    TUNED.write_text(json.dumps({"z-run": {"chosen": {"lr": 1}, "config_digest": "a" * 64}}))
    run, entry, log = find("digits-plain")
    assert run == "digits-plain"
    names = ["lr-1e-05", "lr-0.05", "lr-0.01"]
    assert log.titles == [f"search of digits-plain, toy: {name}, {n} of 3" for n, name in enumerate(names, 1)]
    assert log.rounds == [[1, 2, 3, 4]] * 3
    assert list(entry) == ["chosen", "metric", "scores", "seed", "rounds", "config_digest"]
    assert list(entry["scores"]) == names
    for name, lr in zip(names, (1e-5, 0.05, 0.01), strict=True):
        record = json.loads((STUDY / "digits-plain" / name / "record.json").read_text())
        assert (record["paper"], record["run"], record["budget"]) == ("toy", f"search-digits-plain-{name}", "search")
        assert (record["config"]["hyper"]["lr"], record["config"]["rounds"]) == (lr, 4)
        assert record["config"]["data"] == {"label_noise": 0.0}
        assert list(record["seeds"]) == ["1000"]
        points = read_curves(STUDY / "digits-plain" / name / "curves.csv")[1000]
        last = [value for _, metric, value in points if metric == "train_accuracy"][-2:]
        assert entry["scores"][name] == pytest.approx(sum(last) / 2, rel=1e-5)
    best = max(entry["scores"], key=entry["scores"].get)
    assert best != names[0]  # a step too small to learn anything
    assert entry["chosen"] == {"lr": float(best.removeprefix("lr-"))}
    assert list(json.loads(TUNED.read_text())) == ["digits-plain", "z-run"]
    assert json.loads(TUNED.read_text())["digits-plain"] == entry
    assert load_paper("toy").run("digits-plain").hyper["lr"] == entry["chosen"]["lr"]


def test_masked_runs_share_the_search_of_their_base(searched):
    run, entry, _ = find("digits-plain-gma")
    assert run == "digits-plain"
    assert list(json.loads(TUNED.read_text())) == ["digits-plain"]
    record = json.loads((STUDY / "digits-plain/lr-0.05/record.json").read_text())
    assert "eps" not in record["config"]["hyper"]
    config = load_paper("toy").run("digits-plain-gma")
    assert (config.hyper["lr"], config.hyper["eps"], config.data) == (entry["chosen"]["lr"], 1e-6, {})


def test_entries_are_in_the_order_of_runs(searched):
    entries = {run: {"chosen": {"lr": lr}} for run, lr in (("m-run", 0.3), ("z-run", 0.2), ("a-run", 0.1))}
    for run, entry in entries.items():
        tune.enter(TUNED, run, entry)
    assert json.loads(TUNED.read_text()) == entries
    assert list(json.loads(TUNED.read_text())) == ["a-run", "m-run", "z-run"]
    tune.enter(TUNED, "m-run", {"chosen": {"lr": 0.4}})
    assert json.loads(TUNED.read_text()) == entries | {"m-run": {"chosen": {"lr": 0.4}}}


AGAIN = """
[[search.others]]
when = { aggregation = "GMA" }
hyper = ["eps"]

[axes.dataset.Digits]
"""
TWICE = SEARCH.replace("hyper = { eps = 1e-6 }", 'hyper = { eps = "search" }')
TWICE = TWICE.replace("grid = { lr", "grid = { eps = [1e-6, 1.0], lr").replace("\n[axes.dataset.Digits]\n", AGAIN)


def test_a_second_search_finds_what_the_usual_one_leaves_open(searched):
    searched.write_text(TWICE)
    run, entry, _ = find("digits-plain-gma")
    assert (run, list(entry["chosen"])) == ("digits-plain", ["lr"])
    run, second, log = find("digits-plain-gma")
    assert (run, list(second["chosen"])) == ("digits-plain-gma", ["eps"])
    assert log.titles[0].startswith("search of digits-plain-gma, toy: eps-1e-06, 1 of 2")
    record = json.loads((STUDY / "digits-plain-gma/eps-1.0/record.json").read_text())
    assert record["config"]["hyper"] | {"eps": 1.0} == record["config"]["hyper"]
    assert record["config"]["hyper"]["lr"] == entry["chosen"]["lr"]
    found = load_paper("toy").run("digits-plain-gma").hyper
    assert (found["lr"], found["eps"]) == (entry["chosen"]["lr"], second["chosen"]["eps"])


def test_a_second_search_is_of_what_is_open(searched):
    searched.write_text(TWICE.replace('hyper = ["eps"]', 'hyper = ["hidden"]'))
    with pytest.raises(UsageError, match="digits-plain-gma: its second search is of 'hidden', which is not open"):
        load_paper("toy")


def test_both_searches_come_before_the_run(searched):
    searched.write_text(TWICE)
    for job in plan([load_paper("toy")], Only(run="digits-plain-gma")).ordered:
        perform(job, "cpu")
    assert list(json.loads(TUNED.read_text())) == ["digits-plain", "digits-plain-gma"]
    assert not plan([load_paper("toy")], Only(run="digits-plain-gma")).jobs


PREPARED = """
[budgets.long]
label = "longer"
on = "paper"
prepared = true

[[budgets.long.rules]]
settings = { rounds = 60, search = { name = "long", rounds = 6 } }
"""


def test_a_prepared_budget_has_searches_and_records_of_its_own(searched):
    run, entry, _ = find("digits-plain")
    searched.write_text(SEARCH + PREPARED)
    jobs = plan([load_paper("toy")], Only(run="digits-plain"), "long").ordered
    assert jobs[-1].command == "fedrepro train --paper toy --run digits-plain --budget long"
    assert jobs[-2].command == "fedrepro tune --paper toy --run digits-plain --budget long"
    for job in jobs:
        perform(job, "cpu")
    found = json.loads(TUNED.read_text())
    assert (list(found), found["digits-plain"]) == (["digits-plain", "digits-plain-long"], entry)
    assert found["digits-plain-long"]["rounds"] == 6
    record = json.loads(Path("studies/toy/long/digits-plain/record.json").read_text())
    assert (record["run"], record["budget"], record["config"]["rounds"]) == ("digits-plain", "long", 60)
    assert record["config"]["hyper"]["lr"] == found["digits-plain-long"]["chosen"]["lr"]
    assert not Path("runs").exists()
    assert Path("studies/toy/digits-plain-long/lr-0.05/record.json").exists()
    assert not plan([load_paper("toy")], Only(run="digits-plain"), "long").jobs
    assert resolve(Request(paper="toy", run="digits-plain", budget="long"))[1].folder == Path(
        "studies/toy/long/digits-plain"
    )
    assert load_paper("toy").run("digits-plain").hyper["lr"] == entry["chosen"]["lr"]


def test_a_prepared_budget_is_not_the_one_in_use(searched):
    searched.write_text(SEARCH + PREPARED)
    Path("params.yaml").write_text("toy:\n  budget: long\n")
    with pytest.raises(UsageError, match="budget 'long' of toy is prepared and not in use: take `prepared` out"):
        load_paper("toy")


@pytest.mark.parametrize(
    ("on", "message"), [("lang", "budgets.long.on: unknown budget 'lang'"), ("long", "'long' builds on itself")]
)
def test_what_a_budget_builds_on_is_there(searched, on, message):
    searched.write_text(SEARCH + PREPARED.replace('on = "paper"', f'on = "{on}"'))
    with pytest.raises(UsageError, match=message):
        load_paper("toy")


def halved(spec, **rule):
    """Write the search with two halvings, of 8 rounds and 4 points."""
    words = "".join(f"{key} = {value}\n" for key, value in ({"halvings": 2} | rule).items())
    text = SEARCH.replace("rounds = 4\n", f"rounds = 8\n{words}")
    spec.write_text(text.replace("[1e-5, 0.05, 0.01]", "[1e-5, 0.05, 0.01, 1e-4]"))


def test_the_better_half_goes_on_to_twice_the_rounds(searched):
    halved(searched)
    log = Log()
    _, entry = tune.tune("toy", "digits-plain", log)
    assert log.rounds == [[1, 2]] * 4 + [[2, 3, 4]] * 2 + [[4, 5, 6, 7, 8]]
    ends, scores = ("-rounds-2", "-rounds-4"), entry["scores"]
    stages = [{name: scores[name] for name in scores if name.endswith(end)} for end in ends]
    assert [len(stage) for stage in stages] == [4, 2]
    best = sorted(stages[0], key=stages[0].get)[-2:]
    assert {name.removesuffix("-rounds-2") for name in best} == {name.removesuffix("-rounds-4") for name in stages[1]}
    (last,) = (name for name in entry["scores"] if "rounds" not in name)
    assert entry["chosen"] == {"lr": float(last.removeprefix("lr-"))}
    assert (STUDY / "digits-plain" / "lr-0.05-rounds-2" / "record.json").exists()


def test_a_point_that_goes_on_has_the_curves_of_one_trained_from_the_start(searched):
    halved(searched)
    tune.tune("toy", "digits-plain", Log())
    whole = {path.parent.name: path.read_text() for path in STUDY.rglob("curves.csv")}
    ended = {name: record.read(STUDY / "digits-plain" / name).seeds[1000] for name in whole}
    assert not any(path.is_dir() for path in paths.STATE.iterdir())  # those of points that did not go on are gone
    shutil.rmtree(STUDY)
    for name in whole:
        tune.point("toy", "digits-plain", name, Log())
        shutil.rmtree(paths.STATE)
        again = record.read(STUDY / "digits-plain" / name).seeds[1000]
        assert (STUDY / "digits-plain" / name / "curves.csv").read_text() == whole[name]
        assert (again.metrics, again.rounds, again.rejected) == (ended[name].metrics, ended[name].rounds, 0)


@pytest.mark.parametrize(
    ("scores", "order"),
    [
        ({"a": 0.1, "b": 0.3, "c": 0.2, "d": 0.0}, ["b", "c", "a", "d"]),
        ({"a": 0.2, "b": 0.2, "c": 0.3}, ["c", "a", "b"]),
        ({"a": None, "b": 0.1, "c": None, "d": None}, ["b"]),
        ({"a": None}, []),
    ],
)
def test_the_order_of_points(scores, order):
    assert tune.ranked(scores) == order


# The rule of gma-2022 at its prepared budgets: rates from 0.3 down, 48 rounds, three halvings, the last 16 count
RATES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
LONG = {"rounds": 48, "last": 16, "halvings": 3, "fall": 0.1, "grid": {"lr": RATES}}


def steady(lr, top=1.0):
    """The accuracy of a rate whose course is smooth, by round: the larger the rate, the faster."""
    return lambda t: top * (1 - math.exp(-5 * lr * t))


def courses(made):
    """The search of LONG on made curves {rate: (its course, rounds with rejected updates)}; and what was trained."""
    study = Study("a", search(**LONG), RunConfig(method="fedavg", dataset="mnist", hyper={"lr": "search"}, rounds=48))
    trained = []

    def train(point):
        config = study.points[point]
        course, rejected = made.get(config.hyper["lr"], (steady(config.hyper["lr"]), ()))
        trained.append((config.hyper["lr"], config.rounds))
        lost = sum(t <= config.rounds for t in rejected)
        ended = Seed.model_construct(status="finished", rounds=config.rounds, rejected=lost)
        return ended, [(t, "validation_accuracy", course(t)) for t in range(1, config.rounds + 1)]

    return lambda: (tune.search(study, train), trained)


def test_halving_trains_half_as_many_points_for_twice_the_rounds():
    entry, trained = courses({})()
    assert [(rounds, sum(r == rounds for _, r in trained)) for rounds in (6, 12, 24, 48)] == [
        (6, 6), (12, 3), (24, 2), (48, 1),
    ]  # fmt: skip
    assert entry["chosen"] == {"lr": 0.3}
    expected = sum(steady(0.3)(t) for t in range(33, 49)) / 16  # its own last 16 rounds
    assert entry["scores"]["lr-0.3"] == pytest.approx(expected, abs=1e-6)


def late(lr, at, to):
    """A course that falls to `to` in round `at`, for good."""
    return lambda t: steady(lr)(t) if t < at else to


@pytest.mark.parametrize(
    ("made", "chosen", "trained_at"),
    [
        ({0.3: (late(0.3, 5, 0.1), ())}, 0.1, {0.3: [6]}),  # falls in the first stage, and does not go on
        ({0.3: (late(0.3, 40, 0.1), ())}, 0.1, {0.3: [6, 12, 24, 48], 0.1: [6, 12, 24, 48]}),  # only the whole shows it
        ({0.3: (steady(0.3), (30,))}, 0.1, {0.3: [6, 12, 24, 48], 0.1: [6, 12, 24, 48]}),  # an update is rejected
        ({0.3: (lambda t: steady(0.3)(t) - 0.29 * (t == 40), ())}, 0.3, {0.1: [6, 12, 24]}),  # nine points of the mean
        ({0.3: (lambda t: steady(0.3)(t) - 0.31 * (t == 40), ())}, 0.1, {}),  # ten and more, although it comes back
        ({0.3: (late(0.3, 40, 0.1), ()), 0.1: (late(0.1, 45, 0.2), ())}, 0.03, {0.03: [6, 12, 48], 0.01: [6]}),
    ],
)
def test_a_rate_that_does_not_last_is_out_and_the_next_best_follows(made, chosen, trained_at):
    entry, trained = courses(made)()
    assert entry["chosen"] == {"lr": chosen}
    for lr, rounds in trained_at.items():
        assert [r for rate, r in trained if rate == lr] == rounds
    name = f"lr-{max(made)}"
    assert chosen == 0.3 or None in (entry["scores"][each] for each in entry["scores"] if each.startswith(name))


def test_of_equals_the_earlier_one_goes_on_even_where_it_came_in_for_one_that_is_out():
    good, slow, falls = lambda t: 0.9, lambda t: 0.1 if t <= 6 else 0.9, late(0.3, 9, 0.0)
    entry, trained = courses({0.3: (slow, ()), 0.1: (falls, ()), 0.03: (falls, ()), 0.01: (good, ())})()
    assert [lr for lr, rounds in trained if rounds == 12] == [0.1, 0.03, 0.01]
    assert [lr for lr, rounds in trained if rounds == 24] == [0.3, 0.01]
    assert entry["chosen"] == {"lr": 0.3}


def test_a_search_without_a_rate_that_lasts_finds_nothing():
    with pytest.raises(FedreproError, match="lost a client's update or fell too far: give search.grid smaller"):
        courses({lr: (late(lr, 47, -1.0), ()) for lr in RATES})()


@pytest.mark.parametrize(
    ("ended", "values", "fall", "is_out"),
    [
        ({}, (0.9, 0.9, 0.9, 0.61), 0.1, False),
        ({}, (0.9, 0.9, 0.9, 0.59, 0.95), 0.1, True),  # although it comes back
        ({}, (0.1, 0.5, 0.9, 0.65, 0.9), 0.1, False),  # a single round of one that rises
        ({}, (0.9, 0.1), 0.1, False),
        ({}, (0.9, 0.1), None, False),
        ({"rejected": 1}, (0.5, 0.6), 0.1, True),
        ({"rejected": 1}, (0.5, 0.6), None, False),
        ({"status": "diverged"}, (), None, True),
    ],
)
def test_which_points_are_out(ended, values, fall, is_out):
    rule = Search(seed=1, rounds=5, metric="validation_accuracy", last=1, fall=fall, grid={"lr": (0.1,)})
    found = Seed.model_construct(**({"status": "finished", "rounds": 5, "rejected": 0} | ended))
    assert tune.out(rule, found, curve(*values)) == is_out


def test_the_digest_of_a_search_says_how_it_is_scored():
    config = RunConfig(method="fedavg", dataset="mnist", hyper={"lr": "search"}, rounds=50)
    common = {"seed": 1, "rounds": 8, "metric": "train_accuracy", "last": 2, "grid": {"lr": (0.1, 0.2)}}
    digests = {Search(**common, **rule).digest(config) for rule in ({}, {"halvings": 1}, {"fall": 0.1}, {"fall": 0.2})}
    assert len(digests) == 4


def test_an_interrupted_search_goes_on(searched, monkeypatch):
    started, train = [], runs.execute

    def stop_at_the_second(config, place, **how):
        started.append(place.folder.name)
        if len(started) == 2:
            raise KeyboardInterrupt
        return train(config, place, **how)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "execute", stop_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            find("digits-plain")
    assert not TUNED.exists()
    _, entry, log = find("digits-plain")
    assert log.rounds == [[], [1, 2, 3, 4], [1, 2, 3, 4]]
    assert log.lines == ["kept from the earlier record: seeds 1000"]
    assert find("digits-plain")[1] == entry


@pytest.mark.parametrize("every", ["", ", train_every = 2, test_every = 1"], ids=["", "before its first point"])
def test_a_point_that_diverges_loses(searched, every):
    watch = SEARCH.replace("samples = 100", f"samples = 100{every}").replace("last = 2", "last = 1")
    searched.write_text(watch.replace("[1e-5, 0.05, 0.01]", "[1e30, 0.01]"))
    _, entry, _ = find("digits-plain")
    assert entry["scores"]["lr-1e+30"] is None
    assert entry["chosen"] == {"lr": 0.01}


def test_a_search_whose_points_all_diverge_finds_nothing(searched):
    searched.write_text(SEARCH.replace("[1e-5, 0.05, 0.01]", "[1e30, 1e31]"))
    with pytest.raises(
        FedreproError, match="every point of the search of digits-plain diverged: give search.grid small"
    ):
        find("digits-plain")
    assert not TUNED.exists()


def test_a_metric_that_is_not_watched_is_refused(searched):
    searched.write_text(SEARCH.replace('"train_accuracy"', '"train_acuracy"'))
    with pytest.raises(UsageError, match="unknown metric of a search 'train_acuracy': did you mean 'train_accuracy'"):
        find("digits-plain")


@pytest.mark.parametrize(("run", "message"), [("digits-fixed", "needs no tuning"), ("digits-plai", "did you mean")])
def test_a_run_without_a_search(searched, run, message):
    with pytest.raises(UsageError, match=message):
        find(run)
    assert not Path("studies").exists()


def test_the_search_of_another_budget_does_not_replace_that_of_the_budget_in_use(searched):
    other = '[budgets.other]\nlabel = "other"\n\n[[budgets.other.rules]]\nsettings = { hyper = { batch = 32 } }\n'
    searched.write_text(SEARCH + "\n" + other)
    with pytest.raises(UsageError, match="the search digits-plain is that of budget paper, and would be replaced"):
        tune.tune("toy", "digits-plain", Log(), "other")
    with pytest.raises(UsageError, match="or give it a search.name"):
        tune.point("toy", "digits-plain", "lr-0.05", Log(), "other")
    assert not TUNED.exists()
    assert not STUDY.exists()
