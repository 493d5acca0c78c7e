"""The files around the package: lock, Makefile, CI, README and what git and DVC are told to leave alone."""

from __future__ import annotations

import ast
import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fedrepro.papers.load import load_paper
from fedrepro.report import brief, layout
from fedrepro.results.check import by_table
from fedrepro.results.evaluate import read

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK_LINE = re.compile(r"(?P<requirement>[a-z0-9-]+==[^\s;]+( ; [^\\]+?)?)(?P<hashes>( --hash=sha256:[0-9a-f]{64})+)")


def run(*command: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess:
    """A command's outcome, free of the `make` that may be running these tests."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(list(map(str, command)), cwd=cwd, env=inherited | env, capture_output=True, text=True)


def script(path: Path, body: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def lock_lines() -> list[str]:
    return (ROOT / "requirements.lock").read_text().replace(" \\\n   ", "").splitlines()


def locked() -> dict[str, str]:
    """name -> version of everything in requirements.lock."""
    requirements = [Requirement(LOCK_LINE.fullmatch(line)["requirement"]) for line in lock_lines()]
    return {canonicalize_name(r.name): next(iter(r.specifier)).version for r in requirements}


def declared() -> list[Requirement]:
    """The packages that pyproject.toml asks for, to run, test and build. Ray is for who has it: nothing imports it."""
    extras = PROJECT["project"]["optional-dependencies"].items()
    extras = [line for name, extra in extras if name != "ray" for line in extra]
    return list(map(Requirement, PROJECT["project"]["dependencies"] + extras + PROJECT["build-system"]["requires"]))


def git_lists(*arguments: str) -> list[str]:
    """Paths that git lists here; the calling test is skipped where this is no git checkout of the project."""
    top = run("git", "rev-parse", "--show-toplevel")
    if top.returncode or Path(top.stdout.strip()) != ROOT:
        pytest.skip("not a git checkout")
    return run("git", "ls-files", "-z", *arguments).stdout.split("\0")[:-1]


# Lock and package


def test_every_line_of_the_lock_is_a_version_with_hashes_and_nothing_else():
    lines = lock_lines()
    assert len(lines) > 50
    assert [line for line in lines if not LOCK_LINE.fullmatch(line)] == []


@pytest.mark.parametrize("requirement", declared(), ids=str)
def test_the_lock_satisfies(requirement):
    assert requirement.specifier.contains(locked()[canonicalize_name(requirement.name)])


def test_the_lock_and_it_alone_pins_torch_to_the_version_that_made_the_numbers():
    assert not [each for each in PROJECT["project"]["dependencies"] if "==" in each]
    assert (locked()["torch"], locked()["torchvision"]) == ("2.14.1", "0.29.1")


def test_every_import_of_the_package_is_a_declared_dependency():
    owners = metadata.packages_distributions()
    ours = {canonicalize_name(name) for name in (r.name for r in declared())}
    undeclared = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in (ROOT / "fedrepro").rglob("*.py")
        for module in imported(path) - sys.stdlib_module_names - {"fedrepro", "bench"}  # bench: benchmarks/bench.py
        if not ours & {canonicalize_name(owner) for owner in owners.get(module, ())}
    }
    assert undeclared == set()


def imported(path: Path) -> set[str]:
    """The top-level modules that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    named = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.split(".")[0] for name in plain + named}


def test_the_package_imports_without_torch_and_knows_its_version():
    code = "import sys, fedrepro; assert 'torch' not in sys.modules; print(fedrepro.__version__)"
    assert run(sys.executable, "-c", code).stdout.strip() == metadata.version("fedrepro")


