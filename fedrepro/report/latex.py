"""A table in LaTeX: it may go over several pages, and lies on its side where it is too wide to stand."""

from __future__ import annotations

import itertools

from fedrepro.report.layout import Column, Entry, Sheet

PACKAGES = ("amssymb", "booktabs", "longtable", "pdflscape", "xcolor")
SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "×": r"$\times$", "≤": r"$\le$",
    "`": "", "–": "--", "…": r"\ldots{}", "“": "``", "”": "''",
    "✓": r"$\checkmark$", "✗": r"$\times$", "†": r"$\dagger$",
}  # fmt: skip
PORTRAIT, LANDSCAPE = 345, 550  # points across the text of an article, standing and lying
DIGITS = {9: 4.63, 8: 4.25, 7: 3.98, 6: 3.67, 5: 3.41}  # size of Computer Modern -> how wide a digit is, in points
# How a table may lie: points across, size of the font, points on both sides of a column.
FITS = ((PORTRAIT, 9, 2), (PORTRAIT, 8, 2), *((LANDSCAPE, size, 2) for size in DIGITS), (LANDSCAPE, 5, 1))
NOTES = 8  # size of the font below a table
WIDE = {" ": 0.66, "±": 1.6, "×": 1.6, "✓": 1.5, "✗": 1.6} | dict.fromkeys(".,:;()[]|il-", 0.75)  # in digits


def table(sheet: Sheet) -> str:
    """A longtable with booktabs for a plain article, the notes below; published numbers are grey."""
    across, size, gap = _fit(sheet)
    lying = across == LANDSCAPE
    heads = _heads(sheet.columns)
    lines = [
        f"% Written by `fedrepro report`. Needs \\usepackage{{{','.join(PACKAGES)}}} in a document of class article.",
        *(["\\begin{landscape}"] if lying else []),
        f"\\begingroup{_font(size)}",
        f"\\setlength{{\\tabcolsep}}{{{gap}pt}}\\setlength{{\\LTcapwidth}}{{\\linewidth}}",
        f"\\begin{{longtable}}{{@{{}}{''.join('l' if column.flush else 'r' for column in sheet.columns)}@{{}}}}",
        f"\\caption{{{text(_caption(sheet.title))}}}\\\\",
        *("\\toprule", *heads, "\\midrule", "\\endfirsthead"),
        *("\\toprule", *heads, "\\midrule", "\\endhead"),
        *("\\bottomrule", "\\endlastfoot"),
    ]
    for above, row in itertools.pairwise([None, *sheet.rows]):
        if above and above[0].text != row[0].text:
            lines.append("\\addlinespace")
        entries = [_entry(entry, column) for entry, column in zip(row, sheet.columns, strict=True)]
        lines.append(" & ".join(entries) + " \\\\")
    notes = [f"\\textsuperscript{{{number}}}~{text(note)}" for number, note in enumerate(sheet.notes, 1)]
    lines += ["\\end{longtable}", f"\\noindent{_font(min(size, NOTES))}"]
    lines += ["\\par\\noindent\n".join([text(" ".join(sheet.told)), *notes]), "\\par\\endgroup"]
    return "\n".join([*lines, *(["\\end{landscape}"] if lying else [])]) + "\n"


def text(plain: str) -> str:
    """Text with LaTeX's own signs escaped."""
    return plain.translate(str.maketrans(SIGNS))


def _font(size: int) -> str:
    return f"\\fontsize{{{size}}}{{{1.2 * size:g}}}\\selectfont"


def _caption(title: str) -> str:
    """The title with the table's number in the paper behind, since LaTeX puts one of its own before it."""
    number, colon, what = title.partition(": ")
    return f"{what[0].upper()}{what[1:]} ({number} of the paper)" if colon else title


def _fit(sheet: Sheet) -> tuple[int, int, int]:
    """The first of FITS in which a table fits, with the largest font; the last one if it fits in none."""
    digits, columns = sum(_width(place, sheet) for place in range(len(sheet.columns))), len(sheet.columns)
    return next((fit for fit in FITS if DIGITS[fit[1]] * digits + 2 * fit[2] * columns <= fit[0]), FITS[-1])


def _width(place: int, sheet: Sheet) -> float:
    """How wide a column is, in digits: an estimate on the safe side."""
    entries = (_digits(row[place].marked) + 0.8 * len(",".join(map(str, row[place].notes))) for row in sheet.rows)
    return max(_digits(sheet.columns[place].head), *entries)


def _digits(plain: str) -> float:
    return sum(WIDE.get(sign, 1.4 if sign.isupper() else 0.97) for sign in plain)


def _entry(entry: Entry, column: Column) -> str:
    noted = f"\\textsuperscript{{{','.join(map(str, entry.notes))}}}" if entry.notes else ""
    return _grey(text(entry.marked) + noted, column)


def _grey(shown: str, column: Column) -> str:
    return f"\\textcolor{{gray}}{{{shown}}}" if column.kind == "published" else shown


def _heads(columns: list[Column]) -> list[str]:
    """Two lines of heads with a rule between, under the groups; one where there are no groups."""
    groups, rules, start = [], [], 1
    for group, members in itertools.groupby(columns, key=lambda column: column.group):
        size = len(list(members))
        groups += [f"\\multicolumn{{{size}}}{{c}}{{{text(group)}}}"] if group else [""] * size
        rules += [f"\\cmidrule(lr){{{start}-{start + size - 1}}}"] if group else []
        start += size
    above = [" & ".join(groups) + " \\\\", "".join(rules)] if rules else []
    return [*above, " & ".join(_grey(text(column.head), column) for column in columns) + " \\\\"]
