"""Writing files: all or nothing, and one clear sentence when it cannot be done."""

import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from fedrepro import files
from fedrepro.errors import FedreproError, UsageError


def test_writes_make_folders_replace_and_leave_nothing_else(tmp_path):
    path = tmp_path / "a" / "b.txt"
    assert files.write_text(path, "one ±\n") == path
    files.write_text(path, "two\r\n")
    assert path.read_bytes() == b"two\r\n"
    assert os.listdir(path.parent) == ["b.txt"]


def test_json_is_the_same_bytes_for_the_same_value_and_has_no_nan(tmp_path):
    path = files.write_json(tmp_path / "a.json", {"b": [1, 2.5, None], "a": "±"})
    assert path.read_text() == files.json_text({"b": [1, 2.5, None], "a": "±"})
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(path, {"loss": float("nan")})
    assert '"±"' in path.read_text()


def test_a_failed_write_keeps_the_old_file_and_no_part(tmp_path, monkeypatch):
    path = files.write_text(tmp_path / "a.txt", "old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1234))
    with pytest.raises(FedreproError) as raised:
        files.write_text(path, "new")
    rest = ", 1,234 bytes are free and 3 needed; make room, then give the same command again."
    assert str(raised.value) == f"writing {path} failed: No space left on device{rest}"
    assert raised.value.exit_code == 1
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["a.txt"])


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of 64 KiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "small", tmp_path]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a file system, and not everywhere")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def test_a_full_disk_is_told_with_what_is_free(small_disk):
    path = files.write_text(small_disk / "a.txt", "old")
    with pytest.raises(FedreproError, match="No space left on device, 61,440 bytes are free and 100,000 needed; make"):
        files.write_bytes(path, bytes(100_000))
    (small_disk / "b").write_bytes(bytes(61_440))
    with pytest.raises(FedreproError, match="No space left on device, 0 bytes are free and 3 needed; make room"):
        files.write_text(small_disk / "c" / "a.txt", "new")
    assert (path.read_text(), sorted(os.listdir(small_disk))) == ("old", ["a.txt", "b", "c"])


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "below.txt", tmp_path):
        with pytest.raises(UsageError, match=r"cannot write .*; choose another place"):
            files.write_text(path, "text")
    assert os.listdir(tmp_path) == ["file"]