@pytest.mark.parametrize(
    ("command", "slow"),
    [
        (("--help",), ("torch", "numpy", "pydantic", "matplotlib")),
        (("check", "fedgma-2021"), ("torch", "matplotlib", "sklearn")),
        *((("show", name), ("torch", "matplotlib", "pandas")) for name in ("papers", "tables", "runs")),
        (("show", "table", "flgames-2022", "table1"), ("torch", "matplotlib", "scipy")),
        (("show", "claims", "flgames-2022"), ("torch", "matplotlib", "scipy")),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_command_imports_nothing_slow_that_it_does_not_need(command, slow):
    code = f"""
import atexit, sys
from fedrepro.cli.app import main
atexit.register(lambda: print(sorted(set({slow!r}) & set(sys.modules)), file=sys.stderr))
main({list(command)!r})
"""
    assert run(sys.executable, "-c", code).stderr.splitlines()[-1] == "[]"


def test_the_command_is_installed():
    (command,) = metadata.entry_points(group="console_scripts", name="fedrepro")
    assert callable(command.load())


def test_warnings_are_errors_and_nothing_is_collected_outside_tests(pytestconfig):
    assert pytestconfig.getini("filterwarnings")[0] == "error"
    assert pytestconfig.getini("testpaths") == ["tests"]
    assert {".*", "build"} <= set(pytestconfig.getini("norecursedirs"))


# Makefile and CI


def targets() -> set[str]:
    return set(re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.M)[1].split())


def recipe(target: str, *variables: str) -> str:
    """What `make target` would do once the environment is there."""
    done = run("make", "--dry-run", "--assume-old=setup", target, *variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("target", "steps"),
    [
        ("repro", ["dvc repro", "fedrepro report", "show table flgames-2022 table1", "fedrepro check"]),
        ("test", ["ruff check", "pytest"]),
        ("quick", ["ruff check", "pytest", "--quick"]),
        ("smoke", ["git ls-files", "dvc repro", "fedrepro report", "show table flgames-2022 table1"]),
        ("bench", ["fedrepro bench"]),
    ],
)
def test_a_target_does_its_steps_in_order(target, steps):
    assert re.search(".*".join(map(re.escape, steps)), recipe(target), re.S)


def test_every_target_has_its_line_of_help():
    lines = run("make", "help").stdout.splitlines()
    assert {line.split()[1] for line in lines} == targets()
    assert max(map(len, lines)) <= 80


@pytest.mark.slow
def test_the_quick_tests_are_the_first_case_of_each_that_is_not_slow():
    listed = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "tests/test_plugins.py"]
    every, chosen = (run(*listed, *more).stdout.splitlines() for more in ((), ("--quick",)))
    functions = lambda lines: [line.partition("[")[0] for line in lines if "::" in line]  # noqa: E731
    slow = {"tests/test_plugins.py::test_methods_are_listed_in_time_whatever_plugins_do"}
    assert sorted(functions(chosen)) == sorted(set(functions(every)) - slow)
    assert len(every) > 2 * len(chosen)


@pytest.mark.parametrize("newer", ["requirements.lock", "pyproject.toml", None])
def test_the_environment_is_made_once(tmp_path, newer):
    (tmp_path / ".stamp").touch()
    stale = [f"--assume-new={newer}"] if newer else []
    assert run("make", "--question", *stale, "setup", f"VENV={tmp_path}").returncode == (1 if newer else 0)


def test_an_old_python_gets_one_clear_sentence(tmp_path):
    old = script(tmp_path / "python3.9", "exit 1")
    done = run("make", "--silent", "setup", f"VENV={tmp_path / 'venv'}", f"PYTHON={old}")
    assert done.returncode == 2
    sentence = f"fedrepro needs Python 3.11 or newer, which '{old}' is not: name one, as in 'make PYTHON=python3.11'."
    assert done.stderr.splitlines()[0] == sentence
    assert not (tmp_path / "venv").exists()


def test_a_python_that_does_not_start_is_passed_over(tmp_path):
    script(tmp_path / "bin/python3.11", "exit 127")
    works = script(tmp_path / "bin/python3", 'test "$1" = -c')
    done = run("make", "--dry-run", "setup", f"VENV={tmp_path / 'venv'}", PATH=f"{works.parent}:{os.environ['PATH']}")
    assert "'python3' -m venv" in done.stdout


@pytest.mark.parametrize(("asked", "upgraded"), [((), []), (("UPGRADE=torch torchvision",), ["torch", "torchvision"])])
def test_the_lock_moves_only_what_is_asked_for(asked, upgraded):
    assert re.findall(r"--upgrade-package=(\S+)", recipe("lock", *asked)) == upgraded
    assert "--upgrade " not in recipe("lock", *asked)


def test_smoke_switches_every_paper_to_the_smoke_budget(tmp_path):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    lines = recipe("smoke", f"SMOKE={tmp_path}").replace("\\\n", "").splitlines()
    (switch,) = (line for line in lines if line.startswith("sed"))
    assert run("bash", "-c", switch).returncode == 0
    switched = yaml.safe_load((tmp_path / "params.yaml").read_text())
    assert (switched.pop("sources"), switched.pop("extractors")) == (["digits", "drawn"], ["digits"])
    assert {paper["budget"] for paper in switched.values()} == {"smoke"}


def test_params_name_a_budget_for_every_paper():
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    assert params.keys() - {"sources", "extractors"} == {path.parent.name for path in ROOT.glob("papers/*/paper.toml")}
    assert all(isinstance(params[path.parent.name]["budget"], str) for path in ROOT.glob("papers/*/paper.toml"))


