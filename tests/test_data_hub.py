"""Data from Hugging Face: made files, served over loopback as the hub serves them; only what it says comes in."""

import hashlib
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas
import pytest
from commands import fedrepro
from federations import refusal
from PIL import Image

from fedrepro import data
from fedrepro.data import sources
from fedrepro.data.sources import hub

COMMIT, NEXT = "1" * 40, "2" * 40
CLASSES = {"pacs": 7, "officehome": 65, "cinic-10": 10}


def png(value: int, side: int) -> dict:
    buffer = io.BytesIO()
    Image.fromarray(np.full((side, side, 3), value % 256, np.uint8)).save(buffer, format="png")
    return {"bytes": buffer.getvalue(), "path": None}


def table(**columns) -> bytes:
    buffer = io.BytesIO()
    pandas.DataFrame(columns).to_parquet(buffer)
    return buffer.getvalue()


def pictures(domains: tuple[str, ...], classes: int, side: int) -> dict:
    """The columns of as many pictures of each domain as there are classes."""
    rows = [(domain, label) for domain in domains for label in range(classes)]
    images = [png(place, side) for place in range(len(rows))]
    return {"image": images, "domain": [domain for domain, _ in rows], "label": [label for _, label in rows]}


def made(name: str, moved: int = 0) -> dict[str, bytes]:
    """A repository with the layout of the original: path -> content."""
    if name == "femnist":
        writers, image = [f"f{k % 4:04d}_00" for k in range(40)], [png(k + moved, 28) for k in range(40)]
        columns = {"image": image, "writer_id": writers, "hsf_id": [0] * 40, "character": [k % 10 for k in range(40)]}
        return {"data/train-00000-of-00001.parquet": table(**columns)}
    if name == "cinic-10":
        splits = ("train", "validation", "test")
        columns = {"image": [png(k + moved, 32) for k in range(10)], "label": [*range(10)]}
        return {f"data/{split}-00000-of-00001.parquet": table(**columns) for split in splits}
    domains = {
        "pacs": ("art_painting", "cartoon", "photo", "sketch"),
        "officehome": ("Art", "Clipart", "Product", "Real World"),
    }[name]
    columns = pictures(domains, CLASSES[name], 40 + moved)
    half = len(columns["label"]) // 2
    return {
        f"data/train-0000{k}-of-00002.parquet": table(**{key: values[part] for key, values in columns.items()})
        for k, part in enumerate((slice(None, half), slice(half, None)))
    }


class Hub(BaseHTTPRequestHandler):
    """Repositories of one commit each; `resolve` leads to another address, as the hub leads to its storage."""

    repositories: dict[str, dict[str, bytes]]
    asked: list[str]
    announced: dict[str, str] = {}  # path -> a checksum that is not that of the file
    newest: object = {"sha": COMMIT}

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path = self.path.partition("?")[0].removeprefix("/api")
        kind, _, rest = path[1:].partition("/")
        repository = next((each for each in self.repositories if rest.startswith(f"{each}/")), "")
        verb, _, rest = rest.removeprefix(f"{repository}/").partition("/")
        contents = self.repositories.get(repository, {})
        commit, _, file = rest.partition("/")
        if (kind, verb, rest) == ("datasets", "revision", "main"):
            self.answer(json.dumps(self.newest).encode())
        elif commit not in (COMMIT, sources.SOURCES["cinic-10"].revision):
            self.send_error(404)
        elif verb == "tree":
            listed = [{"type": "directory", "oid": "0", "size": 0, "path": "data"}]
            listed += [{"type": "file", "oid": "0", "size": 5, "path": "README.md"}]
            for path, content in contents.items():
                oid = self.announced.get(path, hashlib.sha256(content).hexdigest())
                lfs = {"oid": oid, "size": len(content), "pointerSize": 130}
                listed.append({"type": "file", "oid": "0", "size": len(content), "lfs": lfs, "path": path})
            self.answer(json.dumps(listed).encode())
        elif verb == "resolve" and file in contents:
            self.send_response(302)
            self.send_header("Location", f"/storage/{repository}/stored/{commit}/{file}")
            self.end_headers()
        elif kind == "storage" and file in contents:
            self.answer(contents[file])
        else:
            self.send_error(404)

    def answer(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given) -> None:
        """Say nothing."""


