"""Plans: what is left for the runs that are meant, in which order, at which place, and what it is said to take."""

from __future__ import annotations

import shutil
from pathlib import Path

import commands
import pytest
from commands import GAME, PAPER, PLAIN, fedrepro
from test_planned import ROOT, edit, project  # noqa: F401  (a fixture)

from fedrepro import methods
from fedrepro.errors import UsageError
from fedrepro.papers.expand import Study
from fedrepro.papers.load import load_paper, load_papers
from fedrepro.papers.schema.tuning import Search
from fedrepro.pipeline import costs
from fedrepro.pipeline.plan import Job, plan, waves
from fedrepro.pipeline.run import Only
from fedrepro.pipeline.workers import share
from fedrepro.records import paths, record
from fedrepro.records.config import RunConfig

TRAIN = f"fedrepro train --paper {PAPER} --run"
TUNE = f"fedrepro tune --paper {PAPER} --run"
POINTS = [f"{TUNE} {PLAIN} --point lr-{lr}" for lr in ("0.01", "1e-05")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    return tmp_path


def seconds(folder):
    return sum(seed.seconds for seed in record.read(folder).seeds.values())


# Order


def test_what_a_run_needs_comes_before_it(folder):
    commands.paper(folder, commands.SEARCHED)
    made = plan([load_paper(PAPER)])
    assert [job.command for job in made.ordered] == [
        *("fedrepro data fetch digits", *POINTS, f"{TUNE} {PLAIN}", f"{TRAIN} {PLAIN}", f"{TRAIN} {GAME}")
    ]
    assert {job.command: job.needs for job in made.ordered} == {
        "fedrepro data fetch digits": frozenset(),
        **dict.fromkeys([*POINTS, f"{TRAIN} {GAME}"], {"fedrepro data fetch digits"}),
        f"{TUNE} {PLAIN}": {"fedrepro data fetch digits", *POINTS},
        f"{TRAIN} {PLAIN}": {"fedrepro data fetch digits", f"{TUNE} {PLAIN}"},
    }
    assert [len(wave) for wave in waves(made.ordered)] == [1, 3, 1, 1]


def test_a_gan_waits_for_the_network_that_judges_it(project):  # noqa: F811
    Path("data/extractors").unlink()
    shutil.copytree(ROOT / "data/manifests", "data/manifests")
    made = plan([load_paper("f2u-2019")], Only(run="mnist-f2u-non-b32"))
    assert [job.command for job in made.ordered] == [
        "fedrepro extractor mnist",
        "fedrepro train --paper f2u-2019 --run mnist-f2u-non-b32",
    ]
    assert made.ordered[1].needs == {"fedrepro extractor mnist"}


def test_the_longest_come_first_by_their_records_even_stale_ones(project, monkeypatch):  # noqa: F811
    monkeypatch.setitem(methods.NUMERICS, "games", methods.NUMERICS["games"] + 1)
    made = plan([load_paper("flgames-2022")], Only(table="table1"))
    runs = [job for job in made.ordered if job.kind == "run"]
    took = [seconds(job.trains.place.folder) for job in runs]
    assert took == sorted(took, reverse=True)
    assert len(took) == len(load_paper("flgames-2022").table_runs("table1")) - 2  # FedSGD and FedAVG are no games
    assert [job.cost.seconds for job in runs] == pytest.approx(took)


def test_runs_of_which_nothing_is_known_come_before_the_others():
    jobs = {f"c{i}": Job("run", ("p", str(i)), f"c{i}", cost=costs.Cost(each)) for i, each in enumerate([1, None, 5])}
    made = plan([])
    made.jobs = jobs
    assert [job.command for job in made.ordered] == ["c1", "c2", "c0"]


@pytest.mark.parametrize(
    ("change", "times"),
    [
        ({"rounds": 100}, 2),
        ({"seeds": (7,)}, 1 / 3),
        ({"hyper": {"epochs": 5}}, 5),
        ({"hyper": {"epochs": 5, "steps": 0}}, 5),
        ({"hyper": {"epochs": 5, "steps": 3}}, None),  # nobody knows how many steps an epoch has
        ({"hyper": {"steps": 0}}, 1),
        ({"method": "fedprox"}, 1),
        ({"dataset": "fmnist"}, None),
        ({"hyper": {"net": "cnn"}}, None),
        ({"data": {"size": 32}}, None),
    ],
)
def test_seconds_are_scaled_from_runs_on_the_same_data_and_network(change, times):
    config = RunConfig(method="fedavg", dataset="mnist", hyper={"epochs": 1}, rounds=50, seeds=(0, 1, 2))
    known = costs.Costs(None, [costs.Sample("a", config, 150, costs.Cost(60.0, 500))])
    found = known.of("b", config.model_copy(update=change))
    assert found == ((None, 0) if times is None else (pytest.approx(60 * times), 500))


def test_a_run_of_its_own_counts_more_than_its_method_and_that_more_than_another():
    config = RunConfig(method="fedavg", dataset="mnist", rounds=50)
    other = config.model_copy(update={"method": "fedsgd"})
    samples = [costs.Sample(name, each, 50, costs.Cost(s)) for name, each, s in (("a", other, 1), ("b", config, 4))]
    assert costs.Costs(None, samples).of("c", config).seconds == 4
    known = costs.Costs(None, [*samples, costs.Sample("c", config, 50, costs.Cost(9))])
    assert known.of("c", config).seconds == 9
    assert known.of("d", config.model_copy(update={"method": "afl"})).seconds == pytest.approx(14 / 3)


def test_seconds_are_those_of_the_rounds_that_were_played():
    """A run that ended early says how long its own settings take, and of others how long a round does."""
    config = RunConfig(method="fedavg", dataset="mnist", hyper={"steps": 0}, rounds=50)
    known = costs.Costs(None, [costs.Sample("a", config, 10, costs.Cost(4.0))])
    longer = config.model_copy(update={"rounds": 100})
    assert [known.of(*each).seconds for each in (("a", config), ("b", config), ("a", longer))] == [4, 20, 40]


def test_the_later_stages_of_a_search_by_hand():
    """Of six points three go on from the checkpoints of 12 rounds to 25, then two of these to 50."""
    config = RunConfig(method="fedavg", dataset="mnist", hyper={"lr": "search"}, rounds=50)
    grid = {"lr": (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)}
    rule = Search(seed=1, rounds=50, metric="m", last=20, halvings=2, data={"validation": 0.1}, grid=grid)
    study = Study("a", rule, config)
    known = costs.Costs(None, [costs.Sample("a", config, 50, costs.Cost(100.0, 500))])
    assert known.point(study, next(iter(study.points.values()))) == (pytest.approx(24), 500)
    assert known.later(study) == (pytest.approx(2 * (3 * (25 - 12) + 2 * (50 - 25))), 500)
    assert costs.Costs(None).later(study) == (None, 0)


# Which runs, and where


def test_filters_choose_what_they_say(project):  # noqa: F811
    papers = load_papers()
    named = lambda **only: [(each.paper, each.run) for each in plan(papers, Only(**only)).targets]  # noqa: E731
    gma = load_paper("gma-2022")
    assert named(table="table1") == [
        (paper.name, run) for paper in papers if "table1" in paper.spec.tables for run in paper.table_runs("table1")
    ]
    assert named(figure="fig1b") == [("gma-2022", run) for run in gma.figure_runs("fig1b")]
    assert {each.method for each in plan(papers, Only(method="scaffold")).targets} == {"scaffold"}
    assert named(run="mnist-f2u-non-b32") == [("f2u-2019", "mnist-f2u-non-b32")]
    both = set(gma.table_runs("table1")) | set(gma.figure_runs("fig1b"))
    assert {run for paper, run in named(table="table1", figure="fig1b") if paper == "gma-2022"} == both


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--table=tabel1", "unknown table of gma-2022 'tabel1': did you mean 'table1'"),
        ("--figure=fig1", "unknown figure of gma-2022 'fig1': did you mean"),
        ("--run=mnist-fedavg", "unknown run of gma-2022 'mnist-fedavg': did you mean"),
        ("--method=fedavgm", "unknown method of gma-2022 'fedavgm': did you mean 'fedavg'"),
        ("--budget=smok", "unknown budget of gma-2022 'smok': did you mean 'smoke'"),
        ("--gpus=0;1", "--gpus takes numbers with commas between, such as 0,1, and not '0;1'."),
        ("--backend=pbs", "unknown backend 'pbs': there is local and slurm."),
        ("--time=1:00:00", "--partition and --time are of Slurm: they need --backend slurm."),
    ],
)
def test_what_does_not_exist_is_refused(project, option, message):  # noqa: F811
    done = fedrepro("run", "gma-2022", option)
    assert (done.code, done.out) == (2, "")
    assert message in done.fault


