"""The verdict: what makes `fedrepro check` fail, and what it writes."""

import io
import json

import made
import pytest
from rich.console import Console

from fedrepro import check, evaluate, report
from fedrepro.errors import OutsideTolerance

OUTSIDE = [(0.70, 0.10), (0.71, 0.11), (0.72, 0.12)]  # of toys-plain: the training accuracy is 14 points too low


def declared(when):
    """The toy's spec with one declared deviation."""
    return f'{made.SPEC}\n[[tables.t1.deviations]]\nwhen = {when}\nreason = "its budget is unknown"\n'


def checked(root, spec=made.SPEC, budget="paper", **changed):
    """The report on a toy paper whose records, measures and tables were just made."""
    made.paper(root, spec=spec, budget=budget)
    made.records(root, **changed)
    evaluate.table(made.NAME, "t1", root)
    report.render(root)
    return check.run(root)


def statuses(report):
    return [result.status for result in report.results]


def test_all_within_passes_and_says_so(tmp_path):
    report = checked(tmp_path)
    report.enforce()
    summary = json.loads((tmp_path / "reports/check.json").read_text())
    counts = summary["counts"]["toy-2022"]["t1"]
    assert (counts["within"], sum(counts.values())) == (6, 6)
    assert (summary["cells"], summary["problems"]) == ([], [])


def test_outside_without_a_declaration_fails(tmp_path):
    report = checked(tmp_path, toys_plain=OUTSIDE)
    with pytest.raises(OutsideTolerance, match="type=none, Plain, train_accuracy: reproduced 71.00.*84.88") as raised:
        report.enforce()
    assert raised.value.exit_code == 3
    [cell] = json.loads((tmp_path / "reports/check.json").read_text())["cells"]
    assert (cell["status"], cell["difference"], cell["allowed"]) == ("outside", -13.88, 3.0)


def test_declared_deviation_passes_with_its_reason(tmp_path):
    report = checked(tmp_path, declared('{ method = "Plain", metric = "train_accuracy" }'), toys_plain=OUTSIDE)
    report.enforce()
    assert statuses(report)[:2] == ["deviation", "within"]
    assert "its budget is unknown." in shown(report)


def test_declared_deviation_that_is_none_any_more_fails(tmp_path):
    report = checked(tmp_path, declared('{ method = "Plain" }'), toys_plain=OUTSIDE)
    with pytest.raises(OutsideTolerance, match="Plain, test_accuracy: the declared deviation is none any more"):
        report.enforce()


def test_declaration_about_no_cell_fails_unless_it_is_for_another_budget(tmp_path):
    report = checked(tmp_path, declared('{ method = "Plain", type = "parallel" }'))
    assert ["is about no cell of its own" in problem for problem in report.problems] == [True]
    checked(tmp_path, declared('{ method = "Plain", budget = "smoke" }')).enforce()


def test_missing_record_fails_and_its_cells_are_missing(tmp_path):
    checked(tmp_path)
    (tmp_path / "runs/toy-2022/toys-plain/record.json").unlink()
    report = check.run(tmp_path)
    assert statuses(report)[:3] == ["missing", "missing", "within"]
    with pytest.raises(OutsideTolerance, match="toys-plain/record.json is missing"):
        report.enforce()


@pytest.mark.parametrize(
    "file", ["index.html", "metrics/toy-2022/t1.csv", *(f"tables/toy-2022/t1.{k}" for k in ("csv", "md", "tex"))]
)
def test_a_file_that_its_records_do_not_render_fails(tmp_path, file):
    checked(tmp_path)
    path = tmp_path / "reports" / file
    path.write_text(path.read_text().replace("8", "9", 1))
    with pytest.raises(OutsideTolerance, match=f"{file} does not equal what its records render"):
        check.run(tmp_path).enforce()
    path.unlink()
    with pytest.raises(OutsideTolerance, match=f"{file} does not equal what its records render"):
        check.run(tmp_path).enforce()


def test_problems_are_counted(tmp_path):
    report = checked(tmp_path, toys_plain=OUTSIDE, toys_game_sequential=[(0.9, 0.9)] * 3)
    with pytest.raises(OutsideTolerance, match=r"\(and 2 more\)$"):
        report.enforce()


def test_cell_left_out_with_a_reason_passes(tmp_path):
    spec = made.SPEC + '\n[[tables.t1.not_run]]\nwhen = { type = "parallel" }\nreason = "there was no time"\n'
    report = checked(tmp_path, spec)
    report.enforce()
    assert statuses(report) == ["within"] * 4 + ["not-run"] * 2
    assert "there was no time." in shown(report)


def test_smoke_is_never_compared(tmp_path):
    report = checked(tmp_path, declared('{ method = "Plain", budget = "paper" }'), "smoke", toys_plain=OUTSIDE)
    report.enforce()
    assert set(statuses(report)) == {"not-compared"}


def test_report_for_the_terminal_has_the_counts_the_cells_and_the_problems(tmp_path):
    text = shown(checked(tmp_path, toys_plain=OUTSIDE))
    assert "6 cells: 5 within, 1 outside" in text
    assert "-13.88" in text
    assert "declare the deviation in paper.toml" in text


def shown(report):
    console = Console(width=250, file=io.StringIO())
    console.print(check.show(report))
    return console.file.getvalue()
