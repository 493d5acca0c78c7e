"""Nested dicts (and named tuples) of tensors: the shape of every state and batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Tree = Any  # Tensor | dict[str, Tree] | NamedTuple of Tree


def map_tree(fn: Callable[..., Tensor], tree: Tree, *rest: Tree) -> Tree:
    """Apply `fn` leaf by leaf to trees of one structure."""
    if isinstance(tree, Tensor):
        return fn(tree, *rest)
    if isinstance(tree, dict):
        return {key: map_tree(fn, child, *(other[key] for other in rest)) for key, child in tree.items()}
    return type(tree)(*(map_tree(fn, child, *others) for child, *others in zip(tree, *rest, strict=True)))


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """The leaves with their dotted names, in order."""
    if isinstance(tree, Tensor):
        yield path, tree
        return
    for key, child in tree.items() if isinstance(tree, dict) else tree._asdict().items():
        yield from leaves(child, f"{path}.{key}" if path else key)


def device(tree: Tree) -> torch.device:
    """Where the leaves are: on the device of the first."""
    return next(leaves(tree))[1].device


def fill(like: Tree, named: dict[str, Tensor], path: str = "") -> Tree:
    """The nested dict shaped like `like` whose leaves are found by their dotted names."""
    if isinstance(like, Tensor):
        return named[path]
    return {key: fill(child, named, f"{path}.{key}" if path else key) for key, child in like.items()}


def rows(tree: Tree, index: Sequence[int]) -> Tree:
    """Rows `index` of the leading axis of every leaf; views where the rows are a contiguous range."""
    first, count = index[0], len(index)
    if list(index) == list(range(first, first + count)):
        return map_tree(lambda leaf: leaf.narrow(0, first, count), tree)
    # Not index_select, which vmap turns into a gather, ten times as slow.
    return map_tree(lambda leaf: torch.stack([leaf[i] for i in index]), tree)


def put(tree: Tree, index: Sequence[int], new: Tree) -> Tree:
    """A copy of the tree in which rows `index` (increasing) of the leading axis are `new`."""
    if len(index) == len(next(leaves(tree))[1]):
        return new
    return give(tree, torch.tensor(index, device=device(tree)), new)


def take(tree: Tree, index: Tensor) -> Tree:
    """Rows `index` [C] of the leading axis of every leaf, copied."""
    return map_tree(lambda leaf: leaf.index_select(0, index), tree)


def give(tree: Tree, index: Tensor, new: Tree) -> Tree:
    """A copy of the tree in which rows `index` [C] of the leading axis are `new`: the inverse of `take`."""
    return map_tree(lambda leaf, row: leaf.index_copy(0, index, row), tree, new)


def repeat(tree: Tree, times: int) -> Tree:
    """The tree `times` times along a new leading axis (views)."""
    return map_tree(lambda leaf: leaf.expand(times, *leaf.shape), tree)


def one(tree: Tree, index: int) -> Tree:
    """Row `index` of the leading axis of every leaf, without that axis (views)."""
    return map_tree(lambda leaf: leaf[index], tree)


def stack(trees: Sequence[Tree]) -> Tree:
    """Trees of one structure with a new leading axis; a single tree is not copied."""
    if len(trees) == 1:
        return map_tree(lambda leaf: leaf.unsqueeze(0), trees[0])
    return map_tree(lambda *leaf: torch.stack(leaf), *trees)


def add(left: Tree, right: Tree) -> Tree:
    """The sum, leaf by leaf."""
    return map_tree(torch.add, left, right)


def mean(tree: Tree, weights: Tensor) -> Tree:
    """The weighted sum over the leading axis of every leaf: the mean where `weights` [K] sum to one."""
    # Not a matrix product, which autocast would round.
    return map_tree(lambda leaf: (leaf * weights.view(-1, *[1] * (leaf.dim() - 1))).sum(0), tree)


def cleared(tree: Tree) -> Tree:
    """The tree with zeros in place of what is NaN or infinite."""
    return map_tree(lambda leaf: leaf.nan_to_num(0, 0, 0), tree)


def finite(tree: Tree) -> Tensor:
    """Which rows of the leading axis hold neither NaN nor infinity in any leaf, [K]."""
    # A sum is finite only if its terms are, and costs one pass without a temporary.
    sums = [leaf.flatten(1).sum(1) if leaf.dim() > 1 else leaf for _, leaf in leaves(tree) if leaf.is_floating_point()]
    return torch.stack(sums).isfinite().all(0)
