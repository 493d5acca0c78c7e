"""The paper specs: cells, runs, settings and searches, and one clear sentence for each mistake in them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import made
import pytest
from lifted import everything

from fedrepro.data import parameters
from fedrepro.errors import UsageError
from fedrepro.papers.load import load_paper, load_papers, papers
from fedrepro.records.config import Stop

REPO = Path(__file__).parents[1]


@pytest.fixture
def toy(tmp_path):
    return load_paper(made.NAME, made.paper(tmp_path))


def test_every_committed_paper_loads_and_covers_what_it_publishes():
    for paper in load_papers(REPO):
        cells = [cell.key for table in paper.spec.tables for cell in paper.cells(table)]
        assert sorted(cells) == sorted(made.printed(paper))


def test_flgames_table1_has_ten_runs_for_twenty_cells():
    paper = everything("flgames-2022", "paper")  # what is still to be run belongs to it, too
    cells = paper.cells("table1")
    runs = {run: paper.run(run) for cell in cells for run in cell.runs}
    assert (len(cells), len(runs)) == (20, 10)
    assert {config.method for config in runs.values()} == {
        *("fedsgd", "fedavg", "f-irm", "v-irm", "f-fl-smooth", "v-fl-smooth-fast")
    }
    assert all(config.seeds == tuple(range(len(config.seeds))) for config in runs.values())
    fast = runs["colored-mnist-v-fl-smooth-fast-parallel"]
    smooth = {"capacity": 5, "response": "buffer_only"}
    assert fast.hyper == {"lr": 2.5e-4, "batch": 256, "phi_lr": 2.5e-5, **smooth, "order": "parallel"}
    assert (fast.rounds, fast.watch.crossings.warm_start) == (700, 117)


def test_flgames_smoke_is_small_and_no_game_stops():
    for run, config in load_paper("flgames-2022", REPO).at("smoke").runs().items():
        assert (config.dataset, config.seeds, config.stop) == ("digits", (0, 1), None)
        assert config.rounds <= 60
        assert (config.watch.crossings is None) == run.endswith(("fedsgd", "fedavg"))


def test_cells_are_in_order_with_the_keys_of_published(toy):
    cells = toy.cells("t1")
    assert [cell.key for cell in cells] == list(made.printed(toy))
    assert [cell.runs[0] for cell in cells[::2]] == list(made.RUNS)


def test_settings_merge_from_defaults_to_budget(toy):
    paper, smoke = toy.at("paper").runs(), toy.at("smoke").runs()
    assert paper["toys-plain"].rounds == 100
    assert paper["toys-game-sequential"].rounds == 200  # a rule of the budget `paper`
    assert paper["toys-game-parallel"].hyper == {"lr": 0.1, "batch": 8, "capacity": 5, "order": "parallel"}
    assert smoke["toys-game-sequential"].rounds == 5
    assert smoke["toys-game-sequential"].hyper["batch"] == 2
    assert smoke["toys-game-sequential"].stop == Stop(threshold=0.6, warm_start=10)


def test_budget_is_that_of_params_unless_another_is_asked_for(tmp_path):
    toy = load_paper(made.NAME, made.paper(tmp_path, budget="smoke"))
    assert toy.budget == "smoke"
    assert toy.runs() == toy.at("smoke").runs() != toy.at("paper").runs()


NOT_RUN = '\n[[tables.t1.not_run]]\nwhen = { type = "parallel", budget = "paper" }\nreason = "too dear"\n'


def test_a_cell_may_be_left_out_with_a_reason_at_one_budget(tmp_path):
    toy = load_paper(made.NAME, made.paper(tmp_path, spec=made.SPEC + NOT_RUN))
    assert list(toy.at("paper").runs()) == ["toys-plain", "toys-game-sequential"]
    assert list(toy.at("smoke").runs()) == list(made.RUNS)
    assert [(cell.runs, cell.reason) for cell in toy.cells("t1")[-2:]] == [((), "too dear")] * 2


MISTAKES = {
    "no TOML": ("title = ", "title == ", "cannot be read .Invalid value .at line 2, column 8"),
    "unknown key": ("reduction =", "reductoin =", "reductoin: there is no such key"),
    "missing key": ('reduction = "final"', "", "reduction: field required"),
    "unknown setting": ("rounds = 100", "rounds = 100\nround = 3", "toys-plain: round: there is no such key"),
    "wrong type": ("rounds = 100", 'rounds = "many"', "rounds: input should be a valid integer"),
    "threshold": ("threshold = 0.575", 'threshold = "low"', "threshold: input should be a valid number"),
    "unknown axis": ("type = [\"none\"]", "tpye = [\"none\"]", "unknown axis 'tpye': did you mean 'type'"),
    "unknown value": ('["Plain"]', '["Plian"]', "unknown method 'Plian': did you mean 'Plain'"),
    "no method": ('method = ["Plain"]', "", "has no axis 'method'"),
    "cell twice": ('["sequential", "parallel"]\nmethod', '["parallel", "parallel"]\nmethod',
                   r"tables\.t1\.cells\.1\.type: 'parallel' is there twice"),
    "rule": ('when = { type = "sequential" }', 'when = { tipe = "x" }', "paper.rules.0.when: unknown axis 'tipe'"),
    "no table to stop": ("stop = { threshold = 0.575, warm_start = 10 }", "stop = 5",
                         r"axes\.method\.Game .Smooth.\.stop: input should be an object"),
    "no table of a search": ("rounds = 100", "rounds = 100\nsearch = 4",
                             r"defaults\.search: input should be an object"),
    "group": ("rounds = 100", "rounds = 100\ngroup = \"a\"", "group: there is no such key"),
    "no word of a run": ('run = "game"', "run = 5", "run: input should be a valid string"),
    "no table": ("[tables.t1]", "[tables]\nx = 5\n[tables.t1]", "tables.x"),
    "no paper budget": ("budgets.paper", "budgets.desk", "no budget 'paper'"),
    "half a row beside another reading": (
        "[[tables.t1.cells]]",
        '[[tables.t1.readings]]\nreading = "other"\nreason = "it is open"\n\n'
        '[[tables.t1.not_run]]\nwhen = { metric = "test_accuracy" }\nreason = "too dear"\n\n[[tables.t1.cells]]',
        "`not_run` leaves out one metric of a row"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_mistake_in_the_spec_is_one_sentence_with_its_place(tmp_path, mistake):
    old, new, message = MISTAKES[mistake]
    made.paper(tmp_path)
    (tmp_path / "papers" / made.NAME / "paper.toml").write_text(made.SPEC.replace(old, new))
    with pytest.raises(UsageError, match=rf"paper\.toml.*({message})") as raised:
        load_paper(made.NAME, tmp_path)
    assert "\n" not in str(raised.value)


def test_two_settings_under_one_name_are_refused(tmp_path):
    spec = made.SPEC.replace(
        "[axes.type.none]", '[axes.method.Twin]\nrun = "plain"\nmethod = "twin"\n\n[axes.type.none]'
    )
    made.paper(tmp_path)
    path = tmp_path / "papers" / made.NAME / "paper.toml"
    path.write_text(spec.replace('["Plain"]', '["Plain", "Twin"]'))
    with pytest.raises(UsageError, match="two settings share the name 'toys-plain'"):
        load_paper(made.NAME, tmp_path)


def test_unknown_names_come_with_the_closest_one(toy):
    for call, closest in (
        (lambda: load_paper("toy-202", toy.root), "toy-2022"),
        (lambda: toy.table("t11"), "t1"),
        (lambda: toy.at("papr"), "paper"),
        (lambda: toy.run("toys-plan"), "toys-plain"),
    ):
        with pytest.raises(UsageError, match=f"did you mean '{closest}'"):
            call()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (None, r"params\.yaml cannot be read \(No such file"),
        ("", "gives no budget for toy-2022: add `toy-2022: {budget: paper}`"),
        ("toy-2022: paper\n", "toy-2022: input should be an object"),
        ("other: {budget: paper}\n", "unknown paper 'other': there is toy-2022"),
        ("{", r"params\.yaml cannot be read \(while parsing"),
    ],
)
def test_params_must_give_a_budget(toy, params, message):
    path = toy.root / "params.yaml"
    path.unlink() if params is None else path.write_text(params)
    with pytest.raises(UsageError, match=message):
        load_paper(made.NAME, toy.root)
    path.write_text("toy-2022: {budget: papre}\n")
    with pytest.raises(UsageError, match="unknown budget of toy-2022 'papre': did you mean 'paper'"):
        load_paper(made.NAME, toy.root)


def test_papers_are_the_folders_with_a_spec(toy):
    (toy.root / "papers" / "empty").mkdir()
    assert papers(toy.root) == [made.NAME]


SHEETS = """
[sheets.one]
title = "Toys"
cell = { dataset = "Toys" }