@pytest.fixture
def served(tmp_path, monkeypatch):
    """served(name, contents): the stand-in for the hub with the repository of a source, in an empty project."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDREPRO_DATA_DIR", raising=False)
    handler = type("Served", (Hub,), {"repositories": {}, "asked": [], "announced": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(hub.ADDRESS_VARIABLE, f"http://127.0.0.1:{server.server_port}/")

    def serve(name, contents):
        handler.repositories[sources.SOURCES[name].hub] = contents
        small = {"train": None, "size": min(sources.SOURCES[name].size, 16)}
        row = {**vars(sources.SOURCES[name]), **small}
        monkeypatch.setitem(sources.SOURCES, name, sources.Source(**row))
        sources._raw.cache_clear()
        return handler

    yield serve
    server.shutdown()
    server.server_close()
    sources._raw.cache_clear()


@pytest.mark.parametrize("name", ["femnist", "pacs", "officehome", "cinic-10"])
def test_it_is_fetched_locked_and_fetched_again_without_asking_what_there_is(served, name):
    contents = made(name)
    asked = served(name, contents).asked
    done = fedrepro("data", "fetch", name)
    assert (done.code, done.err) == (0, "")
    for path, content in contents.items():
        assert Path("data/cache", name, Path(path).name).read_bytes() == content
    lock = json.loads(hub.LOCK.read_text())[name]
    revision = sources.SOURCES[name].revision or COMMIT
    assert (lock["repository"], lock["revision"]) == (sources.SOURCES[name].hub, revision)
    wanted = {path: [hashlib.sha256(content).hexdigest(), len(content), path] for path, content in contents.items()}
    assert lock["files"] == [wanted[path] for path in sorted(wanted)]
    manifest = json.loads(Path(f"data/manifests/{name}.json").read_text())
    assert manifest["train"]["images"] + manifest["test"]["images"] == {"femnist": 40, "cinic-10": 30}.get(
        name, 4 * CLASSES.get(name, 0)
    )
    before, locked = len(asked), hub.LOCK.read_bytes()
    assert fedrepro("data", "fetch", name).code == 0
    assert len(asked) == before  # all is there
    for path in Path("data/cache", name).iterdir():
        path.unlink()
    assert fedrepro("data", "fetch", name).code == 0
    assert {path.split("/")[1] for path in asked[before:]} == {"datasets", "storage"}  # no list
    assert hub.LOCK.read_bytes() == locked


def test_the_pixels_are_those_of_the_files(served):
    served("cinic-10", made("cinic-10"))
    assert fedrepro("data", "fetch", "cinic-10").code == 0
    raw = sources.raw(sources.SOURCES["cinic-10"])
    assert raw.train_x[:, 0, 0, 0].tolist() == [*range(10)] * 3
    assert raw.train_y.tolist() == [*range(10)] * 3
    assert data.describe("gan-cinic10")["files"].keys() == {
        f"cinic-10/{split}-00000-of-00001.parquet" for split in ("train", "validation", "test")
    }


def test_what_is_not_as_locked_is_refused_and_leaves_nothing(served):
    repositories = served("pacs", made("pacs")).repositories
    assert fedrepro("data", "fetch", "pacs").code == 0
    locked = hub.LOCK.read_bytes()
    for path in Path("data/cache/pacs").iterdir():
        path.unlink()
    repositories["flwrlabs/pacs"] = made("pacs", moved=1)
    done = fedrepro("data", "fetch", "pacs")
    assert done.code == 2
    assert "pacs is not in" in done.fault
    assert "remove pacs from data/hub.lock to lock newer ones" in done.fault
    assert not list(Path("data/cache/pacs").iterdir())
    assert hub.LOCK.read_bytes() == locked


def test_a_file_that_is_not_what_the_hub_says_is_refused_and_not_locked(served):
    contents = made("pacs")
    served("pacs", contents).announced[next(iter(contents))] = "0" * 64
    done = fedrepro("data", "fetch", "pacs")
    assert (done.code, "has the wrong checksum" in done.fault) == (2, True)
    assert not Path("data/cache/pacs").exists()
    assert not hub.LOCK.exists()


@pytest.mark.parametrize("path", ["../../evil.parquet", "data/a b.parquet", "data/évil.parquet", "data/.parquet", 5])
def test_a_file_of_a_strange_name_is_refused(served, path):
    served("pacs", {path: made("pacs")["data/train-00000-of-00002.parquet"]})
    done = fedrepro("data", "fetch", "pacs")
    assert (done.code, "lists no parquet files with checksums at 111111111111" in done.fault) == (2, True)
    assert not Path("data/cache/pacs").exists()


def test_two_files_of_one_name_and_files_without_checksum_are_refused(served, monkeypatch):
    content = made("pacs")["data/train-00000-of-00002.parquet"]
    handler = served("pacs", {"a/x.parquet": content, "b/x.parquet": content})
    assert "lists no parquet files" in fedrepro("data", "fetch", "pacs").fault
    handler.repositories["flwrlabs/pacs"] = {"data/x.parquet": content}
    handler.announced["data/x.parquet"] = "no-sha256"
    assert "lists no parquet files" in fedrepro("data", "fetch", "pacs").fault
    handler.repositories["flwrlabs/pacs"] = {}
    assert "lists no parquet files" in fedrepro("data", "fetch", "pacs").fault


def test_a_hub_that_is_not_there_is_one_sentence(served, monkeypatch):
    served("pacs", made("pacs"))
    monkeypatch.setenv(hub.ADDRESS_VARIABLE, "http://127.0.0.1:9")
    fault = fedrepro("data", "fetch", "pacs").fault
    assert (
        "the list of the files of pacs could not be downloaded (http://127.0.0.1:9/api/datasets/flwrlabs/pacs" in fault
    )
    assert "set FEDREPRO_DATA_DIR to a folder that holds pacs" in fault


@pytest.mark.parametrize("newest", [[], None, COMMIT, {}, {"sha": 1}, {"sha": "main"}])
def test_a_hub_that_answers_something_else_is_one_sentence(served, newest):
    served("pacs", made("pacs")).newest = newest
    assert "flwrlabs/pacs names no commit as its newest revision" in fedrepro("data", "fetch", "pacs").fault


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("hf-mirror.com", "HF_ENDPOINT is 'hf-mirror.com': write it with https:// in front, or unset it."),
        ("http://[hub", "could not be downloaded (http://[hub/"),
        ("http://a..b", "could not be downloaded (http://a..b/"),
    ],
)
@pytest.mark.parametrize("locked", [False, True])
def test_an_address_of_the_users_own_that_is_none_is_one_sentence(served, monkeypatch, address, said, locked):
    served("pacs", made("pacs"))
    if locked:
        hub.LOCK.parent.mkdir()
        file = ["0" * 64, 1, "data/a.parquet"]
        lock = {"repository": "flwrlabs/pacs", "revision": COMMIT, "files": [file]}
        hub.LOCK.write_text(json.dumps({"pacs": lock}))
    monkeypatch.setenv(hub.ADDRESS_VARIABLE, address)
    done = fedrepro("data", "fetch", "pacs")
    assert (done.code, said in done.fault) == (2, True), done.fault


def test_a_damaged_lock_and_one_of_another_repository_are_refused(served):
    served("pacs", made("pacs"))
    hub.LOCK.parent.mkdir()
    hub.LOCK.write_text("{")
    assert "data/hub.lock cannot be read" in fedrepro("data", "fetch", "pacs").fault
    hub.LOCK.write_text(json.dumps({"pacs": {"repository": "other/pacs", "revision": COMMIT, "files": []}}))
    assert "has pacs from other/pacs, where it is flwrlabs/pacs now" in fedrepro("data", "fetch", "pacs").fault


def test_a_folder_that_is_lent_is_never_written_to(served, tmp_path, monkeypatch):
    asked = served("pacs", made("pacs")).asked
    (tmp_path / "lent").mkdir()
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(tmp_path / "lent"))
    refusal(lambda: sources.fetch(sources.SOURCES["pacs"]), "unset FEDREPRO_DATA_DIR to download it")
    assert (asked, list((tmp_path / "lent").iterdir())) == ([], [])


def test_a_copy_of_the_users_own_is_taken_and_nothing_is_asked(served):
    asked = served("pacs", made("pacs")).asked
    folder = Path("data/cache/pacs")
    folder.mkdir(parents=True)
    (folder / "mine.parquet").write_bytes(table(**pictures(("photo", "art_painting", "cartoon", "sketch"), 7, 40)))
    assert fedrepro("data", "fetch", "pacs").code == 0
    assert (asked, hub.LOCK.exists()) == ([], False)
