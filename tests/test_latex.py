"""Tables in LaTeX: how they lie and look, and that the committed ones compile in a plain article."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedrepro.report import latex
from fedrepro.report.layout import Column, Entry, Sheet

ROOT = Path(__file__).parents[1]
COMMITTED = sorted(ROOT.glob("reports/*/rendered/*.tex"))


def sheet(*texts, notes=()):
    """A sheet of one row, a column for each text, the last two published and reproduced."""
    kinds = ["key"] * (len(texts) - 2) + ["published", "reproduced"]
    columns = [Column(f"c{place}", kind) for place, kind in enumerate(kinds)]
    return Sheet("Table 1: toys", ["Legend."], columns, [list(map(Entry, texts))], list(notes))


def test_a_table_says_what_it_needs_and_has_no_number_twice():
    drawn = latex.table(sheet("a", "1 ± 2", "3"))
    assert drawn.startswith("% Written by `fedrepro report`. Needs \\usepackage{amssymb,booktabs,longtable,pdflscape,x")
    assert "\\caption{Toys (Table 1 of the paper)}" in drawn


def test_what_is_published_is_grey_and_nothing_else():
    drawn = latex.table(sheet("a", "1 ± 2", "3"))
    assert re.findall(r"\\textcolor\{gray\}\{(.*?)\}", drawn) == ["c1", "c1", "1 $\\pm$ 2"]


@pytest.mark.parametrize(
    ("letters", "size", "lies", "gap"),
    [(40, 9, False, 2), (73, 8, False, 2), (90, 9, True, 2), (130, 7, True, 2), (400, 5, True, 1)],
)
def test_a_wide_table_gets_smaller_lies_down_and_loses_its_gaps(letters, size, lies, gap):
    drawn = latex.table(sheet("a" * letters, "1", "2"))
    assert f"\\tabcolsep}}{{{gap}pt}}" in drawn
    assert f"\\begingroup\\fontsize{{{size}}}" in drawn
    assert ("\\begin{landscape}" in drawn) == ("\\end{landscape}" in drawn) == lies


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_committed_tables_compile_in_a_plain_article_and_fit_the_page(tmp_path):
    inputs = "\n".join(f"\\input{{{path}}}\n\\clearpage" for path in COMMITTED)
    head = f"\\documentclass{{article}}\n\\usepackage{{{','.join(latex.PACKAGES)}}}"
    (tmp_path / "all.tex").write_text(f"{head}\n\\begin{{document}}\n{inputs}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    for _ in range(2):  # a longtable finds its columns' widths in the second run
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=300)
        assert done.returncode == 0, done.stdout[-2000:]
    assert re.findall(r"Overfull.*|.*Float too large.*", done.stdout) == []
