"""Shared by the commands: their options, the consoles that they print to, the papers that they are about."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedrepro.errors import UsageError, same, short

if TYPE_CHECKING:
    from fedrepro.papers.paper import Paper as Loaded

LONGEST = 500  # of a path: longer ones reach the limits of file systems


def readable(arguments: list[str]) -> list[str]:
    """The words of a command; UsageError where one is not UTF-8."""
    for each in arguments:
        if each.encode(errors="ignore").decode() != each:
            raise UsageError(f"the argument {each!r} is not UTF-8: give it another name.")
    return arguments


def place(text: str) -> Path:
    """A place for a file that is still to be written."""
    if not 0 < len(os.fsencode(text)) <= LONGEST or any(len(os.fsencode(part)) > 200 for part in Path(text).parts):
        fault = f"a place for files has 1 to {LONGEST} letters, at most 200 in a name"
        raise UsageError(f"nothing can be written to {short(repr(text))}: {fault}.")
    return Path(text)


def method(text: str) -> str:
    """A method's name, however it is spelled."""
    from fedrepro import plugins
    from fedrepro.methods import KIND, REGISTRY

    return plugins.spelled(KIND, REGISTRY, text)


def dataset(text: str) -> str:
    """A dataset's name, however it is spelled."""
    from fedrepro import plugins
    from fedrepro.data.catalogue import DATASETS, KIND

    return plugins.spelled(KIND, DATASETS, text)


def paper(text: str) -> str:
    """A paper's name, however it is spelled."""
    from fedrepro.papers.load import papers

    return same(text, papers())


Method = Annotated[str | None, typer.Option(parser=method, help="A method: `fedrepro show methods` lists them.")]
Dataset = Annotated[
    str | None,
    typer.Option(parser=dataset, help="A dataset, in place of the method's own: `fedrepro data list` lists them."),
]
Paper = Annotated[str | None, typer.Option(parser=paper, help="A paper: `fedrepro show papers` lists them.")]
Run = Annotated[str | None, typer.Option(help="A planned run of the paper: `fedrepro show runs` lists them.")]
Budget = Annotated[str | None, typer.Option(help="Another budget of the paper: `fedrepro show papers` lists them.")]
Prepared = Annotated[
    str | None, typer.Option("--budget", help="A prepared budget of the paper: its records are evaluated afresh.")
]
Seeds = Annotated[
    str | None, typer.Option(help="Seeds that train together, such as 0,1,2; without it 0, or the paper's.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, such as rounds=50, lr=0.001, n=3 or stop.threshold=0.6, each with a --set of its own: "
        "`fedrepro show method NAME` and `fedrepro show dataset NAME` list theirs, docs/reference.md all others.",
    ),
]
DataSets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting of the dataset, such as n=3 or p=[0.3,0.1]: `fedrepro show dataset NAME` lists them.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto is cuda where there is one.")]
Precision = Annotated[str | None, typer.Option(help="fp32 or bf16, of the products in training.")]
Mode = Annotated[
    str,
    typer.Option(help="How clients and seeds run: auto, vmap, loop, or a chunk size; results agree up to rounding."),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads; without it as many as cores are idle. An interrupted run keeps its own."),
]
Folder = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", parser=place, help="A folder of its own for the record.")
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Train a planned run anew, elsewhere, and compare it with its record.")
]
SaveModel = Annotated[
    bool, typer.Option("--save-model", help="Save the trained model of each seed beside the record, as safetensors.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="Everything: spreads, seeds, rounds, reasons; needs a wide terminal.")
]
OnePaper = Annotated[
    str | None, typer.Argument(parser=paper, metavar="[PAPER]", help="A paper; all without it.", show_default=False)
]
OneTable = Annotated[
    str | None, typer.Argument(metavar="[TABLE]", help="A table of PAPER; all without it.", show_default=False)
]
Name = Annotated[str | None, typer.Argument(metavar="[DATASET]", help="A dataset or source; all without it.")]


def papers(name: str | None = None, budget: str | None = None) -> list[Loaded]:
    """The paper of that name, at the budget in use or at a prepared one, or all."""
    from fedrepro.papers.load import load_paper, load_papers

    if name is None:
        if budget is not None:
            raise UsageError("--budget is one of a paper's: name the paper, too.")
        return load_papers()
    own = load_paper(name)
    found = own.at(budget)
    if found is not own and not found.prepared:
        ready = ", ".join(key for key, each in own.spec.budgets.items() if each.prepared) or "none"
        fault = f"budget {budget!r} of {name} is neither in use nor prepared"
        raise UsageError(f"{fault}: give one that is prepared ({ready}), or leave --budget out.")
    return [found]


def console(stderr: bool = False) -> Console:
    """For results, or for progress on standard error: wide where it is no terminal, so that nothing is cut."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 160
    return Console(stderr=stderr, width=width, markup=False, highlight=False)
