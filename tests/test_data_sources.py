"""Sources and manifests: what is loaded is what was pinned, and every way of lacking it is one clear sentence."""

import dataclasses
import gzip
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import time
import urllib.error
from http.client import IncompleteRead
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
import torchvision
from federations import refusal
from PIL import Image
from servers import forbid, serve
from torch.nn.functional import interpolate

from fedrepro import data, files
from fedrepro.data import manifests, sources
from fedrepro.data.sources import pictures, readers
from fedrepro.records import paths

MNIST_FILES = sources.SOURCES["mnist"].files
REPOSITORY = Path(__file__).parents[1]
real = pytest.mark.skipif(not os.environ.get(sources.FOLDER_VARIABLE), reason="FEDREPRO_DATA_DIR names no real MNIST")


# a toy MNIST: 12 training and 5 test images in the true layout, with pins of its own


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes()


def toy_arrays() -> list[np.ndarray]:
    digits = np.random.default_rng(0)
    return [
        array.astype(np.uint8)
        for rows in (12, 5)
        for array in (digits.integers(1, 256, (rows, 28, 28)), np.arange(rows) % 10)
    ]


def pinned(arrays: list[np.ndarray]) -> sources.Source:
    """The MNIST source with the pins of these arrays."""
    contents = map(idx, arrays)
    pins = tuple(
        sources.File(hashlib.sha256(content).hexdigest(), len(content), file.path)
        for file, content in zip(MNIST_FILES, contents, strict=True)
    )
    return dataclasses.replace(sources.SOURCES["mnist"], files=pins, train=len(arrays[0]), test=len(arrays[2]))


def put(root: Path, arrays: list[np.ndarray]) -> None:
    for file, array in zip(MNIST_FILES, arrays, strict=True):
        (root / file.path).parent.mkdir(parents=True, exist_ok=True)
        (root / file.path).write_bytes(idx(array))


@pytest.fixture
def toy(monkeypatch, tmp_path) -> sources.Source:
    """The toy is what `mnist` means; the current folder is empty and no data folder is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.FOLDER_VARIABLE, raising=False)
    monkeypatch.setitem(sources.SOURCES, "mnist", pinned(toy_arrays()))
    return sources.SOURCES["mnist"]


@pytest.fixture
def lent(toy, tmp_path, monkeypatch) -> Path:
    """The toy lies in a folder of the user's, and downloading is forbidden."""
    root = tmp_path / "mine"
    put(root, toy_arrays())
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(root))
    forbid(monkeypatch)
    return root


def load_toy():
    return data.load("colored-mnist", 0, {})


WAYS_OUT = ("FEDREPRO_DATA_DIR", "MNIST/raw", "`fedrepro data list`")


# the real and the embedded data


