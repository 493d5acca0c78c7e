"""The pages: their commands are run or at least parsed, their examples work, their links lead somewhere, and what they
say of results is what the results say."""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
import types

import commands
import pandas as pd
import printed
import pytest
import torch
from printed import PAGES, ROOT

from fedrepro import methods
from fedrepro.core.types import Report, Task
from fedrepro.data import DATASETS, catalogue
from fedrepro.papers.load import load_papers, papers
from fedrepro.records import paths
from fedrepro.results import claims
from fedrepro.results.evaluate import read

# Commands that are parsed and not run, on any page, with the reason. All others in fences are run as they are printed.
ONLY_PARSED = {
    "make repro": "sets up an environment; tests/test_project.py has its steps",
    "make test": "runs these tests",
    "make quick": "runs some of these tests",
    "make setup": "sets up an environment",
    "make lock UPGRADE=torch": "needs the network",
    "uv venv .venv": "uv is not in the environment",
    "uv pip sync requirements.lock": "uv is not in the environment",
    "uv pip install --no-deps --no-build-isolation -e .": "uv is not in the environment",
    "pre-commit install": "pre-commit is not in the environment",
    "make smoke": "takes minutes; tests/test_pipeline.py does the same",
    "source .venv/bin/activate": "is the shell's",
    "export FEDREPRO_DATA_DIR=~/datasets": "is the shell's",
    "dvc repro": "reads all papers; tests/test_pipeline.py runs it",
    "make readme": "writes the pages; tests/test_project.py runs its steps",
    "fedrepro check": "evaluates all papers; CI runs it on the committed results",
    "fedrepro doctor": "reads all records and looks for a GPU; tests/test_doctor.py runs it",
    "python tests/test_golden.py": "writes the stored numbers, minutes long; tests/test_golden.py compares them",
    "fedrepro data fetch mnist": "needs the network",
    "fedrepro train --method fedgma": "needs MNIST",
    "fedrepro train --method fedavg --dataset cifar10 --device cuda --precision bf16": "needs a GPU and CIFAR-10",
    "fedrepro train --paper flgames-2022 --run colored-mnist-fedavg --out build/one-number": "needs MNIST and minutes",
}
# Pages that build up a project of their own, in an empty folder: everything on them is run.
OWN = ("docs/add-a-paper.md",)
LEFT = {  # page -> files that its commands must have left behind
    "docs/quickstart.md": ["build/one-number-smoke/record.json"],
    "docs/add-a-dataset.md": ["build/dimmed-digits.png"],
    "docs/add-a-paper.md": [
        *(f"reports/toy-2024/rendered/{name}" for name in ("table1.tex", "claims.md", "summary.md")),
        *("reports/toy-2024/figures/fig1.svg", "reports/toy-2024/sheets/fig2.png"),
    ],
}
COPIED = ("papers", "params.yaml", "runs", "reports", "examples", "data/extractors")


def lines(page):
    return [line for fence in printed.fences(page) for line in fence.commands]


def only_parsed(page):
    return [line for line in lines(page) if line in ONLY_PARSED and printed.name(page) not in OWN]


@pytest.mark.parametrize("page", PAGES, ids=printed.name)
def test_fences_say_what_they_hold_and_commands_stand_where_they_are_found(page):
    for fence in printed.fences(page):
        assert fence.language in printed.LANGUAGES
        for line in fence.text.splitlines() if fence.language != "sh" else ():
            assert line.split(" ")[0] not in printed.TYPED or fence.language in ("python", "toml"), line


@pytest.mark.parametrize("page", PAGES, ids=printed.name)
def test_what_is_only_named_exists(page, plugins):
    for command in (*printed.inline(page), *only_parsed(page)):
        printed.parse(command)


def test_the_list_of_what_is_only_parsed_has_nothing_else():
    assert set(ONLY_PARSED) == {line for page in PAGES for line in only_parsed(page)}


