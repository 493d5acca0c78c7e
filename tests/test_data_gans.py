"""The federations that generators learn from: classes by client and mixtures, and CINIC-10 in its layouts."""

import dataclasses
import hashlib
import io
import json
import os
from collections import Counter
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from federations import labels_in, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import kstest

from fedrepro import data
from fedrepro.core.types import Draw
from fedrepro.data import manifests, sheet, sources
from fedrepro.data.draws import Feeder
from fedrepro.data.federations import gans
from fedrepro.nets.mlp import pixels

real = pytest.mark.skipif(not os.environ.get(sources.FOLDER_VARIABLE), reason="FEDREPRO_DATA_DIR names no real data")

IMAGES = ("gan-mnist", "gan-fashion-mnist", "gan-cifar10", "gan-cifar10-jpeg", "gan-cinic10", "gan-digits")
MIXTURES = ("mixture-1d", "mixture-2d")
EVERY = set(range(10))
HELD = {  # as printed in section 5 of f2u-2019
    ("non", 5): [{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}],
    ("mod", 5): [{0, 1, 2, 3}, {2, 3, 4, 5}, {4, 5, 6, 7}, {6, 7, 8, 9}, {8, 9, 0, 1}],
    ("full", 5): [EVERY] * 5,
    ("non", 10): [{k} for k in range(10)],
    ("non", 20): [{k} for k in range(10) for _ in range(2)],
    ("pooled", 1): [EVERY],
    ("pooled", 5): [EVERY],
}
SPLITS = list(HELD)


