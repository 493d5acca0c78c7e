"""Hyper-parameters that many methods have in common, added to each one's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, get_type_hints

from fedrepro.types import Method, Task


def options(defaults: dict[str, Any], types: dict[str, Any], finish: Callable[..., Method]) -> Callable:
    """A decorator that makes a builder of methods from one of recipes.

    The builder has the recipe's hyper-parameters and then those of `defaults` (name -> default), which have `types`;
    it returns `finish(task, recipe, **common)`.
    """

    def decorate(recipe: Callable) -> Callable[..., Method]:
        @wraps(recipe)
        def build(task: Task, **hyper) -> Method:
            common = {name: hyper.pop(name, value) for name, value in defaults.items()}
            return finish(task, recipe(task, **hyper), **common)

        signature = inspect.signature(recipe)
        added = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=v) for n, v in defaults.items()]
        build.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])
        own = get_type_hints(recipe, include_extras=True)
        build.__annotations__ = own | {name: types[name] for name in defaults} | {"return": Method}
        return build

    return decorate
