"""A second device without a GPU: its tensors have their values on the CPU, and mix with others as those of CUDA do.

To torch its name is "meta", the only device beside the CPU on which it takes gradients without a driver. A tensor there
is an `Away`; every operation passes through `Elsewhere`, which computes it on the CPU. Where one has tensors of both
devices, torch's FakeTensorMode decides by the rules of CUDA whether it may: [] beside [K] is fine, [K] beside [K] not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from fedrepro.core import lift
from fedrepro.core.precision import _PRODUCTS, Widened
from fedrepro.data import augment
from fedrepro.nets import cnn

AWAY = torch.device("meta")
RAISING = {  # the operations that raise on CUDA, as torch.use_deterministic_algorithms lists them
    *(f"{name}_backward" for name in ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d")),
    *(f"{name}_backward" for name in ("avg_pool3d", "fractional_max_pool2d", "fractional_max_pool3d", "_ctc_loss")),
    *(f"reflection_pad{d}d_backward" for d in (1, 2, 3)),
    *(f"grid_sampler_{d}d_backward" for d in (2, 3)),
    *(f"upsample_{mode}_backward" for mode in ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d")),
    *("max_unpool2d", "max_unpool3d", "nll_loss2d_forward", "nll_loss2d_backward", "_embedding_bag_dense_backward"),
    *("put", "put_", "histc", "median", "nanmedian", "scatter_reduce"),
}
WAITING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal"}  # for the device


class Away(Tensor):
    """A tensor of the device; `own` has its values."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, own: Tensor) -> Away:
        layout = {"strides": own.stride(), "storage_offset": own.storage_offset()}
        self = Tensor._make_wrapper_subclass(cls, own.shape, dtype=own.dtype, device=AWAY, **layout)
        self.own = own
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        raise AssertionError(f"{func} on the other device, outside of its block")

    def tolist(self) -> list:  # torch refuses it for every class but its own
        return self.cpu().tolist()

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(listed(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(listed(index), value)


def listed(index: Any) -> Any:
    """An index whose lists are tensors on the device: torch would bring no values to one of that name."""
    if isinstance(index, tuple):
        return tuple(map(listed, index))
    return TENSOR(index).to(AWAY) if isinstance(index, list) else index


class Elsewhere(TorchDispatchMode):
    """Computation on both devices.

    used:      the names of the operations on the other device
    narrow:    whether its products are in bfloat16, as autocast makes them
    recording: whether in a step that CUDA records, which must not wait for the device or be handed a number
    """

    def __init__(self) -> None:
        super().__init__()
        self.used: set[str] = set()
        self.narrow = self.recording = False

    def play(self, step: Callable, carry: Any, fixed: Any, inputs: Iterator[tuple[Tensor, ...]]) -> Any:
        """The steps in place of their recording."""
        for now in inputs:
            with mock.patch.object(self, "recording", True):
                carry = step(carry, fixed, *now)
        return carry

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        schema, given = func._schema, set()
        own = mapped(lambda each: given.add(type(each)) or getattr(each, "own", each), args)
        kwargs = kwargs or {}  # no tensors, in the operations here
        away = Away in given
        if (wanted := kwargs.get("device")) is not None:
            away, kwargs = wanted.type == AWAY.type, {**kwargs, "device": torch.device("cpu")}
        elif away and len(given) > 1:
            away = mixed(func, args, kwargs)
        if self.recording:
            assert schema.name not in WAITING, f"{schema.name} in a recorded step"
            assert not (wanted and away and given == {Tensor}), f"a number of the CPU in a recorded step: {schema.name}"
        if away:
            self.used.add(schema.name.removeprefix("aten::"))
        out = self.narrowed(func, own, kwargs) if self.narrow and away and func in _PRODUCTS else func(*own, **kwargs)
        if schema.returns and (alias := schema.returns[0].alias_info) and alias.is_write:
            return args[0]  # changed in place
        return mapped(Away, out) if away else out

    def narrowed(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """A product of factors in bfloat16, rounded to it; its type stays, since autocast's place is above autograd."""
        wide: list[bool] = []

        def narrow(each: Tensor) -> Tensor:
            wide.append(each.dtype == torch.float32)
            return each.bfloat16()

        out = Widened.__torch_dispatch__(self, func, (), mapped(narrow, args), kwargs)
        return mapped(Tensor.float, out) if any(wide) else out

    def autocast(self, device: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> Any:
        if device != AWAY.type:
            return AUTOCAST(device, dtype, enabled, cache_enabled)
        return mock.patch.object(self, "narrow", enabled)


AUTOCAST, ENABLED, DTYPE, TENSOR = torch.autocast, torch.is_autocast_enabled, torch.get_autocast_dtype, torch.tensor


def mapped(change: Callable[[Tensor], Any], value: Any) -> Any:
    """The arguments or results of an operation with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    return type(value)(mapped(change, each) for each in value) if type(value) in (tuple, list) else value


def mixed(func: Any, args: tuple, kwargs: dict) -> bool:
    """Whether the result of an operation on tensors of both devices is on CUDA; raises where CUDA does."""

    def fake(each: Tensor) -> Tensor:
        device = "cuda" if isinstance(each, Away) else "cpu"
        return torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=device)

    with FakeTensorMode():
        out = func(*mapped(fake, args), **kwargs)
    # It lets a [] of the CPU into every operation, CUDA only into these and as an index.
    assert torch.Tag.pointwise in func.tags or func is torch.ops.aten.index.Tensor, f"{func} of both devices"
    return (out[0] if isinstance(out, tuple) else out).device.type == "cuda"


@contextlib.contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    """Inside the block, torch has the device AWAY, with autocast and with values that `torch.tensor` would not copy.

    No compiled loop runs there, and no operation that has no deterministic way on CUDA.
    """
    mode = Elsewhere()
    with (
        mock.patch.object(torch, "autocast", mode.autocast),
        mock.patch.object(torch, "is_autocast_enabled", lambda d: mode.narrow if d == AWAY.type else ENABLED(d)),
        mock.patch.object(torch, "get_autocast_dtype", lambda d: torch.bfloat16 if d == AWAY.type else DTYPE(d)),
        mock.patch.object(torch, "tensor", lambda data, device="cpu", **how: TENSOR(data, **how).to(device)),
        mock.patch.dict(augment.PART_BYTES, {AWAY.type: augment.PART_BYTES["cuda"]}),
        mock.patch.object(cnn, "_forward", None),
        mock.patch.multiple(lift, records=lambda device: device == AWAY, LEAST=0),
        mock.patch.object(lift, "recording", lambda step, *like: mock.Mock(play=partial(mode.play, step))),
        mode,
    ):
        yield mode
    assert not (found := mode.used & RAISING), f"{found} would raise on CUDA"