[sheets.other]
title = "Toys in parallel"
cell = { type = "parallel", dataset = "Toys" }
"""


def test_a_sample_sheet_has_the_data_of_its_cell(tmp_path):
    parallel = "[axes.type.parallel]\ndata = { p = [0.1, 0.2] }"
    spec = made.SPEC.replace("[axes.type.parallel]", parallel) + SHEETS
    toy = load_paper(made.NAME, made.paper(tmp_path, spec=spec))
    assert toy.sheet("one") == ("toys", {"n": 2})
    assert toy.sheet("other") == ("toys", {"n": 2, "p": [0.1, 0.2]})
    with pytest.raises(UsageError, match="unknown sample sheet of toy-2022 at budget paper 'on': did you mean 'one'"):
        toy.sheet("on")


def test_a_sample_sheet_may_belong_to_some_budgets(tmp_path):
    spec = made.SPEC + SHEETS.replace("[sheets.other]", 'budgets = ["smoke"]\n\n[sheets.other]')
    toy = load_paper(made.NAME, made.paper(tmp_path, spec=spec))
    assert list(toy.sheets) == ["other"]
    assert list(replace(toy, budget="smoke").sheets) == ["one", "other"]
    with pytest.raises(UsageError, match="unknown sample sheet of toy-2022 at budget paper 'one'"):
        toy.sheet("one")
    with pytest.raises(UsageError, match=r"sheets\.one: unknown budget 'smok': did you mean 'smoke'"):
        made.paper(tmp_path, spec=spec.replace('["smoke"]', '["smok"]'))


@pytest.mark.parametrize("name", papers(REPO))
def test_sample_sheets_are_of_data_that_have_their_settings(name):
    paper = load_paper(name, REPO)
    for budget in paper.spec.budgets:
        own = replace(paper, budget=budget)
        for sheet in own.sheets:
            dataset, settings = own.sheet(sheet)
            assert settings.keys() <= parameters(dataset).keys(), (budget, sheet)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ('{ type = "parallel" }', r"sheets\.one: its cell has no axis 'dataset'"),
        ('{ dataset = "Toy" }', r"sheets\.one\.cell: unknown dataset 'Toy': did you mean 'Toys'"),
        ('{ datasets = "Toys" }', r"sheets\.one\.cell: unknown axis 'datasets'"),
    ],
)
def test_a_sample_sheet_of_nothing_is_refused(tmp_path, cell, said):
    spec = made.SPEC + SHEETS.replace('{ dataset = "Toys" }', cell, 1)
    with pytest.raises(UsageError, match=said):
        made.paper(tmp_path, spec=spec)


# Searches

SEARCH = """
[defaults.search]
seed = 1000
rounds = 10
metric = "validation_accuracy"
last = 3
data = { validation = 0.1 }
grid = { lr = [0.1, 0.03], rate = [1, 0.5] }

