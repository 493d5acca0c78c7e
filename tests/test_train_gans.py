"""The trainer with methods that generate: what is looked at and when, how they end, and the samples that they leave."""

import copy
import io
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import fedrepro
from PIL import Image

from fedrepro import methods
from fedrepro.cli import doctor, show
from fedrepro.core.types import Draw, Method, Phase, Task
from fedrepro.data import Federation, sources
from fedrepro.errors import UsageError
from fedrepro.files import file_digest
from fedrepro.judges import extractors, fidelity, generator, networks
from fedrepro.pipeline import request
from fedrepro.records import record as records
from fedrepro.records.config import RunConfig, Stop, Watch
from fedrepro.training import identity, runs
from fedrepro.training.train import Training

CPU = torch.device("cpu")
CENTRES = torch.tensor([[-4.0, 0.0], [4.0, 0.0]])
SIZES = (40, 60)


def points(seed=0):
    """Two clients with a Gaussian each."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.cat([c + 0.5 * torch.randn(size, 2, generator=rng) for c, size in zip(CENTRES, SIZES, strict=True)])
    y = torch.arange(2).repeat_interleave(torch.tensor(SIZES))
    return Federation(x, y, SIZES, {}, 2, {}, modes=CENTRES, mode_sd=0.5)


def shifting(ends=None, rate=0.1, lost=None):
    """A generator of z / 10 + shift, whose shift goes to the mean of the clients' batches.

    `ends`: round -> the loss of that round; `lost`: the round whose step makes the shift infinite.
    """

    def init(streams, sizes):
        clients = {"critic": torch.zeros(len(sizes), 2)}
        return {"clients": clients, "server": {"generator": torch.zeros(2), "round": torch.zeros(())}}

    def step(state, batch):
        server, round = state["server"], int(state["server"]["round"]) + 1
        shift = server["generator"] + rate * (batch.x.mean((0, 1, 2)) - server["generator"]) + 1e-3 * batch.noise.mean()
        shift = shift + torch.inf if round == lost else shift
        loss = torch.tensor((ends or {}).get(round, float(round)))
        new = {
            "clients": {"critic": batch.x.mean((1, 2))},
            "server": {"generator": shift, "round": server["round"] + 1},
        }
        shown = {"loss": loss, "accepted": torch.ones(2, dtype=torch.bool), "lambda": shift[0]}
        return new, shown

    draw = Draw(size=8, noise=(2, 2))
    return Method(
        init, (Phase(draw, step, alone=True),), None, generate=lambda s, z: z / 10 + s["server"]["generator"], noise=2
    )


@pytest.fixture
def made():
    """made(method, rounds, seeds, watch) -> its Training on points."""

    def make(method=None, rounds=12, seeds=(0,), watch=None, **more):
        watch = {"judged": 300, "train_every": 2, "test_every": 5, "step_every": 4} | (watch or {})
        config = RunConfig(method="made", dataset="points", rounds=rounds, seeds=seeds, watch=watch, **more)
        return Training(config, method or shifting(), {seed: points(seed) for seed in seeds}, CPU)

    return make


def rounds(lane):
    """metric -> the rounds at which it was recorded."""
    seen = {}
    for round, metric, _ in lane.curve:
        seen.setdefault(metric, []).append(round)
    return seen


# What is watched, and when


def test_curves_have_what_a_step_shows_and_what_the_samples_are(made):
    run = made()
    assert list(run) == list(range(1, 13))
    (lane,) = run.lanes
    steps, tests = [4, 8, 12], [5, 10, 12]
    wanted = {"generator_loss": steps, "lambda": steps, "modes_covered": tests, "samples_near_modes": tests}
    assert rounds(lane) == wanted
    assert [value for _, metric, value in lane.curve if metric == "generator_loss"] == steps
    assert (lane.status, lane.rounds) == ("finished", 12)
    assert lane.metrics == {metric: value for round, metric, value in lane.curve[-2:] if round == 12}


def test_by_default_every_step_is_shown(made):
    run = made(rounds=3, watch={"step_every": 1})
    assert [*run]
    assert rounds(run.lanes[0])["lambda"] == [1, 2, 3]


def test_step_every_thins_what_steps_show_and_nothing_else(training):
    every, third = (training("fedgma", rounds=7, watch={"step_every": n}) for n in (1, 3))
    assert list(every) == list(third)
    due = lambda round, metric, _: round in (3, 6, 7) or not metric.startswith("mask_survival")  # noqa: E731
    kept = [point for point in every.lanes[0].curve if due(*point)]
    assert third.lanes[0].curve == kept != every.lanes[0].curve


def test_the_modes_are_those_of_the_samples(made):
    run = made(shifting(rate=0.0), rounds=1)
    run.state["server"]["generator"] = CENTRES[:1].clone()
    assert [*run]
    assert run.lanes[0].metrics == {"modes_covered": 1, "samples_near_modes": 1}


def test_samples_come_from_the_same_noise_at_every_look(made):
    seen = []
    method = shifting()
    generate = method.generate
    method = Method(
        method.init, method.phases, None, generate=lambda s, z: seen.append(z) or generate(s, z), noise=method.noise
    )
    assert [*made(method)]
    assert [len(z) for z in seen] == 4 * [250, 50]  # three tests, and the samples at the end
    assert all(torch.equal(z, seen[i % 2]) for i, z in enumerate(seen))


def test_points_without_modes_and_a_stopping_rule_are_refused(made):
    with pytest.raises(UsageError, match="made has no training accuracy to look at: leave stop out"):
        made(stop=Stop(threshold=0.5))
    config = RunConfig(method="made", dataset="points", rounds=1)
    bare = Federation(points().x, points().y, SIZES, {}, 2, {})
    with pytest.raises(UsageError, match="points has neither images nor modes"):
        Training(config, shifting(), {0: bare}, CPU)


# How it ends


def test_a_loss_that_is_not_finite_ends_the_seed_at_the_next_look(made):
    run = made(shifting({3: float("nan"), 4: float("nan")}))
    assert list(run) == [1, 2, 3, 4]
    (lane,) = run.lanes
    assert (lane.status, lane.rounds, lane.metrics) == ("diverged", 4, {})
    assert lane.samples.startswith(b"who,x1,x2\nclient1,")


def test_samples_that_are_not_finite_end_the_seed(made):
    run = made(shifting(lost=9))
    assert list(run) == list(range(1, 11))
    assert (run.lanes[0].status, run.lanes[0].rounds) == ("diverged", 10)
    assert rounds(run.lanes[0])["modes_covered"] == [5]


def test_a_seed_that_diverges_leaves_the_others_alone(made, same):
    method = shifting()
    plain = method.phases[0].step

    def step(state, batch):
        new, shown = plain(state, batch)
        sick = batch.x.mean() > 1e6
        return new, {**shown, "loss": torch.where(sick, torch.nan, shown["loss"])}

    sick = Method(method.init, (Phase(method.phases[0].draw, step, alone=True),), None, None, None, method.generate, 2)
    run = made(sick, seeds=(0, 1))
    run.lanes[0].feeder.x = run.lanes[0].feeder.x + 1e9
    alone = made(sick, seeds=(1,))
    assert [*run] == [*alone]
    assert [lane.status for lane in run.lanes] == ["diverged", "finished"]
    assert run.lanes[1].curve == alone.lanes[0].curve
    assert run.lanes[1].samples == alone.lanes[0].samples
    same(run.state, alone.state)


def test_resumed_it_is_the_same_to_the_bit(made, same):
    whole, first, second = (made(seeds=(0, 1)) for _ in range(3))
    assert [*whole]
    for _ in zip(range(6), first, strict=False):
        pass
    second.restore(*copy.deepcopy(first.snapshot()))
    assert list(second) == list(range(7, 13))
    same(whole.state, second.state)
    for a, b in zip(whole.lanes, second.lanes, strict=True):
        assert (a.curve, a.metrics, a.samples) == (b.curve, b.metrics, b.samples)


# Files of samples


def test_a_table_of_points_has_those_of_generator_and_clients(made):
    run = made()
    assert [*run]
    head, *lines = run.lanes[0].samples.decode().splitlines()
    assert head == "who,x1,x2"
    rows = [line.split(",") for line in lines]
    assert [[row[0] for row in rows].count(who) for who in ("generator", "client1", "client2")] == [300, 40, 60]
    shift, z = run.state["server"]["generator"][0], run.lanes[0].judge.z
    got = np.array([[float(value) for value in row[1:]] for row in rows[:300]])
    np.testing.assert_allclose(got, (z / 10 + shift).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_has_the_images_in_their_places(channels):
    x = torch.rand(64, channels, 4, 5, generator=torch.Generator().manual_seed(0)) * 2 - 1
    png = generator.picture(x, x.shape[1:])
    assert png == generator.picture(x, x.shape[1:])
    sheet = np.array(Image.open(io.BytesIO(png))).reshape(8 * 6 - 2, 8 * 7 - 2, channels)
    for place in (0, 7, 8, 63):
        top, left = place // 8 * 6, place % 8 * 7
        wanted = fidelity.as_bytes(x[place]).permute(1, 2, 0).numpy()
        np.testing.assert_array_equal(sheet[top : top + 4, left : left + 5], wanted)
    empty = np.array(Image.open(io.BytesIO(generator.picture(None, x.shape[1:]))))
    assert empty.shape[:2] == sheet.shape[:2]
    assert len(np.unique(empty)) == 1


# Images, and runs on disk


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    return tmp_path


def mixture(**changes):
    watch = {"judged": 200, "train_every": 1, "test_every": 3, "step_every": 2}
    return RunConfig(**({"method": "f2u", "dataset": "mixture-2d", "rounds": 4, "watch": watch} | changes))


def execute(config, name="one", **how):
    return runs.execute(config, records.Place(Path("runs") / name), device="cpu", **how)


def test_a_record_of_points_has_its_samples(folder):
    record = execute(mixture(seeds=(0, 1)))
    assert record == records.read(Path("runs/one"))
    assert record.samples == file_digest(Path("runs/one/samples.csv"))
    assert (record.extractor, record.identity.extractor) == ("", "")
    assert set(record.seeds[0].metrics) == {"modes_covered", "samples_near_modes"}
    again = execute(mixture(seeds=(0, 1)), "two")
    assert (again.samples, again.curves) == (record.samples, record.curves)


def test_seeds_are_kept_with_their_samples(folder, monkeypatch):
    first = execute(mixture())
    trained, prepare = [], runs.prepare
    monkeypatch.setattr(runs, "prepare", lambda *args: trained.append(args[1]) or prepare(*args))
    execute(mixture())
    assert trained == []
    more = execute(mixture(seeds=(0, 1)))
    assert trained == [(1,)]
    assert more.samples == first.samples  # those of the first seed
    Path("runs/one/samples.csv").write_text("who,x1,x2\n")
    assert execute(mixture()).samples == first.samples
    assert trained == [(1,), (0,)]


def test_a_planned_run_keeps_no_samples_of_a_seed_that_it_has_no_more(folder):
    place = records.Place(Path("runs/toy/f2u/one"), "toy", "one", "paper")
    train = lambda seeds: runs.execute(mixture(seeds=seeds), place, device="cpu")  # noqa: E731
    alone = execute(mixture(seeds=(1,)), "alone")
    assert train((0, 1)).samples != alone.samples
    assert train((1,)).samples == alone.samples


@pytest.fixture
def judged(folder, monkeypatch):
    """A folder with an extractor of the digits that has seen little."""
    monkeypatch.setitem(networks.EPOCHS, "digits", 1)
    fidelity._yardstick.cache_clear()
    done = fedrepro("extractor", "digits")
    assert (done.code, done.out) == (0, "wrote data/extractors/digits-cnn.json\n")
    return folder


IMAGES = {"dataset": "gan-digits", "hyper": {"batch": 4}}  # with convolutions and batch norm's statistics


@pytest.mark.parametrize(
    "changes",
    [{}, IMAGES | {"method": "md-gan"}, IMAGES | {"method": "f2a", "precision": "bf16"}],
    ids=["points", "images", "images, bf16"],
)
def test_an_interrupted_run_goes_on_to_the_same_bytes(judged, changes):
    config = mixture(**changes)
    whole = execute(config, "whole")

    def stop(training):
        if training.round == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(runs.Interrupted):
        execute(config, "cut", watch=stop)
    cut = execute(config, "cut")
    assert (cut.samples, cut.curves) == (whole.samples, whole.curves)


SMALL = ("--set", "batch=4", "--set", "watch.judged=100", "--set", "rounds=2")


@pytest.mark.slow
def test_a_gan_on_images_from_the_command_line(judged):
    done = fedrepro("train", "--method", "f2u", "--dataset", "gan-digits", *SMALL, "--out", "runs/f2u")
    assert done.code == 0, done.err
    assert "fd digits cnn" in done.out
    record = records.read(Path("runs/f2u"))
    assert set(record.seeds[0].metrics) == {"fd_digits_cnn", "fd_floor", "classes_covered"}
    found = extractors.find("digits")
    assert (record.extractor, record.identity.extractor) == ("digits_cnn", found.sha256)
    assert record.samples == file_digest(Path("runs/f2u/samples.png"))
    picture = Image.open(io.BytesIO(Path("runs/f2u/samples.png").read_bytes()))
    assert picture.size == (8 * 30 - 2, 8 * 30 - 2)
    # With another extractor, the numbers are others.
    place, wanted = records.Place(Path("runs/f2u")), identity.identity(record.config)
    assert wanted == record.identity
    assert list(runs.kept(place, record.config, wanted)) == [0]
    assert runs.kept(place, record.config, wanted.model_copy(update={"extractor": "other"})) == {}


def test_the_doctor_looks_at_extractors_and_samples(judged):
    assert [finding.state for finding in doctor.judges()] == ["note", "fine"]
    execute(mixture(rounds=1))
    assert [finding.text for finding in doctor.records()] == ["1 whole"]
    Path("runs/one/samples.csv").write_text("who,x1,x2\n")
    extractors.paths("digits")[0].write_bytes(b"")
    assert "samples.csv does not belong to the record beside it" in next(doctor.records()).text
    path = sources.CACHE / extractors.WEIGHTS
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"something else")
    found = [(finding.what, finding.state) for finding in doctor.judges()]
    assert found == [("extractor inception", "wrong"), ("extractor digits", "wrong")]


def test_without_an_extractor_it_is_said_before_the_training(folder):
    done = fedrepro("train", "--method", "f2u", "--dataset", "gan-digits", *SMALL)
    assert done.code == 2
    assert done.err.endswith("which is missing: run `fedrepro extractor digits`.\n")


def test_generators_are_judged_less_often_by_default():
    config, _ = request.resolve(request.Request(method="f2u"))
    assert config.watch == Watch(train_every=100, test_every=1000, step_every=100)
    assert request.resolve(request.Request(method="fedavg"))[0].watch == Watch(test_every=1)
    assert request.resolve(request.Request(method="erm"))[0].watch == Watch()  # 1,000 steps, each a round


def test_new_settings_keep_the_digests_of_earlier_runs():
    config = RunConfig(method="f-irm", dataset="digits", rounds=7, watch={"samples": 100})
    assert config.digest() == "bcd35d0743810c325a48fdb3e5b41d010ee1a809485edc963ef86d18a531fce3"


# What depends on what


def test_the_methods_that_generate_say_so_in_their_rows():
    generating = {name for name, row in methods.REGISTRY.items() if row.generates}
    assert generating == {"gan-backbone", "md-gan", "gman", "gman-0", "f2u", "f2a"}
    for name in methods.REGISTRY:
        clients = 1 if name == "gan-backbone" else 2
        method = methods.build(name, Task((1, 28, 28), 10, (300,) * clients), {})
        assert (method.generate is not None) == (name in generating)


@pytest.mark.parametrize(
    ("method", "dataset", "name"),
    [("f2u", "gan-mnist", "samples.png"), ("f2u", "mixture-1d", "samples.csv"), ("fedavg", "mnist", "")],
)
def test_what_a_run_shows_is_said_by_its_method_and_its_dataset(method, dataset, name):
    assert identity.samples(RunConfig(method=method, dataset=dataset, rounds=1)) == name


# The table at the end of a training


def test_many_metrics_are_rows():
    names = [f"angle_{angle}_accuracy" for angle in range(12)]
    metrics = [{name: 0.01 * (place + i) for place, name in enumerate(names)} for i in (1, 3)]

    def outcome(metrics):
        seeds = {
            i: SimpleNamespace(status="finished", ended="finished", collapsed=False, rounds=9, metrics=each)
            for i, each in enumerate(metrics)
        }
        return show.outcome(SimpleNamespace(config=mixture(), seeds=seeds))

    drawn = outcome(metrics)
    cells = [[str(cell) for cell in column._cells] for column in drawn.columns]
    assert [column.header for column in drawn.columns] == ["seed", "0", "1", "mean", "spread", "n"]
    assert cells[0][:3] == ["status", "rounds", "angle 0 accuracy %"]
    assert [column[2] for column in cells] == ["angle 0 accuracy %", "1.00", "3.00", "2.00", "1.00", "2"]
    assert [column[0] for column in cells] == ["status", "finished", "finished", "", "", ""]
    narrow = outcome([dict(list(each.items())[:2]) for each in metrics])
    assert [column.header for column in narrow.columns][:3] == ["seed", "status", "rounds"]