@pytest.fixture
def ci(tmp_path):
    """Runs a copy of .ci/run from elsewhere with a `make` that tells what it was given, by default with a browser.

    On its PATH are stand-ins and what a shell cannot do without, so that nothing is installed.
    """
    copy = tmp_path / "checkout/.ci/run"
    copy.parent.mkdir(parents=True)
    shutil.copy(ROOT / ".ci/run", copy)
    bin = script(tmp_path / "bin/make", 'echo "$PWD|$*|${FEDREPRO_DATA_DIR-unset}"').parent
    script(bin / "id", "echo 0")
    for there in ("chromium", "pdflatex", "slurmctld"):
        script(bin / there, "exit 1")
    for tool in ("bash", "env", "dirname", "sh"):
        (bin / tool).symlink_to(shutil.which(tool))

    def start(**env: str) -> list[str]:
        return run(copy, cwd=tmp_path, PATH=str(bin), **env).stdout.strip().split("|")

    return start


def test_ci_runs_the_tests_from_the_root(ci, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    assert ci() == [str(tmp_path / "checkout"), "test", "unset"]


def test_ci_uses_the_data_beside_the_checkout_unless_told_otherwise(ci, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    beside = tmp_path / "shared/data"
    beside.mkdir(parents=True)
    assert ci()[-1] == str(beside)
    assert ci(FEDREPRO_DATA_DIR="elsewhere")[-1] == "elsewhere"
    assert ci(FEDREPRO_DATA_DIR="")[-1] == ""


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("works", [True, False])
def test_ci_installs_a_browser_latex_and_slurm_where_there_are_none_and_goes_on_without(ci, tmp_path, there, works):
    if not there:
        for tool in ("chromium", "pdflatex", "slurmctld"):
            (tmp_path / "bin" / tool).unlink()
    script(tmp_path / "bin/apt-get", f'echo "$*" >> {tmp_path}/log; {"true" if works else "false"}')
    assert ci()[1] == "test"
    asked = (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []
    wanted = ["update -qq", "install -qq -y chromium-headless-shell", *([] if works else ["install -qq -y chromium"])]
    wanted += ["install -qq -y --no-install-recommends texlive-latex-base texlive-latex-recommended"]
    wanted += ["install -qq -y --no-install-recommends slurm-wlm munge"]
    assert asked == ([] if there else wanted)


def test_the_workflow_does_the_same_publishes_the_page_and_checks_the_results():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    steps = workflow["jobs"]["test"]["steps"]
    done = [step.get("run") or step["uses"].partition("@")[0] for step in steps]
    given = {step["uses"].partition("@")[0]: step["with"] for step in steps if "with" in step}
    own = [
        ".ci/run",
        "make smoke",
        ".venv/bin/fedrepro report --single-file",
        "actions/upload-artifact",
        ".venv/bin/fedrepro check",
    ]
    assert done == ["actions/checkout", "actions/setup-python", *own]
    assert given["actions/setup-python"] == {"python-version": "${{ matrix.python }}"}
    assert workflow["jobs"]["test"]["strategy"]["matrix"] == {"python": ["3.11", "3.12", "3.13"]}
    assert PROJECT["project"]["requires-python"] == ">=3.11"
    (tests,) = (step for step in steps if step.get("run") == ".ci/run")
    assert tests["env"] == {"PYTHON": "python${{ matrix.python }}"}  # of which make sets up the environment
    assert given["actions/upload-artifact"]["path"] == "reports/fedrepro.html"
    assert {command.split()[1] for command in own if command.startswith("make ")} <= targets()


# For who contributes, cites, or runs it elsewhere


def test_the_citation_is_of_this_package():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "license", "version"} <= cited.keys()
    assert (cited["cff-version"], cited["license"]) == ("1.2.0", PROJECT["project"]["license"])
    assert cited["version"] == metadata.version("fedrepro")


def test_commits_are_checked_by_the_ruff_that_the_tests_are():
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repo["repo"] == "local"  # nothing of another version is downloaded
    assert [hook["entry"] for hook in repo["hooks"]] == [".venv/bin/ruff check --fix", ".venv/bin/ruff format"]


def test_the_image_is_built_of_the_lock_and_of_files_that_are_there():
    text = (ROOT / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for word in line.split()]
    assert copied == ["requirements.lock", "."]
    assert "--require-hashes -r requirements.lock" in text
    assert re.search(r"^FROM python:(.*)-slim$", text, re.M)[1] in ("3.11", "3.12", "3.13")
    assert {".venv", ".git", "build", "data/cache"} <= set((ROOT / ".dockerignore").read_text().split())


def test_the_changelog_has_the_form_of_keep_a_changelog():
    text = (ROOT / "CHANGELOG.md").read_text()
    heads = re.findall(r"^### (.*)$", text, re.M)
    assert "## [Unreleased]" in text
    assert set(heads) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"`make ([a-z]+)", text)) <= targets()


