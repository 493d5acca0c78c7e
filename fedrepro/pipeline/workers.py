"""How a machine is shared out: runs side by side, the threads of each, and the GPU that each sees."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedrepro.errors import UsageError, short

GPU = r"([0-9]{1,4}|(GPU|MIG)-[0-9a-f-]{4,64})"  # as CUDA_VISIBLE_DEVICES names one


@dataclass(frozen=True)
class Workers:
    """Slots for runs side by side, each with the GPU that it sees (None: as it is), and the threads of each."""

    threads: int
    slots: tuple[str | None, ...]
    device: str = "auto"


def share(jobs: int | None, threads: int, gpus: str | None, per_gpu: int, device: str) -> Workers:
    """The slots of this machine: so many on each GPU, or cores // threads where there is none; at most `jobs`.

    Without `gpus`, those that are visible. The cores are those that this process may use. Raises UsageError.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"unknown device {short(repr(device))}: there is auto, cpu and cuda.")
    if gpus is not None and not re.fullmatch(rf"{GPU}(,{GPU})*", gpus):
        raise UsageError(f"--gpus takes numbers with commas between, such as 0,1, and not {short(repr(gpus))}.")
    if gpus is not None and device == "cpu":
        raise UsageError("--gpus is for runs on GPUs: leave out --device cpu.")
    there = gpus.split(",") if gpus else _visible() if device != "cpu" else []
    if there:
        slots = [gpu for _ in range(per_gpu) for gpu in there]
        return Workers(threads, tuple(slots[:jobs]), "cuda" if gpus else device)
    count = jobs or max(1, len(os.sched_getaffinity(0)) // threads)
    return Workers(threads, (None,) * count, device)


def limit(threads: int | None) -> None:
    """Let this process have so many threads; without a number, as many as there are idle cores, of those it may use."""
    import torch

    idle = max(1, len(os.sched_getaffinity(0)) - round(os.getloadavg()[0]))
    torch.set_num_threads(threads or min(idle, torch.get_num_threads()))


def _visible() -> list[str]:
    """The GPUs that a process of this one would see."""
    if (asked := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [each for each in asked.split(",") if each.strip() not in ("", "-1")]
    return sorted((path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")), key=int)
