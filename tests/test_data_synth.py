"""Partition, synthesis and the sample sheet: facts recomputed straight from the pixels, small cases by hand."""

import hashlib
import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image
from scipy.stats import binom

from fedrepro import data
from fedrepro.data import sheet, sources
from fedrepro.data.federations import colored, partition
from fedrepro.errors import FedreproError, UsageError

real = pytest.mark.skipif(not os.environ.get(sources.FOLDER_VARIABLE), reason="FEDREPRO_DATA_DIR names no real MNIST")


def toy_raw(rows: int = 40, test: int = 20) -> sources.Raw:
    """Images whose pixels are 0, 1 or 255, every digit equally often."""
    draws = np.random.default_rng(1)

    def images(count: int) -> torch.Tensor:
        return torch.from_numpy(draws.choice(np.array([0, 1, 255], np.uint8), (count, 28, 28)))

    return sources.Raw(images(rows), torch.arange(rows) % 10, images(test), torch.arange(test) % 10, classes=10)


def equal(a: data.Federation, b: data.Federation) -> bool:
    pairs = [(a.x, b.x), (a.y, b.y), *zip(a.tests["test"], b.tests["test"], strict=True)]
    return all(torch.equal(*pair) for pair in pairs) and (a.sizes, a.facts) == (b.sizes, b.facts)


# partition


@given(st.integers(1, 300).flatmap(lambda rows: st.tuples(st.just(rows), st.integers(1, rows))), st.integers(0, 2**40))
@settings(max_examples=60, deadline=None)
def test_equal_parts_are_disjoint_whole_and_equal(rows_and_n, seed):
    rows, n = rows_and_n
    parts = partition.equal(rows, n, seed)
    sizes = [len(part) for part in parts]
    assert len(parts) == n
    assert max(sizes) - min(sizes) <= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))
    again = partition.equal(rows, n, seed)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


def test_parts_are_shuffled_anew_by_each_seed():
    assert not np.array_equal(partition.equal(100, 1, 0)[0], np.arange(100))
    assert not np.array_equal(partition.equal(100, 1, 0)[0], partition.equal(100, 1, 1)[0])


# colour, by hand


def test_colour_by_hand():
    grey = torch.tensor([[[0, 1], [128, 255]], [[7, 0], [0, 0]]], dtype=torch.uint8)
    assert colored.colour(grey, torch.tensor([0, 1]), channels=2).tolist() == [
        [[[0, 1], [128, 255]], [[0, 0], [0, 0]]],
        [[[0, 0], [0, 0]], [[7, 0], [0, 0]]],
    ]
    assert colored.colour(grey, torch.tensor([2, 0]), channels=3)[:, :, 0, 1].tolist() == [[0, 0, 1], [0, 0, 0]]


def test_without_chance_the_colour_is_the_class():
    raw = toy_raw()
    federation = colored.colored_mnist(raw, 3, p=[0, 1], p_test=1, label_noise=0)
    rows = np.concatenate(partition.equal(40, 2, 3))
    above_four = raw.train_y[rows] >= 5
    assert torch.equal(federation.y, above_four.long())
    red = federation.x[:, 0].flatten(1).any(1)
    assert torch.equal(red[:20], above_four[:20]), "p = 0: red is class 1"
    assert torch.equal(red[20:], ~above_four[20:]), "p = 1: red is class 0"
    x, y = federation.tests["test"]
    assert torch.equal(y, (raw.test_y >= 5).long())
    assert torch.equal(x[:, 1].flatten(1).any(1), y == 1)
    assert federation.facts == {
        "clients": [
            {"rows": 20, "label_noise": 0.0, "colour_agreement": 1.0},
            {"rows": 20, "label_noise": 0.0, "colour_agreement": 0.0},
        ],
        "test": {"rows": 20, "label_noise": 0.0, "colour_agreement": 0.0},
    }


def test_half_resolution_is_every_second_pixel():
    raw = toy_raw()
    whole = colored.colored_mnist(raw, 0, binarise=False)
    half = colored.colored_mnist(raw, 0, binarise=False, resolution=14)
    assert half.x.shape == (40, 2, 14, 14)
    assert torch.equal(half.x, whole.x[:, :, ::2, ::2])
    assert torch.equal(half.tests["test"][0], whole.tests["test"][0][:, :, ::2, ::2])
    assert torch.equal(half.y, whole.y)