@real
def test_mnist_is_mnist():
    raw = sources.raw(sources.SOURCES["mnist"])
    assert raw.train_y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert raw.test_y[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    pixels = raw.train_x.double() / 255
    assert pixels.mean().item() == pytest.approx(0.1307, abs=5e-5)
    assert pixels.std().item() == pytest.approx(0.3081, abs=5e-5)
    assert (raw.train_x.shape, raw.test_x.shape, raw.classes) == ((60000, 28, 28), (10000, 28, 28), 10)
    assert (raw.train_x.dtype, raw.train_y.dtype) == (torch.uint8, torch.int64)


@real
def test_mnist_equals_torchvisions():
    raw = sources.raw(sources.SOURCES["mnist"])
    theirs = torchvision.datasets.MNIST(sources.folder(), train=False)
    assert torch.equal(raw.test_x, theirs.data)
    assert torch.equal(raw.test_y, theirs.targets)


def test_a_source_is_read_once_and_shared():
    assert sources.raw(sources.SOURCES["digits"]) is sources.raw(sources.SOURCES["digits"])


def test_digits_need_no_folder(monkeypatch, tmp_path):
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    raw = sources.raw(sources.SOURCES["digits"])
    assert (raw.train_x.shape, raw.test_x.shape) == ((1500, 28, 28), (297, 28, 28))
    assert sorted(raw.train_y.unique().tolist()) == list(range(10))


def test_digits_are_split_without_loss():
    from sklearn.datasets import load_digits

    raw = sources.raw(sources.SOURCES["digits"])
    whole = readers.upsample(load_digits().images.astype(np.int64))
    ours = torch.cat([raw.train_x, raw.test_x]).numpy()
    assert sorted(map(bytes, ours)) == sorted(map(bytes, whole))


def test_upsampling_is_bilinear():
    small = np.random.default_rng(0).integers(0, 17, (20, 8, 8))
    theirs = interpolate(torch.from_numpy(small[:, None] * 255 / 16), (28, 28), mode="bilinear")[:, 0]
    assert np.abs(readers.upsample(small) - theirs.numpy()).max() <= 0.5 + 1e-9
    assert (readers.upsample(np.full((1, 8, 8), 16)) == 255).all()


def test_other_embedded_digits_are_refused(monkeypatch):
    embedded = sources.SOURCES["digits"]
    wrong = dataclasses.replace(embedded, files=(*embedded.files[:3], sources.File("0" * 64, 297, "digits/labels")))
    refusal(lambda: sources.raw(wrong), "digits/labels", "wrong checksum", "requirements.lock")


# a folder of the user's


def test_a_lent_folder_is_read_and_nothing_else(lent):
    before = {path: path.stat().st_mtime_ns for path in lent.rglob("*")}
    federation = load_toy()
    manifests.fetch("mnist")
    manifests.verify("mnist")
    assert federation.sizes == (6, 6)
    assert {path: path.stat().st_mtime_ns for path in lent.rglob("*")} == before


def test_torchvisions_old_processed_files_are_ignored(lent):
    for name in ("training.pt", "test.pt"):
        (lent / "MNIST/processed").mkdir(exist_ok=True)
        (lent / "MNIST/processed" / name).write_bytes(b"not verified by anybody")
    assert load_toy().sizes == (6, 6)


def test_a_folder_that_does_not_exist(lent, monkeypatch, tmp_path):
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    refusal(load_toy, "nowhere, which is not a folder", *WAYS_OUT)
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_without_the_dataset(lent, monkeypatch, tmp_path):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "empty"))
    refusal(load_toy, "empty, which has no MNIST/raw/train-images-idx3-ubyte", *WAYS_OUT)
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("file", MNIST_FILES, ids=lambda file: file.path.rsplit("/")[-1])
@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda content: content[:-1], "bytes instead of"),
        (lambda content: content + b"0", "bytes instead of"),
        (lambda content: b"", "has 0 bytes instead of"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "wrong checksum"),
    ],
    ids=["truncated", "longer", "empty", "changed"],
)
def test_damaged_files_are_refused(lent, file, damage, complaint):
    path = lent / file.path
    path.write_bytes(damage(path.read_bytes()))
    refusal(load_toy, str(path), complaint, "put the original there", *WAYS_OUT)
    refusal(lambda: manifests.verify("mnist"), complaint)
    refusal(lambda: manifests.fetch("mnist"), complaint)
    assert not paths.MANIFESTS.exists()


def test_a_file_that_cannot_be_read(lent, monkeypatch):
    def refuse(path, dtype):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(np, "fromfile", refuse)
    refusal(load_toy, "Permission denied", "train-images-idx3-ubyte", *WAYS_OUT)


def test_verifying_reads_again(lent):
    load_toy()
    path = lent / MNIST_FILES[0].path
    path.write_bytes(path.read_bytes()[:-1])
    assert load_toy().sizes == (6, 6), "verified once per process"
    refusal(lambda: manifests.verify("mnist"), "bytes instead of")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda x, y: (x, y + 9), "labels outside 0..9"),
        (lambda x, y: (x[1:], y[1:]), "11 images and 11 labels where 12 are expected"),
        (lambda x, y: (x, y[1:]), "12 images and 11 labels"),
    ],
)
def test_pinned_but_impossible_content_is_refused(lent, monkeypatch, change, complaint):
    arrays = toy_arrays()
    arrays[:2] = change(*arrays[:2])
    put(lent, arrays)
    monkeypatch.setitem(sources.SOURCES, "mnist", dataclasses.replace(pinned(arrays), train=12))
    refusal(load_toy, complaint)


