"""How a figure looks: its points as SVG, the same bytes for the same points. galleries.py draws samples."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable
from typing import Any

import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from fedrepro.papers.paper import Paper
from fedrepro.papers.schema import figures
from fedrepro.papers.schema.cells import place, product, values
from fedrepro.records.curves import percent
from fedrepro.report import galleries, thresholds

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito 2008
DASHES = ("-", "--", ":")  # beyond seven lines
WIDTH = 7.2  # inches
HIGH = {"curves": 2.4, "levels": 2.4, "thresholds": 3}  # a panel, in inches
INKS = {  # colours of a light figure -> those in a reader's dark mode
    "fill: #ffffff": "fill: #1b1f24", "fill: #000000": "fill: #e6e8eb", "stroke: #ffffff": "stroke: #1b1f24",
    "stroke: #000000": "stroke: #e6e8eb", "stroke: #dddddd": "stroke: #3a424b",
}  # fmt: skip
PLAIN = "*{stroke-linejoin: round; stroke-linecap: butt}"  # the one style rule of matplotlib's SVGs
STYLE = [  # whatever the user's own settings say
    "default",
    {
        "svg.hashsalt": "fedrepro", "svg.fonttype": "none", "savefig.dpi": 150, "text.parse_math": False,
        "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9,
        "lines.linewidth": 1, "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False,
        "axes.spines.right": False, "grid.color": "#dddddd", "legend.frameon": False,
    },
]  # fmt: skip


def svg(paper: Paper, name: str, points: pd.DataFrame) -> str:
    """A figure of a paper from its rows of the frame `points`; FedreproError for a gallery without its samples."""
    return drawing(lambda: figure(paper, name, points), bool(paper.figure(name).gallery))


def drawing(made: Callable[[], Figure], gallery: bool = False) -> str:
    """The SVG of a figure that is made under STYLE, with rules for a reader's dark mode: see `dark`."""
    out = io.StringIO()
    with matplotlib.style.context(STYLE):
        made().savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue().replace(PLAIN, f"{PLAIN}{dark(gallery)}")


def framed(title: str, told: str, height: float) -> Figure:
    """A figure without panels: its title, and a caption below; `height`: in inches, for a caption of one line."""
    told = textwrap.fill(told, 110)
    drawn = Figure(figsize=(WIDTH, height + 0.13 * told.count("\n")), layout="constrained")
    drawn.suptitle(textwrap.fill(title, 90), fontsize=10)
    drawn.supxlabel(told, fontsize=8.5, x=0.01, ha="left")
    return drawn


def dark(gallery: bool) -> str:
    """Style rules for a reader's dark mode; the panels of a gallery, which have images, stay white."""
    if gallery:
        rules = "#patch_1 path {fill: #1b1f24 !important}"
    else:
        rules = " ".join(f'[style*="{light}"] {{{ink} !important}}' for light, ink in INKS.items())
    return f"@media (prefers-color-scheme: dark) {{text {{fill: #e6e8eb}} {rules}}}"


