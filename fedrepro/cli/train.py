"""`fedrepro train`: the training of one run with its progress, and how it ended."""

from __future__ import annotations

import typer

from fedrepro.cli import progress, show
from fedrepro.cli.options import console
from fedrepro.core import lift
from fedrepro.pipeline import request, workers
from fedrepro.pipeline.request import Request
from fedrepro.pipeline.run import title
from fedrepro.records import record as records
from fedrepro.results import again


def train(asked: Request, device: str, mode: str, threads: int | None) -> None:
    """Train what is asked for, and print how it ended."""
    from fedrepro.pipeline.adopt import adopt  # torch
    from fedrepro.training import runs

    config, place = request.resolve(asked)
    if asked.compare:
        planned = again.recorded(asked.paper, asked.run)
        records.path(place.folder).unlink(missing_ok=True)  # an earlier one may be of another version or machine
    workers.limit(threads)
    with lift.asked(mode), progress.shown(title(config, place), console(stderr=True)) as display:
        how = {"device": device, "watch": display.watch, "say": display.say, "save_model": asked.save_model}
        adopt(config, place, display.say)
        record = runs.execute(config, place, **how)
    console().print(show.outcome(record))
    typer.echo(f"record: {place.folder / 'record.json'}")
    request.enforce(record)
    if hint := request.at_chance(record):
        console(stderr=True).print(hint, style="yellow")
    if asked.compare:
        found = again.pairs(planned, record)
        console().print(show.compared(found))
        again.enforce(found)
