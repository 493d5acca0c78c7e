"""The commands about recorded runs: list, compare and plot them, test a saved model again, export tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrepro.cli.options import AsJson, DataSets, Device, OnePaper, console, place
from fedrepro.errors import UsageError, short

NAMES = "the folder of a record, an ad hoc run (`fedrepro show runs --adhoc`), or a planned one as PAPER/RUN."

OneRecord = Annotated[str, typer.Argument(metavar="RECORD", help=f"A run: {NAMES}")]
Records = Annotated[list[str], typer.Argument(metavar="RECORD...", help=f"Runs, each as {NAMES}")]
OtherData = Annotated[
    str | None, typer.Option(help="Another dataset of the same shape and classes: `fedrepro data list` lists them.")
]
Metrics = Annotated[
    list[str] | None, typer.Option("--metric", help="Only this metric, such as test_accuracy; may be given again.")
]
Metric = Annotated[str, typer.Option(help="The metric that is drawn.")]
Markdown = Annotated[bool, typer.Option("--md", help="Print Markdown in place of a table.")]
Picture = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", parser=place, help="The picture, .svg or .png; build/METRIC.svg without it."),
]
AdHoc = Annotated[bool, typer.Option("--adhoc", help="Only ad hoc runs.")]
OfPaper = Annotated[str | None, typer.Option("--paper", help="Only the runs of a paper.")]
ByMethod = Annotated[str | None, typer.Option("--method", help="Only the runs by a method.")]
ByStatus = Annotated[
    str | None,
    typer.Option(
        "--status",
        help="Only runs with a seed that is finished, stopped, cap, diverged or collapsed; or missing, damaged.",
    ),
]
Parquet = Annotated[Path | None, typer.Option(metavar="DIR", parser=place, help="A folder for tables as Parquet.")]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="DIR", parser=place, help="A folder for tables as CSV.")]


def evaluate_again(
    record: OneRecord,
    dataset: OtherData = None,
    sets: DataSets = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Evaluate the saved models of a run again, on the run's own dataset or on another one.

    The run must have been trained with `--save-model`. On its own dataset the metrics are those of its record; what
    `--set` does not change there is as it was in training. Another dataset, or another setting, must have the same
    shape of inputs and the same number of classes.
    """
    from fedrepro.cli import runs
    from fedrepro.files import json_text
    from fedrepro.pipeline import request
    from fedrepro.results import chosen
    from fedrepro.training import models
    from fedrepro.training.runs import resolve

    on, run = resolve(device), chosen.run(record)
    tested = run.config.dataset if dataset is None else dataset
    params = request.parameters(tested, sets or ())
    if tested == run.config.dataset:
        params = run.config.data | params
    found = models.evaluated(run.folder, run.record, tested, params, on)
    if as_json:
        seeds = {str(seed): metrics for seed, metrics in found.items()}
        typer.echo(json_text({"format": 1, "run": run.name, "dataset": tested, "seeds": seeds}), nl=False)
    else:
        console().print(runs.tested(f"{run.name}, tested on {tested}", found))


def show_runs(
    adhoc: AdHoc = False,
    paper: OfPaper = None,
    method: ByMethod = None,
    status: ByStatus = None,
    as_json: AsJson = False,
) -> None:
    """List the planned and the ad hoc runs, how they ended, and their final metric: mean ± spread over the seeds.

    Ad hoc runs come with their settings; `--json` has the settings of all, and all final metrics of each seed.
    """
    from fedrepro.cli import runs
    from fedrepro.files import json_text
    from fedrepro.results import listing

    if adhoc and paper:
        raise UsageError("an ad hoc run has no paper: leave --adhoc or --paper out.")
    found = listing.runs(listing.Which(adhoc, paper, method, status))
    if as_json:
        typer.echo(json_text({"format": 1, "runs": runs.as_json(found)}), nl=False)
    else:
        console().print(runs.table(found))


def compare(records: Records, metrics: Metrics = None, md: Markdown = False, as_json: AsJson = False) -> None:
    """Compare runs: settings that differ, final metrics, and paired differences to the first run with 95% intervals.

    Differences are taken seed by seed, over the seeds that both runs have. A warning names the settings beside the
    method in which runs differ, since the difference may come from these.
    """
    from fedrepro.files import json_text
    from fedrepro.report import beside
    from fedrepro.results import chosen
    from fedrepro.results.compare import compare

    if md and as_json:
        raise UsageError("give one of --md and --json.")
    runs = chosen.runs(records)
    found = compare(runs, metrics or ())
    if as_json:
        typer.echo(json_text(beside.as_json(runs, found)), nl=False)
    elif md:
        typer.echo(beside.markdown(runs, found), nl=False)
    else:
        console().print(beside.terminal(runs, found))


def plot(records: Records, metric: Metric = "test_accuracy", out: Picture = None) -> None:
    """Draw a metric of runs over the rounds: for each run the mean over its seeds, with a band of their spread."""
    from fedrepro.files import write_bytes
    from fedrepro.report import lines
    from fedrepro.results import chosen

    out = out or Path("build") / f"{metric}.svg"
    if out.suffix not in lines.KINDS:
        raise UsageError(f"the picture is SVG or PNG: give {short(str(out))} a name that ends in .svg or .png.")
    typer.echo(f"wrote {write_bytes(out, lines.picture(chosen.runs(records), metric, out.suffix))}")


def export(paper: OnePaper = None, parquet: Parquet = None, csv: Csv = None) -> None:
    """Write all runs, or those of a paper, as tidy tables: runs, settings, final metrics of each seed, and curves.

    Values are as in the records: accuracies are fractions. Without a paper ad hoc runs are there, too.
    """
    from fedrepro.results import export, listing

    if not (parquet or csv):
        raise UsageError("say where the tables go: --parquet DIR, --csv DIR or both.")
    found = listing.runs(listing.Which(paper=paper))
    unusable = [each for each in found if each.record is None]
    made = export.tables(found)
    for folder, kind in ((parquet, "parquet"), (csv, "csv")):
        for path in export.write(made, folder, kind) if folder else ():
            typer.echo(f"wrote {path}: {len(made[path.stem]):,} rows")
    if unusable:
        typer.echo(f"left out, without a usable record: {len(unusable)} of {len(found)} runs", err=True)
