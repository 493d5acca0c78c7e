"""Which rows come when: streams by their address, and the feeder against the plain description of its passes."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrepro.core.streams import stream, torch_stream
from fedrepro.core.types import Draw
from fedrepro.data.draws import Feeder

EXAMPLES = settings(max_examples=40, deadline=None)
SIZES = st.lists(st.integers(1, 13), min_size=1, max_size=5)


def feeder(sizes, seed=0):
    """A feeder whose x and y are the row numbers themselves."""
    rows = torch.arange(sum(sizes))
    return Feeder(seed, rows.float()[:, None], rows, tuple(sizes))


def batches(draw, place):
    """The batches of one place of a draw, as lists of live rows."""
    return [y[live].tolist() for y, live in zip(draw.y[place], draw.live[place], strict=True)]


# Streams

ADDRESSES = st.tuples(st.integers(0, 2000), st.integers(0, 3000), st.integers(-1, 20), st.sampled_from(["", "a", "ab"]))


def test_streams_have_their_golden_values():
    # A change here changes every number of every run.
    assert stream(0).integers(0, 1000, 5).tolist() == [880, 710, 936, 307, 941]
    assert stream(3, 7, 1, "batches").permutation(8).tolist() == [2, 4, 6, 5, 3, 1, 0, 7]
    assert stream(1000, purpose="watch").random() == pytest.approx(0.9384706358253639, abs=1e-15)
    drawn = torch.rand(3, generator=torch_stream(0, 0, 1, "predictor")).tolist()
    assert drawn == pytest.approx([0.6963117718696594, 0.2507430911064148, 0.4574383497238159])


def test_a_stream_is_philox_keyed_by_the_hash_of_its_address():
    digest = hashlib.sha256(b"5/6/7/colour").digest()
    key = [int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")]
    same = np.random.Generator(np.random.Philox(key=np.array(key, dtype=np.uint64)))
    assert stream(5, 6, 7, "colour").random(4).tolist() == same.random(4).tolist()


@given(ADDRESSES, ADDRESSES)
@EXAMPLES
def test_equal_addresses_give_equal_draws_and_others_give_others(left, right):
    numbers = [stream(*address).integers(2**62, size=2).tolist() for address in (left, right)]
    assert (numbers[0] == numbers[1]) == (left == right)
    noise = [torch.rand(4, generator=torch_stream(*address), dtype=torch.float64).tolist() for address in (left, right)]
    assert (noise[0] == noise[1]) == (left == right)


def test_parts_of_an_address_do_not_run_together():
    firsts = [(1, 11, 0, ""), (11, 1, 0, ""), (1, 1, 10, ""), (1, 1, 1, "0"), (1, 1, 1, "/0")]
    assert len({int(stream(*address).integers(2**62)) for address in firsts}) == len(firsts)


def test_neighbouring_streams_are_uncorrelated():
    draws = np.array(
        [stream(seed, round, client).random(200) for seed in (0, 1) for round in (0, 1) for client in (0, 1)]
    )
    correlations = np.corrcoef(draws)[np.triu_indices(8, 1)]
    assert abs(correlations).max() < 4 / np.sqrt(200)  # four standard errors, 28 pairs


def test_drawing_leaves_the_global_generators_alone():
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    torch.rand(3, generator=torch_stream(1))
    stream(1).random(3)
    assert before == (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


# Batches


@given(SIZES, st.integers(1, 15), st.integers(1, 4), st.integers(0, 3))
@EXAMPLES
def test_a_client_sees_permutation_after_permutation_without_the_last_part(sizes, size, steps, seed):
    fed, seen, rounds = feeder(sizes, seed), [[] for _ in sizes], 7
    for round in range(rounds):
        draw = fed.draw(Draw(size=size, steps=steps), round)
        assert draw.clients.tolist() == list(range(len(sizes)))
        assert torch.equal(draw.x[..., 0], draw.y.float())
        for k in range(len(sizes)):
            seen[k] += batches(draw, k)
    for k, count in enumerate(sizes):
        mine = min(size, count)
        each = count // mine  # batches a pass
        assert [len(batch) for batch in seen[k]] == [mine] * (steps * rounds)
        own = range(sum(sizes[:k]), sum(sizes[: k + 1]))
        for lap in range(0, len(seen[k]), each):
            one_pass = [row for batch in seen[k][lap : lap + each] for row in batch]
            order = stream(seed, lap // each, k, "batches").permutation(count) + own.start
            assert one_pass == order[: len(one_pass)].tolist()
            assert sorted(order) == list(own)


@given(SIZES, st.integers(1, 15), st.integers(1, 3))
@EXAMPLES
def test_epochs_are_whole_passes_padded_to_the_longest(sizes, size, epochs):
    fed = feeder(sizes)
    for round in range(2):
        draw = fed.draw(Draw(size=size, epochs=epochs), round)
        for k, count in enumerate(sizes):
            mine = min(size, count)
            got = [batch for batch in batches(draw, k) if batch]
            assert [len(batch) for batch in got] == [mine] * (epochs * (count // mine))
            for e in range(epochs):
                rows = [row for batch in got[e * (count // mine) : (e + 1) * (count // mine)] for row in batch]
                assert len(set(rows)) == len(rows) == count // mine * mine  # no row twice in a pass
            padding = draw.live[k].any(1)
            assert (padding == padding.sort(descending=True).values).all()  # live steps first
        assert draw.live.shape[1] == max(epochs * (count // min(size, count)) for count in sizes)


@given(SIZES, st.integers(1, 6), st.integers(0, 2))
@EXAMPLES
def test_a_whole_client_is_every_row_once_in_order(sizes, chunk, before):
    fed = feeder(sizes)
    for round in range(before):
        fed.draw(Draw(size=3), round)
    cursors = fed.cursors.copy()
    draw = fed.draw(Draw(size=None, chunk=chunk), before)
    start = 0
    for k, count in enumerate(sizes):
        got = batches(draw, k)
        assert [row for batch in got for row in batch] == list(range(start, start + count))
        assert max(map(len, got)) == min(chunk, count)
        start += count
    assert (fed.cursors == cursors).all()  # it takes nothing from the streams


@given(SIZES, st.integers(1, 15), st.integers(0, 9))
@EXAMPLES
def test_the_cursors_are_the_whole_state(sizes, size, taken):
    fed = feeder(sizes)
    for round in range(taken):
        fed.draw(Draw(size=size), round)
    again = Feeder(0, fed.x, fed.y, tuple(sizes))
    again.cursors[:] = fed.cursors
    for round in range(taken, taken + 3):
        left, right = fed.draw(Draw(size=size), round), again.draw(Draw(size=size), round)
        assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@given(SIZES, st.data())
@EXAMPLES
def test_a_cohort_is_a_sample_by_round_in_increasing_order(sizes, data):
    count = data.draw(st.integers(1, len(sizes)))
    fed = feeder(sizes, seed=4)
    for round in range(3):
        wanted = stream(4, round, 0, "cohort").choice(len(sizes), count, replace=False)
        draw = fed.draw(Draw(size=2, clients=count), round)
        assert draw.clients.tolist() == sorted(wanted)
        assert len(set(draw.clients.tolist())) == count
        for place, k in enumerate(draw.clients.tolist()):
            own = range(sum(sizes[:k]), sum(sizes[: k + 1]))
            assert all(row in own for batch in batches(draw, place) for row in batch)


def test_every_client_comes_into_cohorts():
    fed = feeder([3] * 6)
    seen = {k for round in range(30) for k in fed.cohort(2, round)}
    assert seen == set(range(6))


def test_a_client_by_index_moves_its_own_stream_only():
    alone, all_of_them = feeder([6, 5, 7]), feeder([6, 5, 7])
    draw = alone.draw(Draw(size=2, steps=2, clients=(2, 0)), 0)
    assert draw.clients.tolist() == [2, 0]
    assert alone.cursors.tolist() == [[0, 4], [0, 0], [0, 4]]
    everyone = all_of_them.draw(Draw(size=2, steps=2), 0)
    assert batches(draw, 0) == batches(everyone, 2)
    assert batches(draw, 1) == batches(everyone, 0)


def test_shapes_and_padding_of_unequal_clients():
    draw = feeder([7, 2]).draw(Draw(size=3, epochs=1), 0)
    assert draw.x.shape == (2, 2, 3, 1)
    assert draw.y.shape == draw.live.shape == (2, 2, 3)
    assert draw.live.tolist() == [[[True] * 3] * 2, [[True, True, False], [False] * 3]]


# Noise


def test_noise_is_standard_normal_at_its_address():
    want = Draw(size=3, noise=(2, 5))
    for seed, round in ((0, 0), (0, 1), (4, 1)):
        noise = feeder([9, 7], seed).draw(want, round).noise
        wanted = stream(seed, round, 0, "noise").standard_normal((2, 3, 5), dtype=np.float32)
        assert noise.dtype == torch.float32
        assert noise.numpy().tolist() == wanted.tolist()
    many = feeder([2000]).draw(Draw(size=2000, noise=(3, 4)), 0).noise.numpy().ravel()
    assert abs(many.mean()) < 4 / np.sqrt(many.size)  # four standard errors
    assert abs(many.var() - 1) < 4 * np.sqrt(2 / many.size)


def test_noise_moves_no_other_draw():
    plain, noisy = feeder([9, 7]), feeder([9, 7])
    for round in range(4):
        without, beside = plain.draw(Draw(size=4), round), noisy.draw(Draw(size=4, noise=(1, 2)), round)
        assert torch.equal(without.y, beside.y)
        assert without.noise.numel() == 0
    assert (plain.cursors == noisy.cursors).all()
