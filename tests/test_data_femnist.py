"""FEMNIST end to end, on small data made in Hugging Face's layout and in LEAF's."""

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from servers import forbid

from fedrepro import data
from fedrepro.data import manifests, sheet, sources
from fedrepro.data.sources import femnist
from fedrepro.errors import UsageError
from fedrepro.records import paths

WRITERS = [f"f{w:04}_{w % 7}" for w in range(12)]


def written(seed: int = 0) -> list[tuple[str, np.ndarray, int]]:
    """(writer, image, character): 20 to 42 characters each, about half of them digits; a pixel says which row it is."""
    rng, rows = np.random.default_rng(seed), []
    for w, writer in enumerate(WRITERS):
        for _ in range(20 + 2 * w):
            image = rng.integers(0, 256, (28, 28), np.uint8)
            rows.append((writer, image, int(rng.integers(0, 10) if rng.random() < 0.5 else rng.integers(10, 62))))
    return rows


def put_parquet(root: Path, rows: list, files: int = 2) -> None:
    (root / "femnist").mkdir(parents=True)
    for part in range(files):
        mine = rows[part::files]
        columns = {
            "image": [{"bytes": png(image), "path": f"{i}.png"} for i, (_, image, _) in enumerate(mine)],
            "writer_id": [writer for writer, _, _ in mine],
            "hsf_id": [0] * len(mine),
            "character": [character for _, _, character in mine],
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), root / f"femnist/train-{part:05}-of-00002.parquet")


def png(image: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, format="png")
    return out.getvalue()


def put_leaf(root: Path, rows: list, by_user: bool = False) -> None:
    """A tenth of the rows in test/, or the last two writers; each split in two files."""
    splits = {"train": [], "test": []}
    for i, row in enumerate(rows):
        test = row[0] in WRITERS[-2:] if by_user else i % 10 == 3
        splits["test" if test else "train"].append(row)
    for split, mine in splits.items():
        (root / f"femnist/{split}").mkdir(parents=True)
        for part in range(2):
            users = sorted({writer for writer, _, _ in mine})[part::2]
            held = {user: [row for row in mine if row[0] == user] for user in users}
            content = {
                "users": users,
                "num_samples": [len(each) for each in held.values()],
                "user_data": {
                    user: {"x": [(image / 255).ravel().tolist() for _, image, _ in each], "y": [c for _, _, c in each]}
                    for user, each in held.items()
                },
            }
            (root / f"femnist/{split}/all_data_{part}.json").write_text(json.dumps(content))


