"""The commands of `fedrepro data` and `fedrepro show`: what there is, getting it, looking at it."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from fedrepro.cli import held, options
from fedrepro.cli.options import DataSets, Name, OnePaper, Prepared, Wide, console, papers, place

data = typer.Typer(help="Datasets: what there is, getting it, checking it, looking at it.", no_args_is_help=True)
show = typer.Typer(help="What there is: methods, datasets, papers, tables, claims, runs.", no_args_is_help=True)


@data.command("list")
def data_list() -> None:
    """List the datasets, and whether their data are there."""
    from fedrepro.cli import show

    console().print(show.datasets())


@data.command("fetch")
def data_fetch(name: Name = None) -> None:
    """Get data that are missing, verify them, and write their manifest to data/manifests/; without a name, all."""
    _sources("fetch", name, "not there, and not to be downloaded: `fedrepro data fetch {}` says why")


@data.command("verify")
def data_verify(name: Name = None) -> None:
    """Check data that are there (without a name, all) against pinned checksums and their manifest; no download."""
    _sources("verify", name, "not there")


def _sources(verb: str, name: str | None, absent: str) -> None:
    """Do something with a dataset or source, or with each source for which it can be done."""
    from fedrepro.cli import show
    from fedrepro.data import manifests, sources

    for each in sources.SOURCES if name is None else [name]:
        if name is not None or manifests.there(each) or (verb == "fetch" and manifests.fetchable(each)):
            console().print(show.manifest(getattr(manifests, verb)(each)))
        else:
            typer.echo(f"{each}: {absent.format(each)}")


@data.command("show")
def data_show(
    dataset: Annotated[
        str | None, typer.Argument(parser=options.dataset, help="A dataset: `fedrepro data list` lists them.")
    ] = None,
    paper: Annotated[
        str | None, typer.Option(parser=options.paper, help="In place of a dataset: the sheets of this paper's report.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", parser=place, help="The picture; build/DATASET.png without it.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The seed of split, noise and colours.")] = 0,
    sets: DataSets = None,
) -> None:
    """Draw a sample sheet of a dataset, a panel for each client, or those of a paper's report that are not current."""
    from fedrepro.errors import UsageError, short
    from fedrepro.pipeline import request, sheets

    if (dataset is None) == (paper is None):
        raise UsageError("name a dataset, or a paper with --paper.")
    if paper is not None:
        if sets or out or seed:
            raise UsageError("the sheets of a paper are as its spec says: leave --set, --out and --seed out.")
        for path in sheets.draw(*papers(paper)):
            typer.echo(f"wrote {path}")
        return
    out = out or Path("build") / f"{dataset}.png"
    if out.suffix != ".png":
        raise UsageError(f"the picture is a PNG: give {short(str(out))} a name that ends in .png.")
    from fedrepro.data import sheet

    typer.echo(f"wrote {sheet.show(dataset, out, seed, request.parameters(dataset, sets or ()))}")


def _shows(name: str, summary: str, /, **arguments: str) -> None:
    """A command that prints what the function of that name in show.py makes of its arguments: name -> help."""
    spelled = getattr(options, name, None)

    def command(**given: str) -> None:
        console().print(getattr(import_module("fedrepro.cli.show"), name)(**given))

    types = {key: Annotated[str, typer.Argument(parser=spelled, help=help)] for key, help in arguments.items()}
    kind = inspect.Parameter.KEYWORD_ONLY
    command.__signature__ = inspect.Signature([inspect.Parameter(k, kind, annotation=t) for k, t in types.items()])
    command.__annotations__ = types
    show.command(name, help=summary)(command)


_shows("methods", "List the methods, and the plugins that are left out, with why.")
_shows("datasets", "List the datasets, and whether their data are there.")
_shows("papers", "List the papers and their budgets.")
_shows("tables", "List the tables of all papers.")
_shows(
    "dataset",
    "Print what a dataset is, how it is made, and its settings with their defaults.",
    name="A dataset: `fedrepro show datasets` lists them.",
)
_shows(
    "method",
    "Print one method in full: what it is, its settings, their defaults and values.",
    name="A method: `fedrepro show methods` lists them.",
)


@show.command("table")
def show_table(
    paper: Annotated[str, typer.Argument(parser=options.paper, help="A paper: `fedrepro show papers` lists them.")],
    table: Annotated[str, typer.Argument(help="A table of it: `fedrepro show tables` lists them.")],
    budget: Prepared = None,
    wide: Wide = False,
) -> None:
    """Print one table from the frame that `evaluate` wrote: our numbers and the published ones."""
    from fedrepro.cli import show

    console().print(show.table(*papers(paper, budget), table, console().width, wide))


@show.command("claims")
def show_claims(paper: OnePaper = None, budget: Prepared = None, wide: Wide = False) -> None:
    """Print the claims of the papers and how they fare, from the frames that `evaluate` wrote."""
    from fedrepro.cli import show

    console().print(show.claims(papers(paper, budget), wide))


show.command("runs")(held.show_runs)