@real
@pytest.mark.parametrize(
    ("name", "shape", "means", "deviation"),
    [
        ("fashion-mnist", (28, 28), [0.2860], 0.3530),
        ("cifar10-jpeg", (3, 32, 32), [0.4913, 0.4821, 0.4465], None),
    ],
)
def test_the_statistics_are_the_known_ones(name, shape, means, deviation):
    raw = sources.raw(sources.SOURCES[name])
    pixels = raw.train_x.double() / 255
    assert raw.train_x.shape[1:] == raw.test_x.shape[1:] == shape
    seen = pixels.mean((0, 2, 3)).tolist() if len(shape) == 3 else [pixels.mean().item()]
    assert seen == pytest.approx(means, abs=1e-4)
    assert deviation is None or pixels.std().item() == pytest.approx(deviation, abs=5e-5)
    assert raw.train_y.bincount().tolist() == [len(raw.train_y) // 10] * 10
    assert raw.test_y.bincount().tolist() == [1000] * 10


# CIFAR-10 in small: the archive as torchvision has it, and parquet as Hugging Face has it


def small_cifar() -> tuple[np.ndarray, np.ndarray]:
    """Five batches of two images and a test batch of two."""
    return np.random.default_rng(3).integers(0, 256, (12, 3, 32, 32), np.uint8), np.arange(12) % 10


def archive(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def batches() -> dict[str, bytes]:
    """In another order than that of the rows, with the other files of the archive."""
    x, y = small_cifar()
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    parts = {
        name: pickle.dumps({b"data": x[2 * i : 2 * i + 2].reshape(2, -1), b"labels": y[2 * i : 2 * i + 2].tolist()})
        for i, name in enumerate(names)
    }
    return {"readme.html": b"<html>", "batches.meta": pickle.dumps({}), **dict(reversed(parts.items()))}


def hugging_face(x: np.ndarray, y: np.ndarray, column: str, kind: str) -> bytes:
    def encoded(image: np.ndarray) -> bytes:
        out = io.BytesIO()
        Image.fromarray(image.transpose(1, 2, 0)).save(out, format=kind)
        return out.getvalue()

    rows = [{"bytes": encoded(image), "path": f"{i}.{kind}"} for i, image in enumerate(x)]
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({column: rows, "label": y}), out)
    return out.getvalue()


def stored(source: sources.Source, contents: list[bytes], root: Path, **counts: int) -> sources.Source:
    """The source with the pins of these contents, which lie under root."""
    pins = []
    for file, content in zip(source.files, contents, strict=True):
        (root / file.path).parent.mkdir(parents=True, exist_ok=True)
        (root / file.path).write_bytes(content)
        pins.append(sources.File(hashlib.sha256(content).hexdigest(), len(content), file.path))
    return dataclasses.replace(source, files=tuple(pins), **counts)


def test_the_archive_is_read_in_the_order_of_its_batches(tmp_path):
    source = stored(sources.SOURCES["cifar10"], [archive(batches())], tmp_path, train=10, test=2)
    raw, (x, y) = sources.read(source, tmp_path), small_cifar()
    assert np.array_equal(torch.cat([raw.train_x, raw.test_x]).numpy(), x)
    assert torch.cat([raw.train_y, raw.test_y]).tolist() == y.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-python.tar.gz"], "nothing is unpacked"


def test_a_changed_archive_is_refused_before_it_is_opened(tmp_path, monkeypatch):
    source = stored(sources.SOURCES["cifar10"], [archive(batches())], tmp_path, train=10, test=2)
    content = bytearray((tmp_path / source.files[0].path).read_bytes())
    content[100] ^= 1
    (tmp_path / source.files[0].path).write_bytes(content)
    monkeypatch.setattr(tarfile, "open", lambda *args, **kwargs: pytest.fail("opens it"))
    refusal(lambda: sources.read(source, tmp_path), "wrong checksum", "FEDREPRO_DATA_DIR", "cifar-10-python.tar.gz")


def test_the_archive_is_downloaded_and_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.FOLDER_VARIABLE, raising=False)
    source = stored(sources.SOURCES["cifar10"], [archive(batches())], tmp_path / "server", train=10, test=2)

    asked = serve(monkeypatch, lambda url: (tmp_path / "server" / source.files[0].path).read_bytes())
    assert len(sources.raw(source).train_x) == 10
    assert [path.name for path in sources.CACHE.iterdir()] == ["cifar-10-python.tar.gz"], "which is not unpacked"
    assert asked == [torchvision.datasets.CIFAR10.url]


