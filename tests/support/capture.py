"""What a captured run may not do, watched on CPU tensors: read values on the host, or let shapes depend on them."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = {
    getattr(torch.Tensor, name)
    for name in (
        "item", "tolist", "numpy", "cpu", "nonzero", "masked_select",
        "__bool__", "__int__", "__float__", "__index__", "__array__",
    )
} | {torch.nonzero, torch.masked_select, torch.unique, torch.equal, torch.allclose}  # fmt: skip
UPLOADS = {torch.from_numpy, torch.tensor, torch.as_tensor}
DYNAMIC = {"aten::_local_scalar_dense", "aten::resize_", "aten::nonzero", "aten::is_nonzero", "aten::masked_select"}


def storages(tree: Any) -> set[int]:
    """The memory of all tensors in a tree of arguments or results."""
    return {leaf.untyped_storage()._cdata for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)}


class Functions(TorchFunctionMode):
    """Refuses functions that read or upload."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in READS, f"reads on the host: {func.__name__}"
        assert func not in UPLOADS, f"uploads from the host: {func.__name__}"
        return func(*args, **(kwargs or {}))


class Calls(TorchDispatchMode):
    """Counts calls that are more than views, and refuses those whose result has no fixed shape."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        assert name not in DYNAMIC, f"depends on values: {name}"
        out = func(*args, **(kwargs or {}))
        if func._schema.is_mutable or not storages(out) <= storages((args, kwargs)):
            self.counts[name] += 1
        return out


class Discipline:
    """`with Discipline() as calls: …` fails where a captured run would; `calls` counts what is launched."""

    def __enter__(self) -> Counter[str]:
        self._modes = Functions(), Calls()
        for mode in self._modes:
            mode.__enter__()
        return self._modes[1].counts

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(type, value, traceback)