def test_another_budget_has_places_of_its_own(folder):
    commands.paper(folder)
    made = plan([load_paper(PAPER)], budget="smoke")
    assert [job.command for job in made.ordered if job.kind == "run"] == [
        f"{TRAIN} {run} --budget smoke" for run in (PLAIN, GAME)
    ]
    for job in made.ordered[1:]:
        config = job.trains.config
        assert job.trains.place.folder == Path("runs/adhoc", f"{config.method}-{config.dataset}-{config.digest()[:8]}")
        assert (config.rounds, config.seeds) == (2, (0,))


def test_a_study_at_another_budget_is_refused_but_listed(folder):
    commands.paper(folder, commands.SEARCHED)
    done = fedrepro("run", "--budget", "smoke")
    assert (done.code, done.fault) == (
        2,
        f"error: the search of {PLAIN} is not of budget smoke: write that budget for {PAPER} in params.yaml, and leave "
        "--budget out.",
    )
    assert fedrepro("run", "--budget", "smoke", "--dry-run").code == 0
    assert not Path("runs").exists()


def test_a_search_is_planned_where_what_judges_its_runs_is_still_to_be_made(folder):
    """Whether a point is recorded cannot be told without it."""
    spec = commands.SEARCHED.replace('dataset = "digits"', 'dataset = "gan-digits"').replace('"fedsgd"', '"gman"')
    commands.paper(folder, spec.replace("f-irm", "gman-0"))
    kinds = [job.kind for job in plan([load_paper(PAPER)], Only(run=PLAIN)).ordered]
    assert kinds == ["fetch", "extractor", "point", "point", "study", "run"]


