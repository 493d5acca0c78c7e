"""The federations of gma-2022 and fedgma-2021, measured in their pixels without the code that made them."""

import hashlib
import itertools
import json
import math
import os

import numpy as np
import pytest
import torch
from federations import clients, labels_in
from scipy import ndimage
from scipy.stats import norm
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2.functional import rotate

from fedrepro import data
from fedrepro.data import sources
from fedrepro.data.federations import fedgma, palettes, plain, rotated
from fedrepro.data.federations.clients import held_out
from fedrepro.errors import UsageError

real = pytest.mark.skipif(not os.environ.get(sources.FOLDER_VARIABLE), reason="FEDREPRO_DATA_DIR names no real MNIST")

MADE = [name for name, row in data.DATASETS.items() if row.source == "digits" and "partition" in data.parameters(name)]
ON_MNIST = ("mnist", "fedcmnist", "fedrotmnist", "fedgma-binary", "fedgma-colored")


def numbered(rows: int = 1200, test: int = 300, shape: tuple[int, ...] = (28, 28)) -> sources.Raw:
    """Images of which no two are alike: half of the pixels ink (255), the other half paper (0)."""
    draws = np.random.default_rng(1)

    def images(count: int) -> torch.Tensor:
        return torch.from_numpy(draws.choice(np.array([0, 255], np.uint8), (count, *shape)))

    return sources.Raw(images(rows), torch.arange(rows) % 10, images(test), torch.arange(test) % 10, classes=10)


def colours(hexes: str) -> np.ndarray:
    return np.array([[int(each[i : i + 2], 16) for i in (1, 3, 5)] for each in hexes.split()])


# every new dataset


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("validation", [0.0, 0.1])
def test_a_federation_is_what_it_says(name, validation):
    federation = data.load(name, 1, {"n": 12, "validation": validation})
    assert federation.x.shape[1:] == data.DATASETS[name].shape
    assert (federation.x.dtype, federation.y.dtype) == (torch.uint8, torch.int64)
    assert sum(federation.sizes) == len(federation.x) == len(federation.y)
    assert federation.x.is_contiguous()
    held = 0
    for (_, y), facts in zip(clients(federation), federation.facts["clients"], strict=True):
        assert facts["rows"] == len(y)
        assert labels_in(facts) == {label: count for label, count in enumerate(y.bincount().tolist()) if count}
        held += facts.get("held_out", 0)
        if validation:
            assert facts["held_out"] == max(1, round(0.1 * (facts["rows"] + facts["held_out"])))
    assert len(federation.y) + held == 1500
    assert list(federation.tests) == ["test", "validation"][: 1 + (validation > 0)]
    for test, (x, y) in federation.tests.items():
        assert (len(x), x.shape[1:]) == (len(y), federation.x.shape[1:])
        assert (labels_in(federation.facts[test]), federation.facts[test]["rows"]) == (
            {label: count for label, count in enumerate(y.bincount().tolist()) if count},
            len(y),
        )
    assert len(federation.tests["test"][1]) == 297
    assert int(federation.y.max()) == federation.classes - 1


@pytest.mark.parametrize("name", MADE)
def test_a_seed_is_its_data(name):
    one, again, other = (data.load(name, seed, {}) for seed in (3, 3, 4))
    assert torch.equal(one.x, again.x)
    assert torch.equal(one.y, again.y)
    assert torch.equal(one.tests["test"][0], again.tests["test"][0])
    assert one.facts == again.facts
    assert not torch.equal(one.x, other.x)


def test_the_draws_of_a_seed_never_change():
    """Committed records rest on them: if this fails, gma-2022 and fedgma-2021 have to be trained again.

    Nothing is turned: processors round turned pixels otherwise (tests/test_golden.py has them).
    """
    digests = {}
    for name in MADE:
        upright = {"angles": [0] * 10, "test_angle": 0} if "angles" in data.parameters(name) else {}
        federation = data.load(name, 0, {"n": 10, "validation": 0.1} | upright)
        tensors = (federation.x, federation.y, *federation.tests["test"], *federation.tests["validation"])
        digests[name] = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()[:12]
    assert digests == DRAWN


