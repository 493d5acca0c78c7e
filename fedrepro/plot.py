"""How a figure looks: its points as SVG and PNG, the same bytes for the same points."""

from __future__ import annotations

import io
import textwrap
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedrepro import figures, panels
from fedrepro.curves import percent
from fedrepro.figures import Spread
from fedrepro.files import write_bytes
from fedrepro.gallery import Panel
from fedrepro.schema import Curves, Gallery, Last, Levels, Median, Rounds, product, values
from fedrepro.spec import Paper

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito 2008
DASHES = ("-", "--", ":")  # beyond seven lines
WIDTH = 7.2  # inches
CAPTION = 118  # letters of the caption in a line
STYLE = [  # whatever the user's own settings say
    "default",
    {
        "svg.hashsalt": "fedrepro", "svg.fonttype": "none", "savefig.dpi": 150, "text.parse_math": False,
        "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9,
        "lines.linewidth": 1, "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False,
        "axes.spines.right": False, "grid.color": "#dddddd", "legend.frameon": False,
    },
]  # fmt: skip
NAMELESS = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}  # no time and no version in the files


def render(papers: list[Paper]) -> list[Path]:
    """Write every figure of papers as .svg and .png, from the points in reports/figures.

    Equal points give equal bytes. Raises FedreproError where a figure has no points yet.
    """
    files: dict[Path, bytes] = {}
    with ProcessPoolExecutor() as pool:  # matplotlib is slow, and threads would wait for each other
        for drawn in [pool.submit(_files, paper, name) for paper in papers for name in paper.figures]:
            files |= drawn.result()
    return [write_bytes(path, content) for path, content in files.items()]


def _files(paper: Paper, name: str) -> dict[Path, bytes]:
    """What the files of a figure say."""
    paths = figures.pictures(paper.name, name, paper.root)
    drawn = pictures(paper, name, figures.stored(paper, name), *(path.suffix[1:] for path in paths))
    return dict(zip(paths, drawn, strict=True))


def pictures(paper: Paper, name: str, points: list[Spread] | list[Panel], *kinds: str) -> list[bytes]:
    """What a figure's files of these kinds, svg or png, say, laid out for the first of them.

    Raises FedreproError where a gallery's samples are gone.
    """
    found = []
    with matplotlib.style.context(STYLE):
        drawn = (panels.figure if isinstance(paper.figure(name), Gallery) else _figure)(paper, name, points)
        for kind in kinds:
            out = io.BytesIO()
            drawn.savefig(out, format=kind, metadata=NAMELESS[kind])
            drawn.set_layout_engine("none")  # which keeps the layout: to find one takes as long as to draw
            found.append(out.getvalue())
    return found


def caption(paper: Paper, name: str, points: list[Spread]) -> str:
    """What the plot shows, at which budget, over how many seeds and on which data, and what is not in it."""
    budget = paper.spec.budgets[paper.budget].of(name)
    runs = {point.run: point for point in points}
    most = {run: max(point.n for point in points if point.run == run) for run in runs}
    seeds = f"{min(most.values())}–{max(most.values())}".removeprefix(f"{max(most.values())}–")
    spec = paper.figure(name)
    over, what = "Mean over the seeds", "seeds"
    if isinstance(spec, Levels) and isinstance(spec.quantity, Median):
        over = f"Median over the seeds, the ends of {spec.quantity.checkpoints} equal parts of training"
        over, what = f"{over}{''.join(f' and {axis}' for axis in spec.grid)}", "values"
    reads = (paper.read(metric, run.split("; ")[0]) for run in runs for metric in _asked(spec))
    drawn = f"{over}, band: ± one standard deviation (population). " if max(most.values()) > 1 else ""
    parts = [
        f"{drawn}Budget: {budget.label}",
        "" if budget.compare else "never compared with the paper's numbers",
        f"{seeds} {what.removesuffix('s') if seeds == '1' else what}",
        *dict.fromkeys(read.substitute for read in reads),
        *(f"{each.line}: {each.diverged} diverged and left out" for each in runs.values() if each.diverged),
        *(f"{each.line}, {each.metric.replace('_', ' ')}: no value" for each in points if not each.n),
        *(f"data: {each}, in place of the paper's own" for each in sorted({p.substitute for p in points} - {""})),
    ]
    return " ".join(["; ".join(filter(None, parts)) + ".", *paper.not_shown(name)])


