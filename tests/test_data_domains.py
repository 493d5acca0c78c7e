"""Federations of domains, measured in their pixels: Rotated MNIST, and PACS and Office-Home in their layouts."""

import dataclasses
import io
import json
import os
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from federations import clients, labels_in, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2.functional import resize, rotate

from fedrepro import data
from fedrepro.core.streams import torch_stream
from fedrepro.core.types import Draw
from fedrepro.data import augment, manifests, sheet, sources
from fedrepro.data.draws import Feeder
from fedrepro.data.federations import domains
from fedrepro.data.sources import pictures

real = pytest.mark.skipif(not os.environ.get(sources.FOLDER_VARIABLE), reason="FEDREPRO_DATA_DIR names no real data")
PACS = ("photo", "art_painting", "cartoon", "sketch")
COUNTS = {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}


def numbered(rows: int, test: int) -> sources.Raw:
    """MNIST in small: no two images alike, all ink well inside the corners, so that turning keeps them apart."""
    pixels = np.zeros((rows + test, 28, 28), np.uint8)
    pixels[:, 9:19, 9:19] = np.random.default_rng(1).integers(0, 256, (rows + test, 10, 10))
    x, y = torch.from_numpy(pixels), torch.arange(rows + test) % 10
    return sources.Raw(x[:rows], y[:rows], x[rows:], y[rows:], classes=10)


def keys(x: torch.Tensor) -> list[bytes]:
    return [image.tobytes() for image in x.numpy()]


# Rotated MNIST


@pytest.mark.slow
@real
def test_rotated_mnist_has_the_papers_sizes():
    federation = data.load("rotated-mnist", 0, {})
    assert federation.sizes == (10501, 10501, 10501, 10501, 10500)
    assert {name: len(y) for name, (_, y) in federation.tests.items()} == {
        **dict.fromkeys(["0", "15", "30", "45", "60"], 1166),
        "75": 11666,
    }
    assert (federation.x.dtype, federation.x.shape[1:], federation.classes) == (torch.uint8, (1, 28, 28), 10)
    assert federation.groups == {"id": ("0", "15", "30", "45", "60"), "ood": ("75",)}
    for (_, y), facts, degrees in zip(clients(federation), federation.facts["clients"], range(0, 75, 15), strict=True):
        assert (facts["rows"], facts["held_out"], facts["degrees"]) == (len(y), 1166, degrees)
        assert labels_in(facts) == dict(enumerate(y.bincount().tolist()))
    assert federation.facts["75"]["rows"] == 11666


def test_six_disjoint_domains_each_turned_by_its_angle():
    raw = numbered(500, 203)
    federation = domains.rotated_mnist(raw, 3)
    images, labels = torch.cat([raw.train_x, raw.test_x]), torch.cat([raw.train_y, raw.test_y]).tolist()
    seen, sizes = [], []
    parts = {str(15 * k): own for k, own in enumerate(clients(federation))}
    for name, (held_x, held_y) in federation.tests.items():
        theirs = torch.stack([rotate(image[None], float(name), InterpolationMode.BILINEAR) for image in images])
        known = {key: row for row, key in enumerate(keys(theirs))}
        x, y = parts.get(name, (held_x[:0], held_y[:0]))
        rows = [known[key] for key in [*keys(x), *keys(held_x)]]
        assert [labels[row] for row in rows] == [*y.tolist(), *held_y.tolist()]
        seen += rows
        sizes.append(len(rows))
        assert name == "75" or len(held_y) == int(0.1 * len(rows))
    assert sorted(seen) == list(range(703)), "every image in one domain, once"
    assert sizes == [118, 117, 117, 117, 117, 117]


def test_seeds_deal_differently_and_always_the_same():
    raw = numbered(300, 60)
    first, again, other = (domains.rotated_mnist(raw, seed) for seed in (0, 0, 1))
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)
    smaller = domains.rotated_mnist(raw, 0, angles=[-20, 20.5], test_angle=0)
    assert list(smaller.tests) == ["-20", "20.5", "0"]
    assert len(smaller.tests["0"][1]) == 120
    assert set(keys(smaller.tests["0"][0][:, 0])) < set(keys(torch.cat([raw.train_x, raw.test_x])))


