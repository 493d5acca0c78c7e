"""Packages of others for tests: installed in a folder, with an entry point, and the sentence that a fault of one is."""

from commands import fedrepro


def package(site, group, name, value, code, module="bad"):
    """Install a package that adds `name = value` to a group of entry points; `code` is that of its module."""
    info = site / f"{module}_package-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    (site / f"{module}.py").write_text(code)


def refused(*arguments):
    """The sentence with which a command fails."""
    done = fedrepro(*arguments)
    assert done.code in (1, 2)
    assert done.fault.startswith("error: ")
    assert "Traceback" not in done.err
    assert done.fault.isprintable()
    return done.fault
