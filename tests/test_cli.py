"""The commands: each has help, does its one thing, and says what it did; and what `train` makes of its options."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean, pstdev

import commands
import pytest
import typer
from commands import GAME, PAPER, PLAIN, SMALL, fedrepro
from pages import Page, plain

import bench
from fedrepro.cli import app
from fedrepro.core import lift
from fedrepro.errors import UsageError
from fedrepro.papers.load import load_paper
from fedrepro.pipeline import request
from fedrepro.pipeline.request import Request
from fedrepro.records import record as records

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder in which the tiny paper went through the whole pipeline; {command: outcome}."""
    root = tmp_path_factory.mktemp("project")
    commands.paper(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        steps = {
            "fetch": ("data", "fetch", "digits"),
            PLAIN: ("train", "--paper", PAPER, "--run", PLAIN),
            GAME: ("train", "--paper", PAPER, "--run", GAME),
            "evaluate": ("evaluate",),
            "report": ("report",),
            "check": ("check",),
        }
        done = {name: fedrepro(*step) for name, step in steps.items()}
    assert {name: (each.code, each.fault) for name, each in done.items() if each.code} == {}
    return root, done


@pytest.fixture
def inside(project, monkeypatch):
    monkeypatch.chdir(project[0])
    return project[1]


# Help and start


def leaves(command=None, path=()):
    """Every command with the words that call it."""
    command = command or typer.main.get_command(app.app)
    if not hasattr(command, "commands"):
        return [(path, command)]
    return [leaf for name, each in command.commands.items() for leaf in leaves(each, (*path, name))]


@pytest.mark.parametrize(
    ("path", "command"), leaves(), ids=lambda value: " ".join(value) if value.__class__ is tuple else ""
)
def test_every_command_and_option_has_help(path, command):
    assert command.help
    assert [each.name for each in command.params if not getattr(each, "help", None)] == []
    done = fedrepro(*path, "--help")
    assert done.code == 0
    assert f"fedrepro {' '.join(path)}" in done.out or path[-1] in done.out


def test_the_commands_are_those_of_the_design():
    assert {path for path, _ in leaves()} == {
        *((name,) for name in ("train", "run", "tune", "extractor", "evaluate", "report", "check")),
        *((name,) for name in ("bench", "doctor", "init", "test", "compare", "plot", "export")),
        *(("data", name) for name in ("list", "fetch", "verify", "show")),
        *(("show", name) for name in ("method", "methods", "dataset", "datasets", "papers", "tables", "runs")),
        *(("show", name) for name in ("table", "claims")),
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["train", "--help"],
        ["--version"],
        ["show", "papers"],
        ["show", "datasets"],
        ["data", "list"],
        ["show", "methods"],
    ],
)
def test_what_needs_no_torch_does_not_wait_for_it(inside, arguments):
    code = f"""
import sys; from fedrepro.cli.app import main
try: main({arguments})
finally: assert 'torch' not in sys.modules"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_version():
    assert fedrepro("--version").out == f"fedrepro {app.__version__}\n"


def test_nothing_to_do_is_help():
    assert "Usage" in fedrepro().out + fedrepro().err


# train


def test_train_says_how_it_ended_and_where_the_record_is(folder):
    done = fedrepro("train", "--method", "f-irm", *SMALL, "--seeds", "0,1")
    assert done.code == 0
    (record,) = Path("runs/adhoc").glob("f-irm-*/record.json")
    assert done.out.splitlines()[-1] == f"record: {record}"
    content = json.loads(record.read_text())
    assert (content["budget"], content["run"], list(content["seeds"])) == ("ad hoc", None, ["0", "1"])
    assert record.parent.name == f"f-irm-digits-{content['identity']['config'][:8]}"
    rows = [[part.strip() for part in line.split("│")[1:-1]] for line in done.out.splitlines() if "│" in line]
    assert [row[0] for row in rows] == ["0", "1", "mean", "spread", "n"]
    assert rows[0][1:4] == ["cap", "6", f"{100 * content['seeds']['0']['metrics']['train_accuracy']:.2f}"]
    assert rows[-1][3:] == ["2", "2", "2", "2"]
    assert "train accuracy %" in done.out
    assert done.err.splitlines()[0] == "training f-irm on digits, seeds 0, 1"
    assert "round 6/6, 0 running, 2 ended, train accuracy" in done.err


def test_another_seed_trains_that_seed_only_and_loses_none(folder):
    command = ("train", "--method", "fedsgd", *SMALL, "--seeds")
    fedrepro(*command, "0")
    (record,) = Path("runs/adhoc").glob("*/record.json")
    before = json.loads(record.read_text())
    done = fedrepro(*command, "1")
    assert "kept from the earlier record: seeds 0" in done.err
    after = json.loads(record.read_text())
    assert after["seeds"]["0"] == before["seeds"]["0"]
    assert (list(after["seeds"]), after["config"]["seeds"]) == (["0", "1"], [0, 1])


def test_out_is_where_the_record_goes_and_other_settings_do_not_replace_it(folder):
    fedrepro("train", "--method", "fedsgd", *SMALL, "--out", "here")
    before = Path("here/record.json").read_bytes()
    done = fedrepro("train", "--method", "fedsgd", *SMALL, "--set", "lr=0.1", "--out", "here")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: here holds the record of a run with other settings: choose another --out.\n"
    assert Path("here/record.json").read_bytes() == before


def test_a_method_alone_has_sensible_defaults():
    config, place = request.resolve(Request(method="f-irm"))
    assert (config.dataset, config.rounds, config.seeds) == ("colored-mnist", 1000, (0,))
    assert config.stop.threshold == 0.6
    assert place.folder == Path(f"runs/adhoc/f-irm-colored-mnist-{config.digest()[:8]}")


@pytest.mark.parametrize(
    ("text", "where", "value"),
    [
        ("rounds=7", ("rounds",), 7),
        ("lr=0.1", ("hyper", "lr"), 0.1),
        ("lr=1e-3", ("hyper", "lr"), 0.001),
        ("order=sequential", ("hyper", "order"), "sequential"),
        ('order="sequential"', ("hyper", "order"), "sequential"),
        ("hyper.batch=3", ("hyper", "batch"), 3),
        ("n=3", ("data", "n"), 3),
        ("data.p=[0.1, 0.2]", ("data", "p"), [0.1, 0.2]),
        ("binarise=false", ("data", "binarise"), False),
        ("stop.threshold=0.7", ("stop", "threshold"), 0.7),
        ("stop.threshold=0.7", ("stop", "warm_start"), 100),
        ("stop=none", ("stop",), None),
        ("stop=null", ("stop",), None),
        ("watch.test_every=3", ("watch", "test_every"), 3),
    ],
)
def test_set(text, where, value):
    found = request.resolve(Request(method="f-irm", sets=(text,)))[0].model_dump(mode="json")
    for key in where:
        found = found[key]
    assert (found, type(found)) == (value, type(value))


def test_later_settings_win():
    assert request.resolve(Request(method="f-irm", sets=("rounds=7", "rounds=8")))[0].rounds == 8


@pytest.mark.parametrize(("text", "wanted"), [("0", [0]), ("0,1,2", [0, 1, 2]), ("7,3", [7, 3])])
def test_seeds(text, wanted):
    assert request.seeds(text) == wanted


# Planned runs


def test_a_planned_run_is_exactly_what_the_plan_says(inside):
    record = json.loads(Path("runs", PAPER, "f-irm", GAME, "record.json").read_text())
    assert (record["paper"], record["run"], record["budget"]) == (PAPER, GAME, "paper")
    assert record["config"] == load_paper(PAPER).run(GAME).model_dump(mode="json")
    assert inside[GAME].out.splitlines()[-1] == f"record: runs/{PAPER}/f-irm/{GAME}/record.json"


@pytest.mark.parametrize(
    "same",
    [{}, {"seeds": "0,1"}, {"method": "f-irm"}, {"dataset": "digits"}, {"budget": "paper"}, {"sets": ("rounds=6",)}],
)
def test_what_changes_nothing_leaves_a_run_planned(inside, same):
    _, place = request.resolve(Request(paper=PAPER, run=GAME, **same))
    assert (place.folder, place.run) == (Path("runs", PAPER, "f-irm", GAME), GAME)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"seeds": "0,1,2"}, {"seeds": (0, 1, 2)}),
        ({"sets": ("rounds=7",)}, {"rounds": 7}),
        ({"budget": "smoke"}, {"rounds": 2, "seeds": (0,)}),
        ({"precision": "bf16"}, {"precision": "bf16"}),
        ({"dataset": "colored-mnist"}, {"dataset": "colored-mnist"}),
        ({"out": Path("elsewhere")}, {}),
    ],
)
def test_a_change_makes_a_planned_run_ad_hoc(inside, change, expected):
    config, place = request.resolve(Request(paper=PAPER, run=GAME, **change))
    assert (place.run, place.budget) == (None, "ad hoc")
    assert place.folder == change.get("out", Path("runs/adhoc", f"f-irm-{config.dataset}-{config.digest()[:8]}"))
    assert config.hyper["order"] == "parallel"
    for key, value in expected.items():
        assert getattr(config, key) == value


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(), "nothing to train: name a --method"),
        (Request(paper=PAPER), "--paper and --run go together"),
        (Request(run=GAME, method="f-irm"), "--paper and --run go together"),
        (Request(method="f-irm", budget="smoke"), "it needs --paper and --run"),
        (Request(paper="tiny-2023", run=GAME), "unknown paper 'tiny-2023': did you mean 'tiny-2024'"),
        (Request(paper=PAPER, run="digits-fed"), "unknown run of tiny-2024 'digits-fed': did you mean 'digits-fedsgd'"),
        (Request(paper=PAPER, run=GAME, budget="smok"), "unknown budget of tiny-2024 'smok': did you mean 'smoke'"),
        (Request(method="gen-afl", dataset="mnist", sets=("alpha=1",)), "write hyper.alpha or data.alpha"),
    ],
)
def test_requests_that_name_nothing(inside, request_, message):
    with pytest.raises(UsageError, match=message):
        request.resolve(request_)


# The other commands


def test_the_search_says_what_it_chose_and_enters_it(folder, threads):
    commands.paper(folder, commands.SEARCHED)
    assert (
        f"find it with `fedrepro tune --paper {PAPER} --run {PLAIN}`"
        in fedrepro("train", "--paper", PAPER, "--run", PLAIN).fault
    )
    done = fedrepro("tune", "--paper", PAPER, "--run", PLAIN, "--device", "cpu", "--threads", "2")
    score = 100 * json.loads(Path("papers", PAPER, "tuned.json").read_text())[PLAIN]["scores"]["lr-0.01"]
    assert done.code == 0
    assert done.out == f"{PLAIN}: lr 0.01, the best of 2 points: train_accuracy {score:.2f}\n"
    made = records.read(next(Path("studies", PAPER).rglob("record.json")).parent).seeds.values()
    assert {seed.provenance.threads for seed in made} == {2}
    titles = [line for line in done.err.splitlines() if line.startswith("search of")]
    assert titles == [f"search of {PLAIN}, {PAPER}: lr-{lr}, {n} of 2" for n, lr in ((1, "0.01"), (2, "1e-05"))]
    assert fedrepro("train", "--paper", PAPER, "--run", PLAIN).code == 0
    assert json.loads(Path("runs", PAPER, "fedsgd", PLAIN, "record.json").read_text())["config"]["hyper"]["lr"] == 0.01
    assert fedrepro("train", "--paper", PAPER, "--run", GAME).code == 0
    assert fedrepro("evaluate").code == 0
    shown = fedrepro("show", "table", PAPER, "t1", "--wide").out
    assert f"lr 0.01: the best train accuracy of a search on a seed of its own, see papers/{PAPER}/tuned.json." in shown


@pytest.mark.slow
def test_run_says_what_is_recorded_and_trains_the_rest(inside, tmp_path, monkeypatch):
    assert fedrepro("run").out == fedrepro("run", PAPER, "--dry-run").out == "2 runs planned, 2 recorded, 0 to train\n"
    for name in ("papers", "params.yaml"):
        (tmp_path / name).symlink_to(Path(name).resolve())
    monkeypatch.chdir(tmp_path)
    planned, _, _, command, _ = fedrepro("run", "--method", "fedsgd", "--dry-run").out.splitlines()
    assert planned == "1 runs planned, 0 recorded, 1 to train"
    assert command == f"fedrepro train --paper {PAPER} --run {PLAIN}"
    done = fedrepro("run", "--method", "fedsgd")
    assert (done.code, done.fault) == (0, "2 done")
    assert Path("data/manifests/digits.json").exists()
    assert Path("runs", PAPER, "fedsgd", PLAIN, "record.json").exists()
    assert "1 recorded, 0 to train" in fedrepro("run", "--method", "fedsgd").out


def test_evaluate_all_or_one(inside):
    for arguments in ([], [PAPER]):
        names = ("cells.csv", "points.csv", "claims.csv", "metrics.json", "compared.csv")
        assert fedrepro("evaluate", *arguments).out.splitlines() == [f"wrote reports/{PAPER}/{name}" for name in names]
    assert fedrepro("evaluate", "tiny-2023").fault == "error: unknown paper 'tiny-2023': did you mean 'tiny-2024'?"


def test_report_names_its_files(inside):
    own = [f"wrote reports/{PAPER}/rendered/{name}" for name in ("t1.csv", "t1.md", "t1.tex", "summary.md")]
    pages = [f"wrote reports/{name}.html" for name in (PAPER, "index")]
    assert inside["report"].out.splitlines() == [*own, "wrote reports/summary.md", *pages]
    assert fedrepro("report", PAPER).out.splitlines() == own
    assert fedrepro("report", "--overview").out == "wrote reports/summary.md\n"
    assert fedrepro("report", "--single-file").out == "wrote reports/fedrepro.html\n"
    alone = ("--overview", "--open", "--single-file")
    for both in (*([PAPER, option] for option in alone), ["--overview", "--open"], ["--overview", "--single-file"]):
        done = fedrepro("report", *both)
        assert (done.code, done.out) == (2, "")
        said = "give one of PAPER, --overview, and --single-file or --open: the options are of all papers."
        assert done.fault == f"error: {said}"


def test_the_page_is_opened_or_its_place_is_said(inside, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or len(opened) == 1)
    assert fedrepro("report", "--open").code == 0
    assert opened == [Path("reports/index.html").resolve().as_uri()]
    assert fedrepro("report", "--open").fault == (
        "error: no browser was found: open reports/index.html in one yourself."
    )


def test_the_command_beside_a_number_of_the_page_gives_that_number(inside, tmp_path):
    read = Page(Path(f"reports/{PAPER}.html").read_text(encoding="utf-8"))
    name, shown = next(iter(read.data["cells"])), read.data["runs"][f"{PAPER}/{PLAIN}"]  # the first cell and its run
    program, *command = shown["command"].split()
    assert program == "fedrepro"
    assert fedrepro(*command, "--out", tmp_path).code == 0
    again = json.loads((tmp_path / "record.json").read_text())["seeds"]
    assert [row[0] for row in shown["seeds"]] == list(again)
    place = shown["heads"].index("test accuracy")
    accuracies = [entry["metrics"]["test_accuracy"] for entry in again.values()]
    assert [row[place] for row in shown["seeds"]] == [f"{100 * accuracy:.2f}" for accuracy in accuracies]
    assert plain(read.cells[name][0]) == f"{100 * fmean(accuracies):.2f} ± {100 * pstdev(accuracies):.2f}"


def test_check_prints_its_verdict(inside):
    said = fedrepro("check", PAPER).out
    assert inside["check"].out == fedrepro("check", PAPER, "t1").out == said
    assert said.splitlines()[1:] == [
        f"{PAPER}  t1           2       2",
        "PASS: 2 of 2 compared numbers are within tolerance.",
    ]
    found = json.loads(fedrepro("check", "--json").out)
    assert (found["counts"][PAPER]["t1"]["within"], found["problems"]) == (2, [])


def test_check_exits_with_3_if_a_number_is_outside(project, tmp_path, monkeypatch):
    commands.paper(tmp_path, commands.SPEC.replace("points = 100", "points = 0").replace("spreads = 2", "spreads = 0"))
    (tmp_path / "runs").symlink_to(project[0] / "runs")
    monkeypatch.chdir(tmp_path)
    fedrepro("evaluate")
    done = fedrepro("check")
    assert done.code == 3
    assert done.out.splitlines()[-1] == "FAIL: 0 of 2 compared numbers are within tolerance; problems: 2."
    assert done.fault.startswith("error: tiny-2024, t1, Digits, type=none, FedSGD, test_accuracy: reproduced ")
    assert len(json.loads(fedrepro("check", "--json").out)["problems"]) == 2


@pytest.mark.parametrize(
    "command",
    [
        *("check", "report", "evaluate", "show papers", "show claims", "evaluate toy-2022", "report toy-2022"),
        *("show table toy-2022 t1", "train --paper toy-2022 --run one"),
    ],
)
def test_what_is_about_papers_needs_them(folder, command):
    done = fedrepro(*command.split())
    assert done.code == 2
    ways = "change to the folder of the project, or make one by `fedrepro init`"
    assert done.fault == f"error: there is no papers/*/paper.toml here: {ways}."
    assert list(folder.iterdir()) == []


def test_show_table(inside):
    done = fedrepro("show", "table", PAPER, "t1")
    assert re.search(r"^none +FedSGD +[0-9.]+ \(20\.5\) ✓$", done.out, re.MULTILINE)
    assert "20.5 ± 1" in fedrepro("show", "table", PAPER, "t1", "--wide").out
    assert fedrepro("show", "table", PAPER, "t3").code == 2
    assert fedrepro("show", "claims").out == "there are no claims\n"


@pytest.mark.parametrize("command", [["check", PAPER], ["show", "table", PAPER, "t1"], ["show", "claims", PAPER]])
def test_results_are_of_the_budget_in_use_or_of_a_prepared_one(inside, command):
    done = fedrepro(*command, "--budget", "smoke")
    fault = f"error: budget 'smoke' of {PAPER} is neither in use nor prepared"
    assert (done.code, done.fault) == (2, f"{fault}: give one that is prepared (none), or leave --budget out.")


def test_a_budget_is_one_of_a_papers(inside):
    done = fedrepro("check", "--budget", "smoke")
    assert (done.code, done.fault) == (2, "error: --budget is one of a paper's: name the paper, too.")


def test_what_shows_results_needs_the_frames_alone(project, tmp_path, monkeypatch):
    for name in ("papers", "params.yaml"):
        (tmp_path / name).symlink_to(project[0] / name)
    monkeypatch.chdir(tmp_path)
    for command in (["show", "table", PAPER, "t1"], ["report"], ["report", PAPER], ["report", "--overview"]):
        done = fedrepro(*command)
        assert (done.code, done.out) == (1, "")
        assert done.fault == f"error: reports/{PAPER}/cells.csv is missing: run `fedrepro evaluate {PAPER}`."
    (tmp_path / "reports").symlink_to(project[0] / "reports")
    assert "(20.5)" in fedrepro("show", "table", PAPER, "t1").out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("methods", ["f-irm", "games", "F-IRM Games: the representation is fixed"]),
        ("datasets", ["digits", "embedded", "no download, for smoke runs"]),
        ("papers", [PAPER, "paper, smoke", "Tiny"]),
        ("tables", ["t1", "Table 1"]),
        ("runs", [PLAIN, GAME, "2 finished"]),
    ],
)
def test_show_lists(inside, name, words):
    done = fedrepro("show", name)
    assert done.code == 0
    for word in words:
        assert word in done.out


def test_show_dataset_has_its_settings_and_how_it_is_made(folder):
    done = fedrepro("show", "dataset", "digits")
    assert done.code == 0
    words = ("embedded", "digits (8x8)", "2 x 28 x 28", "label_noise", "0.25", "flgames-2022, section 7.1", "CC BY 4.0")
    assert [word for word in words if word not in done.out] == []
    assert fedrepro("show", "dataset", "digit").fault == "error: unknown dataset 'digit': did you mean 'digits'?"


def test_show_runs_has_ad_hoc_ones_and_damaged_records(folder):
    fedrepro("train", "--method", "fedsgd", *SMALL, "--out", "runs/adhoc/mine")
    assert "mine" in fedrepro("show", "runs").out
    assert "1 finished" in fedrepro("show", "runs").out
    Path("runs/adhoc/mine/record.json").write_text("{")
    assert "damaged" in fedrepro("show", "runs").out


def test_show_method_has_its_settings_with_defaults_and_values(folder):
    done = fedrepro("show", "method", "f2a")
    for words in ("F2A: the generator is judged", "family gans", "5000 rounds on gan-mnist"):
        assert words in done.out
    cells = [tuple(each.strip() for each in line.split("│")[1:-1]) for line in done.out.splitlines() if "│" in line]
    assert {
        ("strength", "learnt", "learnt, float"),
        ("beta", "0.1", "float"),
        ("loss", "mse", "mse, bce, bce-linear"),
    } < {*cells}
    assert fedrepro("show", "method", "f2x").code == 2


def test_show_methods_has_the_plugins_that_were_left_out(folder, monkeypatch):
    from fedrepro import methods

    monkeypatch.setattr(methods, "discover", lambda: (methods.REGISTRY, {"mine": "it cannot be loaded"}))
    assert "mine: it cannot be loaded" in fedrepro("show", "methods").out


def test_data_commands(folder):
    assert "missing" in fedrepro("data", "list").out
    assert fedrepro("data", "fetch", "digits").out == "digits: 1,500 train, 297 test images, checksums right\n"
    assert Path("data/manifests/digits.json").exists()
    assert fedrepro("data", "verify", "digits").out == "digits: 1,500 train, 297 test images, checksums right\n"
    Path("data/manifests/digits.json").write_text("{}")
    assert fedrepro("data", "verify", "digits").code == 2


def test_all_data_that_are_there_are_verified(folder, monkeypatch):
    for lent in (True, False):
        if lent:
            monkeypatch.setenv("FEDREPRO_DATA_DIR", str(folder))
        else:
            monkeypatch.delenv("FEDREPRO_DATA_DIR")
        lines = fedrepro("data", "verify").out.splitlines()
        assert {"mnist: not there", "pacs: not there"} < set(lines)
        assert "digits: 1,500 train, 297 test images, checksums right" in lines


def test_all_data_that_can_be_had_are_fetched(folder, monkeypatch):
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(folder))  # nothing is downloaded into a folder that is lent
    lines = fedrepro("data", "fetch").out.splitlines()
    assert "mnist: not there, and not to be downloaded: `fedrepro data fetch mnist` says why" in lines
    assert "digits: 1,500 train, 297 test images, checksums right" in lines
    assert {path.stem for path in Path("data/manifests").iterdir()} == {"digits", "drawn"}


def test_data_show_draws_a_sheet(folder):
    assert fedrepro("data", "show", "digits").out == "wrote build/digits.png\n"
    done = fedrepro("data", "show", "digits", "--out", "other.png", "--set", "n=1", "--set", "p=[0.3]", "--seed", "4")
    assert done.out == "wrote other.png\n"
    assert Path("other.png").read_bytes()[:4] == b"\x89PNG" == Path("build/digits.png").read_bytes()[:4]
    done = fedrepro("data", "show", "digits", "--out", "other.jpg")
    assert (done.code, done.fault) == (2, "error: the picture is a PNG: give other.jpg a name that ends in .png.")
    assert not Path("other.jpg").exists()
    assert fedrepro("data", "show", "digits", "--set", "m=1").fault == (
        "error: unknown setting 'data.m': did you mean 'data.p'?"
    )


def test_bench_prints_one_line(monkeypatch, tmp_path):
    row = {"workload": "W3", "round_s": [0.5]}
    asked = {}

    def run(work, **how):
        asked.update(how, work=work.name, data=os.environ["FEDREPRO_DATA_DIR"], mode=lift._clients.get())
        return row

    monkeypatch.setenv("FEDREPRO_DATA_DIR", "elsewhere")
    monkeypatch.setattr(bench, "run", run)
    done = fedrepro("bench", "W3", "--data", str(tmp_path), "--precision", "bf16", "--mode", "2")
    assert json.loads(done.out) == row
    wanted = {"work": "W3", "precision": "bf16", "device": "auto", "data": str(tmp_path), "mode": 2}
    assert asked == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("W5",), "unknown workload 'W5': there is W1, W2, W3, W4."),
        (("W3", "--precision", "fp16"), "unknown precision 'fp16': there is fp32 and bf16."),
        (("W3", "--mode", "0"), "unknown mode '0': there is auto, vmap, loop, or a number to batch at once"),
        (("W3", "--device", "tpu"), "unknown device 'tpu'"),
        (("W1", "--data", "empty"), "empty has no MNIST/raw/train-images-idx3-ubyte: name a folder that has it with"),
    ],
)
def test_a_bench_that_cannot_be(arguments, message):
    done = fedrepro("bench", *arguments)
    assert done.code == 2
    assert message in done.fault


# The end of every command


def test_what_is_unexpected_is_one_line(folder, monkeypatch):
    from fedrepro.cli import show

    monkeypatch.setattr(show, "papers", lambda: 1 / 0)
    done = fedrepro("show", "papers")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "internal error: ZeroDivisionError: division by zero; run it again with FEDREPRO_TRACEBACK=1 for the details\n"
    )
    monkeypatch.setenv("FEDREPRO_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        fedrepro("show", "papers")


def test_an_interrupt_anywhere_is_exit_code_130(folder, monkeypatch):
    from fedrepro.cli import show

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "papers", interrupted)
    assert fedrepro("show", "papers").code == 130


def test_a_reader_that_leaves_is_no_error(folder):
    with commands.start("show", "methods") as process:
        process.stdout.close()
        assert process.stderr.read() == ""