@pytest.mark.parametrize("params", [{"augmentation": "rotation", "degrees": 30}, {"augmentation": "blur"}])
def test_augmentation_moves_no_data_and_is_for_batches(params):
    plain, augmented = (data.load("rotated-mnist-digits", 0, each) for each in ({}, params))
    assert plain.augment is None
    assert torch.equal(plain.x, augmented.x)
    for name, (x, y) in plain.tests.items():
        assert torch.equal(x, augmented.tests[name][0])
        assert torch.equal(y, augmented.tests[name][1])
    assert plain.facts == augmented.facts
    changed = augmented.augment(augmented.x[:50], torch_stream(0))
    assert (changed.shape, changed.dtype) == (augmented.x[:50].shape, torch.uint8)
    assert (changed != augmented.x[:50]).flatten(1).any(1).double().mean() > 0.8


# Batches


def feeder(sizes=(20, 13, 7), augment=None, seed=0):
    rows = torch.arange(sum(sizes))
    return Feeder(seed, rows[:, None, None, None].to(torch.uint8), rows, tuple(sizes), augment=augment)


def shifted(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Adds 100 and as much noise as shows which numbers were drawn."""
    return x + 100 + torch.randint(0, 100, (len(x), 1, 1, 1), generator=generator).to(torch.uint8)


EVERY_DRAW = [Draw(size=4, steps=3), Draw(size=5, epochs=1), Draw(size=None, chunk=6), Draw(size=3, clients=(2, 0))]


@pytest.mark.parametrize("want", EVERY_DRAW)
def test_every_live_row_of_a_batch_is_augmented_by_its_clients_stream(want):
    with_it, without = feeder(augment=shifted), feeder()
    for round in range(3):
        batch, plain = with_it.draw(want, round), without.draw(want, round)
        assert torch.equal(batch.y, plain.y)
        assert torch.equal(batch.live, plain.live)
        for place, client in enumerate(batch.clients.tolist()):
            live = plain.live[place]
            expected = shifted(plain.x[place][live], torch_stream(0, round, client, "augment"))
            assert torch.equal(batch.x[place][live], expected)
    assert torch.equal(with_it.x, without.x), "the data themselves are left alone"


@pytest.mark.parametrize("want", EVERY_DRAW)
def test_a_feeder_without_augmentation_draws_the_rows_themselves(want):
    batch = feeder().draw(want, 2)
    assert torch.equal(batch.x[..., 0, 0, 0][batch.live], batch.y[batch.live].to(torch.uint8))


@given(st.integers(0, 5), st.integers(0, 9), st.sampled_from([(20, 13, 7), (20, 2, 90)]))
@settings(max_examples=20, deadline=None)
def test_a_clients_augmented_batch_is_a_function_of_seed_round_and_client(seed, round, sizes):
    want = Draw(size=6, epochs=1)
    one = feeder(augment=shifted, seed=seed).draw(want, round)
    other = feeder(sizes, shifted, seed).draw(want, round)
    for client in range(3):
        if sizes[client] == (20, 13, 7)[client]:
            left, right = (each.x[client][each.live[client]] for each in (one, other))
            assert torch.equal(left, right), "whatever else the round has"
    again = feeder(augment=shifted, seed=seed)
    again.draw(Draw(size=None), round)
    assert torch.equal(again.draw(want, round).x, one.x), "whatever was drawn before"
    next_round = feeder(augment=shifted, seed=seed).draw(want, round + 1)
    assert not torch.equal(next_round.x, one.x)


# pictures in small: both layouts, JPEG, each picture of a colour of its own


def painted() -> list[tuple[str, str, int, np.ndarray]]:
    """(domain, class, number, image): in each of four domains 9 to 12 pictures of seven classes, of unlike sizes."""
    rng, rows = np.random.default_rng(0), []
    for domain, count in zip(PACS, (9, 10, 11, 12), strict=True):
        for number in range(7 * count):
            side = rng.integers(20, 40, 2)
            grid = rng.integers(0, 256, (4, 4, 3), np.uint8)
            image = np.asarray(Image.fromarray(grid).resize((int(side[0]), int(side[1])), Image.Resampling.BILINEAR))
            rows.append((domain, "abcdefg"[number % 7], number, image))
    return rows


def jpeg(image: np.ndarray, kind: str = "jpeg") -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, format=kind)
    return out.getvalue()


def put_folders(root: Path, rows: list, name: str = "pacs") -> None:
    for domain, label, number, image in rows:
        folder = root / name / domain / label
        folder.mkdir(parents=True, exist_ok=True)
        kind = "png" if number % 10 == 9 else "jpeg"
        (folder / f"{number:03}.{'png' if kind == 'png' else 'jpg'}").write_bytes(jpeg(image, kind))
    (root / name / "README.txt").write_text("no picture")


def put_parquet(root: Path, rows: list, name: str = "pacs") -> None:
    """The rows shuffled, in two files."""
    (root / name).mkdir(parents=True)
    order = np.random.default_rng(2).permutation(len(rows))
    for part in range(2):
        mine = [rows[i] for i in order[part::2]]
        columns = {
            "image": [{"bytes": jpeg(image), "path": f"{number}.jpg"} for _, _, number, image in mine],
            "domain": [domain for domain, _, _, _ in mine],
            "label": ["abcdefg".index(label) for _, label, _, _ in mine],
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), root / f"{name}/train-{part:05}-of-00002.parquet")


@pytest.fixture(params=["parquet", "folders"])
def home(request, tmp_path, monkeypatch) -> Path:
    """The user's folder, with pictures in one of the layouts; `pacs` may be of any number."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path / "mine"))
    monkeypatch.setitem(sources.SOURCES, "pacs", dataclasses.replace(sources.SOURCES["pacs"], train=None))
    {"parquet": put_parquet, "folders": put_folders}[request.param](tmp_path / "mine", painted())
    return tmp_path / "mine"


def expected(size: int, domain: str) -> dict[int, list[torch.Tensor]]:
    """By label, the pictures of a domain at that size, in any order; png and jpeg hardly differ."""
    found = {}
    for place, label, _, image in painted():
        if place == domain:
            decoded = np.array(Image.open(io.BytesIO(jpeg(image))))
            pixels = resize(torch.from_numpy(decoded).permute(2, 0, 1), [size, size], antialias=False)
            found.setdefault("abcdefg".index(label), []).append(pixels)
    return found


def test_both_layouts_give_all_pictures_at_the_size_that_is_asked_for(home):
    federation = data.load("pacs", 0, {"size": 16, "test_domain": "cartoon", "validation": 0.2})
    assert federation.x.shape[1:] == (3, 16, 16)
    assert (federation.x.dtype, federation.y.dtype, federation.classes) == (torch.uint8, torch.int64, 7)
    assert federation.sizes == (63 - 12, 70 - 14, 84 - 16)
    assert federation.groups == {"id": ("photo", "art_painting", "sketch"), "ood": ("cartoon",)}
    assert list(federation.tests) == list(PACS)
    own = dict(zip(("photo", "art_painting", "sketch"), clients(federation), strict=True))
    for domain, (held_x, held_y) in federation.tests.items():
        x, y = own.get(domain, (held_x[:0], held_y[:0]))
        x, y = torch.cat([x, held_x]).int(), torch.cat([y, held_y])
        for label, theirs in expected(16, domain).items():
            apart = torch.cdist(x[y == label].flatten(1).float(), torch.stack(theirs).flatten(1).float(), p=1) / (
                3 * 256
            )
            assert apart.shape[0] == apart.shape[1]
            assert (apart.min(1).values < 12).all(), "only as far as JPEG is from PNG"
            assert sorted(apart.argmin(1).tolist()) == list(range(len(theirs))), "each picture once"


def test_facts_and_manifest(home):
    federation = data.load("pacs", 0, {"size": 16})
    for (_, y), facts, domain in zip(clients(federation), federation.facts["clients"], PACS, strict=False):
        assert (facts["rows"], facts["domain"]) == (len(y), domain)
        assert labels_in(facts) == {label: count for label, count in enumerate(y.bincount().tolist()) if count}
        assert facts["held_out"] == federation.facts[domain]["rows"] == len(federation.tests[domain][1])
    assert json.loads(json.dumps(federation.facts)) == federation.facts
    assert data.parameters("pacs") == {
        "test_domain": "sketch",
        "validation": 0.1,
        "per_domain": 1,
        "augmentation": "none",
        "size": 224,
    }
    manifest = manifests.fetch("pacs")
    assert manifest["domains"] == {"photo": 63, "art_painting": 70, "cartoon": 77, "sketch": 84}
    assert (manifest["train"]["images"], manifest["test"]["images"]) == (294, 0)
    assert manifest["checksums"].startswith("not pinned")
    assert manifests.verify("pacs") == manifest
    assert data.describe("pacs")["files"] == {path: file["sha256"] for path, file in manifest["files"].items()}


def test_a_sheet_shows_what_is_trained_on_and_the_unseen_domain(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        sheet, "mosaic", lambda x, y, labels, look: seen.append((x, y)) or np.zeros((8, 8, 3), np.uint8)
    )
    sheet.show("rotated-mnist-digits", tmp_path / "a.png", params={"augmentation": "rotation", "degrees": 60})
    plain = data.load("rotated-mnist-digits", 0, {})
    assert len(seen) == sheet.CLIENTS + 1
    for k, ((x, y), (whole, labels)) in enumerate(zip(seen[:-1], clients(plain)[: sheet.CLIENTS], strict=True)):
        rows, _ = sheet.sample(torch.arange(len(labels)), labels, sheet.MANY)
        assert torch.equal(y, labels[rows])
        assert torch.equal(x, augment.rotation(60)(whole[rows], torch_stream(0, 0, k, "augment")))
    assert set(keys(seen[-1][0])) <= set(keys(plain.tests["75"][0]))


def test_thousands_of_files_are_listed_by_folder_and_every_one_counts(tmp_path, monkeypatch):
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path))
    put_folders(tmp_path, painted())
    before = data.describe("pacs")
    assert list(before["files"]) == [f"pacs/{domain}/" for domain in sorted(PACS)]
    path = tmp_path / "pacs/photo/a/000.jpg"
    path.write_bytes(path.read_bytes() + b" ")
    after = data.describe("pacs")
    assert [key for key in before["files"] if before["files"][key] != after["files"][key]] == ["pacs/photo/"]
    assert after["fingerprint"] != before["fingerprint"]
    path.rename(path.with_name("zzz.jpg"))
    assert data.describe("pacs")["fingerprint"] != after["fingerprint"]
    files = sources.files.files_of(sources.SOURCES["pacs"], tmp_path)[:100]
    assert sources.files.listed(files) == files


