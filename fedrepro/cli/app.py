"""The command line: commands parse, call one function and print. Slow imports wait until a command needs them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedrepro import __version__
from fedrepro.cli import held, listings, options, running
from fedrepro.cli.options import (
    AsJson,
    Budget,
    Compare,
    Dataset,
    Device,
    Folder,
    Method,
    Mode,
    OnePaper,
    OneTable,
    Paper,
    Precision,
    Prepared,
    Run,
    SaveModel,
    Seeds,
    Sets,
    Threads,
    console,
    papers,
)
from fedrepro.errors import FedreproError, Interrupted, UsageError

TRACEBACK = "FEDREPRO_TRACEBACK"

app = typer.Typer(
    help="Rebuilds the experiments of federated-learning papers, each number beside the published one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # else the line ends of docstrings are kept
)
app.add_typer(listings.data, name="data")
app.add_typer(listings.show, name="show")
app.command()(running.run)
app.command("test")(held.evaluate_again)
app.command()(held.compare)
app.command()(held.plot)
app.command()(held.export)


@app.callback(invoke_without_command=True)
def version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Rebuilds the experiments of federated-learning papers, each number beside the published one."""
    if version:
        typer.echo(f"fedrepro {__version__}")
        raise typer.Exit


@app.command()
def init(
    out: Annotated[Path, typer.Argument(metavar="[FOLDER]", parser=options.place, help="This one without it.")] = ".",
) -> None:
    """Make the folder of a project: the specs and published numbers of the papers, in papers/, and params.yaml.

    In a checkout they are there already. What names a paper works in such a folder; `train --method` works in any.
    """
    from fedrepro.papers import start

    written = start.write(out)
    typer.echo(f"wrote {len(written)} files to {out.absolute()}: `fedrepro run --dry-run` there lists the runs")


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
    threads: Threads = None,
    mode: Mode = "auto",
    out: Folder = None,
    compare: Compare = False,
    save_model: SaveModel = False,
) -> None:
    """Train one run: `--method M` with sensible defaults, or a planned one with `--paper P --run R`.

    A run that was interrupted goes on from its last checkpoint. Seeds that are recorded already are kept where
    settings, data and numerics are the same; else all are trained again, and the new record takes the old one's place.
    A planned run with any change, or whose model is saved, is an ad hoc run: its record goes to runs/adhoc/ or --out;
    so does one that is compared with its record, where exit code 3 says that it differs more than by the machine.
    """
    from fedrepro.cli import train
    from fedrepro.pipeline.request import Request

    given = (method, dataset, paper, run, budget, seeds, tuple(sets or ()), precision, out, compare, save_model)
    train.train(Request(*given), device, mode, threads)


