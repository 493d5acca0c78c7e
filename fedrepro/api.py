"""fedrepro in Python: train runs, load and compare them, read the numbers of a paper, follow a training elsewhere.

`import fedrepro` offers these functions and imports this module when the first of them is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedrepro.errors import UsageError
from fedrepro.papers.load import load_paper
from fedrepro.pipeline.request import Request, resolve
from fedrepro.results import chosen, evaluate
from fedrepro.results import compare as comparison
from fedrepro.results.compare import Compared
from fedrepro.results.runs import Run

if TYPE_CHECKING:
    from fedrepro.training.train import Training

Watch = Callable[["Training"], None]


def train(
    method: str | None = None,
    *,
    dataset: str | None = None,
    paper: str | None = None,
    run: str | None = None,
    budget: str | None = None,
    seeds: Iterable[int] | None = None,
    precision: str | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    save_model: bool = False,
    watch: Watch = lambda training: None,
    say: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> Run:
    """`fedrepro train`: one run, by a method or as a paper plans it. Seeds that are recorded already are kept.

    `settings` are those of `--set`, such as lr=0.1 or **{"watch.test_every": 1}. `watch` sees the training after each
    round. Without `seeds` a run of a paper has the paper's, any other seed 0. Raises UsageError for what cannot be run.
    """
    from fedrepro.pipeline.adopt import adopt  # torch
    from fedrepro.training import runs

    given = None if seeds is None else ",".join(map(str, seeds))
    place = Path(out) if out is not None else None
    asked = Request(method, dataset, paper, run, budget, given, _sets(settings), precision, place, False, save_model)
    config, where = resolve(asked)
    adopt(config, where, say)
    runs.execute(config, where, device=device, watch=watch, say=say, save_model=save_model)
    return chosen.in_folder(where.folder)


def load(name: str | Path) -> Run:
    """A recorded run: by its folder, as an ad hoc run by name, or as "PAPER/RUN".

    Raises UsageError where there is none, FedreproError where its record is damaged.
    """
    return chosen.run(str(name))


def compare(*runs: Run, metrics: Iterable[str] = ()) -> Compared:
    """`fedrepro compare`: the settings in which runs differ, and their metrics with paired differences to the first.

    Runs that share a name go by their folders. Raises UsageError where a run is given twice.
    """
    return comparison.compare(chosen.distinct(runs), tuple(metrics))


def cells(paper: str) -> pd.DataFrame:
    """The published numbers of a paper beside the reproduced ones, as `fedrepro evaluate` wrote them.

    Raises UsageError for an unknown paper, FedreproError where the frame is missing or stale.
    """
    return evaluate.read(load_paper(paper)).cells


def track(writer: Any) -> Watch:
    """A `watch` that hands each new point of the curves to `writer.add_scalar(tag, value, round)`.

    TensorBoard's SummaryWriter is such a writer. A run that is resumed hands over its earlier points once more.
    """
    sent: dict[int, int] = {}

    def watch(training: Training) -> None:
        for lane in training.lanes:
            for round, metric, value in lane.curve[sent.get(lane.seed, 0) :]:
                writer.add_scalar(f"{metric}/seed-{lane.seed}", value, round)
            sent[lane.seed] = len(lane.curve)

    return watch


def _sets(settings: dict[str, Any]) -> tuple[str, ...]:
    """Settings as the words of `--set`."""
    try:
        return tuple(f"{key}={json.dumps(value)}" for key, value in settings.items())
    except TypeError as error:
        raise UsageError(f"settings are numbers, words, true or false, or lists of these: {error}.") from None
