"""Dimmed images against their formula, of embedded digits and of a file, and as datasets that fedrepro finds."""

import numpy as np
import pytest
import torch

from fedrepro import data
from fedrepro.data import sources
from fedrepro.errors import UsageError


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file of 30 training and 4 test images in the data folder."""
    monkeypatch.setenv("FEDREPRO_DATA_DIR", str(tmp_path))
    rng = np.random.default_rng(0)
    arrays = {"train_x": rng.integers(0, 256, (30, 28, 28)), "test_x": rng.integers(0, 256, (4, 28, 28))}
    arrays = {name: x.astype(np.uint8) for name, x in arrays.items()}
    arrays |= {"train_y": np.arange(30, dtype=np.uint8) % 10, "test_y": np.arange(4, dtype=np.uint8)}
    (tmp_path / "own").mkdir()
    np.savez(tmp_path / "own/images.npz", **arrays)
    yield arrays
    sources._raw.cache_clear()


def test_each_client_has_its_part_of_the_ink(file):
    made = data.load("dimmed-own", 0, {"brightness": [1.0, 0.5], "n": 2, "test_brightness": 0.1})
    test_x, test_y = made.tests["test"]
    assert torch.equal(test_x[:, 0], torch.from_numpy(file["test_x"] * 0.1).round().to(torch.uint8))
    assert test_y.tolist() == [0, 1, 2, 3]
    whole, half = ({tuple(row.flatten().tolist()) for row in rows[:, 0]} for rows in made.x.split(made.sizes))
    all_whole = {tuple(row.flatten().tolist()) for row in file["train_x"]}
    all_half = {tuple(row.flatten().tolist()) for row in np.round(file["train_x"] * 0.5).astype(np.uint8)}
    assert whole < all_whole
    assert half < all_half
    assert len(whole) + len(half) == 30
    assert [each["brightness"] for each in made.facts["clients"]] == [1.0, 0.5]


def test_the_identity_follows_the_file(file, tmp_path):
    before = data.describe("dimmed-own")
    assert list(before["files"]) == ["own/images.npz"]
    np.savez(tmp_path / "own/images.npz", **file | {"test_y": np.zeros(4, np.uint8)})
    assert data.describe("dimmed-own")["fingerprint"] != before["fingerprint"]


def test_they_are_found_with_their_defaults():
    found = data.find("dimmed-digits")
    assert (found.source, found.shape) == ("digits", (1, 28, 28))
    assert data.parameters("dimmed-digits") == {
        **{"n": 3, "partition": "iid", "labels_per_client": 2, "alpha": 0.5, "validation": 0.0},
        **{"brightness": (1.0, 0.75, 0.5), "test_brightness": 0.25},
    }
    assert found.summary.startswith("Images whose ink is dimmed")


def test_a_brightness_is_needed_for_each_client():
    with pytest.raises(UsageError, match="brightness needs 2 values, one for each client, and has 3"):
        data.load("dimmed-digits", 0, {"n": 2})
