"""A second device for machines without one: torch's "meta" device, made to compute.

Inside `second_device()` tensors on "meta" have their values in main memory all the same, but are as foreign to tensors
on the CPU as those of an accelerator: an operation on both fails, only copies cross over. So are those on "meta:1" to
those on "meta:2".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

NAME = "meta"
CPU = torch.device("cpu")
COPIES = {"aten::copy_", "aten::_to_copy"}


class Foreign(torch.Tensor):
    """A tensor on the second device; `inner` holds its values."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor, device: torch.device) -> Foreign:
        made: Foreign = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=device,
        )  # fmt: skip
        made.inner = inner
        return made

    def tolist(self) -> Any:
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("used outside second_device()")


class SecondDevice(TorchDispatchMode):
    """Attributes: products: Matrix products by device. copies: Tensors that crossed over, by source, target, shape."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter[str] = Counter()
        self.copies: Counter[tuple[str, str, tuple[int, ...]]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        wanted = kwargs.get("device")
        if wanted is not None and torch.device(wanted).type == NAME:
            kwargs["device"] = "cpu"
        flat: list[torch.Tensor] = []
        tree_map(lambda x: flat.append(x) if isinstance(x, torch.Tensor) else None, (args, kwargs))
        places = [x.device for x in flat if x.dim()]
        name = func._schema.name
        assert len(set(places)) < 2 or name in COPIES, f"{name} on tensors of two devices"
        if name in ("aten::mm", "aten::bmm"):
            self.products[str(places[0])] += 1
        result = func(*tree_map(_unwrap, args), **tree_map(_unwrap, kwargs))
        if name == "aten::copy_":
            self._note(args[1], args[0].device)
            return args[0]
        if wanted is not None:
            lands_on = torch.device(wanted)
            if name == "aten::_to_copy":
                self._note(args[0], lands_on)
        else:
            lands_on = next((x.device for x in flat if isinstance(x, Foreign)), CPU)
        return tree_map(lambda x: _wrap(x, lands_on), result)

    def _note(self, x: torch.Tensor, to: torch.device) -> None:
        if x.device != to:
            self.copies[str(x.device), str(to), tuple(x.shape)] += 1


def _unwrap(x: Any) -> Any:
    return x.inner if isinstance(x, Foreign) else x


def _wrap(x: Any, device: torch.device) -> Any:
    is_plain = isinstance(x, torch.Tensor) and not isinstance(x, Foreign)
    return Foreign(x, device) if is_plain and device.type == NAME else x


@contextmanager
def second_device() -> Iterator[SecondDevice]:
    """Makes the second device compute. Inference mode does not take tensors of subclasses."""
    with patch("torch.inference_mode", torch.no_grad), SecondDevice() as device:
        yield device
