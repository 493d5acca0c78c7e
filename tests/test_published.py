"""Published numbers: what is read of published.csv, and one clear sentence for each mistake in it."""

from pathlib import Path

import made
import pytest

from fedrepro.errors import UsageError
from fedrepro.papers import published
from fedrepro.papers.load import load_paper, papers

REPO = Path(__file__).parents[1]
HEAD, *ROWS = made.PUBLISHED.splitlines()
FIRST = "toy-2022,t1,Toys,type=none,Plain,train_accuracy,84.88,0.16,percent,"


def read(root, *rows, head=HEAD):
    return published.read(load_paper(made.NAME, made.paper(root, published="\n".join([head, *rows, ""]))))


def test_every_digit_is_as_printed(tmp_path):
    frame = read(tmp_path, *ROWS)
    assert list(frame) == ["table", "dataset", "variant", "method", "metric", "mean", "spread", "unit", "note"]
    assert list(frame.index) == list(range(6))
    assert list(frame.iloc[1]) == [
        *("t1", "Toys", "type=none", "Plain", "test_accuracy", "10.4", "", "percent", "printed with one decimal")
    ]
    assert list(frame["mean"]) == ["84.88", "10.4", "55.76", "66.56", "58.03", "67.14"]
    assert list(frame["spread"]) == ["0.16", "", "2.03", "1.58", "6.22", "2.95"]


def test_a_trailing_zero_stays(tmp_path):
    frame = read(tmp_path, FIRST.replace("84.88,0.16", "80.0,1.00"))
    assert list(frame[["mean", "spread"]].iloc[0]) == ["80.0", "1.00"]


def test_a_median_comes_with_its_range(tmp_path):
    head, rows = HEAD.replace("mean,std", "median,min,max"), [FIRST.replace("0.16", "80.1,90.20"), ROWS[1]]
    frame = read(tmp_path, rows[0], rows[1].replace("10.4,,", "10.4,,,"), head=head)
    assert list(frame["mean"]) == ["84.88", "10.4"]
    assert list(frame["spread"]) == ["80.1..90.20", ""]


def test_a_paper_may_print_no_number(tmp_path):
    assert len(read(tmp_path)) == 0


@pytest.mark.parametrize("name", papers(REPO))
def test_every_committed_cell_has_one_row(name):
    paper = load_paper(name, REPO)
    keys = published.read(paper)[published.KEYS].itertuples(index=False, name=None)
    assert sorted(keys) == sorted(cell.key for table in paper.spec.tables for cell in paper.cells(table))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (FIRST.replace("84.88", "60.0"), "t1, Toys, type=none, Plain, train_accuracy is there twice"),
        (FIRST.replace("84.88", ""), "'' is no number"),
        (FIRST.replace("84.88", "84,88"), "it must have 10 fields"),
        (FIRST.replace("84.88", "84.88%"), "'84.88%' is no number"),
        (FIRST.replace("84.88", "nan"), "'nan' is no number"),
        (FIRST.replace("0.16", "inf"), "'inf' is no number"),
        (FIRST.removesuffix(","), "it must have 10 fields"),
        (FIRST.replace("toy-2022", "toy-2023"), "it is of 'toy-2023' instead of 'toy-2022'"),
    ],
)
def test_a_mistake_in_a_row_is_one_sentence_with_its_line(tmp_path, row, said):
    with pytest.raises(UsageError, match=rf"published\.csv, line 3: {said}"):
        read(tmp_path, FIRST, row)


def test_a_range_has_both_ends(tmp_path):
    with pytest.raises(UsageError, match="line 2: '' is no number"):
        read(tmp_path, FIRST.replace("0.16", "0.16,"), head=HEAD.replace("mean,std", "median,min,max"))


def test_a_file_that_is_none_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"published\.csv: its columns must be paper, table, dataset, variant"):
        read(tmp_path, head=HEAD.replace("unit", "units"))
    paper = load_paper(made.NAME, tmp_path)
    path = paper.folder / "published.csv"
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"published\.csv cannot be read"):
        published.read(paper)
    path.write_text("")
    with pytest.raises(UsageError, match="its columns must be"):
        published.read(paper)
    path.write_text(f'{HEAD}\ntoy-2022,"t1')
    with pytest.raises(UsageError, match=r"published\.csv cannot be read \(unexpected end of data\)\. Correct it"):
        published.read(paper)
    path.unlink()
    with pytest.raises(UsageError, match=r"published\.csv cannot be read \(.*No such file"):
        published.read(paper)