def _asked(spec: Curves | Levels) -> list[str]:
    """The metrics that the spec of a figure names."""
    if isinstance(spec, Curves):
        return list(spec.metrics)
    return [] if isinstance(spec.quantity, Rounds) else [quantity.metric for quantity in spec.quantities]


def label(name: str) -> str:
    """A metric or an axis as the label of an axis, with its unit."""
    return name.replace("_", " ") + (" (%)" if percent(name) else "")


def _figure(paper: Paper, name: str, points: list[Spread]) -> Figure:
    spec = paper.figure(name)
    metrics = list(dict.fromkeys(point.metric for point in points))
    lines = list(dict.fromkeys(spot.line for spot, _ in paper.spots(name)))
    # Rounds are numbers; the values of another axis are names, in the order of paper.toml.
    places = values(spec.x) if isinstance(spec, Levels) else ()
    known = map(spec.place, product({each: paper.spec.axes[each] for each in places})) if places else ()
    names = [place for place in known if place in {point.x for point in points}]
    drawn = Figure(figsize=(WIDTH, 1.3 + 2.4 * len(metrics)), layout="constrained")
    drawn.suptitle(textwrap.fill(spec.title, 90), fontsize=10)
    drawn.supxlabel(textwrap.fill(caption(paper, name, points), CAPTION), fontsize=7, x=0.01, ha="left")
    axes = drawn.subplots(len(metrics), sharex=True, squeeze=False)[:, 0]
    handles = {}  # a line may be in some panels alone
    for axis, metric in zip(axes, metrics, strict=True):
        for number, line in enumerate(lines):
            colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
            if own := [point for point in points if (point.metric, point.line) == (metric, line) and point.n]:
                handles.setdefault(line, _line(axis, own, names, label=line, color=colour, linestyle=dash))
        axis.set_ylabel(label(metric) + _reduced(spec))
    if names:
        axes[-1].set_xticks(range(len(names)), names)
        axes[-1].margins(x=0.1)
        if isinstance(spec.quantity, Rounds):
            axes[-1].set_ylim(bottom=0)
    axes[-1].set_xlabel(" × ".join(map(label, places)) if names else "round")
    title = label(spec.lines) if names else None
    shown = [handles[line] for line in lines if line in handles]
    axes[0].legend(handles=shown, title=title, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return drawn


def _reduced(spec: Levels | Curves) -> str:
    """How the metric of levels was reduced, for the label of its axis."""
    if isinstance(spec, Levels) and isinstance(spec.quantity, Median):
        return ", median"
    last = isinstance(spec, Levels) and isinstance(spec.quantity, Last)
    return f",\nmean of the last {spec.quantity.rounds} rounds" if last else ""


def _line(axis: Axes, points: list[Spread], names: list[str], **look: str) -> Line2D:
    """A line through the means with a band of the spread; of levels with a marker, hollow where seeds were capped."""
    placed = {names.index(point.x) if names else int(point.x): point for point in points}
    x = sorted(placed)
    low, high = ([placed[each].mean + sign * placed[each].spread for each in x] for sign in (-1, 1))
    axis.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)
    (line,) = axis.plot(x, [placed[each].mean for each in x], marker="o" if names else None, **look)
    for each in (each for each in x if names and placed[each].capped):
        place, note = (each, placed[each].mean), f"{placed[each].capped} of {placed[each].n} at the cap"
        axis.plot(*place, marker="o", color=look["color"], markerfacecolor="white")
        axis.annotate(note, place, (0, 6), textcoords="offset points", ha="center", fontsize=7)
    return line
