"""The command line: commands parse, call one function and print. Slow imports wait until a command needs them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, RenderableType

from fedrepro import __version__
from fedrepro.errors import FedreproError, Interrupted

TRACEBACK = "FEDREPRO_TRACEBACK"

app = typer.Typer(
    help="Rebuilds the experiments of federated-learning papers, each number beside the published one.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # else the line ends of docstrings are kept
)
data = typer.Typer(help="Datasets: what there is, getting it, checking it, looking at it.", no_args_is_help=True)
show = typer.Typer(help="What there is: methods, datasets, papers, tables, claims, runs.", no_args_is_help=True)
app.add_typer(data, name="data")
app.add_typer(show, name="show")

Method = Annotated[str | None, typer.Option(help="A method: `fedrepro show methods` lists them.")]
Dataset = Annotated[
    str | None, typer.Option(help="A dataset, in place of the method's own: `fedrepro data list` lists them.")
]
Paper = Annotated[str | None, typer.Option(help="A paper: `fedrepro show papers` lists them.")]
Run = Annotated[str | None, typer.Option(help="A planned run of the paper: `fedrepro show runs` lists them.")]
Table = Annotated[str | None, typer.Option(help="A table of the paper: `fedrepro show tables` lists them.")]
Figure = Annotated[str | None, typer.Option(help="A figure of the paper: its paper.toml has them.")]
Claims = Annotated[bool, typer.Option("--claims", help="The claims of the paper.")]
Budget = Annotated[str | None, typer.Option(help="Another budget of the paper: `fedrepro show papers` lists them.")]
Seeds = Annotated[str | None, typer.Option(help="Seeds with commas between, such as 0,1,2; they train together.")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, such as rounds=50, lr=0.001, n=3 or stop.threshold=0.6, each with a --set of its own: "
        "`fedrepro show methods` and `fedrepro show datasets` list them.",
    ),
]
DataSets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting of the dataset, such as n=3 or p=[0.3,0.1]: `fedrepro show datasets` lists them.",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto is cuda where there is one.")]
Precision = Annotated[str | None, typer.Option(help="fp32 or bf16, of the products in training.")]
Mode = Annotated[
    str,
    typer.Option(help="How clients and seeds run: auto, vmap, loop, or how many are batched; no draw depends on it."),
]
Folder = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="A folder of its own for the record.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]
Name = Annotated[str | None, typer.Argument(metavar="[DATASET]", help="A dataset or source; all without it.")]


@app.callback(invoke_without_command=True)
def version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Rebuilds the experiments of federated-learning papers, each number beside the published one."""
    if version:
        typer.echo(f"fedrepro {__version__}")
        raise typer.Exit


@app.command()
def train(
    method: Method = None,
    dataset: Dataset = None,
    paper: Paper = None,
    run: Run = None,
    budget: Budget = None,
    seeds: Seeds = None,
    sets: Sets = None,
    device: Device = "auto",
    precision: Precision = None,
    mode: Mode = "auto",
    out: Folder = None,
) -> None:
    """Train one run: `--method M` with sensible defaults, or a planned one with `--paper P --run R`.

    A run that was interrupted goes on from its last checkpoint. Seeds that are recorded already are kept, if by the
    same code, settings and data; else all are trained again, and the new record takes the old one's place. A planned
    run with any change is an ad hoc run, whose record goes to runs/adhoc/ or to --out.
    """
    from fedrepro import lift, progress, runs, settings, show

    asked = settings.Request(method, dataset, paper, run, budget, seeds, tuple(sets or ()), precision, out)
    config, place = settings.resolve(asked)
    with lift.asked(mode), progress.shown(settings.title(config, place), errors()) as display:
        record = runs.execute(config, place, device=device, watch=display.watch, say=display.say)
    console().print(show.outcome(record))
    typer.echo(f"record: {place.record}")
    settings.enforce(record)


@app.command()
def pilot(
    paper: Annotated[str, typer.Option(help="A paper: `fedrepro show papers` lists them.")],
    run: Annotated[str, typer.Option(help='A planned run whose spec has `threshold = "pilot"`.')],
    device: Device = "auto",
) -> None:
    """Find the stopping threshold of a planned run, on a seed that no table reports.

    The pilot trains without stopping, looks at the training accuracy alone, and enters the threshold in
    papers/PAPER/pilots.json. Run `fedrepro plan` after it.
    """
    from fedrepro import pilot, progress

    with progress.shown(f"pilot of {run}, {paper}", errors()) as display:
        found = pilot.find(paper, run, device=device, watch=display.watch, say=display.say)
    typer.echo(f"{run}: threshold {found['threshold']}, between lo {found['lo']} and hi {found['hi']}")


