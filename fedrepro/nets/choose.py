"""The networks that a method of one shared model chooses from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from fedrepro.core.types import Net, Task
from fedrepro.errors import UsageError
from fedrepro.nets.cnn import cnn
from fedrepro.nets.mlp import mlp
from fedrepro.nets.modules import small_cnn
from fedrepro.nets.resnet import Init, resnet18

Nets = Literal["mlp", "cnn", "lenet", "cnn-large", "cnn-fair", "resnet18"]


def shared_mlp(task: Task, hidden: int) -> Net:
    """The predictor of flgames-2022, section 7.3.1, as a single model."""
    below = math.prod(task.shape), hidden, hidden
    return mlp(*below, task.classes)._replace(features=mlp(*below, last=False).apply, head="fc3")


# Small: Li et al. 2022; LeNet: the same with zeros around the image, as LeCun et al. 1998 have it.
# Large: McMahan et al. 2017. Fair, ResNet: fedaug-2022 (papers/fedaug-2022/PROTOCOL.md).
NETS: dict[str, Callable[[Task, int], Net]] = {
    "mlp": shared_mlp,
    "cnn": lambda task, hidden: cnn(task.shape, task.classes),
    "lenet": lambda task, hidden: cnn(task.shape, task.classes, padding=(2, 0)),
    "cnn-large": lambda task, hidden: cnn(task.shape, task.classes, filters=(32, 64), hidden=(512,), padding=(2, 2)),
    "cnn-fair": lambda task, hidden: small_cnn(task.shape, task.classes),
    "resnet18": lambda task, hidden: resnet18(task.shape, task.classes),
}


def choose(task: Task, net: Nets, hidden: int, init: Init) -> Net:
    """The network by name; `hidden` is for "mlp". UsageError where it does not fit the task, or has no such `init`."""
    if net != "mlp" and len(task.shape) != 3:
        raise UsageError(f"net={net} is for images, and these are points of {task.shape[0]} numbers: set net=mlp.")
    if init == "scratch":
        return NETS[net](task, hidden)
    if net != "resnet18":
        raise UsageError(f"init={init} is for net=resnet18 alone: leave it out for net={net}.")
    return resnet18(task.shape, task.classes, init)