DRAWN = {
    "digits-plain": "b26f003f08f5",
    "fedcmnist-digits": "430b3449da08",
    "fedrotmnist-digits": "b26f003f08f5",
    "fedgma-binary-digits": "562e79402c24",
    "fedgma-colored-digits": "10d3afea809e",
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("how", ["iid", "label-count", "shards", "dirichlet", "dirichlet-size"])
def test_every_dataset_takes_every_partition(name, how):
    federation = data.load(name, 0, {"n": 10, "partition": how, "labels_per_client": 3, "alpha": 2})
    assert len(federation.sizes) == 10
    if how == "iid":
        assert federation.sizes == (150,) * 10


@pytest.mark.parametrize("name", MADE)
def test_facts_stay_small(name):
    facts = data.load(name, 0, {"n": 100, "partition": "iid", **({"distance": 0.05} if "cmnist" in name else {})}).facts
    assert len(json.dumps(facts, indent=1)) < 40_000
    assert all(len(client) <= 6 for client in facts["clients"])


@real
@pytest.mark.parametrize("name", ON_MNIST)
def test_the_papers_counts(name):
    federation = data.load(name, 0, {})
    n = 100 if name.startswith("fedgma") else 10
    assert (len(federation.sizes), sum(federation.sizes)) == (n, 60_000)
    assert len(federation.tests["test"][1]) == 10_000
    key = "digits" if name == "fedgma-binary" else "labels"
    assert all(len(facts[key].split(", ")) == 2 for facts in federation.facts["clients"]), "two digits for each client"
    if n == 100:
        assert 580 <= min(federation.sizes) <= max(federation.sizes) <= 620


@real
def test_images_as_they_are():
    for name, shape in (("mnist", (1, 28, 28)), ("fashion-mnist", (1, 28, 28))):
        raw, federation = sources.raw(sources.SOURCES[name]), data.load(name, 0, {"partition": "iid"})
        assert federation.x.shape == (60_000, *shape)
        assert int(federation.x.long().sum()) == int(raw.train_x.long().sum())
        assert torch.equal(federation.tests["test"][0][:, 0], raw.test_x)


def test_images_with_channels_stay_as_they_are():
    raw = numbered(100, 20, (3, 32, 32))
    federation = plain.plain(raw, 0, n=1, partition="iid")
    assert federation.x.shape == (100, 3, 32, 32)
    assert sorted(map(bytes, federation.x.numpy())) == sorted(map(bytes, raw.train_x.numpy()))


# held-out rows


@pytest.mark.parametrize("part", [0.001, 0.1, 0.5, 0.9])
def test_validation_rows_are_never_trained_on(part):
    raw = numbered()
    federation = plain.plain(raw, 2, n=10, validation=part)
    trained, held = set(map(bytes, federation.x.numpy())), set(map(bytes, federation.tests["validation"][0].numpy()))
    assert len(trained | held) == 1200
    assert not trained & held
    kept = plain.plain(raw, 2, n=10)
    assert set(map(bytes, kept.x.numpy())) == trained | held
    own = np.add.accumulate(kept.sizes)
    assert all(  # a client's rows stay its own
        set(map(bytes, x.numpy())) <= set(map(bytes, kept.x[end - size : end].numpy()))
        for (x, _), end, size in zip(clients(federation), own, kept.sizes, strict=True)
    )


def test_validation_rows_have_their_clients_treatment():
    federation = data.load("fedcmnist-digits", 0, {"n": 2, "partition": "iid", "validation": 0.2})
    x, _ = federation.tests["validation"]
    for (trained, _), held in zip(clients(federation), x.split([150, 150]), strict=True):
        # The corner of a digit is paper: of one colour per client.
        corner, others = (images[:, :, 0, 0].double().mean(0) for images in (trained, held))
        assert (corner - others).abs().max() < 5
    assert (x[:150, :, 0, 0].double().mean(0) - x[150:, :, 0, 0].double().mean(0)).abs().max() > 20


def test_validation_does_not_move_what_is_drawn():
    without, with_some = (data.load("fedcmnist-digits", 0, {"validation": part}) for part in (0.0, 0.3))
    pixels = set(map(bytes, without.x.numpy()))
    assert set(map(bytes, with_some.x.numpy())) < pixels
    assert torch.equal(without.tests["test"][0], with_some.tests["test"][0])


def test_held_out_rows_are_drawn_per_client():
    assert held_out(5, 0.0, 0, 0).sum() == 0
    assert held_out(5, 0.01, 0, 0).sum() == 1
    assert not np.array_equal(held_out(100, 0.5, 0, 0), held_out(100, 0.5, 0, 1))
    with pytest.raises(UsageError, match="validation=0.5 leaves client 4, which has 1 rows, none to train on"):
        held_out(1, 0.5, 0, 3)


# FedCMNIST and the ten-class digits of fedgma-2021


def check_distances(groups: list[tuple[np.ndarray, np.ndarray]], distance: float, contrast: float) -> None:
    """Every colour differs from every other, every foreground from the backgrounds of its group; 0 to 255."""
    every = np.concatenate([kind for group in groups for kind in group]).astype(float)
    between = np.linalg.norm(every[:, None] - every[None], axis=2) + 1e9 * np.eye(len(every))
    assert between.min() > 255 * distance
    assert (every.max(1) == 255).all(), "divided by the largest channel"
    for fg, bg in groups:
        assert np.linalg.norm(fg[:, None].astype(float) - bg[None], axis=2).min() > 255 * contrast


@pytest.mark.parametrize("seed", range(30))
def test_palettes_keep_their_distances(seed):
    check_distances(palettes.palettes(seed, [(10, 10), *[(1, 1)] * 10], 0.2, 0.4), 0.2, 0.4)
    check_distances(palettes.palettes(seed, [(10, 10), *[(2, 2)] * 10], 0.15, 0.4), 0.15, 0.4)


def test_colours_are_uniform_rgb_over_their_maximum():
    drawn = np.concatenate([palette.fg for palette in palettes.palettes(0, [(1, 0)] * 400, 0, 0)])
    counts = np.bincount(drawn.argmax(1), minlength=3)
    assert abs(counts - 400 / 3).max() < 3 * math.sqrt(400 * 2 / 9)
    rest = np.sort(drawn, axis=1)[:, :2] / 255  # two of three uniforms over the largest are uniform on [0, 1]
    assert rest.mean() == pytest.approx(0.5, abs=3 * math.sqrt(1 / 12 / 800))
    assert rest.var() == pytest.approx(1 / 12, rel=0.1)


def test_colours_that_do_not_fit_are_a_sentence():
    with pytest.raises(UsageError, match="220 colours that differ by 0.2, .* were not found in 20 attempts: set dist"):
        data.load("fedcmnist-digits", 0, {"n": 100})
    for params in ({"distance": -0.1}, {"contrast": "x"}, {"distance": True}, {"distance": float("nan")}):
        with pytest.raises(UsageError, match=f"'{next(iter(params))}' of fedcmnist-digits cannot be"):
            data.load("fedcmnist-digits", 0, params)


@pytest.mark.parametrize("name", ["fedcmnist-digits", pytest.param("fedcmnist", marks=real)])
def test_a_client_has_its_own_two_colours(name):
    """Median colours, recomputed: each pixel is ink above 150, and its colour that of all the client's others."""
    raw = sources.raw(sources.SOURCES[data.DATASETS[name].source])
    federation = data.load(name, 0, {})
    measured = []
    for (x, y), facts in zip(clients(federation), federation.facts["clients"], strict=True):
        rows = {bytes(image) for image in (raw.train_x[torch.isin(raw.train_y, y.unique())] > 150).numpy()}
        palette = [colours(facts[kind])[0] for kind in ("fg", "bg")]
        # Noise of 10 does not cross half of 100 and more: the nearer of the two colours says where the ink is.
        channel = np.argmax(np.abs(palette[0] - palette[1]))
        middle, up = palette[0][channel] + palette[1][channel], palette[0][channel] > palette[1][channel]
        ink = (2 * x[:, channel].long() > middle) == bool(up)
        if abs(palette[0][channel] - palette[1][channel]) > 100:
            assert all(bytes(image) in rows for image in ink.numpy()[:200])
        for kind, where, wanted in (("fg", ink, palette[0]), ("bg", ~ink, palette[1])):
            pixels = x.movedim(1, -1)[where].double()
            assert np.abs(pixels.median(0).values.numpy() - wanted).max() <= 1, kind
            inner = (wanted > 60) & (wanted < 195)  # where nothing is clipped
            if inner.any() and len(x) > 100:
                noise = pixels.numpy()[:, inner] - wanted[inner]
                assert np.abs(noise[np.abs(noise) < 45].std() - 10) < 0.3
        measured.append([palette[0][None], palette[1][None]])
    test = [colours(federation.facts["test"][kind]) for kind in ("fg", "bg")]
    assert (len(test[0]), len(test[1])) == (10, 10)
    check_nearly([*measured, test], 0.2, 0.4)


def check_nearly(groups: list, distance: float, contrast: float) -> None:
    """As check_distances, for measured colours, which may be off by one."""
    every = np.concatenate([kind for group in groups for kind in group]).astype(float)
    between = np.linalg.norm(every[:, None] - every[None], axis=2) + 1e9 * np.eye(len(every))
    assert between.min() > 255 * distance - 4
    for fg, bg in groups:
        assert np.linalg.norm(fg[:, None].astype(float) - bg[None], axis=2).min() > 255 * contrast - 4


def test_painted_pixels_are_colour_plus_noise():
    images = torch.zeros(4000, 4, 4, dtype=torch.uint8)
    images[:, :, 2:] = 151
    images[:, 0, 0] = 150
    fg, bg = np.tile(np.uint8([255, 128, 0]), (4000, 1)), np.tile(np.uint8([60, 200, 100]), (4000, 1))
    x, ink = palettes.paint(images, fg, bg, 0, 0)
    assert torch.equal(ink, images > 150)
    noise = x[:, 1, :, 2:].double() - 128
    assert abs(noise.mean()) < 4 * 10 / math.sqrt(noise.numel())
    assert noise.std().item() == pytest.approx(math.sqrt(100 + 1 / 12), rel=0.02)
    assert noise.abs().max() > 35
    for tail in (-15, -5, 0, 5, 15):
        assert (noise <= tail).double().mean().item() == pytest.approx(norm.cdf((tail + 0.5) / 10), abs=0.01)
    assert (x[:, 0, :, 2:] == 255).double().mean().item() == pytest.approx(norm.cdf(0.05), abs=0.01), "clipped"
    assert (x[:, 2, :, 2:] == 0).double().mean().item() == pytest.approx(norm.cdf(0.05), abs=0.01)
    assert (x[:, :, :, :2].double().mean((0, 2, 3)) - torch.tensor([60.0, 200.0, 100.0])).abs().max() < 0.3
    flat = x.flatten(1)[:, [0, 1, 16, 17]].double().numpy()
    assert np.abs(np.corrcoef(flat.T) - np.eye(4)).max() < 5 / math.sqrt(4000), "apart for every pixel and channel"


def test_a_test_image_has_any_of_the_unseen_colours():
    raw = numbered(test=6000)
    federation = palettes.fedcmnist(raw, 5)
    x, _ = federation.tests["test"]
    ink = raw.test_x > 150
    facts = federation.facts["test"]
    found = []
    for kind, where in (("fg", ink), ("bg", ~ink)):
        wanted = torch.from_numpy(colours(facts[kind])).double()
        assert len(wanted) == 10
        mean = (x * where[:, None]).double().sum((2, 3)) / where.sum((1, 2))[:, None]
        found.append(torch.cdist(mean, wanted).argmin(1))
        assert abs(found[-1].bincount(minlength=10) - 600).max() < 4.5 * math.sqrt(6000 * 0.09)
    pairs = (10 * found[0] + found[1]).bincount(minlength=100)
    assert abs(pairs - 60).max() < 5 * math.sqrt(60), "drawn apart"


@pytest.mark.parametrize("partition", ["shards", "iid"])
def test_a_digit_has_two_colours_of_each_kind(partition):
    raw = numbered(6000)
    federation = fedgma.colored(raw, 3, n=30, partition=partition)
    of_digit = {
        int(digit): {k: colours(v) for k, v in kinds.items()} for digit, kinds in federation.facts["digits"].items()
    }
    assert sorted(of_digit) == list(range(10))
    test = [colours(federation.facts["test"][kind]) for kind in ("fg", "bg")]
    check_nearly([*([each["fg"], each["bg"]] for each in of_digit.values()), test], 0.15, 0.4)
    second = {"fg": [], "bg": []}
    for (x, y), facts in zip(clients(federation), federation.facts["clients"], strict=True):
        corner = x.movedim(1, -1).flatten(1, 2).double()  # [M, pixels, 3]
        hits = {"fg": [], "bg": []}
        for pixels, digit in zip(corner, y.tolist(), strict=True):
            every = np.concatenate([of_digit[digit]["fg"], of_digit[digit]["bg"]])
            seen = torch.cdist(pixels, torch.from_numpy(every).double()).argmin(1).bincount(minlength=4)
            hits["fg"].append(int(seen[1] > seen[0]))
            hits["bg"].append(int(seen[3] > seen[2]))
            assert abs(int(seen[:2].sum()) - 392) < 130, "half of the pixels are ink"
            assert min(seen[:2]) < 60 > min(seen[2:]), "one foreground and one background in an image"
        for kind in second:
            assert facts[f"second_{kind}"] == pytest.approx(np.mean(hits[kind]))
            second[kind] += hits[kind]
    assert all(abs(np.mean(hits) - 0.5) < 3 * math.sqrt(0.25 / 6000) for hits in second.values())
    both = np.mean(np.array(second["fg"]) == np.array(second["bg"]))
    assert abs(both - 0.5) < 3 * math.sqrt(0.25 / 6000), "drawn apart"


# FedRotMNIST


def test_rotation_is_torchvisions_image_by_image():
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (7, 28, 28), np.uint8))
    for angle in (0.0, 8.333, 45.0, 75.0, 90.0, -30.0, 180.0, 270.0, 400.0):
        theirs = [rotate(image[None], angle, InterpolationMode.BILINEAR)[0] for image in images]
        assert torch.equal(rotated.rotate(images, angle), torch.stack(theirs))


