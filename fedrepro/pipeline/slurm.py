"""Jobs on a cluster with Slurm, by submitit: arrays of jobs, of which the later ones wait for the earlier.

A job that reaches its time limit or is preempted writes a checkpoint and is queued again. What submitit keeps of jobs,
and what they print, is in .fedrepro/slurm.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial

from fedrepro.errors import FedreproError, Interrupted, UsageError
from fedrepro.pipeline.local import Board, Work
from fedrepro.pipeline.plan import Job, waves
from fedrepro.pipeline.process import Printed, outcome
from fedrepro.pipeline.workers import Workers
from fedrepro.records import paths
from fedrepro.training.signals import signals

try:
    import submitit
    from submitit.core.utils import UncompletedJobError
    from submitit.slurm.slurm import SlurmExecutor
except ImportError:
    raise UsageError("--backend slurm needs submitit: install it, with `pip install 'fedrepro[slurm]'`.") from None

FOLDER = paths.STATE.parent / "slurm"
LIMIT = "24:00:00"
NOTICE = 120  # seconds before its time limit at which a job is told
ARRAY = 1000  # jobs of an array: Slurm takes no more unless it is told to
POLL = 2.0  # seconds between two looks at the queue
PATIENCE = 30  # looks in a row that Slurm may leave unanswered, as while it is started again
ENDED = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL")


def task(job: Job, device: str, threads: int) -> tuple[str, str]:
    """A job, as it is done where Slurm started it; returns how it ended and why.

    One that is stopped exits without a result, and goes on later. What Slurm tells a while before its limit (SIGUSR2)
    stops it and has it queued again; after SIGTERM, Slurm itself does that if it means to.
    """
    told: list[int] = []

    def notice(number: int, frame: object) -> None:
        told.append(number)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGUSR2, notice)
    ended = outcome(job, device, threads, Printed())
    if ended[0] != "stopped":
        return ended
    if told:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which being queued again sends
        subprocess.run(["scontrol", "requeue", submitit.JobEnvironment().job_id], check=True)
    sys.exit(Interrupted.exit_code)


class Slurm:
    """Submits jobs and follows them; `running`, `waiting` and `over` as a local driver has them."""

    def __init__(
        self, jobs: Iterable[Job], workers: Workers, board: Board, keep_going: bool,
        *, partition: str | None, limit: str | None, most: int | None,
    ):  # fmt: skip
        self.board, self.keep_going, self.workers = board, keep_going, workers
        self.waiting = {job.command: job for job in jobs}
        self.running: dict[str, Work] = {}  # by the number that Slurm gave it
        self.over: list[Work] = []
        self.stops = 0
        self.name = f"fedrepro-{os.getpid()}-{int(time.time())}"
        self.asked = {"time": limit or LIMIT, "requeue": True} | ({"partition": partition} if partition else {})
        self.most = most
        self.submitted: dict[str, tuple[submitit.Job, Work]] = {}
        self.missed: set[str] = set()  # not in the queue at the last look, and without a result
        self.unanswered = 0  # looks at the queue in a row

    def run(self) -> list[Work]:
        """Submit the jobs and wait until all have ended. Raises Interrupted after SIGINT or SIGTERM."""
        with signals(self._asked) as asked:
            self._submit()
            while self.submitted:
                if (queue := self._queue()) is not None:
                    self._look(queue)
                self.board.look(self)
                if self.submitted:
                    time.sleep(POLL)
        if asked:
            raise Interrupted("stopped, and its jobs of Slurm cancelled; the same command goes on from there.")
        return self.over

    def _submit(self) -> None:
        """An array for each wave, in parts; each waits for the end of all earlier ones. None after a signal.

        Where Slurm takes one no more, those before it are cancelled.
        """
        before: list[str] = []
        for wave in waves(self.waiting.values()):
            after = {"dependency": f"afterany:{':'.join(before)}"} if before else {}
            for start in range(0, len(wave), ARRAY):
                if self.stops:
                    return
                part = wave[start : start + ARRAY]
                try:
                    sent = self._send(part, self.asked | after)
                except FedreproError:
                    self._cancel()
                    raise
                self.submitted |= {each.job_id: (each, Work(job)) for each, job in zip(sent, part, strict=True)}
                if self.stops:  # a signal came while Slurm took them
                    self._cancel()
            before = list(dict.fromkeys(name.partition("_")[0] for name in self.submitted))
        self.board.say(f"{len(self.submitted)} jobs submitted to Slurm as {self.name}, output in {FOLDER}")

    def _send(self, part: list[Job], asked: dict) -> list[submitit.Job]:
        """Submit jobs as one array; FedreproError with what Slurm says where it refuses them."""
        given = {"job_name": self.name, "cpus_per_task": self.workers.threads, "stderr_to_stdout": True}
        if self.workers.device == "cuda":
            given["gpus_per_node"] = 1
        try:
            executor = SlurmExecutor(FOLDER)
            executor.update_parameters(
                **given,
                array_parallelism=self.most or len(part),
                signal_delay_s=NOTICE,
                additional_parameters=asked,
            )
            return executor.map_array(partial(task, device=self.workers.device, threads=self.workers.threads), part)
        except (RuntimeError, OSError) as error:
            raise FedreproError(f"Slurm takes no jobs: {' '.join(str(error).split())}") from error

    def _queue(self) -> dict[str, str] | None:
        """Job -> its state, of those in the queue; None where Slurm does not answer, FedreproError if for long."""
        asked = ["squeue", "--noheader", "--array", "--name", self.name, "--format=%i %T", "--states=all"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        self.unanswered = self.unanswered + 1 if done.returncode else 0
        if self.unanswered > PATIENCE:
            said = " ".join(done.stderr.split())
            raise FedreproError(f"Slurm does not answer: {said}. Its jobs go on; the same command waits for them.")
        if done.returncode:
            return None
        states = dict(line.split() for line in done.stdout.splitlines())
        return {job: state for job, state in states.items() if state not in ENDED}

    def _look(self, queue: dict[str, str]) -> None:
        """Take what the queue and the results say of each job."""
        for name, (sent, work) in [*self.submitted.items()]:
            if sent.paths.result_pickle.exists():
                self._end(name, *_result(sent))
            elif name in queue:
                self.missed.discard(name)
                self._move(name, work, queue[name])
            elif name in self.missed:  # at the last look too, so that its result is not on its way
                gone = ("stopped", "") if self.stops else ("failed", f"cancelled or killed: {sent.paths.stdout}")
                self._end(name, *gone)
            else:
                self.missed.add(name)

    def _move(self, name: str, work: Work, state: str) -> None:
        """A job that is in the queue begins, or waits again."""
        if state == "RUNNING" and name not in self.running:
            work.began = time.monotonic()
            self.running[name] = work
            self.waiting.pop(work.job.command, None)
            self.board.started(work)
        elif state == "PENDING" and self.running.pop(name, None):
            self.waiting[work.job.command] = work.job
            self.board.said(work, "queued again")

    def _end(self, name: str, ended: str, why: str) -> None:
        _, work = self.submitted.pop(name)
        self.running.pop(name, None)
        self.waiting.pop(work.job.command, None)
        work.ended, work.why = ended, why
        self.over.append(work)
        self.board.over(work)
        if ended == "failed" and not self.keep_going and not self.stops:
            self.board.say("one failed: the others are cancelled, and those that run stop after their round")
            self._cancel()

    def _asked(self, asked: list[int]) -> None:
        if not self.stops:
            self.board.say("cancelling its jobs of Slurm, those that run after their round")
        self._cancel()

    def _cancel(self) -> None:
        self.stops += 1
        subprocess.run(["scancel", "--name", self.name], check=False)


def _result(sent: submitit.Job) -> tuple[str, str]:
    """The result of a job that has one; one that submitit could not run has none to take."""
    try:
        return sent.result()
    except UncompletedJobError:
        return "failed", f"it could not be run: {sent.paths.stdout}"