@pytest.mark.parametrize(("column", "kind"), [("image", "png"), ("img", "png"), ("image", "jpeg")])
def test_parquet_has_the_pixels_of_its_images(column, kind, tmp_path):
    x, y = small_cifar()
    contents = [hugging_face(x[part], y[part], column, kind) for part in (slice(10), slice(10, 12))]
    raw = sources.read(stored(sources.SOURCES["cifar10-jpeg"], contents, tmp_path, train=10, test=2), tmp_path)
    x_read, labels = torch.cat([raw.train_x, raw.test_x]), torch.cat([raw.train_y, raw.test_y])
    assert (x_read.shape, x_read.dtype, labels.tolist()) == ((12, 3, 32, 32), torch.uint8, y.tolist())
    if kind == "png":
        assert np.array_equal(x_read.numpy(), x)
    else:  # random pixels lose the most; that they stay in place and order shows in their correlation
        assert np.corrcoef(x_read.numpy().ravel(), x.ravel())[0, 1] > 0.5


def test_grey_images_in_parquet_become_rgb():
    grey = np.random.default_rng(0).integers(0, 256, (3, 32, 32), np.uint8)
    rows = []
    for image in grey:
        out = io.BytesIO()
        Image.fromarray(image).save(out, format="png")
        rows.append({"bytes": out.getvalue(), "path": ""})
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"img": rows, "label": [0, 1, 2]}), content)
    x, _, _ = pictures.decode([("a/train.parquet", content.getvalue())], ("train",), 3, 0)
    assert np.array_equal(x.numpy(), np.repeat(grey[:, None], 3, axis=1))


def test_a_source_without_an_address_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.FOLDER_VARIABLE, raising=False)
    call = lambda: data.load("spurious-cifar10-jpeg", 0, {})  # noqa: E731
    refusal(call, "no public address", "FEDREPRO_DATA_DIR", "holds cifar10-jpeg", "`fedrepro data list`")


# downloading into the cache


def served(arrays=None, error=None):
    """What the servers of MNIST answer: packed files, but for the last one an error, if there is one."""
    files = {Path(file.path).name: idx(array) for file, array in zip(MNIST_FILES, arrays or toy_arrays(), strict=True)}

    def answer(url):
        name = url.rpartition("/")[2].removesuffix(".gz")
        if error and name == list(files)[-1]:
            raise error
        return gzip.compress(files[name])

    return answer


