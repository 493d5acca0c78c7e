"""The precision of products: float32, or bfloat16 at the speed of float32 on a CPU without units for it."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}

_ATEN = torch.ops.aten
_PRODUCTS = {
    each.default
    for each in (_ATEN.mm, _ATEN.addmm, _ATEN.bmm, _ATEN.baddbmm, _ATEN.convolution, _ATEN.convolution_backward)
}


def products(device: str, precision: str) -> contextlib.AbstractContextManager:
    """Products in a precision of PRECISIONS inside the block, on a type of device."""
    stack = contextlib.ExitStack()
    if precision == "bf16":
        stack.enter_context(torch.autocast(device, torch.bfloat16))
        if device == "cpu" and not has_units():
            stack.enter_context(Widened())
    return stack


def has_units() -> bool:
    """Whether this CPU has a fast product in bfloat16; torch's slow one takes 30 to 50 times as long as float32."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


class Widened(TorchDispatchMode):
    """Products of bfloat16 factors by way of float32.

    The factors are exact in float32 and sums are rounded once, so all that differs from a CPU's bfloat16 units is the
    order of the sums.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func not in _PRODUCTS or not any(_narrow(each) for each in args):
            return func(*args, **(kwargs or {}))
        out = func(*(each.float() if _narrow(each) else each for each in args), **(kwargs or {}))
        if isinstance(out, Tensor):
            return out.bfloat16()
        return tuple(None if each is None else each.bfloat16() for each in out)


def _narrow(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.bfloat16