def numbered(counts: list[int], shape: tuple[int, ...] = (4, 4)) -> sources.Raw:
    """So many images of each class, shuffled; image i has the bytes of i."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(10), counts))
    x = np.zeros((len(y), *shape), np.uint8)
    x.reshape(len(y), -1)[:, :4] = np.arange(len(y), dtype=np.uint32)[:, None].view(np.uint8)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    return sources.Raw(x, y, x[:0], y[:0], classes=10)


def rows_of(federation: data.Federation) -> list[list[int]]:
    """For each client, the numbers of its images."""
    first = np.ascontiguousarray(federation.x.numpy().reshape(len(federation.x), -1)[:, :4])
    return [own.tolist() for own in torch.from_numpy(first.view(np.uint32)[:, 0].astype(int)).split(federation.sizes)]


# classes by client

COUNTS = st.lists(st.integers(20, 60), min_size=10, max_size=10)


@given(COUNTS, st.sampled_from(SPLITS), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_every_image_is_in_one_client_and_holders_have_equal_parts(counts, split, seed):
    raw = numbered(counts)
    federation = gans.by_class(raw, seed, overlap=split[0], n=split[1])
    rows, own = rows_of(federation), federation.y.split(federation.sizes)
    assert [set(y.tolist()) for y in own] == HELD[split]
    assert sorted(sum(rows, [])) == list(range(sum(counts)))
    assert [raw.train_y[each].tolist() for each in rows] == [y.tolist() for y in own], "with their labels"
    for label, count in enumerate(counts):
        parts = [int((y == label).sum()) for y, held in zip(own, HELD[split], strict=True) if label in held]
        assert sum(parts) == count
        assert max(parts) - min(parts) <= 1
    assert federation.facts == {
        "clients": [
            {"rows": len(y), "labels": ", ".join(f"{k}: {n}" for k, n in sorted(Counter(y.tolist()).items()))}
            for y in own
        ]
    }


@given(COUNTS, st.sampled_from(["mod", "full"]), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_copied_classes_are_whole_in_each_holder(counts, overlap, seed):
    raw = numbered(counts)
    federation = gans.by_class(raw, seed, overlap=overlap, overlap_mode="copy")
    for rows, held in zip(rows_of(federation), HELD[overlap, 5], strict=True):
        assert sorted(rows) == [row for row, label in enumerate(raw.train_y.tolist()) if label in held]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("mode", get_args(gans.Mode))
def test_a_split_is_a_function_of_its_seed(split, mode):
    raw, params = numbered([40] * 10), {"overlap": split[0], "n": split[1], "overlap_mode": mode}
    if mode == "copy" and split[0] not in ("mod", "full"):
        refusal(lambda: gans.by_class(raw, 0, **params), 'overlap_mode "copy" is for overlap "mod" and "full"')
        return
    first, again, other = (gans.by_class(raw, seed, **params) for seed in (0, 0, 1))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)
    assert not torch.equal(first.x, other.x)
    alike = rows_of(first) == rows_of(other)
    assert not alike
    if mode == "divide" and split in (("mod", 5), ("full", 5), ("non", 20)):
        assert [set(rows) for rows in rows_of(first)] != [set(rows) for rows in rows_of(other)], "cut at random"


def test_halves_are_random_and_independent():
    """Over many seeds an image is in the first of its two holders half of the time, neighbours independently."""
    raw = numbered([40] * 10)
    first = np.zeros((200, 400), bool)
    for seed in range(200):
        rows = rows_of(gans.by_class(raw, seed, n=20))
        first[seed, sum(rows[::2], [])] = True
    shares = first.mean(0)
    assert abs(shares - 0.5).max() < 5 * np.sqrt(0.25 / 200)
    twice = (first[:, :-1] == first[:, 1:]).mean()
    assert abs(twice - 0.5) < 0.03


def test_images_with_channels_stay_as_they_are():
    raw = numbered([20] * 10, (3, 5, 5))
    federation = gans.by_class(raw, 0, overlap="full")
    assert federation.x.shape == (200, 3, 5, 5)
    assert torch.equal(federation.x, raw.train_x[sum(rows_of(federation), [])])
    assert gans.by_class(numbered([20] * 10), 0).x.shape == (200, 1, 4, 4)


@real
@pytest.mark.parametrize("split", SPLITS)
def test_mnist_is_split_as_in_the_paper(split):
    federation = data.load("gan-mnist", 0, {"overlap": split[0], "n": split[1]})
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert (federation.x.shape, federation.x.dtype) == ((60_000, 1, 28, 28), torch.uint8)
    assert federation.y.bincount().tolist() == counts
    assert len(federation.sizes) == len(HELD[split])
    holders = [sum(label in held for held in HELD[split]) for label in range(10)]
    for size, held in zip(federation.sizes, HELD[split], strict=True):
        assert size == pytest.approx(sum(counts[label] / holders[label] for label in held), abs=len(held))
    if len(federation.sizes) == 5:
        assert all(abs(size - 12_000) < 1_000 for size in federation.sizes), "about 12,000 each in all conditions"
    if split[0] == "full":
        assert max(federation.sizes) - min(federation.sizes) <= 10
    assert [sum(labels_in(facts).values()) for facts in federation.facts["clients"]] == list(federation.sizes)


def test_digits_stand_in():
    federation = data.load("gan-digits", 0, {})
    assert sum(federation.sizes) == 1500
    assert (federation.tests, federation.groups, federation.modes) == ({}, {}, None)
    assert federation.classes == 10
    assert data.describe("gan-digits")["substitute"] == "digits (8x8)"


@pytest.mark.parametrize("name", [*IMAGES, *MIXTURES])
def test_the_datasets_have_the_papers_defaults(name):
    of_images = {"overlap": "non", "n": 5, "overlap_mode": "divide"}
    assert data.parameters(name) == (of_images if name in IMAGES else {"overlap": "non"})
    shape = data.DATASETS[name].shape
    assert shape == {"mixture-1d": (1,), "mixture-2d": (2,)}.get(name, (3, 32, 32) if "ci" in name else (1, 28, 28))
    if name in ("gan-digits", *MIXTURES):
        assert data.load(name, 0, {}).x.shape[1:] == shape


def test_the_draws_of_a_seed_never_change():
    """Committed records rest on them: if this fails, f2u-2019 has to be trained again."""
    digests = {}
    for name, overlap in (("gan-digits", "non"), ("gan-digits", "mod"), ("gan-digits", "full"), ("mixture-2d", "non")):
        federation = data.load(name, 0, {"overlap": overlap})
        content = federation.x.numpy().tobytes() + federation.y.numpy().tobytes()
        digests[f"{name} {overlap}"] = hashlib.sha256(content).hexdigest()[:12]
    assert digests == DRAWN


DRAWN = {
    "gan-digits non": "dc3f73e3d374",
    "gan-digits mod": "198c90ef76b5",
    "gan-digits full": "6a3069472755",
    "mixture-2d non": "b011ea654cc8",
}


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"overlap": "none"}, "cannot be 'none': input should be 'non', 'mod', 'full' or 'pooled'"),
        ({"overlap": ["non"]}, "cannot be ['non']: input should be 'non', 'mod', 'full' or 'pooled'"),
        ({"overlap": None}, "cannot be None: input should be 'non', 'mod', 'full' or 'pooled'"),
        (
            {"overlap_mode": "share"},
            "'overlap_mode' of gan-digits cannot be 'share': input should be 'divide' or 'copy'",
        ),
        ({"overlap_mode": ["copy"]}, "cannot be ['copy']: input should be 'divide' or 'copy'"),
        ({"overlap": "pooled", "overlap_mode": "copy"}, "cannot be with 'pooled'"),
        ({"n": 20, "overlap_mode": "copy"}, "cannot be with 'non'"),
        ({"n": 4}, "n is 5 or 10 or 20 with overlap 'non', and cannot be 4"),
        ({"n": 5.0}, "cannot be 5.0"),
        ({"n": [5]}, "cannot be [5]"),
        ({"n": 10, "overlap": "mod"}, "n is 5 with overlap 'mod', and cannot be 10"),
        ({"n": 20, "overlap": "full"}, "n is 5 with overlap 'full', and cannot be 20"),
        ({"n": True, "overlap": "pooled"}, "'n' of gan-digits cannot be True: input should be a valid integer"),
        ({"size": 28}, "unknown data key of gan-digits 'size'"),
    ],
)
def test_bad_parameters(params, complaint):
    refusal(lambda: data.load("gan-digits", 0, params), complaint)


# mixtures

MEANS = {
    "mixture-1d": [[-4], [0], [4]],
    "mixture-2d": [[3, 0], [-1.5, 1.5 * 3**0.5], [-1.5, -1.5 * 3**0.5]],
}
SD = {"mixture-1d": 0.5, "mixture-2d": 0.3}


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("seed", [0, 7])
def test_each_client_has_a_gaussian_of_its_own(name, seed):
    federation, sd = data.load(name, seed, {}), SD[name]
    assert federation.sizes == (10_000,) * 3
    assert (federation.x.dtype, federation.y.dtype, federation.classes) == (torch.float32, torch.int64, 3)
    for k, (points, mean) in enumerate(zip(federation.x.split(10_000), MEANS[name], strict=True)):
        own = points.double().numpy()
        assert abs(own.mean(0) - mean).max() < 3 * sd / 10_000**0.5
        assert abs(own.std(0) - sd).max() < 3 * sd / 20_000**0.5
        assert all(
            kstest(column, "norm", (centre, sd)).pvalue > 1e-3 for column, centre in zip(own.T, mean, strict=True)
        )
        if own.shape[1] == 2:
            assert abs(np.corrcoef(own.T)[0, 1]) < 3 / 10_000**0.5
        assert federation.y[k * 10_000 : (k + 1) * 10_000].unique().tolist() == [k]
    torch.testing.assert_close(federation.modes, torch.tensor(MEANS[name], dtype=torch.float32))
    assert federation.mode_sd == federation.facts["mode_sd"] == sd
    np.testing.assert_allclose(federation.facts["modes"], MEANS[name], atol=1e-6)
    assert json.loads(json.dumps(federation.facts)) == federation.facts


def test_the_modes_of_the_plane_are_on_a_circle():
    modes = data.load("mixture-2d", 0, {}).modes
    torch.testing.assert_close(modes.norm(dim=1), torch.full((3,), 3.0))
    torch.testing.assert_close(torch.pdist(modes), torch.full((3,), 3 * 3**0.5))


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_is_a_function_of_its_seed_and_pooled_the_same_points(name):
    first, again, other, pooled = (
        data.load(name, seed, {"overlap": overlap})
        for seed, overlap in ((0, "non"), (0, "non"), (1, "non"), (0, "pooled"))
    )
    assert torch.equal(first.x, again.x)
    assert not torch.isclose(first.x, other.x).all(1).any()
    assert torch.equal(first.x, pooled.x)
    assert pooled.sizes == (30_000,)
    assert labels_in(pooled.facts["clients"][0]) == {0: 10_000, 1: 10_000, 2: 10_000}
    clients = first.x.split(10_000)
    assert not torch.isclose(clients[0] - first.modes[0], clients[1] - first.modes[1]).all(1).any()
    refusal(lambda: data.load(name, 0, {"overlap": "mod"}), "cannot be 'mod': input should be 'non' or 'pooled'")
    refusal(lambda: data.load(name, 0, {"n": 3}), "unknown data key of mixture", "'n'")


@pytest.mark.parametrize("name", MIXTURES)
def test_points_reach_a_batch_as_they_are(name):
    federation = data.load(name, 0, {})
    feeder = Feeder(0, federation.x, federation.y, federation.sizes)
    batch = feeder.draw(Draw(size=256), 0)
    assert batch.x.shape == (3, 1, 256, federation.x.shape[1])
    assert batch.x.dtype == torch.float32
    assert batch.y.flatten(1).unique(dim=1).tolist() == [[0], [1], [2]]
    assert pixels(batch.x) is batch.x
    known = set(map(bytes, federation.x.numpy()))
    assert all(bytes(point) in known for point in batch.x.flatten(0, 2).numpy())


@pytest.mark.parametrize("name", MIXTURES)
def test_what_is_drawn_has_no_files(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    described = data.describe(name)
    assert (described["source"], described["files"], described["substitute"]) == ("drawn", {}, None)
    manifest = manifests.fetch(name)
    assert manifests.verify("drawn") == manifest
    assert (manifest["train"]["images"], manifest["test"]["images"], manifest["files"]) == (0, 0, {})
    assert {row["where"] for row in manifests.list_datasets() if row["source"] == "drawn"} == {"drawn"}
    assert data.load(name, 0, {}).sizes == (10_000,) * 3


# sheets


@pytest.mark.parametrize("params", [{"overlap": "pooled"}, {"overlap": "mod"}])
def test_a_sheet_has_a_panel_for_each_client_and_none_for_a_test(tmp_path, monkeypatch, params):
    seen = []
    monkeypatch.setattr(
        sheet, "mosaic", lambda x, y, labels, look: seen.append(set(labels)) or np.zeros((8, 8, 3), np.uint8)
    )
    sheet.show("gan-digits", tmp_path / "a.png", params=params)
    assert seen == HELD[params["overlap"], 5][: sheet.CLIENTS]


@pytest.mark.parametrize("overlap", ["non", "mod", "full"])
def test_nothing_of_a_sheet_is_cut_off(tmp_path, overlap):
    with Image.open(sheet.show("gan-digits", tmp_path / "a.png", params={"overlap": overlap})) as image:
        drawn = np.asarray(image.convert("L"))
    assert min(map(np.min, (drawn[:2], drawn[-2:], drawn[:, :2], drawn[:, -2:]))) == 255


@pytest.mark.parametrize("name", MIXTURES)
def test_a_sheet_of_points(tmp_path, name):
    one, other = (sheet.show(name, tmp_path / f"{k}.png").read_bytes() for k in range(2))
    assert one == other
    assert Image.open(io.BytesIO(one)).size == (8 * sheet.DPI, 5 * sheet.DPI)
    sheet.show(name, tmp_path / "pooled.png", params={"overlap": "pooled"})


# CINIC-10 in small

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ROWS = [(split, label) for split in ("train", "valid", "test") for label in range(10) for _ in range(2)]


def painted() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, (len(ROWS), 32, 32, 3), np.uint8)


def png(image: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, format="png")
    return out.getvalue()


def put_folders(root: Path) -> None:
    for number, ((split, label), image) in enumerate(zip(ROWS, painted(), strict=True)):
        folder = root / "cinic-10" / split / CLASSES[label]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"cifar10-{split}-{number}.png").write_bytes(png(image))
    (root / "cinic-10/README.md").write_text("not a picture")
    (root / "cinic-10/imagenet-contributors.csv").write_text("synset")


def put_parquet(root: Path) -> None:
    (root / "cinic-10").mkdir(parents=True)
    for split, name in (("train", "train"), ("valid", "validation"), ("test", "test")):
        mine = [(label, image) for (each, label), image in zip(ROWS, painted(), strict=True) if each == split]
        columns = {
            "image": [{"bytes": png(image), "path": f"{label}.png"} for label, image in mine],
            "label": [label for label, _ in mine],
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), root / f"cinic-10/{name}-00000-of-00001.parquet")


@pytest.fixture(params=[put_folders, put_parquet])
def cinic(request, tmp_path, monkeypatch) -> Path:
    """The user's folder, with 60 pictures in one of the layouts in place of 270,000."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "mine"))
    small = dataclasses.replace(sources.SOURCES["cinic-10"], train=len(ROWS))
    monkeypatch.setitem(sources.SOURCES, "cinic-10", small)
    request.param(tmp_path / "mine")
    return tmp_path / "mine"