def test_a_download_is_kept_and_used_again(toy, monkeypatch, capsys):
    serve(monkeypatch, served())
    assert load_toy().sizes == (6, 6)
    assert sorted(path.name for path in sources.CACHE.rglob("*")) == sorted(
        ["MNIST", "raw", *(Path(file.path).name for file in MNIST_FILES)]
    )
    forbid(monkeypatch)
    sources._raw.cache_clear()
    assert load_toy().sizes == (6, 6)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("no route to host"),
        TimeoutError("no route to host"),
        OSError(28, "no route to host"),
        OSError("several\nlines:\n<no route to host>\n"),
        IncompleteRead(b"no route to host"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failed_download_leaves_nothing(toy, monkeypatch, capsys, error):
    asked = serve(monkeypatch, served(error=error))
    message = refusal(load_toy, "could not be downloaded", *WAYS_OUT)
    assert "no route to host" in message or "IncompleteRead" in message
    assert "several" not in message
    assert list(sources.CACHE.iterdir()) == []
    assert capsys.readouterr() == ("", "")
    tried = [f"{mirror}t10k-labels-idx1-ubyte.gz" for mirror in torchvision.datasets.MNIST.mirrors]
    assert [url for url in asked if "t10k-labels" in url] == tried


def test_a_failed_download_names_each_address_with_its_answer(toy, monkeypatch):
    mirrors = torchvision.datasets.MNIST.mirrors

    def answer(url):
        if url.startswith(mirrors[0]):
            raise urllib.error.HTTPError(url, 404, "Not Found", {}, None)
        raise TimeoutError("timed out")

    serve(monkeypatch, answer)
    file = "train-images-idx3-ubyte.gz"
    said = f"({mirrors[0]}{file}: HTTP Error 404: Not Found; {mirrors[1]}{file}: timed out): set"
    refusal(load_toy, said)


def test_another_mirror_is_asked_where_one_has_something_else(toy, monkeypatch):
    good, mirrors = served(), torchvision.datasets.MNIST.mirrors
    answers = {mirrors[0]: lambda url: b"<html>moved</html>", mirrors[1]: good}
    serve(monkeypatch, lambda url: answers[url.rpartition("/")[0] + "/"](url))
    assert load_toy().sizes == (6, 6)


def test_an_interrupted_download_leaves_nothing(toy, monkeypatch):
    serve(monkeypatch, served(error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        load_toy()
    assert list(sources.CACHE.iterdir()) == []


def test_a_download_of_something_else_is_refused(toy, monkeypatch):
    arrays = toy_arrays()
    arrays[2][0, 0, 0] ^= 1
    serve(monkeypatch, served(arrays))
    wanted, found = toy.files[2].sha256, hashlib.sha256(idx(arrays[2])).hexdigest()
    said = f"t10k-images-idx3-ubyte has the wrong checksum, sha256 {found[:12]} and not {wanted[:12]}"
    message = refusal(load_toy, "could not be downloaded", *WAYS_OUT)
    for mirror in torchvision.datasets.MNIST.mirrors:
        assert f"{mirror}t10k-images-idx3-ubyte.gz: MNIST/raw/{said}" in message
    assert list(sources.CACHE.iterdir()) == []


def test_no_network(toy, monkeypatch, capsys):
    def refuse(url):
        raise urllib.error.URLError("Name or service not known")

    serve(monkeypatch, refuse)
    start = time.monotonic()
    refusal(load_toy, "could not be downloaded (http", "gz: urlopen error Name or service not known", *WAYS_OUT)
    assert time.monotonic() - start < 5
    assert capsys.readouterr() == ("", "")


def test_a_cache_that_cannot_be_written(toy):
    Path("data").write_text("in the way")
    refusal(load_toy, "could not be downloaded", "Not a directory", *WAYS_OUT)


def test_fetch_mends_the_cache_and_load_does_not(toy, monkeypatch):
    arrays = toy_arrays()
    arrays[1][0] = 7
    put(sources.CACHE, arrays)
    refusal(load_toy, "wrong checksum", "run `fedrepro data fetch mnist`", *WAYS_OUT)
    refusal(lambda: manifests.verify("mnist"), "wrong checksum", "run `fedrepro data fetch mnist`")
    serve(monkeypatch, served())
    manifests.fetch("colored-mnist")
    assert load_toy().sizes == (6, 6)


def test_verify_downloads_nothing(toy, monkeypatch):
    forbid(monkeypatch)
    refusal(lambda: manifests.verify("mnist"), "is not a folder", "run `fedrepro data fetch mnist`", *WAYS_OUT)


# manifests and lists


def test_pinned_data_are_intact_if_their_files_are_and_no_image_is_decoded(lent, monkeypatch):
    manifests.fetch("mnist")
    monkeypatch.setattr(sources, "read", lambda *given: pytest.fail("decodes"))
    manifests.intact("mnist")
    for content in ("{}", "{", '{"files": {}}'):
        paths.manifest("mnist").write_text(content)
        refusal(lambda: manifests.intact("mnist"), "mnist.json does not describe these data", "`fedrepro data fetch")
    paths.manifest("mnist").unlink()
    path = lent / MNIST_FILES[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"0")
    refusal(lambda: manifests.intact("mnist"), "wrong checksum", *WAYS_OUT)


def test_fetch_writes_the_manifest_and_verify_compares_it(lent):
    manifest = manifests.fetch("colored-mnist")
    path = paths.manifest("mnist")
    first = path.read_bytes()
    assert manifests.fetch("mnist") == manifests.verify("colored-mnist") == manifest == json.loads(first)
    assert path.read_bytes() == first
    assert manifest["train"] == {
        "images": 12,
        "shape": [28, 28],
        "labels": [0, 9],
        "images_per_label": [2, 2, 1, 1, 1, 1, 1, 1, 1, 1],
    }
    assert manifest["test"]["labels"] == [0, 4]
    assert manifest["files"][MNIST_FILES[1].path]["bytes"] == 20
    path.write_bytes(b"\xff" + first)
    refusal(lambda: manifests.verify("mnist"), "mnist.json", "run `fedrepro data fetch mnist`")


@pytest.mark.parametrize(
    "name",
    [
        "digits",
        "drawn",
        *(pytest.param(name, marks=real) for name in ("mnist", "fashion-mnist", "cifar10-jpeg", "pacs-112px")),
    ],
)
def test_committed_manifests_are_those_of_the_data(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    manifests.fetch(name)
    assert (
        Path("data/manifests", f"{name}.json").read_bytes()
        == (REPOSITORY / "data/manifests" / f"{name}.json").read_bytes()
    )


@pytest.mark.parametrize(
    "name", sorted(sources.SOURCES.keys() - {"cifar10", "femnist", "pacs", "officehome", "cinic-10"})
)  # which no committed run has used
def test_committed_manifests_have_the_pins_and_no_address(name):
    text = (REPOSITORY / "data/manifests" / f"{name}.json").read_text()
    manifest = json.loads(text)
    pins = {file.path: {"sha256": file.sha256, "bytes": file.bytes} for file in sources.SOURCES[name].files}
    assert manifest["files"] == pins
    assert text == files.json_text(manifest)
    assert "://" not in text


def test_what_stands_in_on_disk_has_no_address():
    # The page says so of every run on one (page/provenance.py).
    stand_ins = [source for source in sources.SOURCES.values() if source.substitute and not source.embedded]
    assert {source.name for source in stand_ins} == {"cifar10-jpeg", "pacs-112px"}
    assert [source.name for source in stand_ins if source.torchvision] == []


def test_unknown_datasets_are_told_the_closest():
    refusal(lambda: manifests.fetch("minst"), "'minst'", "did you mean 'mnist'")
    refusal(lambda: manifests.verify("digit"), "did you mean 'digits'")
    refusal(lambda: data.load("colored-mist", 0, {}), "did you mean 'colored-mnist'")
    refusal(lambda: data.describe("digit"), "did you mean 'digits'")


def test_the_list_says_where_data_are(toy, monkeypatch, tmp_path):
    def where() -> dict:
        return {row["name"]: row["where"] for row in manifests.list_datasets()}

    embedded = {name for name, row in data.DATASETS.items() if row.source == "digits"}
    assert {"digits", "digits-plain", "fedcmnist-digits"} <= embedded
    everywhere = dict.fromkeys(data.DATASETS, f"missing: {tmp_path / 'data/cache'}")
    drawn = {name for name, row in data.DATASETS.items() if row.source == "drawn"}
    assert where() == everywhere | dict.fromkeys(embedded, "embedded") | dict.fromkeys(drawn, "drawn")
    put(tmp_path / "mine", toy_arrays())
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "mine"))
    assert where()["colored-mnist"] == where()["fedcmnist"] == f"present: {tmp_path / 'mine'}"
    assert where()["colored-fashion-mnist"] == f"missing: {tmp_path / 'mine'}"
    substitutes = {row["name"]: row["substitute"] for row in manifests.list_datasets()}
    assert {name for name, label in substitutes.items() if label == "digits (8x8)"} == embedded
    assert {name for name, label in substitutes.items() if label == "cifar10 (jpeg)"} == {
        "cifar10-jpeg",
        "gan-cifar10-jpeg",
        "spurious-cifar10-jpeg",
    }


def test_describing_reads_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    description = data.describe("colored-mnist")
    assert list(description) == ["dataset", "source", "substitute", "licence", "files", "fingerprint"]
    assert description["files"][MNIST_FILES[0].path] == MNIST_FILES[0].sha256
    assert description["fingerprint"] != data.describe("digits")["fingerprint"]
    assert json.loads(json.dumps(description)) == description


# what answers at once


def test_names_and_descriptions_need_no_torch():
    code = """
import sys
import fedrepro.data, fedrepro.data.sources, fedrepro.data.manifests
from fedrepro import data
for name, row in data.DATASETS.items():
    if data.sources.SOURCES[row.source].pinned:
        assert data.describe(name)["dataset"] == name
    assert data.numerics(name) >= 1 and row.summary
assert len(data.manifests.list_datasets()) == len(data.DATASETS)
assert "torch" not in sys.modules
data.parameters("digits")
assert "torch" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_module_of_builders_has_a_number():
    assert data.NUMERICS.keys() == {row.builder.partition(".")[0] for row in data.DATASETS.values()}