def test_classes_of_folders_are_numbered_by_name_and_domains_written_in_any_way(tmp_path):
    office = dataclasses.replace(sources.SOURCES["officehome"], train=None, classes=2, size=8)
    for domain in ("Art", "Clipart", "Product", "Real World"):
        for label, value in (("TV", 10), ("Table", 200)):
            (tmp_path / "officehome" / domain / label).mkdir(parents=True)
            content = jpeg(np.full((9, 11, 3), value, np.uint8))
            (tmp_path / "officehome" / domain / label / "1.JPG").write_bytes(content)
    raw = sources.read(office, tmp_path)
    assert raw.domains == ("art", "clipart", "product", "real_world")
    assert raw.train_groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [int(image.float().mean().round()) for image in raw.train_x] == [10, 200] * 4
    assert raw.train_y.tolist() == [0, 1] * 4


@pytest.mark.parametrize("shape", [(30, 50), (64, 64), (16, 16), (20, 7)])
def test_a_picture_is_brought_to_its_size_without_antialiasing(shape):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    ours = pictures.picture(jpeg(pixels, "png"), 16)
    floats = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
    theirs = torch.nn.functional.interpolate(floats, (16, 16), mode="bilinear", antialias=False)[0]
    assert (ours.float() - theirs).abs().max() <= 1
    grey = pictures.picture(jpeg(pixels[..., 0], "png"), 16)
    assert torch.equal(grey[0], grey[1])