# the finished data, measured without the code that made them


def recomputed(x: torch.Tensor, y: torch.Tensor, digits: torch.Tensor) -> dict:
    energy = x.double().sum((2, 3)).numpy()
    assert ((energy > 0).sum(1) == 1).all(), "exactly one channel holds the image"
    z, y0 = energy.argmax(1) == 0, digits.numpy() > 4
    noisy = y.numpy().astype(bool)
    return {
        "rows": len(x),
        "label_noise": float(np.mean(noisy != y0)),
        "colour_agreement": float(np.mean(noisy == z)),
    }


@pytest.mark.parametrize("dataset", ["digits", pytest.param("colored-mnist", marks=real)])
@pytest.mark.parametrize("params", [{}, {"n": 3, "p": [0.3, 0.2, 0.1], "resolution": 14, "binarise": True}])
def test_facts_are_in_the_pixels(dataset, params):
    federation = data.load(dataset, 0, params)
    settings = data.parameters(dataset) | params
    raw = sources.raw(sources.SOURCES[data.DATASETS[dataset].source])
    parts = partition.equal(len(raw.train_y), settings["n"], 0)
    assert federation.sizes == tuple(map(len, parts))
    held = zip(federation.x.split(federation.sizes), federation.y.split(federation.sizes), parts, strict=True)
    seen = [recomputed(x, y, raw.train_y[rows]) for x, y, rows in held]
    assert federation.facts == {"clients": seen, "test": recomputed(*federation.tests["test"], raw.test_y)}
    for facts, p in zip([*seen, federation.facts["test"]], [*settings["p"], settings["p_test"]], strict=True):
        for fact, expected in (("label_noise", 0.25), ("colour_agreement", 1 - p)):
            assert abs(facts[fact] - expected) < 3 * math.sqrt(expected * (1 - expected) / facts["rows"])

    step = 28 // settings["resolution"]
    grey = raw.train_x[np.concatenate(parts)][:, ::step, ::step]
    expected = torch.where(grey > 0, 255, 0) if settings["binarise"] else grey
    assert torch.equal(federation.x.amax(1), expected.to(torch.uint8))


@real
def test_colored_mnist_has_the_papers_sizes():
    federation = data.load("colored-mnist", 0, {})
    assert (federation.x.shape, federation.x.dtype) == ((60000, 2, 28, 28), torch.uint8)
    assert (federation.y.shape, federation.y.dtype) == ((60000,), torch.int64)
    assert federation.sizes == (30000, 30000)
    assert federation.tests["test"][0].shape == (10000, 2, 28, 28)
    assert ((federation.x == 0) | (federation.x == 255)).all()
    assert federation.classes == 2


@pytest.mark.parametrize("dataset", ["digits", pytest.param("colored-mnist", marks=real)])
def test_a_seed_is_its_data(dataset):
    assert equal(data.load(dataset, 5, {}), data.load(dataset, 5, {}))
    assert not equal(data.load(dataset, 5, {}), data.load(dataset, 6, {}))
    assert data.load(dataset, 5, {}).x.shape[1:] == data.DATASETS[dataset].shape


def test_the_draws_of_a_seed_never_change():
    """Committed records rest on them: if this fails, every committed result has to be trained again."""
    federation = data.load("digits", 0, {})
    x, y = federation.tests["test"]
    digests = [hashlib.sha256(part.numpy()).hexdigest()[:16] for part in (federation.x, federation.y, x, y)]
    assert digests == ["97e6361548994f14", "630f334e14455bf6", "f2fc4b4a59de0142", "a6f7316725934381"]


def test_clients_draw_apart():
    """Client 0 keeps its noise when a client is added to data of which it keeps the rows; no two clients share it."""
    raw = replace(toy_raw(4000), train_y=torch.zeros(4000, dtype=torch.int64))
    one, two = colored.colored_mnist(raw, 0, n=1, p=[0.2]), colored.colored_mnist(raw, 0, n=2, p=[0.2, 0.2])
    assert torch.equal(one.y[:2000], two.y[:2000])
    assert not torch.equal(two.y[:2000], two.y[2000:])
    assert torch.equal(one.tests["test"][0], two.tests["test"][0])


