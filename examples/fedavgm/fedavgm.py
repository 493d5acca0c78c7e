"""FedAvgM: federated averaging with momentum on the server (Hsu, Qi and Brown 2019, 1909.06335, section 4.3)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedrepro.core import optim
from fedrepro.core.types import Draw, Task
from fedrepro.methods import Row
from fedrepro.methods.federated import Recipe, family
from fedrepro.methods.parts import average


@family(net="cnn")
def fedavgm(
    task: Task,
    *,
    lr: float = 0.05,
    batch: int = 10,
    epochs: int = 1,
    server_lr: float = 1.0,
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9,
) -> Recipe:
    """FedAvgM: plain local gradient steps, and a server step along the decaying sum of their mean changes.

    With d the clients' mean change, v becomes momentum v + d, and the model moves by server_lr v.
    """
    server = average(optim.sgd(server_lr, momentum=momentum))
    return Recipe(Draw(size=batch, epochs=epochs), client=optim.sgd(lr), server=server)


row = Row(fedavgm, dataset="mnist", rounds=20, optimiser="sgd")