# the cut of a domain into clients


@given(st.integers(0, 30), st.integers(2, 5), st.sampled_from([7, 65]))
@settings(max_examples=30, deadline=None)
def test_a_cut_takes_each_classs_rows_in_order_and_none_twice(seed, count, classes):
    labels = np.random.default_rng(seed).integers(0, classes, 4000)
    parts = domains.cut(labels, count, classes, seed, 1, "photo")
    assert len(parts) == count
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    for label in range(classes):
        taken = together[labels[together] == label]
        assert taken.tolist() == np.flatnonzero(labels == label)[: len(taken)].tolist()
    sizes = np.array([len(part) for part in parts])
    assert (abs(sizes - 4000 // (count + 1)) < 5 * 100 + classes).all()


def test_the_cuts_shares_are_those_of_its_dirichlet():
    labels = np.repeat(np.arange(7), 3000)
    shares = np.array(
        [
            np.bincount(labels[part], minlength=7) / len(part)
            for seed in range(100)
            for part in domains.cut(labels, 4, 7, seed, 0, "photo")
        ]
    )
    assert abs(shares.mean(0) - 1 / 7).max() < 4 * np.sqrt(6 / 49 / 201 / 400)
    assert shares.var() == pytest.approx(6 / 49 / 201, rel=0.1), "Dir(200/7, ...), the mean being 1/7"


def test_a_cut_that_leaves_a_client_empty_is_refused():
    labels = np.arange(70) % 7  # a size is normal with a deviation of 100 about 14
    refusal(
        lambda: [domains.cut(labels, 4, 7, seed, 0, "photo") for seed in range(20)],
        "per_domain=4 leaves client",
        "of photo without a row at seed",
        "set per_domain lower, or use another seed",
    )


def test_one_client_has_its_whole_domain():
    assert domains.cut(np.zeros(5, int), 1, 7, 0, 0, "photo")[0].tolist() == [0, 1, 2, 3, 4]


# the real PACS at 112 pixels


@real
@pytest.mark.slow
@pytest.mark.parametrize("per_domain", [1, 4])
def test_pacs(per_domain):
    raw = sources.raw(sources.SOURCES["pacs-112px"])
    assert raw.train_groups.bincount().tolist() == list(COUNTS.values())
    federation = data.load("pacs-112px", 0, {"per_domain": per_domain, "augmentation": "moderate"})
    assert federation.x.shape[1:] == data.DATASETS["pacs-112px"].shape == (3, 112, 112)
    assert federation.classes == 7
    assert len(federation.sizes) == 3 * per_domain
    assert federation.groups == {"id": PACS[:3], "ood": ("sketch",)}
    known = {key: row for row, key in enumerate(keys(raw.train_x))}
    assert len(known) > 9980, "hardly two alike"
    domain, seen = raw.train_groups.tolist(), []
    for k, (x, y) in enumerate(clients(federation)):
        rows = [known[key] for key in keys(x)]
        assert {domain[row] for row in rows} == {k // per_domain}
        assert raw.train_y[rows].tolist() == y.tolist()
        seen += rows
    for place, (name, (x, _)) in enumerate(federation.tests.items()):
        rows = [known[key] for key in keys(x)]
        assert {domain[row] for row in rows} == {place}
        assert len(rows) == (COUNTS[name] if name == "sketch" else int(0.1 * COUNTS[name]))
        seen += rows
    alike = len(raw.train_x) - len(known)
    assert len(seen) - len(set(seen)) <= alike, "no picture twice"
    unused = sum(federation.facts.get("unused", {}).values())
    assert len(seen) + unused == 9991
    assert (unused > 0) == (per_domain > 1)


# what is missing or wrong


def test_missing_pictures_say_where_to_put_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(sources.FOLDER_VARIABLE, str(tmp_path))
    for name in ("pacs", "officehome"):
        layouts = (f"{name}/*.parquet", "image, domain and label", f"{name}/<domain>/<class>/", f"holds {name}")
        for call in (lambda name=name: data.load(name, 0, {}), lambda name=name: data.describe(name)):
            refusal(call, f"FEDREPRO_DATA_DIR is {tmp_path}, which has no", *layouts)
    refusal(lambda: data.load("pacs-112px", 0, {}), "has no pacs-112px/train.parquet", "holds pacs-112px")
    monkeypatch.delenv(sources.FOLDER_VARIABLE)
    refusal(lambda: data.load("pacs", 0, {}), "data fetch pacs`", "put a copy into pacs/", "set FEDREPRO_DATA_DIR")
    refusal(lambda: data.load("pacs-112px", 0, {}), "no public address")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda root: (root / "pacs/photo/a/000.jpg").write_bytes(b"no picture"), "photo/a/000.jpg cannot be read"),
        (lambda root: (root / "pacs/photo").rename(root / "pacs/photos"), "domain 'photos', which is none of photo"),
        (lambda root: (root / "pacs/photo").rename(root / "away"), "pacs has no picture of the domain photo"),
        (lambda root: (root / "pacs/photo/a").rename(root / "pacs/photo/h"), "8 folders of classes where 7 are"),
    ],
)
def test_folders_that_are_not_as_expected(tmp_path, damage, complaint):
    put_folders(tmp_path, painted())
    damage(tmp_path)
    refusal(lambda: sources.read(sources.SOURCES["pacs"], tmp_path), complaint)