def test_positive_is_counter_clockwise_and_what_comes_in_is_zero():
    images = torch.zeros(1, 28, 28, dtype=torch.uint8)
    images[0, 10:18, 20:24] = 255  # right of the centre
    turned = rotated.rotate(images, 90)
    assert turned[0, 4:8, 10:18].eq(255).all(), "now above it"
    assert torch.equal(turned, torch.rot90(images, 1, (1, 2)))
    full = torch.full((1, 28, 28), 255, dtype=torch.uint8)
    assert rotated.rotate(full, 45)[0, 0, 0] == 0


def test_rotation_is_scipys_but_for_rounding_and_the_border():
    smooth = ndimage.gaussian_filter(np.random.default_rng(0).random((28, 28)), 2)
    image = np.rint(255 * (smooth - smooth.min()) / np.ptp(smooth)).astype(np.uint8)
    theirs = ndimage.rotate(image.astype(float), 33, reshape=False, order=1)
    ours = rotated.rotate(torch.from_numpy(image)[None], 33)[0].numpy().astype(float)
    y, x = np.mgrid[:28, :28] - 13.5
    inside = np.hypot(x, y) < 12
    assert np.abs(ours - theirs)[inside].max() < 1.1


def test_each_client_has_its_angle():
    raw = numbered(100, 20)
    federation = rotated.fedrotmnist(raw, 0, n=4, partition="iid")
    assert [facts["degrees"] for facts in federation.facts["clients"]] == [0, 25, 50, 75]
    assert federation.facts["test"]["degrees"] == 90
    assert torch.equal(federation.tests["test"][0][:, 0], torch.rot90(raw.test_x, 1, (1, 2)))
    sources_by_bytes = [rotated.rotate(raw.train_x, angle) for angle in (0, 25, 50, 75)]
    for (x, y), turned in zip(clients(federation), sources_by_bytes, strict=True):
        known = {bytes(image): int(label) for image, label in zip(turned.numpy(), raw.train_y, strict=True)}
        assert [known[bytes(image)] for image in x[:, 0].numpy()] == y.tolist()
    own = rotated.fedrotmnist(raw, 0, n=2, partition="iid", angles=[-10, 190], test_angle=-45.5)
    assert [facts["degrees"] for facts in own.facts["clients"]] == [-10, 190]
    assert own.facts["test"]["degrees"] == -45.5


