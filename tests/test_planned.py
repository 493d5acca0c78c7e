"""Planned runs: which records are current, on the committed ones."""

import shutil
from pathlib import Path

import pytest

from fedrepro import data, methods
from fedrepro.errors import UsageError
from fedrepro.papers.load import load_paper, load_papers
from fedrepro.pipeline import run as pipeline
from fedrepro.records import paths, record
from fedrepro.training import identity

ROOT = Path(__file__).parents[1]
PAPER = "gma-2022"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the committed specs, of which copies may be changed, and the committed records and extractors."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "papers", "papers")
    shutil.copy(ROOT / "params.yaml", ".")
    Path("runs").symlink_to(ROOT / "runs")
    Path("data").mkdir()
    Path("data/extractors").symlink_to(ROOT / "data/extractors")
    return tmp_path


def stale(*papers):
    """The names of the runs that would be trained, of some papers or all."""
    loaded = [load_paper(paper) for paper in papers] if papers else load_papers()
    return {run.place.run for run in pipeline.planned(loaded) if not run.recorded}


def edit(old, new, paper=PAPER):
    path = Path("papers", paper, "paper.toml")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_every_committed_record_is_current(project):
    assert stale() == set()


@pytest.mark.slow
def test_a_changed_learning_rate_makes_its_runs_stale_and_no_other(project):
    edit('method = "v-rex"', 'method = "v-rex"\nhyper = { lr = 0.123 }', "fedaug-2022")
    found = stale()
    planned = pipeline.planned([load_paper("fedaug-2022")])
    assert found == {run.place.run for run in planned if run.config.hyper["lr"] == 0.123}
    assert found


@pytest.mark.slow
def test_raised_numerics_of_a_family_make_its_runs_stale_and_no_other(project, monkeypatch):
    monkeypatch.setitem(methods.NUMERICS, "games", methods.NUMERICS["games"] + 1)
    found = stale()
    assert found == {
        run.place.run for run in pipeline.planned(load_papers()) if methods.find(run.config.method).family == "games"
    }
    assert len(found) > 50


@pytest.mark.slow
def test_raised_numerics_of_a_kind_of_data_make_its_runs_stale_and_no_other(project, monkeypatch):
    monkeypatch.setitem(data.NUMERICS, "palettes", data.NUMERICS["palettes"] + 1)
    assert {run.split("-")[0] for run in stale()} == {"fedcmnist"}


@pytest.mark.slow
def test_raised_numerics_of_the_engine_make_all_runs_stale(project, monkeypatch):
    monkeypatch.setattr(identity, "ENGINE", identity.ENGINE + 1)
    assert len(stale()) == len(pipeline.planned(load_papers()))


def test_a_seed_more_makes_runs_stale_and_keeps_their_seeds(project):
    """The records stay current: they lack a seed."""
    edit("seeds = [0, 1, 2, 3, 4]", "seeds = [0, 1, 2, 3, 4, 5]", "flgames-2022")
    runs = [run for run in pipeline.planned([load_paper("flgames-2022")]) if 5 in run.config.seeds]
    assert runs
    for run in runs:
        assert not run.recorded
        assert identity.current(run.place, identity.identity(run.config)).seeds.keys() == {0, 1, 2, 3, 4}


def test_an_unknown_method_names_the_closest(project):
    with pytest.raises(UsageError, match="unknown method of gma-2022 'fedavgm': did you mean 'fedavg'"):
        pipeline.planned([load_paper(PAPER)], "fedavgm")


def test_a_method_that_only_another_budget_runs_has_no_run(project):
    Path("params.yaml").write_text(
        Path("params.yaml").read_text().replace("fedaug-2022:\n  budget: desk", "fedaug-2022:\n  budget: smoke")
    )
    assert pipeline.planned([load_paper("fedaug-2022")], "gen-afl") == []


def test_what_a_method_does_not_have_is_refused_before_any_training(project):
    run = pipeline.planned([load_paper(PAPER)], "scaffold")[0]
    wrong = run.config.model_copy(update={"hyper": {"mue": 1}})
    with pytest.raises(UsageError, match=r"paper.toml: run .*: unknown hyper-parameter of scaffold 'mue'"):
        pipeline.check(PAPER, run.place.run, wrong)


@pytest.mark.slow
def test_defaults_that_records_rest_on_are_those_of_now(project):
    """A setting that a spec leaves out is in no digest: another default would leave its records as they are."""
    for paper in load_papers():
        for folder in record.folders(paths.runs(paper.name, "")):
            found = record.read(folder)
            now = methods.resolved(found.config.method, found.config.hyper)
            assert {key: now.get(key) for key in found.resolved} == found.resolved, folder