@app.command()
def search(
    paper: Annotated[str, typer.Option(help="A paper: `fedrepro show papers` lists them.")],
    run: Annotated[str, typer.Option(help='A planned run with a hyper-parameter that says "search" in its spec.')],
    device: Device = "auto",
) -> None:
    """Choose hyper-parameters of a planned run from a grid, on validation data and a seed that no table reports.

    Every point of the grid is trained for some rounds; the best one is entered in papers/PAPER/searches.json, for all
    runs that share the search. Points that are trained already are kept. Run `fedrepro plan` after it.
    """
    from fedrepro import progress, search

    named, found = search.find(paper, run, lambda title: progress.shown(title, errors()), device=device)
    chosen = ", ".join(f"{key} {value}" for key, value in found["chosen"].items())
    typer.echo(f"{named}: {chosen}, the best of {len(found['scores'])} points")


@app.command()
def digests() -> None:
    """Write papers/digests.json: what the code behind each method and each part of a spec hash to.

    A stage of `dvc repro`, on which the others depend. After a change that keeps all numbers, `dvc commit` follows it.
    """
    from fedrepro import digests, lineage

    typer.echo(f"wrote {digests.write(lineage.code_digest, lineage.sheet_digest())}")


@app.command()
def extractor(
    name: Annotated[str, typer.Argument(help="A source of images (`fedrepro data list` lists them), or inception.")],
) -> None:
    """Train the small network that judges the images which a GAN generates, on a source's real ones.

    It goes to data/extractors/. A GAN on a dataset of that source needs it, unless the weights of the papers' FID are
    at hand, which the name inception downloads into data/cache/; `fedrepro show methods` lists the GANs.
    """
    from fedrepro import extractors

    typer.echo(f"wrote {extractors.make(name, lambda line: typer.echo(line, err=True))}")


@app.command()
def plan(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a file is stale.")] = False,
) -> None:
    """Write the generated files, dvc.yaml and runs.json, from papers/*/paper.toml and params.yaml."""
    from fedrepro import plan

    if check:
        plan.check()
    else:
        typer.echo("\n".join(f"wrote {path}" for path in plan.write()) or "all generated files are up to date")


@app.command()
def evaluate(paper: Paper = None, table: Table = None, figure: Figure = None, claims: Claims = False) -> None:
    """Write the tidy rows of tables, figures and claims from their runs' records; of all when none is named."""
    from fedrepro import report

    for path in report.evaluate(paper, table, figure, claims):
        typer.echo(f"wrote {path}")


@app.command()
def report(show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False) -> None:
    """Write tables, figures and claims from `evaluate`'s rows, and reports/index.html, a page that shows them all.

    Tables are .csv, .md and .tex, figures .svg and .png, claims .csv and .md.
    """
    from fedrepro import report

    for path in report.render():
        typer.echo(f"wrote {path}")
    if show:
        report.browse(path)


@app.command()
def check(
    as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", help="A row for each cell, where cells would share one.")] = False,
) -> None:
    """Compare the reproduced numbers with the published ones; exit code 3 if something is outside, undeclared."""
    from fedrepro import check, verdicts

    report = check.run()
    if as_json:
        typer.echo(report.text(), nl=False)
    else:
        console().print(verdicts.show(report, every))
    report.enforce()


@app.command()
def bench(
    workload: Annotated[str, typer.Argument(help="W1, W2, W3 or W4: benchmarks/README.md says what they are.")],
    folder: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The folder of MNIST/raw, else FEDREPRO_DATA_DIR's.")
    ] = None,
    precision: Precision = "fp32",
    device: Device = "auto",
    mode: Mode = "auto",
) -> None:
    """Time one of the workloads by which the engine is measured; prints one line of JSON.

    `round_s` has the seconds of each round: the broadcast, local training, aggregation and the test on all images.
    """
    from fedrepro import bench, lift

    work = bench.find(workload)
    if folder is not None:
        bench.lend(work, folder)
    with lift.asked(mode):
        typer.echo(json.dumps(bench.run(work, precision=precision, device=device)))


@app.command()
def doctor() -> None:
    """Look at environment, data, generated files, checkpoints and records: what is wrong and how to mend it."""
    from fedrepro import doctor

    findings = doctor.examine()
    console().print(doctor.show(findings))
    doctor.enforce(findings)


@data.command("list")
def data_list() -> None:
    """List the datasets, and whether their data are there."""
    _listed("datasets", lambda: import_module("fedrepro.show").datasets())