# the two classes of fedgma-2021


@pytest.mark.parametrize("name", ["fedgma-binary-digits", pytest.param("fedgma-binary", marks=real)])
@pytest.mark.parametrize("flip", [0.0, 0.25])
def test_red_and_green_by_client(name, flip):
    raw = sources.raw(sources.SOURCES[data.DATASETS[name].source])
    federation = data.load(name, 0, {"n": 5, "partition": "iid", "label_flip": flip})
    by_pixels = {bytes(image): int(label) for image, label in zip(raw.train_x.numpy(), raw.train_y, strict=True)}
    for k, ((x, y), facts) in enumerate(zip(clients(federation), federation.facts["clients"], strict=True)):
        assert not x[:, 2].any()
        energy = x.long().sum((2, 3))
        assert ((energy > 0).sum(1) == 1).all()
        green = energy[:, 1] > 0
        digits = torch.tensor([by_pixels[bytes(image)] for image in x.amax(1).numpy()])
        p = 0.1 + 0.1 * k / 4
        flipped, agreeing = (y != (digits > 4).long()), (green == y.bool())
        assert facts["label_noise"] == flipped.double().mean()
        assert facts["colour_agreement"] == agreeing.double().mean()
        assert abs(facts["label_noise"] - flip) <= 3 * math.sqrt(flip * (1 - flip) / len(y))
        assert abs(facts["colour_agreement"] - (1 - p)) < 3.5 * math.sqrt(p * (1 - p) / len(y))
    x, y = federation.tests["test"]
    assert abs(((x[:, 1].flatten(1).any(1)) == y.bool()).double().mean() - 0.1) < 3 * math.sqrt(0.09 / len(y))
    assert federation.classes == 2


