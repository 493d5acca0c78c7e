"""A project's folder made anew: the specs of the papers that this package carries, or that its checkout has."""

from __future__ import annotations

from pathlib import Path

from fedrepro import files
from fedrepro.errors import UsageError, short
from fedrepro.records.paths import PARAMS

PACKAGE = Path(__file__).parents[1]


def carried() -> Path:
    """The folder that has papers/ and params.yaml: in an installed package, or the checkout around it."""
    inside = PACKAGE / "project"
    return inside if inside.is_dir() else PACKAGE.parent


def write(folder: Path) -> list[Path]:
    """Copy the specs of all papers and the budgets in use into a folder, which is made; the files written.

    UsageError where there is a project already, and where nothing can be written.
    """
    root = carried()
    found = [root / PARAMS, *sorted(path for path in root.glob("papers/*/*") if path.is_file())]
    try:
        taken = [folder / each.name for each in (Path("papers"), PARAMS) if (folder / each.name).exists()]
        if taken:
            raise UsageError(f"there is {short(str(taken[0]))} already: name another folder.")
        return [files.write_bytes(folder / path.relative_to(root), path.read_bytes()) for path in found]
    except OSError as error:
        raise UsageError(f"no project can be made in {short(repr(str(folder)))}: {error.strerror}.") from error
