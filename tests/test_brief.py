"""Short tables: what a reader finds in a line, and that the lines of every table fit a terminal."""

from pathlib import Path

import made
import pytest

from fedrepro.papers.load import load_papers
from fedrepro.report import brief, layout
from fedrepro.results.check import by_table
from fedrepro.results.evaluate import evaluate, read

ROOT = Path(__file__).parents[1]


def short(paper, table, cells, width=80):
    """The lines of a short table, and how many of its sheet's rows stand in them."""
    sheet = layout.sheet(paper, table, cells)
    return sheet, brief.table(sheet, width).plain.splitlines()


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    toy = made.motley(tmp_path_factory.mktemp("toys"))
    return short(toy, "t1", evaluate(toy).cells)


def test_a_line_has_our_number_the_published_one_and_the_mark(toys):
    sheet, lines = toys
    cells = [entry.cell for row in sheet.rows for entry in row if entry.cell is not None]
    for cell in cells:
        ours = cell.reproduced or {"not-run": "not run", "diverged": "diverged"}.get(cell.status, cell.status)
        found = [line for line in lines if f"{ours} ({cell.published})" in line and cell.method in line]
        assert found, (ours, cell.published)
        if cell.status in layout.MARKS:
            assert any(layout.MARKS[cell.status] in line for line in found)


def test_all_lines_of_rows_are_of_one_length_and_counted_below(toys):
    sheet, lines = toys
    rows = [line for line in lines if "(" in line and not line.startswith(("Ours", sheet.title))]
    assert len(rows) == len(sheet.rows)
    assert len(set(map(len, rows))) == 1
    (below,) = [line for line in lines if line.startswith("Ours (the paper's): ")]
    statuses = [entry.cell.status for row in sheet.rows for entry in row if entry.cell is not None]
    assert f"✓ {statuses.count('within')} within the tolerance" in below


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80])
def test_every_table_of_every_paper_fits(width):
    for paper in load_papers(ROOT):
        for table, cells in by_table(paper, read(paper).cells).items():
            sheet, lines = short(paper, table, cells, width)
            head = next(place for place, line in enumerate(lines) if line.rstrip().endswith(_metric(sheet)))
            body = lines[head : next(place for place, line in enumerate(lines) if line.startswith("Ours (the"))]
            assert max(map(len, body)) <= max(width, 75), (paper.name, table)


def _metric(sheet):
    """The head of the last metric."""
    last = [column for column in sheet.columns if column.kind == "reproduced"][-1]
    return (last.group or last.head).replace("_", " ")


def test_keys_that_take_too_much_room_become_headings(toys):
    sheet, wide = toys
    narrow = brief.table(sheet, 1).plain.splitlines()
    rows = [line for line in narrow if "(" in line and not line.startswith(("Ours", sheet.title))]
    assert len(rows) == len(sheet.rows)
    assert max(map(len, rows)) < max(map(len, wide[1:-1]))