def test_the_records_of_a_prepared_budget_say_how_long_its_other_runs_take(folder):
    commands.paper(folder, commands.SPEC.replace('label = "smoke"', 'label = "smoke"\nprepared = true'))
    assert fedrepro("train", "--paper", PAPER, "--run", PLAIN, "--budget", "smoke", "--device", "cpu").code == 0
    took, spec = costs.recorded(record.read(paths.prepared(PAPER, "smoke", PLAIN))), load_paper(PAPER).at("smoke")
    longer = spec.run(PLAIN).model_copy(update={"rounds": 20})
    assert costs.Costs(spec).of(PLAIN, longer).seconds == pytest.approx(10 * took.seconds)
    assert costs.Costs(load_paper(PAPER)).of(PLAIN, longer).seconds is None


def test_seeds_that_another_budget_has_take_no_time_and_the_others_theirs(folder):
    """The prepared budget has one seed more of the second run."""
    more = '[budgets.more]\nlabel = "more"\non = "paper"\nprepared = true\n[[budgets.more.rules]]\n'
    rule = 'when = { method = "F-IRM" }\nsettings = { seeds = [0, 1, 2] }\n'
    commands.paper(folder, commands.SPEC.replace("[budgets.smoke]", f"{more}{rule}[budgets.smoke]"))
    assert fedrepro("run").code == 0
    plain, game = (record.read(target.trains.place.folder) for target in plan([load_paper(PAPER)]).targets)
    seed = 6 * costs.recorded(game).seconds / sum(each.rounds for each in game.seeds.values())  # of six rounds
    made = plan([load_paper(PAPER)], budget="more")
    assert [target.state for target in made.targets] == ["shared", "missing"]
    assert [job.cost.seconds for job in made.jobs.values()] == pytest.approx([0, seed])
    assert [target.cost.seconds for target in made.targets] == pytest.approx([costs.recorded(plain).seconds, 3 * seed])
    assert fedrepro("run", "--budget", "more", "--dry-run").out.splitlines()[0] == (
        "2 runs planned, 0 recorded, 1 to take over, 1 to train"
    )
    done = fedrepro("run", "--budget", "more")
    assert done.code == 0, done.err
    assert [target.state for target in plan([load_paper(PAPER)], budget="more").targets] == ["recorded"] * 2
    found = record.read(paths.prepared(PAPER, "more", PLAIN))
    assert found.seeds == plain.seeds


def test_seeds_of_a_run_s_earlier_record_take_no_time(folder):
    commands.paper(folder)
    assert fedrepro("run").code == 0
    earlier = [record.read(target.trains.place.folder) for target in plan([load_paper(PAPER)]).targets]
    seed = [6 * costs.recorded(each).seconds / sum(s.rounds for s in each.seeds.values()) for each in earlier]
    commands.paper(folder, commands.SPEC.replace("seeds = [0, 1]", "seeds = [0, 1, 2]"))
    made = plan([load_paper(PAPER)])
    assert [target.state for target in made.targets] == ["missing", "missing"]
    assert [job.cost.seconds for job in made.jobs.values()] == pytest.approx(seed)  # of the new one, of six rounds


