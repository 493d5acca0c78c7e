"""Seeds that are recorded already under another name: at another budget, or in another table or figure of a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fedrepro.errors import FedreproError
from fedrepro.records import paths, record
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Identity, Place, Record
from fedrepro.training import runs
from fedrepro.training.identity import current, identity, samples


def adopt(config: RunConfig, place: Place, say: Callable[[str], None]) -> None:
    """Give the record of a planned run the seeds that it lacks and that others of its paper have.

    Only records with its identity count, so that these seeds are what training would give. A generator's are left,
    since its samples are of one seed. Raises Busy where another process trains the run.
    """
    if place.paper is None or samples(config):
        return
    wanted = identity(config)
    own = current(place, wanted)
    found = dict.fromkeys(own.seeds, (own, place.folder)) if own else {}
    lacking = set(config.seeds) - found.keys()
    for other, folder in _others(place, wanted) if lacking else ():
        if new := sorted(lacking & other.seeds.keys() - found.keys()):
            found |= dict.fromkeys(new, (other, folder))
            say(f"seeds {', '.join(map(str, new))} have these settings in {folder}: taken over")
    if lacking & found.keys():
        with runs.locked(place):
            _write(config, place, wanted, dict(sorted(found.items())))


def _others(place: Place, wanted: Identity) -> Iterator[tuple[Record, Path]]:
    """The whole records of a paper with this identity, and where they are, but for the one at the place."""
    for folder in (paths.runs(place.paper, ""), paths.study(place.paper, "")):
        for file in sorted(folder.rglob("record.json")):
            if file.parent != place.folder and wanted.config in file.read_text(encoding="utf-8", errors="replace"):
                try:
                    found = record.read(file.parent)
                except FedreproError:
                    continue
                if found.identity == wanted:
                    yield found, file.parent


def _write(config: RunConfig, place: Place, wanted: Identity, found: dict[int, tuple[Record, Path]]) -> None:
    facts = {str(seed): of.data.facts[str(seed)] for seed, (of, _) in found.items()}
    one = next(of for of, _ in found.values())
    fields = {
        **{"paper": place.paper, "run": place.run, "budget": place.budget},
        "config": config.model_copy(update={"seeds": tuple(found)}),
        **{"resolved": one.resolved, "identity": wanted},
        "data": one.data.model_copy(update={"facts": facts}),
        "seeds": {seed: of.seeds[seed] for seed, (of, _) in found.items()},
    }
    record.write(place.folder, fields, {seed: record.curves(folder)[seed] for seed, (_, folder) in found.items()})