# What git and DVC leave alone, and what no file may name


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        (".venv/bin/python", True),
        (".fedrepro/state/x/1.json", True),
        ("build/smoke/dvc.yaml", True),
        ("examples/fedavgm/build/lib/fedavgm.py", True),
        ("examples/fedavgm/fedavgm.py", False),
        ("data/cache/MNIST/raw/x", True),
        (".dvc/tmp/lock", True),
        (".dvc/cache/files", True),
        ("data/manifests/mnist.json", False),
        ("runs/flgames-2022/f-irm/colored-mnist-f-irm-parallel/record.json", False),
        ("runs/adhoc/fedavg-01234567/record.json", True),
        ("studies/gma-2022/mnist-fedavg-noniid-avg/lr-0.1/record.json", False),
        ("reports/flgames-2022/rendered/table1.csv", False),
        ("reports/index.html", True),
        ("reports/flgames-2022.html", True),
        ("dvc.lock", False),
        ("fedrepro/data/draws.py", False),
        (".dvc/config", False),
    ],
)
def test_git_ignores_working_files_and_keeps_results(path, ignored):
    git_lists()
    assert run("git", "check-ignore", "--quiet", "--no-index", path).returncode == (0 if ignored else 1)


def test_dvc_sends_nothing_and_has_no_remote():
    config = configparser.ConfigParser()
    config.read_string((ROOT / ".dvc/config").read_text())
    assert config.sections() == ["core"]
    assert dict(config["core"]) == {"analytics": "false", "autostage": "false", "check_update": "false"}


def test_dvc_does_not_look_into_copies_and_environments():
    assert {"/.venv/", "/build/", "/.fedrepro/"} <= set((ROOT / ".dvcignore").read_text().split())


REGISTRY = re.compile(r"pypi\.(org|python)|pythonhosted\.org|download\.pytorch\.org|anaconda\.(org|com)")
MACHINE_PATH = re.compile(r"(?<![\w.~])/(work|opt|home|root|Users|mnt)/")


@pytest.mark.parametrize("forbidden", [REGISTRY, MACHINE_PATH], ids=["registry host", "machine path"])
def test_no_file_names_a(forbidden):
    found = []
    for path in git_lists("--cached", "--others", "--exclude-standard"):
        text = (ROOT / path).read_text(errors="ignore") if (ROOT / path).is_file() else ""
        found += [f"{path}: {match[0]}" for match in forbidden.finditer(text)]
    assert found == []


# README


def test_the_readme_names_only_make_targets_that_exist():
    used = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.M))
    assert {"repro", "test"} <= used <= targets()


def test_the_reference_lists_the_commands_that_exist():
    import typer

    from fedrepro.cli.app import app

    reference = (ROOT / "docs/reference.md").read_text()
    rows = set(re.findall(r"^\| `fedrepro ([a-z]+)` \|", reference, re.M))
    assert rows == set(typer.main.get_command(app).commands)
    assert set(re.findall(r"(?<!from )fedrepro ([a-z]+)\b", README.replace("fedrepro.", ""))) <= rows


def test_the_readme_shows_the_table_that_is_committed():
    shown = re.search(r"<!-- table1:begin -->\n(.*)<!-- table1:end -->", README, re.S)[1]
    paper = load_paper("flgames-2022", ROOT)
    table = layout.sheet(paper, "table1", by_table(paper, read(paper).cells)["table1"])
    lines = [line.rstrip() for line in brief.table(table, 80).plain.splitlines()]
    told = [line.rstrip() for line in shown.splitlines()[1:-1]]
    assert " ".join(told).split() == " ".join(lines).split(), "run `make readme`"


def test_the_readme_is_short():
    own = re.sub(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", "", README, flags=re.S)
    assert len(own.splitlines()) <= 75


def test_make_readme_puts_tables_and_summaries_there(tmp_path):
    script(tmp_path / ".venv/bin/fedrepro", 'echo "$@"')
    blocks = {
        "papers": "summary",
        "flgames-2022": "flgames-2022/rendered/summary",
        "gma-2022": "gma-2022/rendered/summary",
    }
    page = "a\n" + "".join(f"<!-- {name}:begin -->\n{{}}<!-- {name}:end -->\nb\n" for name in blocks)
    pages = [tmp_path / "README.md", tmp_path / "docs/what-reproduces.md"]
    rendered = [tmp_path / f"reports/{name}.md" for name in blocks.values()]
    for path in (*pages, *rendered):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page.format("old\n", "", "", "") if path in pages else f"| {path.relative_to(tmp_path)} |\n")
    made = {tmp_path / ".venv/bin/fedrepro", tmp_path / "build/table1.md"}
    done = run("bash", "-ec", recipe("readme"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "build/table1.md").read_text() == "```text\nshow table flgames-2022 table1\n```\n"
    wanted = page.format(*(f"| reports/{name}.md |\n" for name in blocks.values()))
    assert {path.read_text() for path in pages} == {wanted}
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted((*pages, *rendered, *made))
