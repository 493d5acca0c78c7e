"""The packages of examples/, as if they were installed: they are found, and the tests of plugins pass beside them."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ("test_methods.py", "test_plugins.py", "test_dataset_plugins.py", "test_doctor.py")
EXAMPLES = {path.parent.name: tomllib.loads(path.read_text())["project"] for path in ROOT.glob("examples/*/*.toml")}


@pytest.fixture
def installed(tmp_path):
    """The environment of a process that finds all examples."""
    for name, project in EXAMPLES.items():
        info = tmp_path / f"{name}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {project['version']}\n")
        groups = project["entry-points"].items()
        lines = [line for group, own in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in own.items()))]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for module in (ROOT / "examples" / name).glob("*.py"):
            shutil.copy(module, tmp_path)
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_the_tests_of_plugins_pass_where_the_examples_are_installed(installed):
    found = "from fedrepro import data, methods; methods.find('fedavgm'); data.find('dimmed-digits')"
    assert subprocess.run([sys.executable, "-c", found], env=installed, cwd=ROOT).returncode == 0
    words = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--quick", *(f"tests/{each}" for each in TESTS)]
    done = subprocess.run([sys.executable, *words], env=installed, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