def test_all_three_splits_are_pooled(cinic):
    federation = data.load("gan-cinic10", 0, {})
    assert federation.x.shape == (60, 3, 32, 32)
    assert federation.sizes == (12,) * 5
    assert [set(y.tolist()) for y in federation.y.split(12)] == HELD["non", 5]
    ours = {(bytes(image), label) for image, label in zip(federation.x.numpy(), federation.y.tolist(), strict=True)}
    theirs = zip(painted().transpose(0, 3, 1, 2), ROWS, strict=True)
    assert ours == {(image.tobytes(), label) for image, (_, label) in theirs}


def test_cinic_is_described_by_what_is_found(cinic):
    manifest = manifests.fetch("gan-cinic10")
    assert (manifest["train"]["images"], manifest["train"]["images_per_label"]) == (60, [6] * 10)
    assert manifest["domains"] == {"train": 20, "valid": 20, "test": 20}
    assert manifest["checksums"].startswith("not pinned")
    assert manifests.verify("cinic-10") == manifest
    described = data.describe("gan-cinic10")
    assert described["files"] == {path: file["sha256"] for path, file in manifest["files"].items()}
    assert described["substitute"] is None
    (where,) = (row["where"] for row in manifests.list_datasets() if row["name"] == "gan-cinic10")
    assert where == f"present, checksums not pinned: {cinic}"


