"""The record of a run: what its numbers are, what they depend on and where they come from. Read and written here alone.

A run's folder holds `curves.csv`, for a generator `samples.png` or `samples.csv`, where models are saved one for each
seed, and `record.json`, which is written last and has the checksums of the others, and behind its fields a `seal`, a
checksum of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, FiniteFloat, ValidationError, model_validator

from fedrepro.errors import FedreproError
from fedrepro.files import file_digest, sealed, sha256, unsealed, write_bytes, write_json, write_text
from fedrepro.records.config import RunConfig, Strict, Value, first_fault, strictly
from fedrepro.records.curves import Curve, curves_text, read_curves
from fedrepro.records.paths import SAMPLES, STATE

DIVERGED = "diverged"
UNWATCHED = ("train_", "grad_norm")  # metrics that curves have of some training rows alone, or not at all


class Numerics(Strict):
    """Numbers that are raised by hand in the commit that changes what is computed: by the engine, method or dataset."""

    engine: int
    method: int
    data: int


class Identity(Strict):
    """The settings, data and code version behind a run's numbers; a record with another identity is stale.

    config: `RunConfig.digest`; data: the fingerprint of the source's pinned files; extractor: sha256 of the network
    that judges generated images, "" of a run without such images.
    """

    config: str
    data: str
    numerics: Numerics
    extractor: str = ""


class Provenance(Strict):
    """How, with what and when a seed was trained. No part of it is identity."""

    command: str
    versions: dict[str, str] = Field(min_length=1)
    device: str
    threads: int
    peak_rss_mb: int | None = None
    precision: str
    started: str
    finished: str
    commit: str | None


class Seed(Strict):
    """How the training of one seed ended, and its final metrics (none where it diverged).

    `collapsed`: whether a classifier was above chance and ends at it (judges.classifier).
    """

    status: Literal["finished", "stopped", "cap", "diverged"]
    rounds: int = Field(ge=1)
    metrics: dict[str, FiniteFloat]
    rejected: int = Field(default=0, ge=0)
    collapsed: bool = False
    seconds: float = Field(ge=0)
    provenance: Provenance

    @property
    def ended(self) -> str:
        """How it ended, for a reader."""
        return f"{self.status}, collapsed" if self.collapsed else self.status


class Data(Strict):
    """The data of a run. `substitute` says what stands in for the paper's own; `facts`: what was measured, by seed."""

    dataset: str
    source: str
    substitute: str | None = None
    licence: str = ""
    files: dict[str, str] = {}
    facts: dict[str, dict] = {}


class Record(Strict):
    """A whole record. `curves`, `samples`: the sha256 of these files; `models`: that of each seed's saved model.

    `extractor`: the name of the judging network.

    `resolved`: every hyper-parameter with its default, and network and optimiser by name.
    """

    format: Literal[4] = 4
    paper: str | None
    run: str | None
    budget: str
    config: RunConfig
    resolved: dict[str, Value | None]
    identity: Identity
    data: Data
    curves: str
    samples: str = ""
    models: dict[int, str] = {}
    extractor: str = ""
    seeds: dict[int, Seed]

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.identity.config != self.config.digest():
            raise ValueError("config is not what identity.config is the digest of")
        if not self.seeds.keys() == set(self.config.seeds) == set(map(int, self.data.facts)):
            raise ValueError("config, data.facts and seeds have different seeds")
        return self


@dataclass(frozen=True)
class Place:
    """The folder of a run, and what its record says it is."""

    folder: Path
    paper: str | None = None
    run: str | None = None
    budget: str = "ad hoc"

    @property
    def state(self) -> Path:
        """The folder of the run's checkpoints, outside everything that a pipeline removes."""
        if self.paper:
            return STATE / "--".join(filter(None, (self.paper, self.run, self.budget)))
        return STATE / sha256(str(self.folder.resolve()))[:16]

    @property
    def lock(self) -> Path:
        """The lock that a process holds while it trains the run."""
        return Path(f"{self.state}.lock")


def path(folder: Path) -> Path:
    """The record of a run's folder."""
    return folder / "record.json"


