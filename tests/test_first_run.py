"""First steps of a newcomer: defaults that are comparable, names however spelled, hints where nothing was learnt."""

from pathlib import Path

import pytest
import torch
from commands import fedrepro
from test_runs import config, execute

from fedrepro import methods
from fedrepro.errors import Interrupted, same, unknown
from fedrepro.pipeline import workers
from fedrepro.pipeline.request import at_chance
from fedrepro.records.record import curves, read


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(tmp_path / "empty"))
    (tmp_path / "empty").mkdir()


def test_methods_of_one_shared_model_differ_by_default_in_the_method_alone():
    settings = ("net", "lr", "batch", "epochs", "cohort", "init", "steps")
    rows = {name: row for name, row in methods.REGISTRY.items() if row.family == "federated"}
    found = {name: methods.resolved(name, {}) for name in rows}
    shared = [{key: own[key] for key in (*settings, "optimiser") if key in own} for own in found.values()]
    whole = max(shared, key=len)
    assert all(each.items() <= whole.items() for each in shared)
    assert {row.dataset for row in rows.values()} == {"mnist"}
    assert {row.rounds for name, row in rows.items() if name != "fedsgd"} == {20}


def test_one_seed_has_no_spread_and_is_tested_in_each_round():
    done = fedrepro("train", "--method", "FedAVG", "--dataset", "digits-plain", "--set", "rounds=3", "--out", "run")
    assert done.code == 0, done.err
    assert "spread" not in done.out
    rounds = [round for round, metric, _ in curves(Path("run"))[0] if metric == "test_accuracy"]
    assert rounds == [1, 2, 3]


@pytest.mark.parametrize(
    ("accuracy", "said"), [(0.115, "is hardly above chance (11.4%)"), (0.03, "is below chance (11.4%)"), (0.5, "")]
)
def test_a_run_that_learnt_nothing_says_so(accuracy, said):
    # Of the 297 test rows 34 are of the commonest class, and 26 of the rarest.
    done = fedrepro(
        *("train", "--method", "fedavg", "--dataset", "digits-plain", "--set", "rounds=1", "--set", "net=mlp"),
        *("--out", "run"),
    )
    assert done.code == 0, done.err
    found = read(Path("run"))
    seed = found.seeds[0].model_copy(update={"metrics": {"test_accuracy": accuracy}})
    told = at_chance(found.model_copy(update={"seeds": {0: seed}}))
    assert said in told
    assert bool(told) == bool(said)


def test_a_colour_that_misleads_is_below_chance_and_said():
    sets = [word for setting in ("rounds=10", "net=mlp", "hidden=16") for word in ("--set", setting)]
    done = fedrepro("train", "--method", "fedavg", "--dataset", "digits", "--device", "cpu", *sets)
    assert "The test accuracy is below chance (50.0%)" in done.err
    assert "`fedrepro show dataset digits`" in done.err


def test_names_are_found_however_they_are_spelled():
    assert same("F_IRM", methods.REGISTRY) == same("firm", methods.REGISTRY) == "f-irm"
    assert same("Fed AVG", methods.REGISTRY) == "fedavg"
    assert same("fedav", methods.REGISTRY) == "fedav"
    shown = fedrepro("show", "method", "Gen_AFL")
    assert shown.code == 0
    assert "of the family domains" in shown.out
    assert fedrepro("show", "dataset", "Colored_MNIST").code == 0


def test_a_suggestion_is_near_and_a_list_is_short():
    assert str(unknown("method", "fedavgg", methods.REGISTRY)).endswith("did you mean 'fedavg'?")
    far = str(unknown("method", "transformer", methods.REGISTRY))
    assert "did you mean" not in far
    assert far.endswith(f"and {len(methods.REGISTRY) - 10} more.")
    assert far.count(",") == 9


def test_threads_follow_what_is_idle_and_what_is_asked_for(monkeypatch, threads):
    torch.set_num_threads(8)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    for load, wanted in ((0.2, 8), (3.4, 5), (40.0, 1)):
        torch.set_num_threads(8)
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        workers.limit(None)
        assert torch.get_num_threads() == wanted
    workers.limit(3)
    assert torch.get_num_threads() == 3


def test_a_resumed_run_keeps_the_threads_that_it_began_with(threads):
    torch.set_num_threads(1)
    with pytest.raises(Interrupted):
        execute(config(), watch=lambda training: training.round == 5 and signalled())
    torch.set_num_threads(2)
    assert execute(config())["seeds"]["0"]["provenance"]["threads"] == 1


def signalled():
    import signal

    signal.raise_signal(signal.SIGINT)
