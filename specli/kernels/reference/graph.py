"""The reference on a CUDA device, its traces as CUDA graphs: one launch per forward in place of a thousand.

A graph belongs to a number of rows and repeats its calls for any number of live rows up to that. How many are live is a
number on the device, written before each replay.
"""

# ruff: noqa: D102 - methods are documented where they are declared, in ops.py

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from specli.errors import ResourceError
from specli.kernels.ops import Extent, Ops, Program
from specli.kernels.placement import Placement
from specli.kernels.reference.executor import ReferenceExecutor, ReferenceOps
from specli.kernels.reference.frame import TILE, places_of
from specli.kernels.threads import ThreadConfig


class Graph(Protocol):
    """Calls that are recorded once and repeated with the same addresses."""

    def record(self, calls: Callable[[], None]) -> None:
        """Records what `calls` does; whether it also takes effect is open until the first `replay`."""

    def replay(self) -> None:
        """Repeats it."""


class CudaGraph(Graph):
    """A graph of CUDA; recording only notes the calls.

    Args:
        pool: Memory for temporary tensors, shared by graphs that never run at the same time.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._graph = torch.cuda.CUDAGraph()

    def record(self, calls: Callable[[], None]) -> None:
        with torch.cuda.graph(self._graph, pool=self._pool):
            calls()

    def replay(self) -> None:
        self._graph.replay()


def captured_rows(n: int) -> int:
    """Rows of the graph for n live rows: the next power of two up to a tile, then whole tiles."""
    return n if n < 2 else min(1 << (n - 1).bit_length(), -(-n // TILE) * TILE)


class GraphProgram(Program):
    """A trace that is captured for each number of rows when it is first run with it.

    Args:
        trace: The trace.
        device: Where its buffers lie.
        new_graph: Makes graphs.
    """

    def __init__(self, trace: Callable[[Ops], None], device: torch.device, new_graph: Callable[[], Graph]) -> None:
        self._trace = trace
        self._device = device
        self._new_graph = new_graph
        self._graphs: dict[tuple[int, ...], Graph] = {}
        self._live = torch.zeros(len(Extent), dtype=torch.int32, device=device)  # what the graphs read
        self._written = [0] * len(Extent)  # the same numbers

    def run(self, tokens: int = 0, outputs: int = 0, sequences: int = 0, steps: int = 0) -> None:
        live = tokens, outputs, sequences
        counts = [captured_rows(n) for n in live]
        with torch.inference_mode():
            for extent, n in enumerate(live):
                if n != self._written[extent]:
                    self._live[extent].fill_(n)  # part of the launch; host memory might change before it is read
                    self._written[extent] = n
            key = (*counts, steps)
            graph = self._graphs.get(key)
            if graph is None:
                graph = self._graphs[key] = self._new_graph()
                graph.record(lambda: self._call(counts, steps))
            graph.replay()

    def _call(self, counts: list[int], steps: int) -> None:
        ops = ReferenceOps()
        ops.is_captured = True
        ops.counts, ops.steps = dict(zip(Extent, counts, strict=True)), steps
        ops.places = {extent: places_of(n, self._live[extent], self._device) for extent, n in ops.counts.items()}
        self._trace(ops)


class GraphExecutor(ReferenceExecutor):
    """The reference with its traces captured.

    Args:
        device: A CUDA device, unless `new_graph` is given.
        threads: Without effect.
        exact: Without effect: everything is float32.
        placement: Which weights lie elsewhere: none can, a graph does not leave its device.
        new_graph: Makes graphs; None = CUDA's.

    Raises:
        ResourceError: Weights lie on another device.
    """

    name = "graph"

    def __init__(
        self,
        device: str,
        *,
        threads: ThreadConfig | None = None,
        exact: bool = False,
        placement: Placement | None = None,
        new_graph: Callable[[], Graph] | None = None,
    ) -> None:
        elsewhere = placement.elsewhere(device) if placement else None
        if elsewhere is not None:
            raise ResourceError(f"graph kernels read no weights on {elsewhere.device} ({elsewhere.what})")
        super().__init__(device, threads=threads, placement=placement, captured=True)
        if new_graph is None:
            _warm_up(self._device)
            pool = torch.cuda.graph_pool_handle()
            new_graph = lambda: CudaGraph(pool)  # noqa: E731
        self._new_graph = new_graph

    def compile(self, trace: Callable[[Ops], None]) -> GraphProgram:  # type: ignore[override]
        return GraphProgram(trace, self._device, self._new_graph)

    def describe(self) -> str:
        return f"graph kernels (torch {torch.__version__}, {self.device}): the reference as CUDA graphs"


def _warm_up(device: torch.device) -> None:
    """Lets the libraries behind products set themselves up, which they cannot while calls are captured."""
    torch.cuda.set_device(device)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream), torch.inference_mode():
        rows = torch.ones(2, TILE, TILE, device=device)
        torch.mm(rows[0], rows[1])
        torch.bmm(rows, rows)
    stream.synchronize()
