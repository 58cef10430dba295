"""A second device for machines without one: torch's "meta" device, made to compute.

Inside `second_device()` tensors on "meta" have their values in main memory all the same, but are as foreign to tensors
on the CPU as those of an accelerator: an operation on both fails, only copies cross over.
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
COPIES = {"aten::copy_", "aten::_to_copy"}


class Foreign(torch.Tensor):
    """A tensor on the second device; `inner` holds its values."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Foreign:
        made: Foreign = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=NAME,
        )  # fmt: skip
        made.inner = inner
        return made

    def tolist(self) -> Any:
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("used outside second_device()")


class SecondDevice(TorchDispatchMode):
    """Attributes: products: Matrix products by device."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        wanted = kwargs.get("device")
        if wanted is not None and torch.device(wanted).type == NAME:
            kwargs["device"] = "cpu"
        flat: list[torch.Tensor] = []
        tree_map(lambda x: flat.append(x) if isinstance(x, torch.Tensor) else None, (args, kwargs))
        is_foreign = [isinstance(x, Foreign) for x in flat if x.dim()]
        name = func._schema.name
        assert len(set(is_foreign)) < 2 or name in COPIES, f"{name} on tensors of two devices"
        if name in ("aten::mm", "aten::bmm"):
            self.products[NAME if is_foreign[0] else "cpu"] += 1
        result = func(*tree_map(_unwrap, args), **tree_map(_unwrap, kwargs))
        if name == "aten::copy_":
            return args[0]
        if wanted is not None:
            lands_there = torch.device(wanted).type == NAME
        else:
            lands_there = any(isinstance(x, Foreign) for x in flat)
        return tree_map(_wrap, result) if lands_there else result


def _unwrap(x: Any) -> Any:
    return x.inner if isinstance(x, Foreign) else x


def _wrap(x: Any) -> Any:
    return Foreign(x) if isinstance(x, torch.Tensor) and not isinstance(x, Foreign) else x


@contextmanager
def second_device() -> Iterator[SecondDevice]:
    """Makes the second device compute. Inference mode does not take tensors of subclasses."""
    with patch("torch.inference_mode", torch.no_grad), SecondDevice() as device:
        yield device
