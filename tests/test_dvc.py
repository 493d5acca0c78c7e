"""What DVC's own commands show of the committed results."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAPERS = sorted(path.parent.name for path in ROOT.glob("papers/*/paper.toml"))


def dvc(*arguments):
    """The standard output of a DVC command on this checkout."""
    command = [sys.executable, "-m", "dvc", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_metrics_are_a_row_for_each_paper():
    [workspace] = json.loads(dvc("metrics", "show", "--json")).values()
    shown = workspace["data"]
    assert list(shown) == [f"reports/agreement/{paper}.json" for paper in PAPERS]
    for each in shown.values():
        counts = each["data"]["cells"]
        assert counts.pop("all") == sum(counts.values())
        assert (
            {"cells", "claims"} <= set(each["data"]) <= {"cells", "claims", "mean_difference"}
        )  # DVC drops what is empty
    head, *rows = dvc("metrics", "show").splitlines()
    assert "cells.within" in head
    assert len(rows) == len(PAPERS)


@pytest.mark.slow
def test_metrics_of_two_revisions_are_compared():
    changed = json.loads(dvc("metrics", "diff", "--json", "HEAD"))
    assert set(changed) <= {f"reports/agreement/{paper}.json" for paper in PAPERS}


@pytest.mark.slow
def test_plots_show_the_numbers_and_the_figures(tmp_path):
    shown = json.loads(dvc("plots", "show", "--json", "--out", tmp_path / "plots"))
    assert "errors" not in shown
    [against] = shown["data"]["Reproduced against published: flgames-2022"]
    values = against["content"]["data"]["values"]
    assert {value["field"] for value in values} == {"reproduced", "published"}
    assert {"reports/figures/flgames-2022/fig2a.svg"} <= set(shown["data"])
    dvc("plots", "show", "--out", tmp_path / "plots")
    assert "fig2a.svg" in (tmp_path / "plots/index.html").read_text()
