"""Time the driver of `fedrepro run` on many runs that train nothing: listed, begun, stopped half-way, resumed.

    python benchmarks/scale.py [--runs 10000] [--jobs 2]

Prints one JSON line for each part: its seconds, those for each run in all and of the driver's processor time, and the
memory that the driver holds. In the place of a training a process writes a record with one number.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from fedrepro import data, methods
from fedrepro.papers.load import load_paper
from fedrepro.pipeline import local, process
from fedrepro.pipeline.plan import Plan, plan
from fedrepro.pipeline.workers import Workers
from fedrepro.records import record
from fedrepro.training.identity import identity

PAPER = "many-2024"
SPEC = """
title = "Many"
[defaults]
method = "fedsgd"
dataset = "digits"
rounds = 1
[axes.dataset.Digits]
[axes.method.FedSGD]
hyper = {{ net = "mlp", batch = 256 }}
{axis}
[budgets.paper]
label = "paper"
[tables.t1]
title = "Table 1"
metrics = ["test_accuracy"]
reduction = "final"
tolerance = {{ spreads = 2, points = 3, reason = "nothing is trained" }}
[[tables.t1.cells]]
dataset = ["Digits"]
method = ["FedSGD"]
rate = [{values}]
"""


class Quiet:
    """A board that shows nothing, and has its driver stop after so many runs."""

    def __init__(self, most: int | None = None):
        self.most = most

    def look(self, driver: local.Driver) -> None:
        """Stop the driver when it is time."""
        if self.most and len(driver.over) >= self.most and not driver.stops:
            driver.stop()

    def started(self, *_: object) -> None:
        """Show nothing."""

    said = over = say = started


def write(runs: int) -> None:
    """A paper of so many runs, in the working folder."""
    rates = [f"r{number}" for number in range(runs)]
    axis = "\n".join(f"[axes.rate.{rate}]\nhyper = {{ lr = {number + 1}e-6 }}" for number, rate in enumerate(rates))
    folder = Path("papers", PAPER)
    folder.mkdir(parents=True)
    (folder / "paper.toml").write_text(SPEC.format(axis=axis, values=", ".join(f'"{rate}"' for rate in rates)))
    Path("params.yaml").write_text(f"{PAPER}: {{budget: paper}}\n")
    Path("data/manifests").mkdir(parents=True)
    Path("data/manifests/digits.json").write_text("{}\n")


def empty(job, *given) -> None:
    """The process of a job that trains nothing."""
    process.outcome = stopped
    process.child(job, *given)


def stopped(*given) -> tuple[str, str]:
    """As `recorded`, unless it is told to stop."""
    try:
        return recorded(*given)
    except KeyboardInterrupt:
        return "stopped", ""


def recorded(job, *_: object) -> tuple[str, str]:
    """Write the record of a run, as if it had been trained."""
    config, place = job.trains.config, job.trains.place
    how = {"command": job.command, "versions": {"python": "3"}, "device": "none", "threads": 1, "precision": "fp32"}
    how |= {"started": "", "finished": "", "commit": None, "peak_rss_mb": 100}
    described = {key: value for key, value in data.describe(config.dataset).items() if key != "fingerprint"}
    seed = {"status": "finished", "rounds": 1, "metrics": {"test_accuracy": 0.5}, "seconds": 1.0, "provenance": how}
    fields = {
        **{"paper": place.paper, "run": place.run, "budget": place.budget, "config": config},
        **{"resolved": methods.resolved(config.method, config.hyper), "identity": identity(config)},
        **{"data": described | {"facts": {"0": {}}}, "seeds": {0: seed}},
    }
    record.write(place.folder, fields, {0: [(1, "test_accuracy", 0.5)]})
    return "done", ""


def held() -> int:
    """MiB that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20


def told(part: str, runs: int, began: tuple[float, float]) -> None:
    """Print what a part took."""
    wall, cpu = time.monotonic() - began[0], time.process_time() - began[1]
    row = {"part": part, "runs": runs, "seconds": round(wall, 1), "ms_a_run": round(1000 * wall / runs, 2)}
    print(json.dumps(row | {"driver_ms_a_run": round(1000 * cpu / runs, 2), "held_mb": held()}), flush=True)


def listed(part: str, runs: int) -> Plan:
    """Make the plan, and tell what it took."""
    began = time.monotonic(), time.process_time()
    made = plan([load_paper(PAPER)])
    made.jobs = {job.command: job for job in made.ordered}
    told(part, runs, began)
    return made


def drive(part: str, made: Plan, jobs: int, most: int | None = None) -> None:
    """Do the jobs of a plan, or the first of them, and tell what it took."""
    context = process.serve(1)
    local.child = empty
    driver = local.Driver(made.jobs.values(), Workers(1, (None,) * jobs, "cpu"), Quiet(most), False, context)
    began = time.monotonic(), time.process_time()
    driver.run()
    ended = sum(work.ended == "done" for work in driver.over)
    told(part, ended, began)


def main() -> None:
    """Print a line for each part."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write(asked.runs)
        made = listed("list, none recorded", asked.runs)
        drive("run half, then stop", made, asked.jobs, asked.runs // 2)
        made = listed("list, half recorded", asked.runs)
        drive("resume", made, asked.jobs)
        made = listed("list, all recorded", asked.runs)
        assert not made.jobs
        os.chdir("/")


if __name__ == "__main__":
    main()