def figure(paper: Paper, name: str, points: pd.DataFrame) -> Figure:
    """The panels of a figure with its title, and a caption below."""
    spec, gallery = paper.figure(name), paper.figure(name).gallery
    places = _places(paper, spec.x, set(points.x))
    down = places if gallery else list(points.metric.unique())
    across = _places(paper, spec.lines, set(points.line)) if gallery else [""]
    if spec.kind == "thresholds":
        shown = thresholds.methods(paper, name)
        down, across = range((len(shown) + 1) // 2), range(min(len(shown), 2))
    height = 0.9 + WIDTH / len(across) * len(down) if gallery else 1.3 + HIGH[spec.kind] * len(down)
    drawn = framed(spec.title, caption(paper, name, points), height)
    panels = drawn.subplots(len(down), len(across), sharex=spec.kind in ("curves", "levels"), squeeze=False)
    if spec.kind == "thresholds":
        thresholds.fill(paper, name, dict(zip(shown, panels.flat, strict=False)), COLOURS, points)
        for empty in panels.flat[len(shown) :]:
            empty.set_axis_off()
    elif gallery:
        galleries.fill(paper, spec, dict(zip(down, panels, strict=True)), across, points)
    else:
        lines = list(dict.fromkeys(spot.line for spot, _ in paper.spots(name)))
        _fill(spec, dict(zip(down, panels[:, 0], strict=True)), places, lines, points)
    return drawn


def _places(paper: Paper, axes: str | tuple[str, ...], there: set[str]) -> list[str]:
    """The places on some axes at which there is something, in the order of paper.toml."""
    known = product({axis: paper.spec.axes[axis] for axis in values(axes)}) if axes else ()
    return [each for each in (place(cell, axes) for cell in known) if each in there]


def caption(paper: Paper, name: str, points: pd.DataFrame) -> str:
    """What a figure shows, at which budget, over how many seeds and on which data, and what is not in it."""
    budget, spec = paper.spec.budgets[paper.budget].of(name), paper.figure(name)
    lead, *told = galleries.said(spec, points) if spec.gallery else _said(paper, spec, points)
    parts = [
        f"{lead}Budget: {budget.label}",
        "" if budget.compare else f"never compared with the paper's{'' if spec.gallery else ' numbers'}",
        *told,
        *(f"data: {each}, in place of the paper's own" for each in sorted({*points.substitute_data} - {""})),
    ]
    return " ".join(["; ".join(filter(None, parts)) + ".", *paper.not_shown(name)])


def label(name: str) -> str:
    """A metric or an axis as the label of an axis, with its unit."""
    return name.replace("_", " ") + (" (%)" if percent(name) else "")


def _said(paper: Paper, spec: figures.Figure, points: pd.DataFrame) -> list[str]:
    """What a line is, over how many seeds, of which metrics, and what of it is left out or has no value."""
    over, what = "Mean over the seeds", "seed"
    lead = f"{thresholds.LEAD} " if spec.kind == "thresholds" else ""
    if spec.quantity.kind == "median":
        parts = f"the ends of {spec.quantity.checkpoints} equal parts of training"
        over, what = f"Median over the seeds, {parts}{''.join(f' and {axis}' for axis in spec.grid)}", "value"
    asked = spec.metrics or [each.metric for each in spec.quantities]
    own = points.groupby(points.runs.map("; ".join), sort=False)
    low, high = own.n.max().min(), own.n.max().max()
    ends = list(own.last().itertuples())
    reads = (paper.read(metric, runs[0]) for runs in own.runs.first() for metric in filter(None, asked))
    return [
        f"{lead}{over}, band: ± one standard deviation (population). " if high > 1 else lead,
        f"{f'{low}–' if low < high else ''}{high} {what}{'s' if high != 1 else ''}",
        *dict.fromkeys(read.substitute for read in reads),
        *(f"{each.line}: {each.diverged} diverged and left out" for each in ends if each.diverged),
        *(f"{each.line}: {each.collapsed} collapsed to chance" for each in ends if each.collapsed),
        *(f"{each.line}, {each.metric.replace('_', ' ')}: no value" for each in points[points.n == 0].itertuples()),
    ]


def _fill(spec: figures.Figure, panels: dict[str, Axes], places: list[str], lines: list[str], points: Any) -> None:
    """Draw the lines of each panel, by metric; and the legend above the first."""
    handles, (first, *_, last) = {}, [*panels.values()] * 2  # a line may be in some panels alone
    for metric, axis in panels.items():
        for number, line in enumerate(lines):
            colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
            own = points[(points.metric == metric) & (points.line == line) & (points.n > 0)]
            if len(own):
                handles.setdefault(line, _line(axis, own, places, label=line, color=colour, linestyle=dash))
        axis.set_ylabel(label(metric) + _reduced(spec))
        if spec.log:
            axis.set_yscale("log")
            axis.yaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), minor_locator=NullLocator())
            axis.yaxis.set_major_formatter("{x:g}")
    if places:
        last.set_xticks(range(len(places)), places)
        last.margins(x=0.1)
        if spec.quantity.kind == "rounds":
            last.set_ylim(bottom=0)
    last.set_xlabel(_labels(spec.x) if places else "round")
    shown = [handles[line] for line in lines if line in handles]
    title = _labels(spec.lines) if places else None
    first.legend(handles=shown, title=title, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


def _labels(axes: str | tuple[str, ...]) -> str:
    """One or several axes as a label."""
    return " × ".join(map(label, values(axes)))


def _reduced(spec: figures.Figure) -> str:
    """How the metric of levels was reduced, for the label of its axis."""
    last = f",\nmean of the last {spec.quantity.rounds} rounds"
    return {"median": ", median", "last": last}.get(spec.quantity.kind, "")


def _line(axis: Axes, points: pd.DataFrame, places: list[str], **look: str) -> Line2D:
    """A line through the means with a band of the spread; of levels with a marker, hollow where seeds were capped."""
    own = points.assign(x=points.x.map(places.index if places else int)).sort_values("x")
    low, high = own["mean"] - own.spread, own["mean"] + own.spread
    axis.fill_between(own.x, low, high, color=look["color"], alpha=0.2, linewidth=0)
    (line,) = axis.plot(own.x, own["mean"], marker="o" if places else None, **look)
    for x, mean, capped, n in own[["x", "mean", "capped", "n"]].itertuples(index=False) if places else ():
        if capped:
            axis.plot(x, mean, marker="o", color=look["color"], markerfacecolor="white")
            note, above = f"{capped} of {n} at the cap", (0, 6)
            axis.annotate(note, (x, mean), above, textcoords="offset points", ha="center", fontsize=7)
    return line
