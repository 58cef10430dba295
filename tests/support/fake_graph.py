"""A graph for CPU tensors: torch calls that are noted while they run, and repeated on the same tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specli.kernels.reference.graph import Graph, GraphExecutor
from tests.support.capture import Discipline


class _Notes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, _tensors(out)))
        return out


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class FakeGraph(Graph):
    """Recording takes effect, so the first replay has nothing to do; it fails where CUDA could not capture."""

    def __init__(self) -> None:
        self._is_fresh = True
        self.n_replays = 0

    def record(self, calls: Callable[[], None]) -> None:
        with Discipline(), _Notes() as notes:
            calls()
        self._calls = notes.calls

    def replay(self) -> None:
        self.n_replays += 1
        if self._is_fresh:
            self._is_fresh = False
            return
        for func, args, kwargs, results in self._calls:
            for old, new in zip(results, _tensors(func(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def fake_executor(graphs: list[FakeGraph] | None = None) -> GraphExecutor:
    """The executor of graphs on the CPU; `graphs` gets those it makes."""
    made = [] if graphs is None else graphs

    def new_graph() -> FakeGraph:
        made.append(FakeGraph())
        return made[-1]

    return GraphExecutor("cpu", new_graph=new_graph)
