"""Seeds that are recorded already under another name: at another budget, or in another table or figure of a paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedrepro.errors import FedreproError
from fedrepro.records import paths, record
from fedrepro.records.config import RunConfig
from fedrepro.records.record import Identity, Place
from fedrepro.training import runs
from fedrepro.training.identity import identity


def adopt(config: RunConfig, place: Place, say: Callable[[str], None]) -> None:
    """Give the record of a planned run the seeds that it lacks and that others of its paper have.

    Only records with its identity count, so that these seeds are what training would give. Raises Busy where another
    process trains the run.
    """
    if place.paper is None:
        return
    wanted = identity(config)
    with runs.locked(place):
        found = runs.kept(place, config, wanted)
        lacking = set(config.seeds) - found.keys()
        for other in _others(place, wanted) if lacking else ():
            theirs = runs.kept(other, config, wanted)
            if new := sorted(theirs.keys() & lacking - found.keys()):
                found |= {seed: theirs[seed] for seed in new}
                say(f"seeds {', '.join(map(str, new))} have these settings in {other.folder}: taken over")
        if lacking & found.keys():
            runs.write(config, place, wanted, found)


def _others(place: Place, wanted: Identity) -> Iterator[Place]:
    """The places of the whole records of a paper with this identity, but for the one at `place`."""
    for folder in (paths.runs(place.paper, ""), paths.studies(place.paper)):
        for other in record.folders(folder):
            if other == place.folder:
                continue
            if wanted.config in record.path(other).read_text(encoding="utf-8", errors="replace"):
                try:
                    found = record.read(other)
                except FedreproError:
                    continue
                if found.identity == wanted:
                    yield Place(other, found.paper, found.run, found.budget)