# the check on construction


def test_noise_that_is_not_what_was_asked_for_is_reported(monkeypatch):
    monkeypatch.setattr(colored, "bernoulli", lambda p, rows, draw: torch.ones(rows, dtype=torch.int64))
    with pytest.raises(FedreproError, match=r"label noise of a client is 1\.0000 where 0\.25 was asked for") as caught:
        data.load("digits", 0, {})
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("p", [0.001, 0.1, 0.25, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("rows", [1, 2, 10, 100, 3000, 30000])
def test_the_check_lets_chance_pass_and_mistakes_not(rows, p):
    def accepts(hits: int) -> bool:
        try:
            colored.check_binomial("noise", hits, rows, p)
        except FedreproError:
            return False
        return True

    accepted = [hits for hits in range(rows + 1) if accepts(hits)]
    assert binom.cdf(accepted[0] - 1, rows, p) + binom.sf(accepted[-1], rows, p) < 1e-5
    assert rows < 3000 or accepts(round(rows * (p + 0.1))) is False


# parameters


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"n": 0}, "data key 'n' of digits cannot be 0: input should be greater than or equal to 1"),
        ({"n": True}, "cannot be True"),
        ({"n": 2.0}, "cannot be 2.0"),
        ({"n": "2"}, "cannot be '2'"),
        ({"n": 2000}, r"more clients \(2,000\) than training samples \(1,500\)"),
        ({"n": 3}, "p needs 3 values, one for each client, and has 2"),
        ({"p": [0.1]}, "p needs 2 values, one for each client, and has 1"),
        ({"p": [0.1, 1.1]}, r"cannot be \[0.1, 1.1\]: input should be less than or equal to 1"),
        ({"p": [0.1, float("nan")]}, r"cannot be \[0.1, nan\]"),
        ({"p": [0.1, "0.2"]}, r"cannot be \[0.1, '0.2'\]: input should be a valid number"),
        ({"n": 1000, "p": [2] * 1000}, r"cannot be \[2, 2, 2, 2, 2, 2, .*\.\.\.: input should be less"),
        ({"p": 0.1}, "cannot be 0.1"),
        ({"p": "11"}, "cannot be '11'"),
        ({"n": 1000, "p": [0.1] * 1000 + [0.2]}, "p needs 1,000 values, one for each client, and has 1,001"),
        ({"p_test": -0.1}, "'p_test' of digits cannot be -0.1: input should be greater than or equal to 0"),
        ({"p_test": "0.9"}, "'p_test' of digits cannot be '0.9': input should be a valid number"),
        ({"label_noise": 1}, "'label_noise' of digits cannot be 1: input should be less than 1"),
        ({"label_noise": False}, "'label_noise' of digits cannot be False"),
        ({"resolution": 7}, "'resolution' of digits cannot be 7: input should be 28 or 14"),
        ({"binarise": 1}, "'binarise' of digits cannot be 1: input should be a valid boolean"),
        ({"labelnoise": 0.1}, "unknown data key of digits 'labelnoise': did you mean 'label_noise'"),
        ({"colour": 1}, "unknown data key of digits 'colour'"),
    ],
)
def test_bad_parameters_are_refused(params, complaint):
    with pytest.raises(UsageError, match=complaint) as caught:
        data.load("digits", 0, params)
    assert len(str(caught.value)) < 200


def test_values_are_taken_in_their_types():
    assert equal(
        data.load("digits", 0, {"resolution": 14.0, "p": (1, 0)}),
        data.load("digits", 0, {"resolution": 14, "p": [1.0, 0.0]}),
    )


@pytest.mark.parametrize("name", data.DATASETS)
def test_a_dataset_takes_its_own_defaults(name):
    data.check(name, data.parameters(name))
    with pytest.raises(UsageError, match=f"unknown data key of {name} 'nnn'"):
        data.check(name, {"nnn": 1})


