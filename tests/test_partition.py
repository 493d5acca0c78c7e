"""Partitions: whatever is asked for, rows are dealt out whole and disjoint, or one sentence says why not."""

import time
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedrepro.data.federations import partition
from fedrepro.data.federations.partition import Deal, deal
from fedrepro.errors import UsageError

SEEDS = st.integers(0, 2**40)
LABELS = st.lists(st.integers(0, 9), min_size=1, max_size=400).map(np.array)
CLIENTS = st.integers(1, 40)
quick = settings(max_examples=80, deadline=2000)  # an endless loop would break the deadline

MNIST = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])


def whole(parts: tuple[np.ndarray, ...], rows: int, n: int) -> None:
    assert len(parts) == n
    assert all(part.dtype == np.int64 and len(part) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows))


def same(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@given(
    st.sampled_from(sorted(get_args(partition.Partition))),
    LABELS,
    CLIENTS,
    st.integers(1, 10),
    st.floats(1e-3, 1e6),
    SEEDS,
)
@quick
def test_any_deal_is_whole_and_repeatable_or_a_sentence(name, labels, n, per_client, alpha, seed):
    how = Deal(name, n, per_client, alpha)
    writers = np.arange(len(labels)) // 3
    try:
        parts = deal(how, labels, writers, seed)
    except UsageError as error:
        sentence = str(error)
        with pytest.raises(UsageError) as again:
            deal(how, labels, writers, seed)
        assert str(again.value) == sentence
        assert sentence.endswith(".")
        assert "\n" not in sentence
        return
    whole(parts, len(labels), n)
    assert same(parts, deal(how, labels, writers, seed))
    if name in ("label-count", "shards"):
        assert {len(np.unique(labels[part])) for part in parts} == {per_client}


@pytest.mark.parametrize("name", sorted(get_args(partition.Partition)))
def test_a_seed_is_a_partition(name):
    labels, writers = np.random.default_rng(0).permutation(MNIST)[:3000], np.arange(3000) // 20
    how = Deal(name, 10, 2, 1.0)
    assert not same(
        [np.sort(part)[:50] for part in deal(how, labels, writers, 0)],
        [np.sort(part)[:50] for part in deal(how, labels, writers, 1)],
    )


# label counts


@given(st.integers(10, 60), st.integers(1, 10), SEEDS)
@quick
def test_a_label_is_cut_equally_among_its_owners(n, per_client, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(10), np.arange(100, 200, 10)))
    parts = partition.label_counts(labels, n, per_client, seed)
    counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
    assert ((counts > 0).sum(1) == per_client).all()
    assert all(counts[client, client % 10] > 0 for client in range(n)), "client i owns label i mod classes"
    for label in range(10):
        shares = counts[:, label][counts[:, label] > 0]
        assert shares.max() - shares.min() <= 1


def test_the_other_labels_are_drawn_evenly():
    """Client 0's second label is one of the nine others, each as likely: 900 draws, within four deviations."""
    labels = np.repeat(np.arange(10), 20)
    seconds = [
        label for seed in range(900) for label in np.unique(labels[partition.label_counts(labels, 10, 2, seed)[0]])[1:]
    ]
    counts = np.bincount(seconds, minlength=10)
    assert counts[0] == 0
    assert abs(counts[1:] - 100).max() < 4 * np.sqrt(900 * (1 / 9) * (8 / 9))


def test_rows_of_a_label_are_shuffled():
    labels = np.zeros(100, np.int64)
    first, second = partition.label_counts(labels, 2, 1, 0)
    assert not np.array_equal(np.sort(first), np.arange(50))
    assert len(first) == len(second) == 50


@pytest.mark.parametrize(
    ("n", "per_client", "complaint"),
    [
        (9, 2, "9 clients with 2 labels each may leave one of 10 labels without a client: set n to 10 or more"),
        (10, 11, "labels_per_client is 1 to 10, and cannot be 11"),
        (101, 1, r"more clients \(101\) than training samples \(100\)"),
        (50, 10, "label 0 has 10 rows for 50 clients: set n or labels_per_client lower"),
    ],
)
def test_label_counts_that_cannot_be_had(n, per_client, complaint):
    with pytest.raises(UsageError, match=complaint):
        partition.label_counts(np.repeat(np.arange(10), 10), n, per_client, 0)


def test_few_clients_may_have_all_labels():
    labels = np.repeat(np.arange(10), 10)
    whole(partition.label_counts(labels, 3, 10, 0), 100, 3)


# shards


@pytest.mark.slow
@given(st.sampled_from([1, 2, 3, 5]), st.integers(5, 50), SEEDS)
@quick
def test_shards_are_of_one_label_and_of_about_equal_size(per_client, n, seed):
    labels = np.random.default_rng(seed).permutation(MNIST)
    assume(n * per_client >= 10)
    parts = partition.shards(labels, n, per_client, seed)
    whole(parts, len(labels), n)
    counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
    assert ((counts > 0).sum(1) == per_client).all()
    shards, rows = (counts > 0).sum(0), counts.sum(0)
    for label in range(10):
        mine = counts[:, label][counts[:, label] > 0]
        assert mine.max() - mine.min() <= 1
        # One shard fewer of this label would be larger than any shard that there is, unless others are at their most.
        if shards[label] > 1:
            assert (rows / shards)[shards < n].max(initial=0) <= rows[label] / (shards[label] - 1)


