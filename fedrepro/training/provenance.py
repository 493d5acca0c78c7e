"""How a run was trained: when, where, with what. It is recorded, and decides nothing."""

from __future__ import annotations

import platform
import resource
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

from fedrepro.core.precision import has_units
from fedrepro.records.record import Provenance

PACKAGES = ("torch", "torchvision", "numpy", "numba", "fedrepro")


def beginning(device: torch.device) -> dict:
    """How a training that begins now does so: when, at which commit, with how many threads, on what, by what."""
    threads = torch.get_num_threads()
    return {"started": now(), "commit": commit(), "threads": threads, "device": name(device), "versions": versions()}


def provenance(precision: str, device: torch.device, began: dict) -> Provenance:
    """How a seed was trained whose training ends now; `began`: the `beginning` of its training, maybe elsewhere."""
    return Provenance(
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        versions={each: _then(began["versions"].get(each), found) for each, found in versions().items()},
        device=_then(began["device"], name(device)),
        threads=began["threads"],
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        precision=precision,
        started=began["started"],
        finished=now(),
        commit=began["commit"],
    )


def _then(first: str | None, last: str) -> str:
    return last if first in (None, last) else f"{first}, then {last}"


def versions() -> dict[str, str]:
    """The versions of Python and of what computes the numbers."""
    return {"python": platform.python_version()} | {each: version(each) for each in PACKAGES}


def name(device: torch.device) -> str:
    """A GPU's own name; of a CPU the kind, the widest vectors that torch uses, and whether it multiplies bfloat16."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    units = f"with{'' if has_units() else 'out'} bfloat16 units"
    return f"cpu {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {units}"


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def commit() -> str | None:
    """The commit of this package's sources, with "+" where they differ from it; None where they are not in git."""
    asked = ["ls-files", "."], ["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "."]
    try:
        tracked, head, changed = map(_git, asked)
    except (OSError, subprocess.SubprocessError):
        return None
    return head + "+" * bool(changed) if tracked else None


def _git(words: list[str]) -> str:
    """The answer of git in the folder of this package."""
    done = subprocess.run(
        ["git", *words], cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
