"""Bad input through the real command line: one clear sentence, the exit code of the README, and nothing lost."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import commands
import pytest
import torch
from commands import GAME, PAPER, PLAIN, SMALL, fedrepro
from servers import serve

from fedrepro.data import sources
from fedrepro.pipeline.request import Request, resolve
from fedrepro.training import runs

TRAIN = ("train", "--method", "f-irm", *SMALL)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    return tmp_path


def refused(done, code, *parts):
    """The command ended with this code and one sentence that has these parts."""
    *_, last = done.err.splitlines() or [""]
    assert (done.code, done.out) == (code, ""), done
    assert last.startswith("error: ")
    assert last.endswith((".", "?", ")"))
    for part in parts:
        assert part in last
    assert "Traceback" not in done.err
    assert "internal error" not in done.err


def written():
    """Everything under the current folder but locks."""
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and path.suffix != ".lock"}


# Names and values


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "fi-irm"], "unknown method 'fi-irm': did you mean 'f-irm'?"),
        (["--dataset", "digit"], "unknown dataset 'digit': did you mean 'digits'?"),
        (["--set", "roundz=3"], "unknown setting 'roundz': did you mean 'rounds'?"),
        (["--set", "bach=3"], "unknown setting 'bach': did you mean 'batch'?"),
        (["--set", "hyper.bach=3"], "unknown setting 'hyper.bach': did you mean 'hyper.batch'?"),
        (["--set", "data.label_nose=0"], "unknown setting 'data.label_nose': did you mean 'data.label_noise'?"),
        (["--set", "stop.treshold=0.5"], "unknown setting 'stop.treshold': did you mean 'stop.threshold'?"),
        (["--set", "watch.sample=5"], "unknown setting 'watch.sample': did you mean 'watch.samples'?"),
        (["--set", "a.b.c=5"], "unknown setting 'a.b.c'"),
        (["--set", "seeds=[1]"], "seeds has an option of its own: use --seeds in place of --set seeds."),
        (["--set", "rounds"], "--set takes key=value, such as rounds=50, and not 'rounds'."),
        (["--set", "=5"], "--set takes key=value, such as rounds=50, and not '=5'."),
        (
            ["--set", "order=paralel"],
            "hyper-parameter 'order' of f-irm cannot be 'paralel': input should be 'parallel'",
        ),
        (["--set", "rounds=1.5"], "--set rounds: input should be a valid integer."),
        (["--set", "rounds=many"], "--set rounds: input should be a valid integer."),
        (["--set", "rounds=true"], "--set rounds: input should be a valid integer."),
        (["--set", "rounds=0"], "--set rounds: input should be greater than or equal to 1."),
        (["--set", "stop.threshold=60"], "--set stop.threshold: input should be less than or equal to 1."),
        (["--set", "stop=none", "--set", "stop.margin=0.1"], "--set stop.threshold: field required."),
        (
            ["--set", 'stop={"threshold":2,"warm_start":1}'],
            "--set stop.threshold: input should be less than or equal to 1.",
        ),
        (["--set", "stop=5", "--set", "stop.margin=0.1"], "--set stop: input should be an object"),
        (["--set", "lr=fast"], "hyper-parameter 'lr' of f-irm cannot be 'fast': input should be a valid number."),
        (["--set", "lr=true"], "hyper-parameter 'lr' of f-irm cannot be True: input should be a valid number."),
        (["--set", "lr=-1"], "hyper-parameter 'lr' of f-irm cannot be -1: input should be greater than 0."),
        (["--set", "lr=NaN"], "NaN is not a finite number"),
        (["--set", "lr=1e999"], "1e999 is not a finite number"),
        (["--set", "lr={}"], "--set hyper.lr: it must be a number, a word, true or false, or a list"),
        (["--set", "batch=0"], "hyper-parameter 'batch' of f-irm cannot be 0"),
        (["--set", "batch=2.5"], "hyper-parameter 'batch' of f-irm cannot be 2.5: input should be a valid integer."),
        (["--set", "n=5000"], "there are more clients (5,000) than training samples (1,500): set n to 1,500 or less."),
        (["--set", "n=two"], "data key 'n' of digits cannot be 'two': input should be a valid integer"),
        (["--set", "n=3"], "p needs 3 values, one for each client, and has 2"),
        (["--seeds", "1,,x"], "--seeds takes whole numbers with commas between, such as 0,1,2, and not '1,,x'."),
        (["--seeds", ""], "--seeds takes whole numbers"),
        (["--seeds", "-1"], "--seeds takes whole numbers"),
        (["--seeds", "0,1,0"], "--seeds: 0 is there twice: leave one out."),
        (["--precision", "fp8"], "--precision: input should be 'fp32' or 'bf16'."),
        (["--device", "gpu"], "unknown device 'gpu': there is auto, cpu and cuda."),
        (["--budget", "smoke"], "--budget is one of a paper's: it needs --paper and --run."),
        (["--run", "x"], "--paper and --run go together"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_exist_or_fit(arguments, message):
    refused(fedrepro(*TRAIN, *arguments), 2, message)
    assert written() == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--method", "f2u", "--dataset", "nosuch"], "unknown dataset 'nosuch'"),
        (["train", "--method", "fedprox", "--dataset", "mixture-2d"], "is for images, and these are points of 2"),
        (
            ["train", "--method", "afl", "--dataset", "mixture-2d", "--set", "net=resnet18"],
            "net=resnet18 is for images",
        ),
        (["extractor", "drawn"], "drawn has no images of classes"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_method_or_command_that_the_data_do_not_fit(arguments, message):
    refused(fedrepro(*arguments), 2, message)
    assert written() == {}


def test_settings_of_a_group_stand_in_any_order():
    sets = ("stop.margin=0.1", "stop.threshold=0.6")
    for order in (sets, sets[::-1]):
        config, _ = resolve(Request(method="fedavg", dataset="digits", sets=order))
        assert (config.stop.margin, config.stop.threshold) == (0.1, 0.6)


@pytest.mark.parametrize("arguments", [["--nope"], ["--seeds"], ["surplus"]])
def test_what_typer_refuses_has_the_same_code(arguments):
    done = fedrepro(*TRAIN, *arguments)
    assert done.code == 2
    assert "Traceback" not in done.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_without_a_device():
    refused(fedrepro(*TRAIN, "--device", "cuda"), 2, "there is no CUDA device here: use --device cpu")


# Files


@pytest.mark.parametrize("out", ["file/below", "file"])
def test_output_that_cannot_be_written_is_found_before_training(out):
    Path("file").write_text("mine")
    done = fedrepro(*TRAIN, "--out", out)
    refused(done, 2, "cannot write file/.probe: ", "choose another place")
    assert "round" not in done.err
    assert written() == {Path("file"): b"mine"}


def test_a_state_folder_that_cannot_be_written():
    Path(".fedrepro").write_text("mine")
    refused(fedrepro(*TRAIN), 2, "cannot write .fedrepro/state: ", "work in another folder")


def test_a_run_that_is_being_trained():
    config, place = resolve(Request(method="f-irm", dataset="digits", sets=("batch=64", "hidden=16", "rounds=6")))
    with runs.locked(place):
        refused(fedrepro(*TRAIN), 1, f"{place.folder} is being trained by another process: wait for it or stop it.")
    assert fedrepro(*TRAIN).code == 0


def test_a_damaged_record_is_made_again():
    assert fedrepro(*TRAIN).code == 0
    (record,) = Path("runs").rglob("record.json")
    whole = json.loads(record.read_text())
    record.write_text('{"seeds"')
    assert fedrepro(*TRAIN).code == 0
    assert json.loads(record.read_text())["seeds"]["0"]["metrics"] == whole["seeds"]["0"]["metrics"]


# Data


def test_a_data_folder_without_the_data(monkeypatch, folder):
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(folder))
    ways = ("set FEDREPRO_DATA_DIR to a folder that holds MNIST/raw", "an embedded dataset of `fedrepro data list`")
    refused(fedrepro("train", "--method", "f-irm"), 2, f"FEDREPRO_DATA_DIR is {folder}, which has no MNIST/raw", *ways)
    refused(fedrepro("data", "fetch", "mnist"), 2, *ways)


def test_data_that_cannot_be_downloaded(monkeypatch):
    def offline(url):
        raise OSError("no route to host")

    serve(monkeypatch, offline)
    refused(
        fedrepro("train", "--method", "f-irm"), 2, "could not be downloaded (http", "gz: no route to host)",
        "set FEDREPRO_DATA_DIR", "an embedded dataset of `fedrepro data list`",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "reason"),
    [(lambda size: b"\0" * 10, "has 10 bytes instead of"), (lambda size: b"\0" * size, "has the wrong checksum")],
    ids=["truncated", "wrong checksum"],
)
def test_data_that_are_not_what_was_pinned(monkeypatch, folder, content, reason):
    for file in sources.SOURCES["mnist"].files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(file.bytes))
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(folder))
    before = written()
    for command in (["train", "--method", "f-irm"], ["data", "verify", "mnist"], ["data", "show", "colored-mnist"]):
        refused(fedrepro(*command), 2, "train-images-idx3-ubyte", reason, "put the original there")
    assert written() == before


# Divergence


def test_divergence_is_recorded_and_said():
    done = fedrepro(*TRAIN, "--set", "lr=1e30", "--seeds", "0,1")
    assert done.code == 1
    (path,) = Path("runs").rglob("record.json")
    entries = json.loads(path.read_text())["seeds"]
    assert [(entry["status"], entry["metrics"]) for entry in entries.values()] == [("diverged", {})] * 2
    rounds = ", ".join(f"seed {seed} in round {entry['rounds']}" for seed, entry in entries.items())
    assert done.fault == f"error: training diverged ({rounds}): a smaller lr may help."
    assert done.out.count("diverged") == 2
    assert f"record: {path}" in done.out


def test_divergence_of_a_planned_run_is_a_result_for_its_table(folder):
    commands.paper(folder, commands.SPEC.replace("16 }", "16, lr = 1e30 }"))
    done = fedrepro("train", "--paper", PAPER, "--run", GAME)
    assert (done.code, done.out.count("diverged")) == (0, 2)
    assert fedrepro("train", "--paper", PAPER, "--run", PLAIN).code == 0
    assert fedrepro("evaluate").code == 0
    assert "diverged" in fedrepro("show", "table", PAPER, "t1").out


def test_a_search_whose_points_diverge_finds_nothing(folder):
    commands.paper(folder, commands.SEARCHED.replace("[0.01, 1e-5]", "[1e30]"))
    refused(fedrepro("tune", "--paper", PAPER, "--run", PLAIN), 1, f"every point of the search of {PLAIN} diverged")
    assert not (folder / "papers" / PAPER / "tuned.json").exists()


# Checkpoints


@pytest.fixture
def interrupted():
    """The checkpoints of rounds 3 and 4 that a run of 6 rounds left when it was killed."""
    paths = sorted(commands.interrupted("f-irm", 5).iterdir())
    assert [path.name for path in paths] == ["round-00000003.checkpoint", "round-00000004.checkpoint"]
    return paths


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def metrics():
    (record,) = Path("runs").rglob("record.json")
    return json.loads(record.read_text())["seeds"]["0"]["metrics"]


def fewer_rounds(path):
    path.write_bytes(path.read_bytes().replace(b'"round": 4', b'"round": 2'))


@pytest.mark.parametrize("damage", [truncate, fewer_rounds])
def test_a_damaged_checkpoint_is_passed_over(interrupted, damage):
    damage(interrupted[-1])
    done = fedrepro(*TRAIN)
    assert done.code == 0
    assert f"{interrupted[-1]} is damaged and passed over\nresumed after round 3\n" in done.err
    found = metrics()
    shutil.rmtree("runs")
    fedrepro(*TRAIN)
    assert metrics() == found


def test_damaged_checkpoints_only(interrupted):
    for path in interrupted:
        truncate(path)
    before = written()
    folder = interrupted[0].parent
    refused(fedrepro(*TRAIN), 1, f"no checkpoint in {folder} can be read: remove that folder to train anew.")
    assert written() == before
    shutil.rmtree(folder)
    assert fedrepro(*TRAIN).code == 0


def interrupt():
    """Train for long and send SIGINT once rounds are played; what was said, and the round reached."""
    command = ("train", "--method", "f-irm", *SMALL, "--set", "rounds=1000000", "--set", "stop=none")
    said, sent = "", False
    with commands.start(*command) as process:
        for line in process.stderr:
            said += line
            if line.startswith("round ") and not sent:
                os.kill(process.pid, signal.SIGINT)
                sent = True
        assert process.stdout.read() == ""
    assert process.returncode == 130, said
    return said, int(re.search(r"\nstopped after round (\d+); the same command goes on from there\.\n\Z", said)[1])


@pytest.mark.slow
def test_sigint_saves_the_last_round_and_the_same_command_goes_on():
    _, first = interrupt()
    said, second = interrupt()
    assert f"resumed after round {first}\n" in said
    (state,) = (path for path in Path(".fedrepro/state").iterdir() if path.is_dir())
    assert max(state.iterdir()).name == f"round-{second:08d}.checkpoint"
    assert list(Path().rglob("record.json")) == []


# The papers


def test_a_missing_search_names_its_command(folder):
    commands.paper(folder, commands.SEARCHED)
    refused(
        fedrepro("train", "--paper", PAPER, "--run", PLAIN),
        2,
        f"has no lr yet: find it with `fedrepro tune --paper {PAPER} --run {PLAIN}`",
    )
    refused(fedrepro("tune", "--paper", PAPER, "--run", GAME), 2, f"run '{GAME}' of {PAPER} needs no tuning")
    refused(fedrepro("tune", "--paper", PAPER, "--run", "x"), 2, f"unknown run of {PAPER} 'x'")


def test_a_spec_that_is_wrong_is_named_with_its_place(folder):
    commands.paper(folder, commands.SPEC.replace("rounds = 6", "rouns = 6"))
    refused(fedrepro("show", "papers"), 2, f"papers/{PAPER}/paper.toml", "rouns: there is no such key")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('method = "fedsgd"\nhyper = { lrr = 0.1 }', "unknown hyper-parameter of fedsgd 'lrr': did you mean 'lr'"),
        ('method = "fedsgd"\nhyper = { lr = "fast" }', "hyper-parameter 'lr' of fedsgd cannot be 'fast'"),
        ('method = "fedsgd"\nhyper = { hidden = 99999999999 }', "hyper-parameter 'hidden' of fedsgd cannot be"),
        ('method = "fedsgd"\ndata = { nnn = 3 }', "unknown data key of digits 'nnn'"),
        ('method = "fedsgdd"', "unknown method 'fedsgdd': did you mean 'fedsgd'"),
    ],
)
def test_what_could_not_be_trained_is_refused_before_any_training(folder, settings, message):
    commands.paper(folder, commands.SPEC.replace('method = "fedsgd"', settings))
    done = fedrepro("run", PAPER)
    place = f"papers/{PAPER}/paper.toml: run {PLAIN}: " * ("unknown method" not in message)
    assert (done.code, done.fault.startswith(f"error: {place}{message}")) == (2, True), done
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("papers/{}/paper.toml", "paper.toml cannot be read"),
        ("params.yaml", "params.yaml cannot be read"),
        ("papers/{}/published.csv", "published.csv cannot be read"),
    ],
)
def test_files_that_are_no_text(folder, file, message):
    commands.paper(folder)
    path = folder / file.format(PAPER)
    path.write_bytes(path.read_bytes() + b"\xff")
    refused(fedrepro("evaluate", PAPER), 2, message)


@pytest.mark.parametrize("command", [["evaluate"], ["report"]])
def test_steps_of_the_pipeline_without_the_step_before(folder, command):
    commands.paper(folder)
    refused(fedrepro(*command), 1, "is missing: run `")


def test_no_data_no_dataset_of_that_name():
    refused(fedrepro("data", "fetch", "mnits"), 2, "unknown dataset 'mnits': did you mean 'mnist'?")