def test_the_papers_hundred_clients():
    parts = partition.shards(MNIST, 100, 2, 0)
    whole(parts, 60_000, 100)
    pairs = {tuple(np.unique(MNIST[part])) for part in parts}
    assert all(len(pair) == 2 for pair in pairs)
    assert len(pairs) > 20, "of 45 pairs of digits"
    assert 580 <= min(map(len, parts)) <= max(map(len, parts)) <= 620


def test_a_label_with_most_of_the_rows_has_a_shard_at_each_client():
    labels = np.array([0] * 90 + [1] * 5 + [2] * 5)
    parts = partition.shards(labels, 10, 2, 0)
    whole(parts, 100, 10)
    assert all((labels[part] == 0).sum() == 9 and (labels[part] != 0).sum() == 1 for part in parts)


@pytest.mark.parametrize(("n", "per_client"), [(60, 2), (2, 2), (20, 6)])
def test_shards_that_cannot_be_had(n, per_client):
    labels = np.repeat([0, 1, 2, 3, 9], [40, 30, 20, 5, 5])  # 100 rows; five labels, 4 to 8 have none
    with pytest.raises(UsageError, match=f"{n} clients cannot have shards of {per_client} different labels each"):
        partition.shards(labels, n, per_client, 0)


# Dirichlet


def test_alpha_goes_from_one_owner_to_equal_parts():
    labels = np.repeat(np.arange(10), 1000)

    def largest(alpha: float) -> float:
        """Mean over labels of the largest client's share."""
        parts = partition.dirichlet(labels, 5, alpha, 0)
        counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
        return float((counts.max(0) / 1000).mean())

    assert largest(0.05) > 0.75 > largest(0.5) > 0.35 > largest(10) > 0.2
    assert largest(1e6) < 0.205


def test_shares_have_the_moments_of_the_dirichlet():
    """A symmetric Dirichlet of five parts: mean 1/5, variance (1/5)(4/5)/(5 alpha + 1); 200 labels and sizes."""
    labels = np.repeat(np.arange(200), 500)
    parts = partition.dirichlet(labels, 5, 2.0, 3)
    shares = np.array([np.bincount(labels[part], minlength=200) for part in parts]) / 500
    assert abs(shares.mean(1) - 0.2).max() < 4 * np.sqrt(0.16 / 11 / 200) + 1 / 500
    assert shares.var() == pytest.approx(0.16 / 11, rel=0.15)

    sizes = (
        np.array([[len(part) for part in partition.dirichlet_sizes(500, 5, 2.0, seed)] for seed in range(200)]) / 500
    )
    assert abs(sizes.mean(0) - 0.2).max() < 4 * np.sqrt(0.16 / 11 / 200) + 1 / 500
    assert sizes.var() == pytest.approx(0.16 / 11, rel=0.15)


def test_sizes_are_skewed_and_labels_are_not():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(2), 10_000))
    for part in partition.dirichlet_sizes(20_000, 4, 1.0, 2):
        assert abs((labels[part] == 0).mean() - 0.5) < 4 * np.sqrt(0.25 / len(part))


def test_an_empty_client_is_said_and_not_drawn_again():
    began = time.perf_counter()
    for call in (
        lambda: partition.dirichlet(np.repeat(np.arange(3), 10), 30, 0.01, 0),
        lambda: partition.dirichlet_sizes(30, 30, 0.01, 0),
    ):
        with pytest.raises(UsageError, match=r"alpha=0.01 leaves \d+ of 30 clients without a row.*set alpha higher"):
            call()
    assert time.perf_counter() - began < 2


# writers


@given(st.lists(st.integers(-5, 60), min_size=1, max_size=300).map(np.array), st.integers(1, 50), SEEDS)
@quick
def test_writers_stay_whole_and_are_dealt_evenly(writers, n, seed):
    present = len(np.unique(writers))
    if n > present:
        with pytest.raises(UsageError, match=f"more clients .* than writers .*set n to {present} or less"):
            partition.by_group(writers, n, seed)
        return
    parts = partition.by_group(writers, n, seed)
    whole(parts, len(writers), n)
    owned = [np.unique(writers[part]) for part in parts]
    assert sum(map(len, owned)) == present, "no writer is with two clients"
    assert max(map(len, owned)) - min(map(len, owned)) <= 1


def test_writers_need_a_dataset_that_has_some():
    with pytest.raises(UsageError, match="needs a dataset with writers: use femnist"):
        deal(Deal("writers", 2), np.zeros(4, np.int64), None, 0)