[search]
base = { type = "sequential" }
"""
OPEN = (
    made.SPEC.replace("hyper = { capacity = 5 }", 'hyper = { capacity = 5, lr = "search", rate = "search" }').replace(
        "hyper = { batch = 2 } }", "hyper = { batch = 2, lr = 0.1, rate = 1 } }"
    )
    + SEARCH
)
GAMES = ("toys-game-sequential", "toys-game-parallel")


@pytest.fixture
def opened(tmp_path):
    """The toy paper with a search for its games, which is not made yet."""
    return load_paper(made.NAME, made.paper(tmp_path, spec=OPEN))


def entered(paper, **chosen):
    """The paper once its search has chosen these values."""
    entry = {"chosen": chosen, "scores": {}, "config_digest": paper.study(GAMES[0]).digest()}
    (paper.folder / "tuned.json").write_text(json.dumps({GAMES[0]: entry}))
    return load_paper(made.NAME, paper.root)


def test_a_search_tries_every_point_on_a_seed_of_its_own(opened):
    search = opened.study(GAMES[0])
    assert list(search.points) == ["lr-0.1-rate-1", "lr-0.1-rate-0.5", "lr-0.03-rate-1", "lr-0.03-rate-0.5"]
    for config, (lr, rate) in zip(search.points.values(), [(0.1, 1), (0.1, 0.5), (0.03, 1), (0.03, 0.5)], strict=True):
        assert (config.seeds, config.rounds, config.stop) == ((1000,), 10, None)
        assert config.data == {"n": 2, "validation": 0.1}
        assert config.hyper == {"lr": lr, "batch": 8, "capacity": 5, "rate": rate, "order": "sequential"}


def test_runs_share_the_search_of_their_base(opened):
    assert opened.study(GAMES[1]) == opened.study(GAMES[0])
    assert opened.study(GAMES[1]).run == GAMES[0]
    with pytest.raises(UsageError, match="run 'toys-plain' of toy-2022 needs no tuning"):
        opened.study("toys-plain")
    command = "has no lr and rate yet: find it with `fedrepro tune --paper toy-2022 --run toys-game-sequential`"
    with pytest.raises(UsageError, match=f"run 'toys-game-parallel' of toy-2022 {command}"):
        opened.run(GAMES[1])
    found = entered(opened, lr=0.03, rate=1)
    assert [found.run(run).hyper["lr"] for run in GAMES] == [0.03, 0.03]
    assert found.run(GAMES[1]).hyper == {"lr": 0.03, "batch": 8, "capacity": 5, "rate": 1, "order": "parallel"}
    assert "validation" not in found.run(GAMES[1]).data
    assert (found.chosen(GAMES[1]), found.chosen("toys-plain")) == ({"lr": 0.03, "rate": 1}, {})
    assert found.run("toys-plain").hyper["lr"] == 0.1


def test_another_budget_may_give_what_is_searched(opened):
    assert opened.at("smoke").runs()[GAMES[1]].hyper["lr"] == 0.1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[0.1, 0.03]", "[0.1, 0.01]"),
        ("[0.1, 0.03]", "[0.03, 0.1]"),  # ties are broken by the order
        ("last = 3", "last = 2"),
        ("seed = 1000\n", "seed = 1001\n"),
        ("rounds = 10\n", "rounds = 11\n"),
        ('"validation_accuracy"', '"train_accuracy"'),
        ("validation = 0.1", "validation = 0.2"),
        ("capacity = 5", "capacity = 6"),
        ('order = "sequential"', 'order = "other"'),
    ],
)
def test_a_search_of_other_settings_is_refused(opened, old, new):
    found = entered(opened, lr=0.03, rate=1)
    assert OPEN.count(old) == 1
    (found.folder / "paper.toml").write_text(OPEN.replace(old, new))
    with pytest.raises(UsageError, match="had other settings: repeat it with `fedrepro tune --paper toy-2022"):
        load_paper(made.NAME, found.root).run(GAMES[1])


def test_a_search_that_chose_too_little_is_refused(opened):
    with pytest.raises(UsageError, match=r"tuned\.json of toy-2022 has no rate for .*: repeat the search"):
        entered(opened, lr=0.03).run(GAMES[1])


def test_what_no_search_reads_leaves_it_as_it_is(opened):
    found = entered(opened, lr=0.03, rate=1)
    for old, new in (
        ('order = "parallel"', 'order = "other"'),
        ("seeds = [0, 1, 2]", "seeds = [0]"),
        ("rounds = 100", "rounds = 9"),
    ):
        (found.folder / "paper.toml").write_text(OPEN.replace(old, new))
        load_paper(made.NAME, found.root).run(GAMES[1])


SEARCH_MISTAKES = {
    "grid": ("rate = [1, 0.5]", "rat = [1, 0.5]", r"search\.grid has no values for 'rate'"),
    "empty grid": ("rate = [1, 0.5]", "rate = []", r"search\.grid has no values for 'rate'"),
    "key": ("last = 3", "lats = 3", r"search\.lats: there is no such key"),
    "seed": ("seed = 1000\n", "", r"search\.seed: field required"),
    "base": ('base = { type = "sequential" }', 'base = { type = "sequentail" }',
             "search.base: unknown type 'sequentail'"),
    "base axis": ('base = { type', "base = { tipe", "search.base: unknown axis 'tipe'"),
    "base is not open": ('order = "sequential" }', 'order = "sequential", rate = 1 }',
                         "its search is that of toys-game-sequential, which does not search 'rate'"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", list(SEARCH_MISTAKES))
def test_a_mistake_in_a_search_is_one_sentence_with_its_place(opened, mistake):
    old, new, message = SEARCH_MISTAKES[mistake]
    assert old in OPEN
    (opened.folder / "paper.toml").write_text(OPEN.replace(old, new))
    with pytest.raises(UsageError, match=rf"paper\.toml.*{message}") as raised:
        load_paper(made.NAME, opened.root)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"toys-game-sequential": {"chosen": {"lr": 0.1}}}',
            ": .*config_digest: field required.*or repeat `fedrepro tune`",
        ),
        ('{"toys-game-sequential": {"config_digest": ""}}', ": toys-game-sequential.chosen: field required"),
        ("{", ".*Restore it from git"),
    ],
)
def test_a_damaged_file_of_what_was_tuned_is_named(opened, text, said):
    (opened.folder / "tuned.json").write_text(text)
    with pytest.raises(UsageError, match=rf"tuned\.json{said}"):
        load_paper(made.NAME, opened.root)


def test_reading_the_specs_imports_nothing_slow():
    command = "import sys, fedrepro.papers.load; print(*{'torch', 'pandas', 'fedrepro.training'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", command], check=True, capture_output=True, text=True)
    assert done.stdout == "\n"