def test_many_files_are_listed_by_split(tmp_path, monkeypatch):
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(sources.files, "LISTED", 50)
    put_folders(tmp_path)
    before = data.describe("gan-cinic10")
    assert sorted(before["files"]) == ["cinic-10/test/", "cinic-10/train/", "cinic-10/valid/"]
    path = next((tmp_path / "cinic-10/valid/dog").iterdir())
    path.write_bytes(png(np.zeros((32, 32, 3), np.uint8)))
    after = data.describe("gan-cinic10")
    assert [key for key in before["files"] if before["files"][key] != after["files"][key]] == ["cinic-10/valid/"]
    assert after["fingerprint"] != before["fingerprint"]


def test_missing_cinic_says_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path))
    layouts = ("cinic-10/{train,valid,test}/<class>/", "cinic-10/*.parquet", "to a folder that holds cinic-10")
    for call in (lambda: data.load("gan-cinic10", 0, {}), lambda: data.describe("gan-cinic10")):
        refusal(call, f"FEDREPRO_DATA_DIR is {tmp_path}, which has no", *layouts)
    monkeypatch.delenv(sources.FOLDER_VARIABLE)
    refusal(
        lambda: data.load("gan-cinic10", 0, {}),
        "run `fedrepro data fetch cinic-10`",
        "put a copy into cinic-10/ (its folders train, valid and test",
        "set FEDREPRO_DATA_DIR",
    )


