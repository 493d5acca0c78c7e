"""Saved models: what is in their files, that they give the record's metrics again, and how the record covers them."""

import json
from pathlib import Path

import commands
import numpy as np
import pytest
import safetensors.numpy
import torch
from commands import PAPER, PLAIN, SMALL, fedrepro

from fedrepro import data, methods
from fedrepro.core.types import Task
from fedrepro.errors import FedreproError, Interrupted, UsageError
from fedrepro.pipeline import request
from fedrepro.records import record as records
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Place
from fedrepro.training import models, runs

RUN = Path("runs/one")
CPU = torch.device("cpu")
SGD = {"optimiser": "sgd", "lr": 0.05, "batch": 64, "hidden": 8, "net": "mlp"}
STOP = {"threshold": 0.6, "warm_start": 2, "margin": 0.0}  # after rounds 4 and 8
GAME = {"batch": 16, "hidden": 4, "lr": 0.03}
# method, dataset, hyper, settings, the parts of the state that the prediction is of
FAMILIES = [
    ("fedavg", "digits", SGD, {}, {"server.params"}),
    ("scaffold", "digits", {"batch": 64, "hidden": 8, "net": "mlp"}, {}, {"server.params"}),
    ("f-irm", "digits", {"batch": 16, "hidden": 4, "lr": 0.01}, {}, {"clients.w"}),
    ("f-irm", "digits", GAME, {"stop": STOP, "rounds": 12, "watch": {"samples": 100}}, {"clients.w"}),
    ("v-fl-smooth-fast", "digits", {"batch": 16, "hidden": 4}, {}, {"clients.w", "server.phi"}),
    ("f2u", "mixture-2d", {"batch": 8}, {"watch": {"judged": 200}}, {"server.generator"}),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(method="fedavg", dataset="digits", hyper=SGD, **changes):
    usual = {"rounds": 4, "seeds": (0, 1), "watch": {"samples": 100, "test_every": 2}}
    return RunConfig(method=method, dataset=dataset, hyper=hyper, **(usual | changes))


def execute(config, folder=RUN, **how):
    return runs.execute(config, Place(Path(folder)), device="cpu", **({"save_model": True} | how))


def saved(seed=0, folder=RUN):
    return safetensors.numpy.load_file(records.model(Path(folder), seed))


@pytest.mark.parametrize(("method", "dataset", "hyper", "settings", "parts"), FAMILIES)
def test_a_saved_model_is_what_predicts_and_has_the_metrics_of_the_record(method, dataset, hyper, settings, parts):
    record = execute(config(method, dataset, hyper, **({"rounds": 7} | settings)))
    assert {".".join(name.split(".")[:2]) for name in saved()} == parts
    assert list(record.models) == [0, 1]
    found = models.evaluated(RUN, records.read(RUN), dataset, {}, CPU)
    assert found == {seed: each.metrics for seed, each in record.seeds.items()}
    if "stop" in settings:
        assert [(each.status, each.rounds) for each in record.seeds.values()] == [("stopped", 4), ("stopped", 8)]


def test_a_generator_of_images_needs_its_running_statistics():
    method = methods.build("f2u", Task((1, 28, 28), 10, (40, 40)), {})
    state = method.init(lambda client, part: torch.Generator().manual_seed(client), (40, 40))
    found = models.model(method, state, torch.zeros(2, method.noise))
    assert {".".join(name.split(".")[:2]) for name in found} == {"server.generator", "server.running"}


def test_the_accuracy_can_be_computed_from_the_file_alone():
    """Two hidden layers with ELU, in numpy."""
    record = execute(config())
    layers = saved()
    ((x, y),) = data.load("digits", 0, {}).tests.values()
    h = x.numpy().reshape(len(x), -1) / 255
    for place in (1, 2, 3):
        own = {key: layers[f"server.params.fc{place}.{key}"] for key in ("weight", "bias")}
        h = h @ own["weight"].T.astype(float) + own["bias"]
        h = np.where(h > 0, h, np.expm1(h)) if place < 3 else h
    assert (h.argmax(1) == y.numpy()).mean() == record.seeds[0].metrics["test_accuracy"]
    loss = (np.log(np.exp(h).sum(1)) - h[np.arange(len(y)), y.numpy()]).mean()
    assert loss == pytest.approx(record.seeds[0].metrics["test_loss"], rel=1e-5)


def test_saving_moves_no_number():
    plain = execute(config("f-irm", hyper={"batch": 16, "hidden": 4}), "runs/two", save_model=False)
    record = execute(config("f-irm", hyper={"batch": 16, "hidden": 4}))
    assert [each.metrics for each in record.seeds.values()] == [each.metrics for each in plain.seeds.values()]
    assert (plain.models, list(Path("runs/two").glob("*.safetensors"))) == ({}, [])


def test_a_resumed_run_saves_the_models_of_seeds_that_had_ended_before():
    """The rule stops the seeds in the course of the run."""
    wanted = config("f-irm", hyper=GAME, stop=STOP, rounds=12, watch={"samples": 100})

    def stop(training):
        if training.round == 6:
            assert any(lane.status == "stopped" for lane in training.lanes)
            raise KeyboardInterrupt

    execute(wanted, "runs/two")
    with pytest.raises((Interrupted, KeyboardInterrupt)):
        execute(wanted, watch=stop, every=0)
    said = []
    record = execute(wanted, say=said.append)
    assert said[0].startswith("resumed after round")
    for seed in (0, 1):
        assert records.model(RUN, seed).read_bytes() == records.model(Path("runs/two"), seed).read_bytes()
    assert record.models == records.read(Path("runs/two")).models


def test_a_checkpoint_without_models_is_not_gone_on_from():
    def stop(training):
        if training.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(config(), watch=stop, every=0, save_model=False)
    said = []
    execute(config(), say=said.append)
    assert said == ["the checkpoints are of other settings, numerics or data: training from the start"]


def test_the_record_covers_its_models():
    execute(config())
    path = records.model(RUN, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FedreproError, match="model-1.safetensors does not belong to the record beside it"):
        records.read(RUN)
    path.unlink()
    with pytest.raises(FedreproError, match="model-1.safetensors is missing"):
        records.read(RUN)
    path.write_bytes(whole)
    assert records.read(RUN).models.keys() == {0, 1}


def test_seeds_without_a_model_are_trained_again_and_models_stay_with_their_seeds():
    execute(config(seeds=(0,)), save_model=False)
    said = []
    execute(config(seeds=(0,)), say=said.append)
    assert said == ["the earlier record has no models: all seeds are trained again"]
    first = records.model(RUN, 0).read_bytes()
    said.clear()
    record = execute(config(seeds=(0, 1)), say=said.append)
    assert said == ["kept from the earlier record: seeds 0"]
    assert list(record.models) == [0, 1]
    record = execute(config(seeds=(2,)), save_model=False)
    assert (list(record.seeds), list(record.models)) == ([0, 1, 2], [0, 1])
    assert records.model(RUN, 0).read_bytes() == first


def test_a_seed_that_diverged_has_no_model():
    record = execute(config(hyper=SGD | {"lr": 1e30}))
    assert ({each.status for each in record.seeds.values()}, record.models) == ({"diverged"}, {})
    with pytest.raises(UsageError, match="has no saved model: train the run again with --save-model"):
        models.evaluated(RUN, record, "digits", {}, CPU)


def test_a_model_that_does_not_fit_its_method_is_refused():
    record = execute(config(seeds=(0,)))
    other = record.model_copy(update={"config": config(hyper=SGD | {"hidden": 9}, seeds=(0,))})
    with pytest.raises(FedreproError, match=r"server\.params\.fc1\.bias, which the method does not have"):
        models.evaluated(RUN, other, "digits", {}, CPU)


# The commands


def test_train_saves_and_test_evaluates_again(folder):
    done = fedrepro("train", "--method", "fedsgd", *SMALL, "--seeds", "0,1", "--save-model", "--out", "here")
    assert done.code == 0
    record = json.loads(Path("here/record.json").read_text())
    assert record["models"].keys() == {"0", "1"}
    done = fedrepro("test", "here", "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert (found["run"], found["dataset"]) == ("here", "digits")
    assert found["seeds"] == {seed: each["metrics"] for seed, each in record["seeds"].items()}
    shown = fedrepro("test", "here").out
    for name in ("seed 0", "seed 1", "mean", "spread", "test accuracy %"):
        assert name in shown
    assert f"{100 * record['seeds']['1']['metrics']['test_accuracy']:.2f}" in shown


def test_another_dataset_is_tested_with_its_settings_or_refused(folder):
    fedrepro("train", "--method", "fedsgd", *SMALL, "--save-model", "--out", "here")
    same = json.loads(fedrepro("test", "here", "--json").out)["seeds"]["0"]
    other = json.loads(fedrepro("test", "here", "--set", "label_noise=0.0", "--json").out)["seeds"]["0"]
    assert same["test_loss"] != other["test_loss"]
    done = fedrepro("test", "here", "--dataset", "digits-plain")
    assert done.code == 2
    shapes = "inputs of shape 2 x 28 x 28, and digits-plain has 1 x 28 x 28"
    assert done.fault == (
        f"error: the model was trained on digits with {shapes}: choose a dataset of the same shape and classes."
    )
    assert fedrepro("test", "here", "--dataset", "digit").fault == (
        "error: unknown dataset 'digit': did you mean 'digits'?"
    )


@pytest.mark.parametrize("options", [("--set", "label_noise=0.25"), ("--dataset", "digits"), ("--set", "p_test=0.5")])
def test_its_own_dataset_keeps_the_settings_that_it_was_trained_with(folder, options):
    """Label noise is 0.25 without a setting."""
    given = ("--set", "p_test=0.5", "--set", "classes=10", "--save-model", "--out", "here")
    fedrepro("train", "--method", "fedsgd", *SMALL, *given)
    found = [json.loads(fedrepro("test", "here", *more, "--json").out)["seeds"] for more in ((), options)]
    assert found[0] == found[1]


def test_other_classes_are_refused(folder):
    few = ("--set", "batch=64", "--set", "hidden=16", "--set", "rounds=1")
    fedrepro("train", "--method", "fedsgd", "--dataset", "fedgma-binary-digits", *few, "--save-model", "--out", "here")
    done = fedrepro("test", "here", "--dataset", "fedcmnist-digits")
    assert (done.code, "a number of classes of 2, and fedcmnist-digits has 10" in done.fault) == (2, True)


def test_a_record_without_models_says_what_to_do(folder):
    fedrepro("train", "--method", "fedsgd", *SMALL, "--out", "here")
    done = fedrepro("test", "here")
    assert (done.code, done.fault) == (
        2,
        "error: here has no saved model: train the run again with --save-model.",
    )


def test_the_model_of_a_planned_run_is_saved_elsewhere(folder):
    commands.paper(folder)
    config, place = request.resolve(request.Request(paper=PAPER, run=PLAIN, save_model=True))
    assert place.folder == Path("runs/adhoc", f"fedsgd-digits-{config.digest()[:8]}")
    assert request.resolve(request.Request(paper=PAPER, run=PLAIN))[1].run == PLAIN
