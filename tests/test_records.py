"""Records that were changed after they were written: refused by every reader, and mended by training again alone."""

import json
from pathlib import Path

import commands
import pytest
import recorded
from commands import PAPER, PLAIN, fedrepro

from fedrepro.errors import FedreproError
from fedrepro.files import sealed, sha256, unsealed
from fedrepro.records import paths, record
from fedrepro.results import again

RUN = paths.run(PAPER, "fedsgd", PLAIN)
SPEC = commands.SPEC.replace('    { dataset = ["Digits"], type = ["parallel"], method = ["F-IRM"] },\n', "")
PUBLISHED = "".join(commands.PUBLISHED.splitlines(keepends=True)[:2])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The files of a project with one planned run, trained and evaluated."""
    root = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        commands.paper(root, SPEC)
        Path("papers", PAPER, "published.csv").write_text(PUBLISHED)
        assert fedrepro("train", "--paper", PAPER, "--run", PLAIN).code == 0
        assert fedrepro("evaluate").code == 0
        assert fedrepro("check").code == 0
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def project(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, content in trained.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def content():
    return unsealed((RUN / "record.json").read_bytes())


def write(value, seal=True):
    (RUN / "record.json").write_text(json.dumps(sealed(value) if seal else value))


def metric(value):
    value["seeds"]["0"]["metrics"]["test_accuracy"] += 0.001


def field(*keys, value):
    def change(content):
        *path, last = keys
        for key in path:
            content = content[key]
        assert content.get(last) != value
        content[last] = value

    return change


def without(*keys):
    def change(content):
        *path, last = keys
        for key in path:
            content = content[key]
        del content[last]

    return change


CHANGES = {  # what was done to a record -> what is said of it even where the seal was made anew
    "a metric": (metric, "the curves beside it differ in test_accuracy of seed 0"),
    "a metric as text": (field("seeds", "0", "metrics", "test_accuracy", value="0.5"), "seeds.0.metrics.test_accuracy"),
    "a metric that is true": (field("seeds", "0", "metrics", "test_accuracy", value=True), "test_accuracy"),
    "a status": (field("seeds", "0", "status", value="fine"), "seeds.0.status"),
    "rounds as text": (field("seeds", "0", "rounds", value="6"), "seeds.0.rounds"),
    "no rounds": (field("seeds", "0", "rounds", value=-1), "seeds.0.rounds"),
    "fewer rounds": (
        field("seeds", "0", "rounds", value=3),
        "and the curves beside it differ in test_accuracy of seed 0",
    ),
    "no versions": (field("seeds", "0", "provenance", "versions", value={}), "provenance.versions"),
    "no seed": (without("seeds", "0"), "different seeds"),
    "no facts of a seed": (without("data", "facts", "1"), "different seeds"),
    "another paper": (field("paper", value="other-2024"), f"is of the run {PLAIN} of other-2024"),
    "another run": (field("run", value="digits-other"), f"is of the run digits-other of {PAPER}"),
    "another budget": (field("budget", value="smoke"), "was made at budget 'smoke' instead of 'paper'"),
    "another rate": (field("config", "hyper", "lr", value=0.5), "config is not what identity.config is the digest of"),
    "another digest": (field("identity", "config", value="0" * 64), "config is not what identity.config"),
    "a format to come": (field("format", value=5), "format"),
    "the format before": (field("format", value=3), "format"),
    "another key": (field("note", value="x"), "note: there is no such key"),
    "no identity": (without("identity"), "identity"),
    "no curves": (field("curves", value="0" * 64), "curves.csv does not belong to the record beside it"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_record_is_refused_whoever_reads_it(change):
    changed, said = content(), CHANGES[change][1]
    CHANGES[change][0](changed)
    write(changed | {"seal": "0" * 64}, seal=False)
    with pytest.raises(FedreproError, match="cannot be trusted .it was changed after it was written"):
        record.read(RUN)
    write(changed)
    done = fedrepro("check")
    assert done.code == 3
    assert said in done.err
    assert done.err.endswith(f": run `fedrepro train --paper {PAPER} --run {PLAIN}`.\n")
    assert "1 to train" in fedrepro("run", "--dry-run").out


def test_a_forged_number_is_mended_by_training_alone(trained):
    forged = content()
    forged["seeds"]["0"]["metrics"]["test_accuracy"] = 0.2051
    write(forged | {"seal": json.loads(trained[RUN / "record.json"])["seal"]}, seal=False)
    done = fedrepro("check")
    assert done.code == 3
    assert f"run `fedrepro train --paper {PAPER} --run {PLAIN}`." in done.err
    fedrepro("evaluate")
    assert "20.51" not in paths.frame(PAPER, "cells").read_text()
    done = fedrepro("train", "--paper", PAPER, "--run", PLAIN)
    assert "the earlier record is stale or damaged: all seeds are trained again" in done.err
    fedrepro("evaluate")
    assert paths.frame(PAPER, "cells").read_bytes() == trained[paths.frame(PAPER, "cells")]
    assert fedrepro("check").code == 0


NO_RECORD = {
    "empty": b"",
    "cut": b"{",
    "list": b"[]",
    "null": b"null",
    "text": b'"x"',
    "bytes": b"\xff",
    "nested": b"[" * 50_000,
    "long number": b'{"a": 1' + b"0" * 5_000 + b"}",
    "nan": b'{"a": NaN}',
}


@pytest.mark.parametrize("content", NO_RECORD.values(), ids=NO_RECORD)
def test_what_is_no_record_is_refused(content):
    (RUN / "record.json").write_bytes(content)
    with pytest.raises(FedreproError, match=r"record.json cannot be trusted"):
        record.read(RUN)
    done = fedrepro("check")
    assert (done.code, "internal" in done.err) == (3, False)


def edit(text):
    return text.replace(",6,test_accuracy,0", ",6,test_accuracy,1", 1)


def cut(text):
    return text[: len(text) // 2]


def garbage(text):
    return text + "1,2\n"


@pytest.mark.parametrize("change", [edit, cut, garbage, lambda text: ""], ids=["edited", "cut", "garbage", "empty"])
def test_changed_curves_are_refused(change):
    path = RUN / "curves.csv"
    path.write_text(change(path.read_text()))
    assert "curves.csv does not belong to the record beside it" in fedrepro("check").err
    path.write_bytes(b"\xff")
    assert "cannot be trusted" in fedrepro("check").err
    path.unlink()
    assert "curves.csv is missing" in fedrepro("check").err


def test_curves_with_a_checksum_of_their_own_must_still_end_in_the_metrics():
    path, changed = RUN / "curves.csv", content()
    path.write_text(edit(path.read_text()))
    changed["curves"] = sha256(path.read_text())
    write(changed)
    assert "differ in test_accuracy of seed 0" in fedrepro("check").err


def test_a_seal_is_of_the_content_and_not_of_its_layout():
    (RUN / "record.json").write_text(json.dumps(sealed(content()), indent=4))
    assert record.read(RUN).run == PLAIN


def test_a_record_at_the_place_of_another_run_is_not_that_run():
    other = paths.run(PAPER, "fedsgd", "other")
    RUN.rename(other)
    assert "1 to train" in fedrepro("run", "--dry-run").out
    other.rename(RUN)
    assert "0 to train" in fedrepro("run", "--dry-run").out


# A run that is trained again


def test_a_run_trained_again_is_compared_with_its_record_and_leaves_it_alone(trained):
    done = fedrepro("train", "--paper", PAPER, "--run", PLAIN, "--compare")
    assert done.code == 0
    assert [row.split("│")[-2].strip() for row in done.out.splitlines() if "test_accuracy" in row] == ["equal"]
    assert (RUN / "record.json").read_bytes() == trained[RUN / "record.json"]
    assert Path(f"runs/adhoc/{PAPER}-{PLAIN}-again/record.json").exists()


def test_what_was_compared_before_is_trained_anew():
    """An earlier one may be of another version, which is what is to be compared."""
    asked = ("train", "--paper", PAPER, "--run", PLAIN, "--compare")
    once, twice = fedrepro(*asked), fedrepro(*asked)
    assert (once.code, twice.code) == (0, 0)
    assert "kept" not in once.err + twice.err
    assert twice.err.count("round ") == once.err.count("round ") > 0


def test_a_record_that_another_machine_does_not_explain_has_exit_code_3():
    changed, path = content(), RUN / "curves.csv"
    value = changed["seeds"]["1"]["metrics"]["test_accuracy"] + 0.2
    changed["seeds"]["1"]["metrics"]["test_accuracy"] = value
    lines = path.read_text().splitlines()
    (place,) = (n for n, line in enumerate(lines) if line.startswith("1,6,test_accuracy,"))
    lines[place] = f"1,6,test_accuracy,{value:.6g}"
    path.write_text("\n".join([*lines, ""]))
    write(changed | {"curves": sha256(path.read_text())})
    done = fedrepro("train", "--paper", PAPER, "--run", PLAIN, "--compare")
    assert done.code == 3
    assert "further" in done.out
    assert done.err.splitlines()[-1].startswith("error: test_accuracy of seed 1 is")


@pytest.mark.parametrize("accuracies", [({0: 0.5, 1: None}, {0: 0.5, 1: 0.5}), ({0: 0.5, 1: 0.5}, {0: 0.5, 1: None})])
def test_a_seed_that_diverged_in_one_of_the_two_is_far_away_in_each_metric(accuracies):
    one, other = (recorded.run(name, each) for name, each in zip("ab", accuracies, strict=True))
    found = again.pairs(one, other.record)
    assert [(pair.seed, pair.within) for pair in found] == [(0, True)] * 3 + [(1, False)] * 3


def test_there_must_be_a_record_to_compare_with():
    (RUN / "record.json").unlink()
    done = fedrepro("train", "--paper", PAPER, "--run", PLAIN, "--compare")
    assert done.fault == f"error: {RUN}/record.json is missing: run `fedrepro train --paper {PAPER} --run {PLAIN}`."
    assert done.code == 1


@pytest.mark.parametrize("command", ["compare", "plot"])
def test_a_run_that_no_paper_plans_is_wrong_usage(command):
    done = fedrepro(command, f"{PAPER}/nope", f"{PAPER}/{PLAIN}")
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "fedsgd"], "--compare is with the record of a planned run: it needs --paper and --run."),
        (["--paper", PAPER, "--run", PLAIN, "--seeds", "4"], "--compare trains a planned run as it is"),
        (["--paper", PAPER, "--run", PLAIN, "--budget", "smoke"], "--compare trains a planned run as it is"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_compared(arguments, said):
    done = fedrepro("train", *arguments, "--compare")
    assert done.code == 2
    assert said in done.fault