@pytest.fixture
def plugins(monkeypatch):
    """The examples' methods and datasets, as if they were installed."""
    taken = {"fedrepro.methods": methods.REGISTRY, "fedrepro.datasets": DATASETS}
    for file in ROOT.glob("examples/*/pyproject.toml"):
        for group, names in tomllib.loads(file.read_text())["project"]["entry-points"].items():
            for name, value in names.items():
                module, _, attribute = value.partition(":")
                found = runpy.run_path(file.parent / f"{module}.py")[attribute]
                monkeypatch.setitem(taken[group], name, found)


# Running what the pages print


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """reader(page): what a reader does who types all of a page's commands, one after another."""
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    def follow(page):
        if printed.name(page) not in OWN:
            copy(tmp_path)
        for fence in printed.fences(page):
            if fence.file:
                shown(fence, tmp_path)
            for command in fence.commands:
                if command not in only_parsed(page):
                    typed(command, tmp_path, monkeypatch)

    yield follow
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    forget()


def forget():
    """Look for plugins again."""
    methods.find.cache_clear()
    catalogue._plugged.cache_clear()


def copy(folder):
    """The project's files that commands read, without the package."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("adhoc", "build", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, folder)


def shown(fence, folder):
    """A file that a page shows: the project's own as it is, or one that the reader adds to."""
    if (ROOT / fence.file).exists() and fence.file != "params.yaml":
        assert fence.text == (ROOT / fence.file).read_text(), fence.file
        return
    path = folder / fence.file
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(fence.text)


def typed(command, folder, monkeypatch):
    """Run one command as it is printed."""
    words = shlex.split(command)
    if words[0] == "fedrepro":
        done = commands.fedrepro(*words[1:])
        assert done.code == 0, f"{command}\n{done.out}{done.err}"
    else:
        site = folder / "site"
        paths = os.pathsep.join(map(str, (site, ROOT)))
        env = os.environ | {"PIP_TARGET": str(site), "PIP_NO_INDEX": "1", "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-m", *words], env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        monkeypatch.syspath_prepend(site)
        forget()


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if set(lines(page)) - set(only_parsed(page))], ids=printed.name
)
def test_the_commands_of_a_page_work_as_printed(page, reader, tmp_path):
    reader(page)
    assert [file for file in LEFT.get(printed.name(page), ()) if not (tmp_path / file).exists()] == []


def test_the_median_of_the_page_is_a_median():
    (text,) = (f.text for f in printed.fences(ROOT / "docs/add-a-method.md") if f.text.startswith("import torch"))
    names = {}
    exec(text, names)
    delta = {"w": torch.tensor([[1.0, -5.0], [2.0, 0.0], [90.0, 7.0], [3.0, 1.0]])}
    weights = torch.tensor([0.2, 0.1, 0.0, 0.7])  # the third client was rejected
    step, state = names["median"]().update(Report(delta, torch.zeros(4), {}), weights, {})
    assert (step["w"].tolist(), state) == ([2.0, 0.0], {})
    method = names["fedmedian"](Task((1, 1, 2), 2, (3, 3)), net="mlp", hidden=2)
    assert len(method.phases) == 1


# Links and results


def slugs(text):
    """The anchors of a page's headings, as a Git host makes them."""
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)", text, re.M)}


