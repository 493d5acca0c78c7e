"""The verdict: what makes `fedrepro check` fail, and how it is told."""

import io
import json
from pathlib import Path

import made
import pytest
from rich.console import Console

from fedrepro.errors import OutsideTolerance
from fedrepro.papers.load import load_paper, load_papers
from fedrepro.records import paths
from fedrepro.report import verdict
from fedrepro.results import evaluate
from fedrepro.results.check import check

OUTSIDE = [(0.70, 0.10), (0.71, 0.11), (0.72, 0.12)]  # of toys-plain: the training accuracy is 14 points too low


def declared(when):
    """The toy's spec with one declared deviation."""
    return f'{made.SPEC}\n[[tables.t1.deviations]]\nwhen = {when}\nreason = "its budget is unknown"\n'


def checked(root, spec=made.SPEC, budget="paper", **changed):
    """The verdict on a toy paper whose records and frames were just made."""
    made.paper(root, spec=spec, budget=budget)
    paper = made.records(root, **changed)
    evaluate.write(paper, evaluate.evaluate(paper))
    return again(root)


def again(root):
    return check([load_paper(made.NAME, root)])


def said(report):
    """What `check --json` prints."""
    return json.loads(json.dumps(report.as_json(), allow_nan=False))


def statuses(report):
    return report.cells.status.tolist()


def test_all_within_passes_and_says_so(tmp_path):
    report = checked(tmp_path)
    report.enforce()
    summary = said(report)
    counts = summary["counts"]["toy-2022"]["t1"]
    assert (counts["within"], sum(counts.values())) == (6, 6)
    assert summary["problems"] == []
    assert summary["tolerances"]["toy-2022"]["t1"].endswith("because the toy says little")


def test_outside_without_a_declaration_fails(tmp_path):
    report = checked(tmp_path, toys_plain=OUTSIDE)
    with pytest.raises(OutsideTolerance, match="type=none, Plain, train_accuracy: reproduced 71.00.*84.88") as raised:
        report.enforce()
    assert raised.value.exit_code == 3
    cells = said(report)["cells"]
    [cell] = [cell for cell in cells if cell["reason"]]
    assert cell == {
        "paper": "toy-2022", "table": "t1", "dataset": "Toys", "variant": "type=none", "method": "Plain",
        "metric": "train_accuracy", "unit": "percent", "published": "84.88 ± 0.16", "compared_with": "84.88 ± 0.16",
        "reproduced": "71.00 ± 0.82", "expected": 84.88, "value": 71.0, "difference": -13.88, "allowed": 3.0,
        "status": "outside", "reason": "no deviation is declared.",
    }  # fmt: skip


def test_declared_deviation_passes_with_its_reason(tmp_path):
    report = checked(tmp_path, declared('{ method = "Plain", metric = "train_accuracy" }'), toys_plain=OUTSIDE)
    report.enforce()
    assert statuses(report)[:2] == ["deviation", "within"]
    assert "its budget is unknown." in shown(report, reasons=True)


def test_declared_deviation_that_is_none_any_more_fails(tmp_path):
    report = checked(tmp_path, declared('{ method = "Plain" }'), toys_plain=OUTSIDE)
    with pytest.raises(OutsideTolerance, match="Plain, test_accuracy: its declared deviation is within tolerance now"):
        report.enforce()


def test_declaration_about_no_cell_fails_unless_it_is_for_another_budget(tmp_path):
    report = checked(tmp_path, declared('{ method = "Plain", type = "parallel" }'))
    assert ["is about no cell of its own" in problem for problem in report.problems] == [True]
    checked(tmp_path, declared('{ method = "Plain", budget = "smoke" }')).enforce()


def test_missing_record_fails_and_its_cells_are_missing(tmp_path):
    checked(tmp_path)
    (tmp_path / "runs/toy-2022/plain/toys-plain/record.json").unlink()
    report = again(tmp_path)
    assert statuses(report)[:3] == ["missing", "missing", "within"]
    with pytest.raises(OutsideTolerance, match="toys-plain/record.json is missing"):
        report.enforce()


@pytest.mark.parametrize("file", ["cells.csv", "points.csv", "claims.csv", "metrics.json"])
def test_a_frame_that_its_records_do_not_give_fails(tmp_path, file):
    checked(tmp_path).enforce()
    path = tmp_path / "reports/toy-2022" / file
    path.write_text(path.read_text().replace("e", "9", 1))
    problem = rf"{file} does not equal what its records give: run `fedrepro evaluate toy-2022`\.$"
    with pytest.raises(OutsideTolerance, match=problem):
        again(tmp_path).enforce()
    path.unlink()
    with pytest.raises(OutsideTolerance, match=problem):
        again(tmp_path).enforce()


def test_a_prepared_budget_is_judged_by_its_own_records_and_has_no_frames(tmp_path):
    """Two cells of one run are recorded, at values of their own; what is missing says where it goes."""
    checked(tmp_path, f'{made.SPEC}\n[budgets.long]\nlabel = "long"\non = "paper"\nprepared = true\n')
    paper = load_paper(made.NAME, tmp_path).at("long")
    made.put(paper.home("toys-plain", "plain"), made.record(paper, "toys-plain", OUTSIDE))
    report = check([paper])
    assert statuses(report) == ["outside", "within", "missing", "missing", "missing", "missing"]
    assert all("reports" not in problem for problem in report.problems)
    missing = f"run `fedrepro train --paper {made.NAME} --run toys-game-sequential --budget long`."
    assert any(problem.endswith(missing) for problem in report.problems)
    again(tmp_path).enforce()


