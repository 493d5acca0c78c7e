"""Trees: every operation against the same one spelt out on each leaf."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrepro.core import trees


class Pair(NamedTuple):
    left: torch.Tensor
    right: dict


def tree(*shape, offset=0.0):
    """Two float leaves and an integer one, nested; every element has its own value."""
    size = torch.Size(shape).numel()
    values = torch.arange(3 * size, dtype=torch.float32).reshape(3, *shape) + offset
    return {"a": values[0], "b": {"c": values[1], "d": {"e": values[2].long()}}}


def named(of):
    return {"a": of["a"], "b.c": of["b"]["c"], "b.d.e": of["b"]["d"]["e"]}


def same(got, wanted):
    """Leaf by leaf: the tree `got` has exactly the leaves `wanted`."""
    got = dict(trees.leaves(got))
    assert got.keys() == wanted.keys()
    for name, leaf in wanted.items():
        assert got[name].dtype == leaf.dtype
        assert torch.equal(got[name], leaf)


def test_leaves_have_dotted_names_in_order():
    assert list(dict(trees.leaves(tree(2)))) == ["a", "b.c", "b.d.e"]
    assert list(dict(trees.leaves(torch.ones(1)))) == [""]
    assert list(dict(trees.leaves({"b": torch.ones(1), "a": {}}))) == ["b"]


def test_named_tuples_are_trees():
    pair = Pair(torch.ones(2), {"x": torch.zeros(2)})
    assert list(dict(trees.leaves(pair))) == ["left", "right.x"]
    doubled = trees.map_tree(torch.add, pair, pair)
    assert type(doubled) is Pair
    assert doubled.left.tolist() == [2, 2]


def test_map_tree_goes_leaf_by_leaf_and_refuses_another_structure():
    one, two = tree(2, 3), tree(2, 3, offset=5)
    same(trees.map_tree(lambda a, b: a - 2 * b, one, two), {k: v - 2 * named(two)[k] for k, v in named(one).items()})
    with pytest.raises(KeyError):
        trees.map_tree(torch.add, one, {"a": one["a"]})


def test_fill_is_the_way_back_from_leaves():
    new = tree(4, offset=7)
    same(trees.fill(tree(2), dict(trees.leaves(new))), named(new))
    with pytest.raises(KeyError):
        trees.fill(tree(2), {"a": torch.ones(2)})


indices = st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True)


@given(indices)
@settings(max_examples=40, deadline=None)
def test_rows_are_the_rows(index):
    whole = tree(6, 2)
    same(trees.rows(whole, index), {k: torch.stack([v[i] for i in index]) for k, v in named(whole).items()})


@given(indices.map(sorted))
@settings(max_examples=40, deadline=None)
def test_put_replaces_the_rows_and_nothing_else(index):
    whole, new = tree(6, 2), tree(len(index), 2, offset=100)
    before = {k: v.clone() for k, v in named(whole).items()}
    wanted = {k: v.clone() for k, v in before.items()}
    for name, leaf in wanted.items():
        for place, i in enumerate(index):
            leaf[i] = named(new)[name][place]
    same(trees.put(whole, index, new), wanted)
    same(whole, before)  # what was given stays as it was


def test_contiguous_rows_are_views_and_one_takes_the_axis_away():
    whole = tree(4, 2)
    assert trees.rows(whole, (1, 2))["a"].data_ptr() == whole["a"][1].data_ptr()
    same(trees.one(whole, 2), {k: v[2] for k, v in named(whole).items()})


@pytest.mark.parametrize("count", [1, 3])
def test_stack_and_one_are_inverse(count):
    parts = [tree(2, offset=i) for i in range(count)]
    stacked = trees.stack(parts)
    for i, part in enumerate(parts):
        same(trees.one(stacked, i), named(part))


def test_a_single_tree_is_stacked_without_a_copy():
    part = tree(2)
    assert trees.stack([part])["a"].data_ptr() == part["a"].data_ptr()


def test_add_and_mean():
    whole = tree(3, 2)
    weights = torch.tensor([0.5, 0.2, 0.3])
    floats = {"a": whole["a"], "b": {"c": whole["b"]["c"]}}
    wanted = {k: 0.5 * v[0] + 0.2 * v[1] + 0.3 * v[2] for k, v in (("a", floats["a"]), ("b.c", floats["b"]["c"]))}
    for name, leaf in trees.leaves(trees.mean(floats, weights)):
        torch.testing.assert_close(leaf, wanted[name])
    same(trees.add(whole, whole), {k: v + v for k, v in named(whole).items()})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", ["a", "c"])
def test_one_bad_number_anywhere_is_not_finite(bad, place):
    whole = tree(5, 3)
    assert trees.finite(whole).tolist() == [True] * 5
    (whole if place == "a" else whole["b"])[place][4, 1] = bad
    assert trees.finite(whole).tolist() == [True] * 4 + [False]


def test_opposite_infinities_are_not_finite():
    assert not trees.finite({"a": torch.tensor([[float("inf"), -float("inf")]])})
