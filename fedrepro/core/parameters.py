"""Parameters of builders: a builder's keyword-only arguments, their defaults, and the values that their types allow.

Methods and federations are made by builders. What a user may set of one is what its signature says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, get_origin, get_type_hints

from pydantic import AfterValidator, TypeAdapter, ValidationError

from fedrepro.errors import UsageError, short, unknown

LARGEST = 10**9  # of whole numbers: more rows, steps or clients can neither be trained nor held


def defaults(build: Callable) -> dict[str, Any]:
    """Name -> default of a builder's keyword-only arguments, in their order."""
    arguments = inspect.signature(build).parameters.values()
    return {each.name: each.default for each in arguments if each.kind is each.KEYWORD_ONLY}


def check(build: Callable, given: Mapping[str, Any], what: str, limits: Mapping[str, Any] | None = None) -> dict:
    """The values in the types of the builder's parameters, such as 1.0 for 1 where a float is wanted.

    Raises UsageError for a name that the builder does not have, and for a value that its type does not allow.
    `what`: the parameters for a reader, as in "hyper-parameter of fedavg". `limits`: name -> pydantic's `Field` for a
    type that sets none itself.
    """
    known, types, made = defaults(build), get_type_hints(getattr(build, "func", build), include_extras=True), {}
    for key, value in given.items():
        if key not in known:
            raise unknown(what, key, known)
        allowed = types.get(key, Any)
        limit = None if get_origin(allowed) is Annotated else (limits or {}).get(key)
        allowed = Annotated[allowed, limit, AfterValidator(_countable)]
        try:
            made[key] = TypeAdapter(allowed).validate_python(value, strict=True)
        except ValidationError as error:
            kind, _, owner = what.partition(" of ")
            wanted = error.errors()[0]["msg"].removeprefix("Value error, ").lower()
            raise UsageError(f"{kind} {key!r} of {owner} cannot be {short(repr(value))}: {wanted}.") from error
    return made


def _countable(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError(f"input should be at most {LARGEST:,}")
    return value


def completed_by(finish: Callable, **usual: Any) -> Callable[[Callable], Callable]:
    """A decorator that makes a builder of one of parts: it adds the keyword-only arguments that `finish` has.

    They have the types and, but for those of `usual`, the defaults that they have there. The builder returns
    `finish(*given, parts(*given, **own), **added)`, where `given` are its positional arguments. Parts may name added
    arguments without a default to have them, too. Decorators may be stacked: the outer one adds to the inner one's.
    """
    types, added = get_type_hints(finish, include_extras=True), defaults(finish) | usual

    def decorate(parts: Callable) -> Callable:
        signature = inspect.signature(parts)
        lent = added.keys() & signature.parameters.keys()

        @wraps(parts)
        def build(*given: Any, **settings: Any) -> Any:
            common = {name: settings.pop(name, value) for name, value in added.items()}
            return finish(*given, parts(*given, **settings, **{name: common[name] for name in lent}), **common)

        own = [each for name, each in signature.parameters.items() if name not in lent]
        more = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=v) for n, v in added.items()]
        build.__signature__ = signature.replace(parameters=own + more)
        taken = {name: types.get(name, Any) for name in (*added, "return")}
        build.__annotations__ = get_type_hints(parts, include_extras=True) | taken
        return build

    return decorate