def test_nothing_is_written_and_nothing_kept(tmp_path):
    checked(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_problems_are_counted(tmp_path):
    report = checked(tmp_path, toys_plain=OUTSIDE, toys_game_sequential=[(0.9, 0.9)] * 3)
    with pytest.raises(OutsideTolerance, match=r"\(and 2 more\)$"):
        report.enforce()


def test_cell_left_out_with_a_reason_passes(tmp_path):
    spec = made.SPEC + '\n[[tables.t1.not_run]]\nwhen = { type = "parallel" }\nreason = "there was no time"\n'
    report = checked(tmp_path, spec)
    report.enforce()
    assert statuses(report) == ["within"] * 4 + ["not-run"] * 2
    assert "there was no time." in shown(report, reasons=True)


def test_smoke_is_never_compared(tmp_path):
    report = checked(tmp_path, declared('{ method = "Plain", budget = "paper" }'), "smoke", toys_plain=OUTSIDE)
    report.enforce()
    assert set(statuses(report)) == {"not-compared"}


def test_a_row_for_each_table_has_its_counts_and_the_verdict_stands_last(tmp_path):
    *heads, row, problem, last = shown(checked(tmp_path, toys_plain=OUTSIDE)).splitlines()
    assert (heads[0].split(), row.split()) == (
        ["paper", "table", "numbers", "within", "outside"],
        ["toy-2022", "t1", "6", "5", "1"],
    )
    assert "declare the deviation in paper.toml" in problem
    assert last == "FAIL: 5 of 6 compared numbers are within tolerance; problems: 1."
    last = shown(checked(tmp_path)).splitlines()[-1]
    assert last == "PASS: 6 of 6 compared numbers are within tolerance."


def test_a_declared_deviation_passes_and_is_counted(tmp_path):
    text = shown(checked(tmp_path, declared('{ method = "Plain" }'), toys_plain=[(0.7, 0.3)] * 3))
    last = text.splitlines()[-1]
    assert last == "PASS: 4 of 6 compared numbers are within tolerance, 2 outside with a declared reason."
    assert "its budget is unknown" not in text


def test_reasons_have_the_numbers_their_tolerance_and_its_reason(tmp_path):
    text = shown(checked(tmp_path, toys_plain=OUTSIDE), reasons=True)
    assert "-13.88" in text
    assert "allowed ±3" in text
    assert "Tolerance of t1: the larger of 2 published standard deviations and 3 points, because the toy says" in text


def test_numbers_with_the_same_reason_share_it(tmp_path):
    spec = made.SPEC + '\n[[tables.t1.not_run]]\nwhen = { type = "parallel" }\nreason = "there was no time"\n'
    spec += '\n[[tables.t1.deviations]]\nwhen = { type = "sequential" }\nreason = "it is a toy"\n'
    report = checked(tmp_path, spec, toys_game_sequential=[(0.8, 0.5)] * 3)
    text = shown(report, reasons=True)
    assert (text.count("there was no time."), text.count("it is a toy."), text.count("2 numbers")) == (1, 1, 2)
    assert "-16.56 to +24.24" in text


def test_of_one_table_its_row_and_its_reasons_alone_are_shown(project):
    lines = shown(project, table="fig3b", reasons=True).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("flgames-2022 ")] == ["fig3b"] + ["fig3b,"] * (
        len([line for line in lines if line.startswith("flgames-2022 fig3b,")])
    )
    assert not [line for line in lines if line.startswith(("gma-2022", "claims of"))]


def test_all_papers_fit_a_screen_of_80_columns(project):
    lines = shown(project, width=80).splitlines()
    assert len(lines) < 45
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    assert lines[-1].startswith("PASS") or lines[-2].startswith("PASS")


def test_every_reason_is_told_and_so_are_ranges(project):
    text, told = shown(project, reasons=True, width=10_000), project.cells[project.cells.reason != ""]
    assert all(reason in text for reason in told.reason)
    alone = told[~told.duplicated(["paper", "table", "status", "reason"], keep=False) & told.least.notna()]
    assert all(f"allowed {row.least:g} to {row.greatest:g}" in text for row in alone.itertuples())


@pytest.fixture(scope="module")
def project():
    """The verdict on the papers of the project."""
    return check(load_papers(Path(__file__).parents[1]))


def test_cells_outside_have_a_row_each(tmp_path):
    text = shown(checked(tmp_path, toys_plain=[(0.7, 0.3)] * 3), reasons=True)
    assert text.count("no deviation is declared.") == 2


def test_metrics_of_a_paper(tmp_path):
    checked(tmp_path, toys_plain=OUTSIDE)
    metrics = json.loads(paths.metrics(made.NAME, tmp_path).read_text())
    assert (metrics["cells"]["all"], metrics["cells"]["outside"]) == (6, 1)
    assert metrics["claims"] == {"holds": 0, "fails": 0, "undecided": 0}
    assert metrics["mean_difference"] == {"percent": 3.165}  # 13.88, 0.6, 0.24, 0.44, 1.97, 1.86


def shown(report, width=250, **options):
    console = Console(width=width, file=io.StringIO())
    console.print(verdict.show(report, **options))
    return console.file.getvalue()