@pytest.mark.parametrize("page", PAGES, ids=printed.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", printed.prose(page)):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            there = (page.parent / path) if path else page
            assert there.exists(), target
            assert not anchor or anchor in slugs(there.read_text()), target


def test_the_readme_leads_to_every_page():
    readme, protocols = (printed.prose(ROOT / each) for each in ("README.md", "docs/protocols.md"))
    for page in (ROOT / "docs").glob("*.md"):
        assert f"({printed.name(page)})" in readme, page
    for page in ROOT.glob("papers/*/PROTOCOL.md"):
        assert f"(../{printed.name(page)})" in protocols, page


@pytest.mark.parametrize("page", sorted(ROOT.glob("papers/*/PROTOCOL.md")), ids=printed.name)
def test_a_table_of_a_protocol_has_three_columns_at_most(page):
    """A phone has no room for more: the browser's test of it needs a browser."""
    rules = [line.strip("| ") for line in printed.prose(page).splitlines() if re.fullmatch(r"[: -]*\|[|: -]*", line)]
    assert rules
    assert [rule for rule in rules if rule.count("|") > 2] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs/what-reproduces.md"], ids=printed.name)
def test_the_summaries_shown_are_the_committed_ones(page):
    blocks = dict(re.findall(r"<!-- ([\w-]+):begin -->\n(.*?)<!-- \1:end -->", page.read_text(), re.S))
    names = ["papers", *(papers(ROOT) if page.parent != ROOT else [])]
    assert set(names) <= set(blocks)
    for name in names:
        path = ROOT / paths.OVERVIEW if name == "papers" else paths.summary(name, ROOT)
        assert blocks[name] == path.read_text(), "run `make readme`"


def findings():
    """What docs/what-reproduces.md says by itself, on one line."""
    page = (ROOT / "docs/what-reproduces.md").read_text()
    return " ".join(re.sub(r"<!-- ([\w-]+):begin -->.*?<!-- \1:end -->", "", page, flags=re.S).split())


def test_every_number_of_the_findings_is_in_a_table_or_behind_a_claim():
    rendered = " ".join(" ".join(path.read_text().split()) for path in (ROOT / "reports").glob("*/**/*.md"))
    said = re.findall(r"\d+\.\d+ ± \d+\.\d+|[+-]\d+\.\d+ to [+-]\d+\.\d+", findings())
    assert len(said) > 10
    assert [number for number in said if number not in rendered] == []


def test_every_verdict_of_the_findings_is_the_present_one():
    verdicts = [claims.verdicts(read(paper).claims) for paper in load_papers(ROOT) if paper.claims]
    said = re.findall(r"`([a-z-]+)` (holds|fails|is undecided)", findings())
    assert len(said) >= 3
    for claim, verdict in said:
        assert verdict.removeprefix("is ") in {each[claim] for each in verdicts if claim in each}, claim


def test_the_times_are_those_of_the_records():
    rows = re.findall(r"^\| ([a-z0-9-]+) \| ([\d.]+) \|$", (ROOT / "docs/gpu.md").read_text(), re.M)
    assert len(rows) == 10
    for run, minutes in rows:
        (path,) = (ROOT / "runs/flgames-2022").glob(f"*/{run}/record.json")
        record = json.loads(path.read_text())
        assert f"{sum(entry['seconds'] for entry in record['seeds'].values()) / 60:.1f}" == minutes, run


def test_the_accuracies_by_the_server_s_rate_are_those_of_the_figure():
    points = pd.read_csv(ROOT / "reports/gma-2022/points.csv").query("figure == 'mask-server'")
    lines = {
        "plain averaging": "AVG × unscaled",
        "with the mask": "GMA × unscaled",
        "with the mask rescaled": "GMA × rescaled",
    }
    page = (ROOT / "docs/what-reproduces.md").read_text()
    rows = re.findall(r"^\| (MNIST|FedCMNIST), ([a-z ]+) \| (.*) \|$", page, re.M)
    assert len(rows) == 6
    for dataset, line, said in rows:
        drawn = points[points.line == f"{dataset} × {lines[line]}"].sort_values("x")
        assert said.split(" | ") == [f"{mean:.2f}" for mean in drawn["mean"]], (dataset, line)


class Writer:
    """A stand-in for TensorBoard's SummaryWriter, which need not be installed."""

    points = 0

    def __init__(self, folder):
        assert folder == "build/board"

    def __enter__(self):
        return self

    def __exit__(self, *fault):
        pass

    def add_scalar(self, tag, value, step):
        Writer.points += 1


@pytest.mark.slow
def test_the_notebook_of_the_python_page_works(tmp_path, monkeypatch, capsys):
    board = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, board.__name__, board)
    copy(tmp_path)
    monkeypatch.chdir(tmp_path)
    cells = [fence.text for fence in printed.fences(ROOT / "docs/python.md") if fence.language == "python"]
    assert len(cells) == 5
    names = {}
    for cell in cells:
        exec(cell, names)
    assert names["found"].unfair == []
    assert (names["found"].metrics.pairs.tolist(), Writer.points > 10) == ([0, 3], True)
    assert "colored-mnist" in str(names["run"].folder)
    assert len(names["cells"]) > 10
    assert {"0", "1", "2"} <= set(capsys.readouterr().out.split())