def test_without_chance_low_digits_are_red():
    raw = numbered(400, 50)
    federation = fedgma.binary(raw, 0, n=20, p=[0, 0], p_test=1)
    assert torch.equal(federation.x[:, 1].flatten(1).any(1), federation.y.bool())
    x, y = federation.tests["test"]
    assert torch.equal(y, (raw.test_y > 4).long())
    assert torch.equal(x[:, 0].flatten(1).any(1), y.bool()), "at test high digits are red"
    assert all(len(facts["digits"].split(", ")) == 2 for facts in federation.facts["clients"])


# bad parameters

ALPHAS = (0, -1, float("nan"), float("inf"), 1e-9, "0.5", True, None)


@pytest.mark.parametrize(
    ("name", "params", "complaint"),
    [
        ("fedcmnist-digits", {"n": "3"}, "'n' of fedcmnist-digits cannot be '3': input should be a valid integer"),
        (
            "fedrotmnist-digits",
            {"n": 0},
            "'n' of fedrotmnist-digits cannot be 0: input should be greater than or equal to 1",
        ),
        ("fedgma-binary-digits", {"n": 2.5}, "'n' of fedgma-binary-digits cannot be 2.5"),
        ("fedgma-binary-digits", {"n": 10**9}, "less than or equal to 1000000"),
        ("fedgma-colored-digits", {"n": 5000}, "more clients"),
        ("digits-plain", {"partition": "writers"}, "needs a dataset with writers"),
        (
            "digits-plain",
            {"partition": "label"},
            "'partition' of digits-plain cannot be 'label': input should be 'iid', 'label-count', 'shards'",
        ),
        ("digits-plain", {"partition": 3}, "cannot be 3: input should be 'iid'"),
        ("digits-plain", {"labels_per_client": 0}, "cannot be 0"),
        ("digits-plain", {"labels_per_client": 2.5}, "cannot be 2.5"),
        ("digits-plain", {"labels_per_client": True}, "cannot be True"),
        *(
            ("digits-plain", {"alpha": alpha}, f"'alpha' of digits-plain cannot be {alpha!r}: input should be")
            for alpha in ALPHAS
        ),
        ("digits-plain", {"validation": 1}, "'validation' of digits-plain cannot be 1: input should be less than 1"),
        ("digits-plain", {"validation": True}, "'validation' of digits-plain cannot be True"),
        ("digits-plain", {"validation": 0.1, "n": 1500, "partition": "iid"}, "which has 1 rows, none to train on"),
        ("digits-plain", {"labels_per_client": 11}, "labels_per_client is 1 to 10"),
        ("digits-plain", {"angles": [1]}, "unknown data key of digits-plain 'angles'"),
        ("fedrotmnist-digits", {"angles": [1, 2]}, "angles needs 10 values, one for each client, and has 2"),
        ("fedrotmnist-digits", {"n": 2, "angles": [1, "2"]}, "cannot be .1, '2'.: input should be a valid number"),
        (
            "fedrotmnist-digits",
            {"test_angle": float("inf")},
            "'test_angle' of fedrotmnist-digits cannot be inf: input should be a finite number",
        ),
        ("fedgma-binary-digits", {"p": 0.1}, "'p' of fedgma-binary-digits cannot be 0.1"),
        ("fedgma-binary-digits", {"p": [0.1]}, "should have at least 2 items"),
        ("fedgma-binary-digits", {"p": [0.1] * 3}, "should have at most 2 items"),
        ("fedgma-binary-digits", {"p": [0.1, 2]}, "cannot be .0.1, 2.: input should be less than or equal to 1"),
        (
            "fedgma-binary-digits",
            {"p_test": -1},
            "'p_test' of fedgma-binary-digits cannot be -1: input should be greater than or equal to 0",
        ),
        (
            "fedgma-binary-digits",
            {"label_flip": "0"},
            "'label_flip' of fedgma-binary-digits cannot be '0': input should be a valid number",
        ),
    ],
)
def test_bad_parameters_are_refused(name, params, complaint):
    with pytest.raises(UsageError, match=complaint) as caught:
        data.load(name, 0, params)
    assert str(caught.value).endswith((".", "?"))
    assert len(str(caught.value)) < 220


def test_the_datasets_have_the_papers_defaults():
    defaults = {name: data.parameters(name) for name in data.DATASETS}
    for name, (n, how) in {
        "mnist": (10, "label-count"),
        "cifar10-jpeg": (10, "label-count"),
        "fedcmnist": (10, "label-count"),
        "fedrotmnist": (10, "label-count"),
        "fedgma-binary": (100, "shards"),
        "fedgma-colored": (100, "shards"),
        "femnist": (10, "writers"),
    }.items():
        assert (defaults[name]["n"], defaults[name]["partition"]) == (n, how)
        assert (defaults[name]["labels_per_client"], defaults[name]["validation"]) == (2, 0.0)
    for one, other in itertools.combinations(["fedcmnist", "fedcmnist-digits"], 2):
        assert defaults[one] == defaults[other]