def rename(old: str, new: str):
    return lambda root: (root / "cinic-10" / old).rename(root / new)


def other_size(root: Path) -> None:
    next((root / "cinic-10/train/cat").iterdir()).write_bytes(png(np.zeros((16, 16, 3), np.uint8)))


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (rename("valid", "away"), "cinic-10 has no picture of the domain valid"),
        (rename("valid", "cinic-10/val"), "domain 'val', which is none of train, valid, test"),
        (rename("test/dog", "cinic-10/test/wolf"), "11 folders of classes where 10 are expected"),
        (rename("test/dog", "dog"), "cinic-10 has 58 images and 58 labels where 60 are expected"),
        (other_size, "cannot be read as expected (a picture)"),
    ],
)
def test_folders_that_are_not_as_expected(tmp_path, monkeypatch, damage, complaint):
    put_folders(tmp_path)
    damage(tmp_path)
    small = dataclasses.replace(sources.SOURCES["cinic-10"], train=len(ROWS))
    refusal(lambda: sources.read(small, tmp_path), complaint)


def test_a_part_of_cinic_is_refused(tmp_path):
    put_folders(tmp_path)
    refusal(lambda: sources.read(sources.SOURCES["cinic-10"], tmp_path), "has 60 images", "270,000 are expected")


def test_a_table_of_no_split_is_refused(tmp_path):
    put_parquet(tmp_path)
    (tmp_path / "cinic-10/test-00000-of-00001.parquet").rename(tmp_path / "cinic-10/all.parquet")
    refusal(lambda: sources.read(sources.SOURCES["cinic-10"], tmp_path), "cinic-10/all.parquet cannot be read")
