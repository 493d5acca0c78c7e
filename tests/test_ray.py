"""Runs by Ray, as docs/scale.md has it; skipped where Ray is not installed."""

from pathlib import Path

import commands
import pytest
from test_jobs import FOLDERS

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_lines_of_the_page_train_a_paper(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    text = (ROOT / "docs/scale.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    commands.paper(tmp_path)
    exec(compile(text.replace("gma-2022", commands.PAPER), "docs/scale.md", "exec"), {})
    ray.shutdown()
    assert all((path / "record.json").exists() for path in FOLDERS.values())