def folders(root: Path) -> list[Path]:
    """The folders with a record below one, sorted."""
    return sorted(file.parent for file in root.rglob("record.json"))


def samples(folder: Path) -> Path | None:
    """The file of a run's samples, if it has any."""
    return next((folder / name for name in SAMPLES if (folder / name).exists()), None)


def model(folder: Path, seed: int) -> Path:
    """The file of a seed's saved model."""
    return folder / f"model-{seed}.safetensors"


def read(folder: Path) -> Record:
    """The record in a run's folder, once it is known to be as it was written, and to fit the curves and samples there.

    Raises FedreproError that says what is wrong, without a remedy.
    """
    place = path(folder)
    try:
        record = strictly(Record, unsealed(place.read_bytes()))
        curves = (folder / "curves.csv").read_text(encoding="utf-8")
        if record.curves not in (sha256(curves), sha256(_of_seeds(curves, record))):
            raise FedreproError(f"{folder / 'curves.csv'} does not belong to the record beside it")
        if metric := _contradicted(record, curves):
            raise FedreproError(f"{place} and the curves beside it differ in {metric}")
        if (there := samples(folder)) and file_digest(there) != record.samples:
            raise FedreproError(f"{there} does not belong to the record beside it")
        if record.samples and not there:
            raise FedreproError(f"{folder} has no samples, which belong to its record")
        for seed, digest in record.models.items():
            if file_digest(model(folder, seed)) != digest:
                raise FedreproError(f"{model(folder, seed)} does not belong to the record beside it")
    except FileNotFoundError as error:
        raise FedreproError(f"{error.filename} is missing") from None
    except OSError as error:
        raise FedreproError(f"{error.filename or place} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise FedreproError(f"{place} is no record ({first_fault(error).rstrip('.')})") from None
    except ValueError as error:
        raise FedreproError(f"{place} cannot be trusted ({error})") from None
    return record


def _of_seeds(curves: str, record: Record) -> str:
    """The curves of the record's own seeds: a run that was cut off before its record leaves those of more."""
    head, *lines = curves.splitlines(keepends=True) or [""]
    own = {str(seed) for seed in record.seeds}
    return head + "".join(line for line in lines if line.partition(",")[0] in own)


def _contradicted(record: Record, curves: str) -> str:
    """The first metric of a seed that is not the last point of its curve, in words; "" where all are."""
    ends = tuple(f"{seed},{each.rounds}," for seed, each in record.seeds.items())
    last = dict(line.rsplit(",", 1) for line in curves.splitlines() if line.startswith(ends))
    for seed, each in record.seeds.items():
        for metric, value in each.metrics.items():
            if not metric.startswith(UNWATCHED) and last.get(f"{seed},{each.rounds},{metric}") != f"{value:.6g}":
                return f"{metric} of seed {seed}"
    return ""


def curves(folder: Path) -> dict[int, list[Curve]]:
    """Seed -> its curve, points of (round, metric, value)."""
    return read_curves(folder / "curves.csv")


def write(
    folder: Path,
    fields: dict,
    curves: dict[int, list[Curve]],
    shown: tuple[str, bytes] | None = None,
    models: dict[int, bytes] | None = None,
) -> Record:
    """Write a run's curves, where there are new samples these, as (name, content), its models, and then its record.

    `fields`: those of Record but for the checksums. `models`: of all seeds that have one; others are removed.
    """
    digests = {"curves": file_digest(write_text(folder / "curves.csv", curves_text(curves)))}
    if shown:
        write_bytes(folder / shown[0], shown[1])
    digests |= {"samples": file_digest(there)} if (there := samples(folder)) else {}
    written = {seed: write_bytes(model(folder, seed), content) for seed, content in (models or {}).items()}
    for old in set(folder.glob(model(folder, 0).name.replace("0", "*"))) - set(written.values()):
        old.unlink()
    digests |= {"models": {seed: file_digest(file) for seed, file in written.items()}}
    record = Record.model_validate(fields | digests)
    content = record.model_dump(mode="json", exclude=None if written else {"models"})
    write_json(path(folder), sealed({key: content[key] for key in content if content[key] != ""}))
    return record
