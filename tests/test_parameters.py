"""Builders that share arguments, and what their signatures allow."""

import inspect
from typing import Annotated, Literal

import pytest
from pydantic import Field

from fedrepro.core import parameters
from fedrepro.errors import UsageError


def finish(first, second, parts, *, lr: Annotated[float, Field(gt=0)] = 0.1, kind: Literal["a", "b"] = "a") -> dict:
    return {"given": (first, second), **parts, "lr": lr, "kind": kind}


def doubled(first, second, parts, *, factor: int = 2) -> dict:
    return {key: factor * value for key, value in parts.items()}


@parameters.completed_by(finish, lr=0.5)
@parameters.completed_by(doubled)
def built(first, second, *, lr: float, depth: int = 3) -> dict:
    """Built of its depth."""
    return {"depth": depth, "tenfold": 10 * lr}


def test_a_builder_has_its_own_arguments_and_those_that_it_shares():
    assert parameters.defaults(built) == {"depth": 3, "factor": 2, "lr": 0.5, "kind": "a"}
    assert built(1, 2) == {"given": (1, 2), "depth": 6, "tenfold": 10.0, "lr": 0.5, "kind": "a"}
    found = built(1, 2, depth=1, factor=5, lr=0.2, kind="b")
    assert found == {"given": (1, 2), "depth": 5, "tenfold": 10.0, "lr": 0.2, "kind": "b"}
    assert (built.__doc__, inspect.unwrap(built)(1, 2, lr=1)) == ("Built of its depth.", {"depth": 3, "tenfold": 10})
    with pytest.raises(TypeError, match="rate"):
        built(1, 2, rate=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 0.0}, "setting 'lr' of it cannot be 0.0: input should be greater than 0."),
        ({"kind": "c"}, "setting 'kind' of it cannot be 'c': input should be 'a' or 'b'."),
        ({"factor": 1.5}, "setting 'factor' of it cannot be 1.5: input should be a valid integer."),
        ({"depth": 0}, "setting 'depth' of it cannot be 0: input should be greater than or equal to 1."),
        ({"deptj": 1}, "unknown setting of it 'deptj': did you mean 'depth'?"),
    ],
)
def test_types_and_limits_go_with_the_arguments(given, message):
    limits = {"depth": Field(ge=1), "lr": Field(ge=100)}  # a limit of its own type stands
    right = parameters.check(built, {"lr": 1, "depth": 2, "kind": "b"}, "setting of it", limits)
    assert (right, type(right["lr"])) == ({"lr": 1.0, "depth": 2, "kind": "b"}, float)
    with pytest.raises(UsageError) as caught:
        parameters.check(built, given, "setting of it", limits)
    assert str(caught.value) == message