@data.command("fetch")
def data_fetch(name: Name = None) -> None:
    """Get data that are missing, verify them, and write their manifest to data/manifests/; without a name, all."""
    from fedrepro import show
    from fedrepro.data import manifests, sources

    for each in [name] if name else sources.SOURCES:
        if name or manifests.there(each) or manifests.fetchable(each):
            console().print(show.manifest(manifests.fetch(each)))
        else:
            typer.echo(f"{each}: not there, and not to be downloaded: `fedrepro data fetch {each}` says why")


@data.command("verify")
def data_verify(name: Name = None) -> None:
    """Check data that are there (without a name, all) against pinned checksums and their manifest; no download."""
    from fedrepro import show
    from fedrepro.data import manifests, sources

    for each in [name] if name else sources.SOURCES:
        if name or manifests.there(each):
            console().print(show.manifest(manifests.verify(each)))
        else:
            typer.echo(f"{each}: not there")


@data.command("show")
def data_show(
    dataset: Annotated[str | None, typer.Argument(help="A dataset: `fedrepro data list` lists them.")] = None,
    paper: Paper = None,
    sheet: Annotated[
        str | None, typer.Option(help="A sample sheet of the paper's report: paper.toml has them.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="PNG", help="The picture; build/DATASET.png without it.")] = None,
    seed: Annotated[int, typer.Option(help="The seed of split, noise and colours.")] = 0,
    sets: DataSets = None,
) -> None:
    """Draw a sample sheet of a dataset, or one of a paper's report, a panel for each client."""
    from fedrepro import settings, spec
    from fedrepro.data import sheet as sheets
    from fedrepro.errors import UsageError

    if (dataset is None) == (sheet is None) or (paper is None) != (sheet is None):
        raise UsageError("name a dataset, or a sample sheet with --paper and --sheet.")
    if sheet is not None and sets:
        raise UsageError("the settings of a paper's sample sheet are the paper's: leave --set out, or name a dataset.")
    if sheet is not None:
        chosen = spec.load_paper(paper)
        (dataset, params), out = chosen.sheet(sheet), out or chosen.sheet_path(sheet)
    else:
        params, out = settings.parameters(dataset, sets or ()), out or Path("build") / f"{dataset}.png"
    if out.suffix != ".png":
        raise UsageError(f"the picture is a PNG: give {out} a name that ends in .png.")
    typer.echo(f"wrote {sheets.show(dataset, out, seed, params)}")


def _lists(name: str, summary: str) -> None:
    """A command that prints what the function of that name in show.py makes."""

    def command() -> None:
        _listed(name, lambda: getattr(import_module("fedrepro.show"), name)())

    show.command(name, help=summary)(command)


_lists("methods", "List the methods, with their settings and defaults; and the plugins that are left out, with why.")
_lists("datasets", "List the datasets, with their settings and defaults.")
_lists("papers", "List the papers and their budgets.")
_lists("tables", "List the tables of all papers.")
_lists("runs", "List the planned and the ad hoc runs, and how they ended.")


@show.command("table")
def show_table(
    paper: Annotated[str, typer.Argument(help="A paper: `fedrepro show papers` lists them.")],
    table: Annotated[str, typer.Argument(help="A table of it: `fedrepro show tables` lists them.")],
) -> None:
    """Print one table straight from the records, published beside reproduced."""
    from fedrepro import tables

    console().print(tables.show(paper, table))


@show.command("claims")
def show_claims(
    paper: Annotated[str | None, typer.Argument(metavar="[PAPER]", help="A paper; all without it.")] = None,
) -> None:
    """Print the claims of the papers and how they fare, straight from the records."""
    _listed(f"claims-{paper}" if paper else "claims", lambda: import_module("fedrepro.claims").show(paper))


def _listed(name: str, make: Callable[[], RenderableType]) -> None:
    """Print a listing, made anew only where something has changed."""
    from fedrepro import kept

    console().print(kept.listing(name, make))


def console() -> Console:
    """Results go here: standard output, wide where it is no terminal, so that nothing is cut."""
    return _console(stderr=False)


def errors() -> Console:
    """Progress and errors go here: standard error."""
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 160
    return Console(stderr=stderr, width=width, markup=False, highlight=False)


def main(arguments: list[str] | None = None) -> None:
    """The entry point: whatever goes wrong is one line on standard error and an exit code, never a traceback."""
    try:
        app(arguments)
    except FedreproError as error:
        _fail(str(error) if isinstance(error, Interrupted) else f"error: {error}", error.exit_code)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        _fail(f"internal error: {reason}; run it again with {TRACEBACK}=1 for the details", 1)


def _fail(line: str, code: int) -> None:
    print(line, file=sys.stderr)
    sys.exit(code)
