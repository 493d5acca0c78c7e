"""What the tests of the datasets share: a federation's clients, the labels in its facts, and how a call is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fedrepro.data import Federation
from fedrepro.errors import UsageError


def clients(federation: Federation) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The images and labels of each client."""
    sizes = federation.sizes
    return list(zip(federation.x.split(sizes), federation.y.split(sizes), strict=True))


def labels_in(facts: dict) -> dict[int, int]:
    """label -> count, of the facts about a client or a test set."""
    return {int(label): int(count) for label, count in (each.split(": ") for each in facts["labels"].split(", "))}


def refusal(call: Callable, *mentions: str) -> str:
    """The one sentence with which a call refuses."""
    with pytest.raises(UsageError) as caught:
        call()
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in message
    assert message.endswith((".", "?"))
    assert [mention for mention in mentions if mention not in message] == []
    return message