# What is said


def test_dry_run_lists_the_commands_in_order_and_does_nothing(folder):
    commands.paper(folder, commands.SEARCHED)
    done = fedrepro("run", "--dry-run", "--jobs", "3")
    assert done.out.splitlines() == [
        "2 runs planned, 0 recorded, 2 to train",
        "before them: 1 source to fetch, 2 points of searches, 1 search",
        *("fedrepro data fetch digits", *POINTS, f"{TUNE} {PLAIN}", f"{TRAIN} {PLAIN}", f"{TRAIN} {GAME}"),
        "4 of unknown length",
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["papers", "params.yaml"]


@pytest.mark.slow
def test_the_estimate_is_the_sum_of_seconds_by_the_jobs(project, monkeypatch):  # noqa: F811
    monkeypatch.setitem(methods.NUMERICS, "games", methods.NUMERICS["games"] + 1)
    made = plan([load_paper("flgames-2022")])
    took = sum(seconds(job.trains.place.folder) for job in made.ordered if job.kind == "run")
    shutil.copytree(ROOT / "data/manifests", "data/manifests")
    last = fedrepro("run", "flgames-2022", "--dry-run", "--jobs", "4").out.splitlines()[-1]
    assert last == f"about {took / 4 / 3600:.2g} hours with 4 at once"


def test_status_counts_by_paper_and_method(project, monkeypatch):  # noqa: F811
    monkeypatch.setitem(methods.NUMERICS, "games", methods.NUMERICS["games"] + 1)
    *_, one = plan([load_paper("flgames-2022")], Only(method="v-irm")).ordered
    one.trains.place.state.mkdir(parents=True)
    (one.trains.place.state / "round-00000007.checkpoint").write_bytes(b"")
    out = fedrepro("run", "flgames-2022", "--status").out
    rows = {line.split()[1]: line.split()[2:] for line in out.splitlines() if line.strip().startswith("flgames")}
    assert rows["fedavg"][:5] == ["3", "3", "0", "0", "0"]
    runs = load_paper("flgames-2022").runs()
    own, every = sum(config.method == "v-irm" for config in runs.values()), len(runs)
    assert rows["v-irm"][:5] == [str(own), "0", "0", "1", str(own - 1)]
    (total,) = (line.split() for line in out.splitlines() if line.strip().startswith("all"))
    assert total[1:6] == [str(every), "6", "0", "1", str(every - 7)]
    assert max(map(len, out.splitlines())) <= 80


def test_a_run_that_is_trained_now_is_running(folder):
    import filelock

    commands.paper(folder)
    target = plan([load_paper(PAPER)]).targets[0]
    assert target.state == "missing"
    Path(".fedrepro/state").mkdir(parents=True)
    with filelock.FileLock(target.trains.place.lock):
        assert target.state == "running"
    assert target.state == "missing"


def test_where_a_run_stands_at_one_budget_says_nothing_about_another(folder):
    commands.paper(folder)
    state = plan([load_paper(PAPER)]).targets[0].trains.place.state
    state.mkdir(parents=True)
    (state / "round-00000007.checkpoint").write_bytes(b"")
    for budget, stands in ("paper", "stopped"), ("smoke", "missing"):
        Path("params.yaml").write_text(f"{PAPER}:\n  budget: {budget}\n")
        assert plan([load_paper(PAPER)]).targets[0].state == stands


# The machine


def test_cores_are_shared_out_as_jobs_times_threads(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    assert [len(share(None, threads, None, 1, "cpu").slots) for threads in (1, 3, 8, 16)] == [8, 2, 1, 1]
    assert len(share(5, 4, None, 1, "cpu").slots) == 5


def test_a_gpu_is_a_slot(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert share(None, 1, "0,1", 2, "auto").slots == ("0", "1", "0", "1")
    assert share(3, 1, "0,1", 2, "auto").slots == ("0", "1", "0")
    assert share(None, 1, None, 1, "auto").slots == ("2", "3")
    assert share(None, 1, "0", 1, "auto").device == "cuda"
    assert set(share(None, 1, None, 1, "cpu").slots) == {None}
    with pytest.raises(UsageError, match="leave out --device cpu"):
        share(None, 1, "0", 1, "cpu")