def test_a_part_of_the_pictures_is_refused(tmp_path):
    put_folders(tmp_path, painted())
    refusal(lambda: sources.read(sources.SOURCES["pacs"], tmp_path), "pacs has 294 images", "9,991 are expected")


@pytest.mark.parametrize(
    "change",
    [
        {"domain": None},
        {"image": [b"bytes"] * 2},
        {"image": [{"bytes": b"no picture", "path": ""}] * 2},
        {"label": ["dog", "cat"]},
        {"label": [None, 1]},
        {"domain": [1, 2]},
    ],
)
def test_parquet_in_another_layout(tmp_path, change):
    good = [{"bytes": jpeg(np.zeros((9, 9, 3), np.uint8)), "path": ""}] * 2
    columns = {"image": good, "domain": ["photo", "sketch"], "label": [0, 1]} | change
    (tmp_path / "pacs").mkdir()
    table = pyarrow.table({name: column for name, column in columns.items() if column is not None})
    pyarrow.parquet.write_table(table, tmp_path / "pacs/a.parquet")
    refusal(lambda: sources.read(sources.SOURCES["pacs"], tmp_path), "pacs/a.parquet cannot be read as expected")


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"angles": []}, "'angles' of rotated-mnist-digits cannot be []: value should have at least 1 item"),
        ({"angles": 15}, "'angles' of rotated-mnist-digits cannot be 15"),
        ({"angles": [0, "15"]}, "cannot be [0, '15']: input should be a valid number"),
        ({"angles": [0, 75]}, "are different angles"),
        ({"test_angle": None}, "'test_angle' of rotated-mnist-digits cannot be None: input should be a valid number"),
        ({"validation": 0}, "'validation' of rotated-mnist-digits cannot be 0: input should be greater than 0"),
        ({"validation": 1.0}, "cannot be 1.0: input should be less than 1"),
        ({"validation": 0.001}, "validation is the part of a domain"),
        ({"augmentation": "rotate"}, "cannot be 'rotate': input should be 'none', 'rotation' or 'blur'"),
        ({"augmentation": ["blur"]}, "cannot be ['blur']: input should be 'none', 'rotation' or 'blur'"),
        ({"augmentation": "rotation"}, "degrees is above 0"),
        (
            {"augmentation": "rotation", "degrees": 181},
            "'degrees' of rotated-mnist-digits cannot be 181: input should be less than or equal to 180",
        ),
        ({"augmentation": "blur", "degrees": 15}, "degrees is above 0"),
        ({"size": 28}, "unknown data key of rotated-mnist-digits 'size'"),
    ],
)
def test_bad_parameters_of_rotated_mnist(params, complaint):
    refusal(lambda: data.load("rotated-mnist-digits", 0, params), complaint)


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"size": "112"}, "size is the pixels a side of an image, 8 to 1,024, and cannot be '112'"),
        ({"size": 4}, "size is the pixels a side"),
        ({"test_domain": "sketches", "size": 8}, "unknown test_domain 'sketches': did you mean 'sketch'"),
        ({"per_domain": 0, "size": 8}, "'per_domain' of pacs cannot be 0: input should be greater than or equal to 1"),
        ({"per_domain": 2.0, "size": 8}, "'per_domain' of pacs cannot be 2.0: input should be a valid integer"),
        ({"augmentation": "strong", "size": 8}, "cannot be 'strong': input should be 'none', 'weak' or 'moderate'"),
        ({"validation": 0.01, "size": 8}, "cannot be 0.01 for the 63 rows of photo"),
        ({"per_domain": 40, "size": 8}, "per_domain=40 leaves client"),
        ({"degrees": 1}, "unknown data key of pacs 'degrees'"),
    ],
)
def test_bad_parameters_of_pictures(home, params, complaint):
    refusal(lambda: data.load("pacs", 0, params), complaint)
