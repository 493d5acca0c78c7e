"""The configuration of one run: a method under one setting, with its seeds; and what is wrong with one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, WrapValidator

from fedrepro.core.parameters import LARGEST
from fedrepro.errors import short
from fedrepro.files import sha256

Precision = Literal["fp32", "bf16"]
Items = TypeVar("Items", bound=tuple)
Model = TypeVar("Model", bound=BaseModel)

Count = Annotated[int, Field(ge=1, le=LARGEST)]
Rounds = Annotated[int, Field(ge=0, le=LARGEST)]
SeedNumber = Annotated[int, Field(ge=0, lt=2**63)]


# Papers, tables, figures, claims, budgets, runs, methods: a name is a folder or a file, and a word of a command.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NAMED = "at most 100 letters, digits and . _ -, a letter or digit first"


def named(text: str) -> str:
    """The text if it is a name; ValueError else."""
    if not NAME.fullmatch(text):
        raise ValueError(f"{short(repr(text))} is no name: take {NAMED}")
    return text


Name = Annotated[str, AfterValidator(named)]


def _distinct(items: Items) -> Items:
    if len(set(items)) < len(items):
        twice = next(item for item in items if items.count(item) > 1)
        raise ValueError(f"{twice!r} is there twice: leave one out")
    return items


Distinct = AfterValidator(_distinct)


def _one_sentence(value: Any, validate: Callable[[Any], Any]) -> Any:
    """A value that has none of some types has one fault, and not one of each type."""
    try:
        return validate(value)
    except ValidationError:
        raise ValueError("it must be a number, a word, true or false, or a list of numbers or of words") from None


Value = Annotated[bool | int | float | str | list[float] | list[int] | list[str], WrapValidator(_one_sentence)]


class Strict(BaseModel):
    """Unknown keys fail, as NaN and infinity do, and nothing changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Stop(Strict):
    """Stop at the first round whose training accuracy is below a threshold (flgames-2022, section 7.3.2).

    Enabled after `warm_start` rounds, and only once the accuracy has exceeded `threshold + margin`: an untrained
    ensemble is below any threshold, so without the margin training would stop at once. Accuracies are fractions.
    """

    threshold: float = Field(ge=0, le=1)
    warm_start: Rounds = 100
    margin: float = Field(default=0.05, ge=0)


class Crossings(Strict):
    """Test a run that does not stop where its training accuracy first falls below each level of a grid.

    With these the stopping rule above can be looked up for all thresholds at once (`records.crossings`), where a paper
    does not give one. It is enabled as above, with `margin` or half the way from the level to the plateau that the seed
    reaches, whichever is less. Level k is k times `step`. A seed ends once it has crossed `floor`, and so every level
    that can matter above it.
    """

    warm_start: Rounds = 100
    margin: float = Field(default=0.05, ge=0, le=1)
    step: float = Field(default=0.0025, ge=0.001, le=0.1)
    floor: float = Field(default=0, ge=0, le=1)


class Watch(Strict):
    """Evaluation while training: the curves and the stopping rule.

    `samples`: rows of the pooled training data (a fixed random subset; the final metrics use all of them).
    `train_every`, `test_every`: rounds between evaluations; the last round is always evaluated on everything.
    `precision` is that of the watched training rows only; the final metrics and the test curve are float32.
    `crossings`: the test curve also has the rounds in which the training accuracy falls below a level of their grid.
    `grad_norm`: the final metrics have the norm of the gradient on each test set, too (fedaug-2022, B.3).

    `step_every`: rounds between the points of what a step itself measures, such as a critic's loss.
    `judged`: samples of a generator, at each test, and real ones that they are held against. `extractor`: the network
    of the distance between images, "inception", "cnn", or "auto", Inception if its weights are there.
    """

    samples: Count = 6000
    train_every: Count = 1
    test_every: Count = 25
    precision: Precision = "fp32"
    crossings: Crossings | None = None
    grad_norm: bool = False
    step_every: Count = 1
    judged: int = Field(default=10_000, ge=100, le=1_000_000)
    extractor: Literal["auto", "inception", "cnn"] = "auto"


class RunConfig(Strict):
    """One run. `hyper` goes to the method's builder and `data` to the dataset's, as keyword arguments."""

    method: Name
    dataset: Name
    hyper: dict[str, Value] = {}
    data: dict[str, Value] = {}
    rounds: Count
    stop: Stop | None = None
    watch: Watch = Watch()
    precision: Precision = "fp32"
    seeds: Annotated[tuple[SeedNumber, ...], Distinct] = Field(default=(0,), min_length=1, max_length=1000)

    def digest(self) -> str:
        """sha256 of everything that a seed's numbers depend on, so of all but the list of seeds.

        Settings at their defaults are left out, so that a new one leaves the digests of earlier runs as they are; of
        `hyper` and `data` what is written counts, and a test holds the defaults of what is not.
        """
        numbers = self.model_dump(mode="json", exclude={"seeds"}, exclude_defaults=True)
        return sha256(json.dumps(numbers, sort_keys=True))


def strictly(kind: type[Model], document: Any, context: dict | None = None) -> Model:
    """A model of what a user wrote: with lists for tuples, and without words for numbers or numbers for words."""
    return kind.model_validate_json(json.dumps(document), strict=True, context=context)


def first_fault(error: ValidationError) -> str:
    """The first fault of a validation as one sentence, with its place; a key or name that does not exist goes first."""
    first = {"extra_forbidden": 0, "value_error": 1}
    fault = min(error.errors(), key=lambda fault: first.get(fault["type"], 2))
    place = ".".join(each if (each := short(str(part))).isprintable() else repr(each) for part in fault["loc"])
    said = "there is no such key" if fault["type"] == "extra_forbidden" else fault["msg"].removeprefix("Value error, ")
    said = said[0].lower() + said[1:] + "." * (not said.endswith(("?", ".")))
    return f"{place}: {said}" if place else said