def test_presets_are_defaults():
    assert data.parameters("digits") == data.parameters("colored-mnist") | {"binarise": False}
    assert data.parameters("officehome")["test_domain"] == "clipart"


@pytest.mark.parametrize("n", [1, 7, 1500])
def test_any_number_of_clients_up_to_the_samples(n):
    federation = data.load("digits", 0, {"n": n, "p": [0.2] * n})
    assert sum(federation.sizes) == len(federation.x) == 1500
    assert [facts["rows"] for facts in federation.facts["clients"]] == list(federation.sizes)


# the sample sheet


def test_a_sheet_is_a_picture_and_always_the_same(tmp_path):
    first = sheet.show("digits", tmp_path / "new folder/a.png", seed=1, params={"n": 12, "p": [0.2] * 12})
    second = sheet.show("digits", tmp_path / "b.png", seed=1, params={"n": 12, "p": [0.2] * 12})
    assert first.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes() != sheet.show("digits", tmp_path / "c.png", seed=2).read_bytes()


def test_a_sheet_that_cannot_be_written(tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        sheet.show("digits", tmp_path)


def test_mosaic_by_hand():
    x = colored.colour(torch.full((3, 3, 5), 200, dtype=torch.uint8), torch.tensor([0, 1, 0]), channels=2)
    picture = sheet.mosaic(x, torch.tensor([1, 0, 1]), [0, 1])
    assert picture.shape == (2 * sheet.FEW.rows * 5, sheet.FEW.columns * 7, 3)
    assert picture[0, 0].tolist() == [0, 200, 0]
    assert picture[10, 0].tolist() == picture[10, 7].tolist() == [200, 0, 0]
    assert picture[0, 7].tolist() == picture[0, 6].tolist() == picture[4, 0].tolist() == [96, 96, 96]


@pytest.mark.parametrize(("channels", "colour"), [([9], [9, 9, 9]), ([9, 4], [9, 4, 0]), ([9, 4, 7], [9, 4, 7])])
def test_channels_as_colours(channels, colour):
    assert sheet.rgb(torch.tensor(channels, dtype=torch.uint8)[:, None, None])[0, 0].tolist() == colour


def test_more_channels_are_as_many_hues():
    x = colored.colour(torch.full((5, 1, 1), 255, dtype=torch.uint8), torch.arange(5), channels=5)
    colours = {tuple(sheet.rgb(image)[0, 0].tolist()) for image in x}
    assert len(colours) == 5
    assert all(max(colour) == 255 for colour in colours)
    assert sheet.rgb(torch.zeros(5, 1, 1, dtype=torch.uint8))[0, 0].tolist() == [0, 0, 0]


def test_caption():
    facts = {"rows": 30000, "label_noise": 0.2522, "colour_agreement": 0.797}
    assert sheet.caption(facts) == "30,000 rows, label noise 25.2%, colour agreement 79.7%"
    facts = {"rows": 5, "labels": "3: 2, 7: 3", "fg": "#ff8040", "degrees": 25 / 3}
    assert sheet.caption(facts) == "5 rows, labels (3: 2, 7: 3), fg (#ff8040), 8.333 degrees"
    facts = {"of": [1, "b"], "own": {"a": None}, "new": True}
    assert sheet.caption(facts) == 'of ([1, "b"]), own ({"a": null}), new (true)'


def test_a_sheet_of_many_clients_shows_the_first_and_says_so(tmp_path, monkeypatch):
    titles = []
    monkeypatch.setattr(Figure, "suptitle", lambda self, text, **more: titles.append(text))
    monkeypatch.setattr(sheet, "_panel", lambda axis, pixels, labels, title: titles.append((labels, title)))
    sheet.show("fedgma-colored-digits", tmp_path / "a.png")
    assert titles[0] == "fedgma-colored-digits, seed 0: 4 of 100 clients and the test client"
    assert [title.split(":")[0] for _, title in titles[1:]] == [*(f"client {k}" for k in (1, 2, 3, 4)), "test client"]
    assert [len(labels) for labels, _ in titles[1:]] == [2, 2, 2, 2, 10], "only labels that a client has"


def test_panels_of_many_labels_are_small_and_beside_each_other(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(sheet, "mosaic", lambda x, y, labels, look: looks.append(look) or np.zeros((8, 8, 3), np.uint8))
    for params in ({"partition": "iid"}, {"partition": "label-count", "labels_per_client": 2}):
        sheet.show("fedcmnist-digits", tmp_path / "a.png", params=params)
    assert looks == [sheet.MANY] * 5 + [sheet.FEW] * 4 + [replace(sheet.FEW, rows=1)]


@pytest.mark.slow
def test_a_sheet_has_few_colours_so_that_its_file_is_small(tmp_path):
    with Image.open(sheet.show("fedcmnist-digits", tmp_path / "a.png", params={"partition": "iid"})) as picture:
        assert len(picture.convert("RGB").getcolors()) <= sheet.COLOURS


# the other constructions, measured without the code that made them


def flat_raw(rows: int = 4000, test: int = 1000, shape: tuple[int, ...] = (28, 28)) -> sources.Raw:
    """Images with pixels of all values, never 0, every label equally often."""
    draws = np.random.default_rng(2)

    def images(count: int) -> torch.Tensor:
        return torch.from_numpy(draws.integers(1, 256, (count, *shape), np.uint8))

    return sources.Raw(images(rows), torch.arange(rows) % 10, images(test), torch.arange(test) % 10, classes=10)


def near(hits: torch.Tensor, p: float) -> bool:
    """Whether a share of rows is within three standard deviations of p."""
    return abs(hits.double().mean().item() - p) < 3 * math.sqrt(p * (1 - p) / len(hits)) + 1e-12


def original(raw: sources.Raw, n: int, seed: int, dropped: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels behind the training rows of a federation."""
    taking = torch.nonzero(raw.train_y != (10 if dropped is None else dropped))[:, 0]
    rows = taking[np.concatenate(partition.equal(len(taking), n, seed))]
    return raw.train_x[rows], raw.train_y[rows]


@pytest.mark.parametrize("build", [colored.colored_mnist, colored.colored_fashion_mnist])
@pytest.mark.parametrize("classes", [5, 10])
def test_more_classes_have_a_colour_each(build, classes):
    raw = flat_raw()
    federation = build(raw, 4, classes=classes)
    images, labels = original(raw, 2, 4)
    assert federation.x.shape == (4000, classes, 28, 28)
    lit = federation.x.flatten(2).any(2)
    assert (lit.sum(1) == 1).all(), "exactly one channel holds the image"
    z, y0 = lit.long().argmax(1), labels // (10 // classes)
    assert torch.equal(federation.x.amax(1), torch.full_like(images, 255) if build is colored.colored_mnist else images)
    for part, p in zip(range(2), (0.2, 0.1), strict=True):
        mine = slice(2000 * part, 2000 * (part + 1))
        y = federation.y[mine]
        assert set(((y - y0[mine]) % classes).tolist()) == {0, 1}, "noise leads to the following class"
        assert near(y != y0[mine], 0.25)
        assert set(((z[mine] - y) % classes).tolist()) == {0, 1}, "so does the other colour"
        assert near(z[mine] == y, 1 - p)
    x, y = federation.tests["test"]
    assert near(x.flatten(2).any(2).long().argmax(1) == (y + 1) % classes, 0.9)


def test_fashion_keeps_dark_pixels_grey_and_has_no_bags():
    raw = flat_raw()
    federation = colored.colored_fashion_mnist(raw, 7, n=3, p=[0.3, 0.2, 0.1])
    images, labels = original(raw, 3, 7, dropped=8)
    assert (federation.sizes, len(federation.tests["test"][1])) == ((1200, 1200, 1200), 900)
    red, green = federation.x[:, 0], federation.x[:, 1]
    z = red.flatten(1).amax(1) == 255
    bright = images > 127
    assert torch.equal(red[~bright], images[~bright])
    assert torch.equal(green[~bright], images[~bright])
    assert torch.equal(red == 255, bright & z[:, None, None])
    assert torch.equal(green == 255, bright & ~z[:, None, None])
    assert ((red + green)[bright] == 255).all()
    footwear = torch.isin(labels, torch.tensor([5, 7, 9]))
    assert near(federation.y.bool() != footwear, 0.25)
    for k, p in enumerate((0.3, 0.2, 0.1)):
        mine = slice(1200 * k, 1200 * (k + 1))
        assert near(federation.y[mine].bool() == z[mine], 1 - p)
        assert federation.facts["clients"][k]["colour_agreement"] == (federation.y.bool() == z)[mine].double().mean()


def test_an_image_without_a_bright_pixel_has_no_colour():
    raw = flat_raw()
    raw.train_x[::10] = raw.train_x[::10].clamp(max=127)
    federation = colored.colored_fashion_mnist(raw, 0, n=1, p=[0.2])
    dark = (federation.x[:, 0] == federation.x[:, 1]).flatten(1).all(1)
    assert dark.sum() == 400
    assert federation.facts["clients"][0]["without_colour"] == 400
    seen = federation.x[~dark, 0].flatten(1).amax(1) == 255
    share = (seen == federation.y[~dark].bool()).double().mean()
    assert federation.facts["clients"][0]["colour_agreement"] == pytest.approx(share.item())


def test_the_patch_is_in_the_corner_of_z():
    raw = flat_raw(shape=(3, 32, 32))
    federation = colored.spurious_cifar10(raw, 5)
    images, labels = original(raw, 2, 5, dropped=6)
    assert federation.x.shape == (3600, 3, 32, 32)
    black = (federation.x == 0).all(1)
    assert (black.flatten(1).sum(1) == 25).all(), "one 5x5 patch, black in every channel"
    left, right = black[:, :5, :5].flatten(1).all(1), black[:, :5, 27:].flatten(1).all(1)
    assert torch.equal(left, ~right)
    assert torch.equal(federation.x[~black[:, None].expand_as(images)], images[~black[:, None].expand_as(images)])
    animal = torch.isin(labels, torch.tensor([2, 3, 4, 5, 7]))
    assert near(federation.y.bool() != animal, 0.25)
    for k, p in enumerate((0.2, 0.1)):
        mine = slice(1800 * k, 1800 * (k + 1))
        assert near(federation.y[mine].bool() == right[mine], 1 - p)
    assert torch.equal(raw.train_x, flat_raw(shape=(3, 32, 32)).train_x), "the source stays as it was"


@real
@pytest.mark.parametrize(
    ("dataset", "params", "sizes", "test"),
    [
        ("colored-fashion-mnist", {}, (27000, 27000), 9000),
        ("colored-fashion-mnist", {"classes": 10}, (30000, 30000), 10000),
        ("spurious-cifar10-jpeg", {}, (22500, 22500), 9000),
        ("colored-mnist", {"n": 10, "p": [0.1] * 10}, (6000,) * 10, 10000),
    ],
)
def test_the_papers_counts(dataset, params, sizes, test):
    federation = data.load(dataset, 0, params)
    assert (federation.sizes, len(federation.tests["test"][1])) == (sizes, test)
    assert federation.facts["test"]["rows"] == test


@real
@pytest.mark.parametrize("dataset", ["colored-mnist", "colored-fashion-mnist", "spurious-cifar10-jpeg"])
def test_clients_of_real_data_agree_with_their_p(dataset):
    params = {"n": 3, "p": [0.3, 0.2, 0.1]}
    facts = data.load(dataset, 0, params).facts
    for seen, p in zip([*facts["clients"], facts["test"]], [0.3, 0.2, 0.1, 0.9], strict=True):
        (agreement,) = (value for key, value in seen.items() if key.endswith("_agreement"))
        assert abs(agreement - (1 - p)) < 3 * math.sqrt(p * (1 - p) / seen["rows"])
        assert abs(seen["label_noise"] - 0.25) < 3 * math.sqrt(0.25 * 0.75 / seen["rows"])


@pytest.mark.parametrize("classes", [0, 1, 3, 20, 2.5, "2", True])
def test_classes_must_divide_ten(classes):
    with pytest.raises(UsageError, match="'classes' of colored-mnist cannot be .*: input should be 2, 5 or 10"):
        data.check("colored-mnist", {"classes": classes})
