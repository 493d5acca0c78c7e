"""The path of every file of a project, relative to its root."""

from __future__ import annotations

from pathlib import Path

PARAMS = Path("params.yaml")  # the budget in use of each paper
STATE = Path(".fedrepro/state")  # checkpoints and locks of the runs that are being trained
ADHOC = Path("runs/adhoc")  # runs that no paper plans
MANIFESTS = Path("data/manifests")
HUB_LOCK = Path("data/hub.lock")  # what was fetched from Hugging Face
PAGE = Path("reports/index.html")
SINGLE = Path("reports/fedrepro.html")  # all pages in one file, to send
OVERVIEW = Path("reports/summary.md")  # of all papers
FINDINGS = Path("docs/what-reproduces.md")
FRAMES = ("cells", "points", "claims")  # what evaluation writes of a paper
SAMPLES = ("samples.png", "samples.csv")  # what a generator's run shows: images, or points

Root = str | Path


def spec(paper: str, root: Root = ".") -> Path:
    """The folder of a paper's spec, published numbers, tuned values and protocol."""
    return Path(root) / "papers" / paper


def runs(paper: str, method: str, root: Root = ".") -> Path:
    """The folder of a paper's planned runs by one method."""
    return Path(root) / "runs" / paper / method


def run(paper: str, method: str, run: str, root: Root = ".") -> Path:
    """The folder of a planned run's record, curves and samples."""
    return runs(paper, method, root) / run


def studies(paper: str, root: Root = ".") -> Path:
    """The folder of a paper's points of searches, and of its runs at prepared budgets."""
    return Path(root) / "studies" / paper


def study(paper: str, run: str, point: str, root: Root = ".") -> Path:
    """The folder of the record of a point of a search."""
    return studies(paper, root) / run / point


def prepared(paper: str, budget: str, run: str, root: Root = ".") -> Path:
    """The folder of the record of a run at a prepared budget."""
    return studies(paper, root) / budget / run


def checkpoints(state: Path) -> list[Path]:
    """The checkpoints in the folder of a run's state, oldest first."""
    return sorted(state.glob("round-*.checkpoint"))


def reports(paper: str, root: Root = ".") -> Path:
    """The folder of what is reported of a paper."""
    return Path(root) / "reports" / paper


def page(paper: str, root: Root = ".") -> Path:
    """The page of a paper."""
    return Path(root) / PAGE.parent / f"{paper}.html"


def frame(paper: str, name: str, root: Root = ".") -> Path:
    """One of FRAMES."""
    return reports(paper, root) / f"{name}.csv"


def rendered(paper: str, root: Root = ".") -> Path:
    """The folder of a paper's tables, figures, claims and summary."""
    return reports(paper, root) / "rendered"


def table(paper: str, table: str, root: Root = ".") -> list[Path]:
    """A table as CSV, Markdown and LaTeX."""
    return [rendered(paper, root) / f"{table}.{kind}" for kind in ("csv", "md", "tex")]


def figure(paper: str, figure: str, root: Root = ".") -> Path:
    """The picture of a figure."""
    return reports(paper, root) / "figures" / f"{figure}.svg"


def claims(paper: str, root: Root = ".") -> Path:
    """The claims of a paper with their evidence, as Markdown."""
    return rendered(paper, root) / "claims.md"


def summary(paper: str, root: Root = ".") -> Path:
    """The counts, verdicts and reasons of a paper."""
    return rendered(paper, root) / "summary.md"


def metrics(paper: str, root: Root = ".") -> Path:
    """The counts of a paper for `dvc metrics`."""
    return reports(paper, root) / "metrics.json"


def compared(paper: str, root: Root = ".") -> Path:
    """The numbers that are compared with published ones, for `dvc plots`."""
    return reports(paper, root) / "compared.csv"


def sheet(paper: str, sheet: str, root: Root = ".") -> Path:
    """A sample sheet of a paper's data."""
    return reports(paper, root) / "sheets" / f"{sheet}.png"


def manifest(source: str, root: Root = ".") -> Path:
    """The manifest of a source: its files with their checksums."""
    return Path(root) / MANIFESTS / f"{source}.json"