@pytest.fixture(params=["parquet", "leaf"])
def home(request, tmp_path, monkeypatch) -> Path:
    """The user's folder, with FEMNIST in one of the layouts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "mine"))
    {"parquet": put_parquet, "leaf": put_leaf}[request.param](tmp_path / "mine", written())
    return tmp_path / "mine"


def digits() -> dict[bytes, tuple[str, int]]:
    return {bytes(image): (writer, label) for writer, image, label in written() if label < 10}


def refusal(call, *mentions: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert [mention for mention in mentions if mention not in message] == []


def test_both_layouts_give_the_digits_with_their_writers(home):
    raw = sources.raw(sources.SOURCES["femnist"])
    assert (raw.train_x.dtype, raw.train_y.dtype, raw.train_groups.dtype) == (torch.uint8, torch.int64, torch.int64)
    assert raw.train_x.shape[1:] == raw.test_x.shape[1:] == (28, 28)
    seen = {}
    for x, y, groups in (
        (raw.train_x, raw.train_y, raw.train_groups),
        (raw.test_x, raw.test_y, raw.test_groups),
    ):
        assert len(x) == len(y) == len(groups) > 0
        for image, label, group in zip(x.numpy(), y.tolist(), groups.tolist(), strict=True):
            seen[bytes(image)] = (WRITERS[group], label)
    assert seen == digits()
    assert len(raw.train_y) + len(raw.test_y) == len(seen), "no row twice"


def test_a_tenth_of_each_writer_is_the_test_split_of_hugging_faces_copy(tmp_path):
    put_parquet(tmp_path, written())
    raw = sources.read(sources.SOURCES["femnist"], tmp_path)
    total = torch.cat([raw.train_groups, raw.test_groups]).bincount()
    assert raw.test_groups.bincount(minlength=12).tolist() == [-(-count // 10) for count in total.tolist()]


def test_leafs_own_split_is_kept(tmp_path):
    put_leaf(tmp_path, written())
    raw = sources.read(sources.SOURCES["femnist"], tmp_path)
    theirs = {bytes(image) for i, (_, image, label) in enumerate(written()) if label < 10 and i % 10 == 3}
    assert set(map(bytes, raw.test_x.numpy())) == theirs


def test_the_tenth():
    writers = np.repeat(np.arange(6), [1, 2, 9, 10, 11, 100])
    test = femnist.tenth(writers)
    assert np.bincount(writers[test], minlength=6).tolist() == [0, 1, 1, 1, 2, 10]
    assert np.array_equal(test, femnist.tenth(writers))
    order = np.random.default_rng(0).permutation(len(writers))
    assert np.bincount(writers[order][femnist.tenth(writers[order])], minlength=6).tolist() == [0, 1, 1, 1, 2, 10]


def test_clients_have_as_many_writers_each(home):
    federation = data.load("femnist", 0, {"n": 4})
    raw, known = sources.raw(sources.SOURCES["femnist"]), digits()
    assert federation.x.shape[1:] == data.DATASETS["femnist"].shape
    owners = []
    for x, facts in zip(federation.x.split(federation.sizes), federation.facts["clients"], strict=True):
        owners.append({known[bytes(image)][0] for image in x.numpy()})
        assert facts["writers"] == len(owners[-1]) == 3
    assert set.union(*owners) == set(WRITERS)
    assert sum(federation.sizes) == len(raw.train_y)
    assert torch.equal(federation.tests["test"][0][:, 0], raw.test_x)
    assert federation.facts["test"]["writers"] == len(raw.test_groups.unique())


def test_held_out_writers_are_the_test_set(home):
    federation = data.load("femnist", 1, {"n": 3, "held_out": 0.25})
    known = digits()
    inside = {known[bytes(image)][0] for image in federation.x.numpy()}
    x, y = federation.tests["test"]
    strangers = {known[bytes(image)][0] for image in x.numpy()}
    assert (len(inside), len(strangers)) == (9, 3)
    assert not inside & strangers
    assert len(x) == sum(writer in strangers for writer, _ in known.values()), "all that they wrote"
    assert [known[bytes(image)][1] for image in x.numpy()] == y.tolist()
    other = data.load("femnist", 2, {"n": 3, "held_out": 0.25})
    assert {known[bytes(image)][0] for image in other.tests["test"][0].numpy()} != strangers


def test_a_part_of_the_writers_takes_part(home):
    federation = data.load("femnist", 0, {"n": 3, "writers_fraction": 0.5, "validation": 0.2})
    known = digits()
    inside = {known[bytes(image)][0] for image in torch.cat([federation.x, federation.tests["validation"][0]]).numpy()}
    assert len(inside) == 6
    assert {known[bytes(image)][0] for image in federation.tests["test"][0].numpy()} <= inside


def test_other_partitions_of_the_same_digits(home):
    federation = data.load("femnist", 0, {"n": 5, "partition": "iid"})
    assert max(federation.sizes) - min(federation.sizes) <= 1


def test_a_test_split_of_other_writers(tmp_path, monkeypatch):
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path))
    put_leaf(tmp_path, written(), by_user=True)
    federation = data.load("femnist", 0, {"n": 5})
    assert sum(facts["writers"] for facts in federation.facts["clients"]) == 10
    assert federation.facts["test"]["writers"] == 2


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"n": 13}, "more clients (13) than writers (12)"),
        ({"writers_fraction": 0}, "'writers_fraction' of femnist cannot be 0: input should be greater than 0"),
        ({"held_out": 1}, "'held_out' of femnist cannot be 1: input should be less than 1"),
        ({"held_out": "0.1"}, "'held_out' of femnist cannot be '0.1': input should be a valid number"),
        ({"writers_fraction": 0.01, "held_out": 0.5}, "leave none to train or to test on"),
    ],
)
def test_bad_parameters(home, params, complaint):
    refusal(lambda: data.load("femnist", 0, params), complaint)


# what is said of data without pins


def test_the_manifest_and_the_list_say_that_nothing_is_pinned(home):
    manifest = manifests.fetch("femnist")
    assert manifest["checksums"] == "not pinned: those of the files that were found"
    assert sorted(manifest["files"]) == sorted(p.relative_to(home).as_posix() for p in home.rglob("*.*") if p.is_file())
    assert manifest == manifests.verify("femnist") == json.loads(paths.manifest("femnist").read_text())
    (where,) = (row["where"] for row in manifests.list_datasets() if row["name"] == "femnist")
    assert where == f"present, checksums not pinned: {home}"
    assert sheet.show("femnist", Path("sheet.png"), params={"n": 6}).exists()


def test_the_fingerprint_is_of_the_files_found(home):
    before = data.describe("femnist")
    assert before == data.describe("femnist")
    content = {path: (home / path).read_bytes() for path in before["files"]}
    assert before["files"] == {path: hashlib.sha256(each).hexdigest() for path, each in content.items()}
    path = home / max(before["files"])
    path.write_bytes(path.read_bytes() + b" ")
    assert data.describe("femnist")["fingerprint"] != before["fingerprint"]


def test_changed_files_do_not_fit_their_manifest(home):
    manifests.fetch("femnist")
    path = max(home.rglob("*.*"))
    put = path.read_bytes()
    if path.suffix == ".json":
        path.write_bytes(put + b" ")
        refusal(lambda: manifests.verify("femnist"), "femnist.json does not describe these data")
    else:
        path.write_bytes(put[:-9])
        refusal(lambda: manifests.verify("femnist"), path.name, "is not FEMNIST as expected", "writer_id")


# what is missing or wrong


def test_missing_data_say_what_is_looked_for_and_where(tmp_path, monkeypatch):
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path))
    layouts = ("femnist/*.parquet", "writer_id", "femnist/train/*.json", "femnist/test/*.json", "`fedrepro data list`")
    for call in (lambda: data.load("femnist", 0, {}), lambda: data.describe("femnist")):
        refusal(call, f"FEDREPRO_DATA_DIR is {tmp_path}, which has no", *layouts)
    (tmp_path / "femnist/train").mkdir(parents=True)
    (tmp_path / "femnist/train/a.json").write_text("{}")
    refusal(lambda: data.load("femnist", 0, {}), "which has no", "femnist/test/*.json")
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    refusal(lambda: data.load("femnist", 0, {}), "is not a folder", *layouts)
    (where,) = (row["where"] for row in manifests.list_datasets() if row["name"] == "femnist")
    assert where.startswith("missing: ")


def test_it_is_not_downloaded_unless_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(sources.FOLDER_VARIABLE, raising=False)
    forbid(monkeypatch)
    for call in (lambda: data.load("femnist", 0, {}), lambda: data.describe("femnist")):
        refusal(call, "run `fedrepro data fetch femnist`", "set FEDREPRO_DATA_DIR to a folder that holds femnist")


GOOD = {"user_data": {"a": {"x": [[0.5] * 784] * 3, "y": [1, 2, 40]}}}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"user_data": {}}',
        '{"user_data": 3}',
        json.dumps({"user_data": {"a": {"y": [1]}}}),
        json.dumps({"user_data": {"a": {"x": [[0.5] * 783], "y": [1]}}}),
        json.dumps({"user_data": {"a": {"x": [[0.5] * 784], "y": [1, 2]}}}),
        json.dumps({"user_data": {"a": {"x": [[255.0] * 784], "y": [1]}}}),
        json.dumps({"user_data": {"a": {"x": [[0.5] * 784], "y": [-1]}}}),
        json.dumps({"user_data": {"a": {"x": [["b"] * 784], "y": [1]}}}),
    ],
)
def test_json_in_another_layout(tmp_path, content):
    for split, text in (("train", content), ("test", json.dumps(GOOD))):
        (tmp_path / "femnist" / split).mkdir(parents=True)
        (tmp_path / "femnist" / split / "x.json").write_text(text)
    refusal(
        lambda: sources.read(sources.SOURCES["femnist"], tmp_path), "femnist/train/x.json is not FEMNIST", "user_data"
    )


@pytest.mark.parametrize(
    "columns",
    [
        {"image": [{"bytes": png(np.zeros((28, 28), np.uint8)), "path": ""}], "character": [1]},
        {"image": [{"bytes": b"no picture", "path": ""}], "character": [1], "writer_id": ["a"]},
        {"image": [{"bytes": png(np.zeros((27, 28), np.uint8)), "path": ""}], "character": [1], "writer_id": ["a"]},
        {"image": [b"bytes"], "character": [1], "writer_id": ["a"]},
        {"image": [{"bytes": png(np.zeros((28, 28), np.uint8)), "path": ""}], "character": ["one"], "writer_id": ["a"]},
        {"image": [{"bytes": png(np.zeros((28, 28), np.uint8)), "path": ""}], "character": [-1], "writer_id": ["a"]},
    ],
)
def test_parquet_in_another_layout(tmp_path, columns):
    (tmp_path / "femnist").mkdir()
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "femnist/a.parquet")
    refusal(lambda: sources.read(sources.SOURCES["femnist"], tmp_path), "femnist/a.parquet is not FEMNIST", "character")


def test_letters_alone_are_not_enough(tmp_path):
    put_parquet(tmp_path, [(writer, image, 20) for writer, image, _ in written()])
    refusal(lambda: sources.read(sources.SOURCES["femnist"], tmp_path), "have no digit for the train split")