@app.command()
def tune(
    paper: Annotated[str, typer.Option(help="A paper: `fedrepro show papers` lists them.")],
    run: Annotated[str, typer.Option(help="A planned run whose spec leaves hyper-parameters open.")],
    point: Annotated[str | None, typer.Option(help="Train this point of a search alone, and enter nothing.")] = None,
    budget: Budget = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Find the settings that a spec leaves open, such as a rate, on a seed that no table reports.

    Where a hyper-parameter says "search", every point of a grid is trained for some rounds and scored on validation
    data. What is found is entered in papers/PAPER/tuned.json, for all runs that share it. Points of a search that are
    trained already are kept.
    """
    from fedrepro.cli import progress
    from fedrepro.pipeline import tune, workers

    workers.limit(threads)
    shown = lambda title: progress.shown(title, console(stderr=True))  # noqa: E731
    if point is not None:
        tune.point(paper, run, point, shown, budget=budget, device=device)
        return
    named, found = tune.tune(paper, run, shown, budget=budget, device=device)
    typer.echo(f"{named}: {tune.words(found)}")


@app.command()
def extractor(
    name: Annotated[str, typer.Argument(help="A source of images (`fedrepro data list` lists them), or inception.")],
) -> None:
    """Train the classifier whose features measure the quality of generated images, on the real images of a source.

    It goes to data/extractors/. A GAN on a dataset of that source needs it, unless the weights of the papers' FID are
    at hand, which the name inception downloads into data/cache/; `fedrepro show methods` lists the GANs.
    """
    from fedrepro.judges import networks

    typer.echo(f"wrote {networks.make(name, lambda line: typer.echo(line, err=True))}")


@app.command()
def evaluate(paper: OnePaper = None) -> None:
    """Read the records of the papers into frames: every number, every point of a figure, every comparison of a claim.

    They are reports/PAPER/cells.csv, points.csv and claims.csv. With them go metrics.json, the counts,
    and compared.csv, the numbers that are compared with published ones.
    """
    from fedrepro.results import evaluate

    for each in papers(paper):
        for path in evaluate.write(each, evaluate.evaluate(each)):
            typer.echo(f"wrote {path}")


@app.command()
def report(
    paper: OnePaper = None,
    overview: Annotated[bool, typer.Option("--overview", help="Only reports/summary.md, the counts.")] = False,
    single: Annotated[
        bool, typer.Option("--single-file", help="Only reports/fedrepro.html, the pages as one.")
    ] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Render what `evaluate` wrote: tables, figures, claims and a summary of each paper, or of one, which is named.

    Tables are .csv, .md and .tex, claims and summary .md, in reports/PAPER/rendered/; figures are .svg, in
    reports/PAPER/figures/. Without a paper reports/ gets summary.md, the counts of all, and pages for a browser:
    index.html about all papers, and PAPER.html. With --single-file the pages are one file that can be sent.
    """
    from fedrepro.report import write

    if sum((paper is not None, overview, single or show)) > 1:
        raise UsageError("give one of PAPER, --overview, and --single-file or --open: the options are of all papers.")
    only = write.overview if overview else write.single if single else None
    made = write.render_all() if paper is None else write.render(*papers(paper))
    for path in [only(papers())] if only else made:
        typer.echo(f"wrote {path}")
    if show:
        write.browse(path)


@app.command()
def check(
    paper: OnePaper = None,
    table: OneTable = None,
    budget: Prepared = None,
    as_json: AsJson = False,
    reasons: Annotated[bool, typer.Option("--reasons", help="Say why numbers are not within tolerance.")] = False,
) -> None:
    """Compare the reproduced numbers with the published ones; exit code 3 where one is outside and no reason is given.

    The records are evaluated afresh, and must give the frames that `evaluate` wrote; a prepared budget has none.
    Nothing is written. With TABLE its row alone is shown; the verdict, in the last line, is about the whole paper.
    """
    from fedrepro.files import json_text
    from fedrepro.report import verdict
    from fedrepro.results import check

    if as_json and (table or reasons):
        raise UsageError("--json has all tables, with reasons: leave TABLE and --reasons out.")
    asked = papers(paper, budget)
    if table is not None:
        asked[0].table(table)
    found = check.check(asked)
    if as_json:
        typer.echo(json_text(found.as_json()), nl=False)
    else:
        console().print(verdict.show(found, table, reasons))
    found.enforce()


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
    """Time one of the workloads of benchmarks/ on this machine; prints one line of JSON.

    `round_s` has the seconds of each round: the broadcast, local training, aggregation and the test on all images.
    """
    from fedrepro.core import lift

    if not Path("benchmarks/bench.py").exists():
        raise UsageError("there is no benchmarks/bench.py here: change to the folder of a checkout.")
    sys.path.insert(0, "benchmarks")
    import bench

    work = bench.find(workload)
    if folder is not None:
        bench.lend(work, folder)
    with lift.asked(mode):
        typer.echo(json.dumps(bench.run(work, precision=precision, device=device)))


@app.command()
def doctor() -> None:
    """Check environment, data, pipeline, checkpoints and records; says what is wrong and how to mend it.

    Nothing is written.
    """
    from fedrepro.cli import doctor

    findings = []
    for finding in doctor.examine(console(stderr=True)):
        console().print(doctor.show(finding))
        findings.append(finding)
    doctor.enforce(findings)


def main(arguments: list[str] | None = None) -> None:
    """The entry point: whatever goes wrong is one line on standard error and an exit code, never a traceback."""
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # one end, however it is asked for
        if "DVC_STAGE" in os.environ:
            _end_with_parent()
        app(options.readable(sys.argv[1:] if arguments is None else arguments))
    except (KeyboardInterrupt, SystemExit) as end:  # typer makes the first the second
        if getattr(end, "code", Interrupted.exit_code) != Interrupted.exit_code:
            raise
        _fail("stopped; what is written is whole, and the same command does the rest.", Interrupted.exit_code)
    except FedreproError as error:
        _fail(str(error) if isinstance(error, Interrupted) else f"error: {error}", error.exit_code)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        _fail(f"internal error: {reason}; run it again with {TRACEBACK}=1 for the details", 1)


def _end_with_parent() -> None:
    """End as at SIGTERM when the pipeline that started this command is gone, even if it is gone already (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getsid(os.getppid()) != os.getsid(0):  # an orphan's new parent is of another session
            raise KeyboardInterrupt


def _fail(line: str, code: int) -> None:
    print(line, file=sys.stderr)
    sys.exit(code)
