"""Runs traces call by call in torch."""

# ruff: noqa: D102 - methods are documented where they are declared, in ops.py

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specli.gguf.quant import QuantTensor
from specli.kernels.counting import SilentOps
from specli.kernels.ops import Executor, Extent, Ops, Program, Weight, zeros
from specli.kernels.placement import Placement
from specli.kernels.reference.attention import AttentionOps
from specli.kernels.reference.experts import ExpertOps
from specli.kernels.reference.recurrent import RecurrentOps
from specli.kernels.reference.rows import RowOps
from specli.kernels.reference.weights import ReferenceStack, ReferenceWeight
from specli.kernels.threads import ThreadConfig


class ReferenceOps(RowOps, AttentionOps, ExpertOps, RecurrentOps):
    """All operations, executed at once."""


class ReferenceProgram(Program):
    """A trace that is called anew in every run."""

    def __init__(self, trace: Callable[[Ops], None], n_threads: int | None) -> None:
        self._trace = trace
        self._n_threads = n_threads
        self._ops = ReferenceOps()

    def run(self, tokens: int = 0, outputs: int = 0, sequences: int = 0, steps: int = 0) -> None:
        # One thread count for every row count: how a product is divided among threads may decide its last bit.
        if self._n_threads is not None and torch.get_num_threads() != self._n_threads:
            torch.set_num_threads(self._n_threads)
        self._ops.counts = {Extent.TOKENS: tokens, Extent.OUTPUTS: outputs, Extent.SEQUENCES: sequences}
        self._ops.steps = steps
        with torch.inference_mode():
            self._trace(self._ops)


class ReferenceExecutor(Executor):
    """Runs traces call by call in torch.

    Args:
        device: Any torch device.
        threads: Only `n_threads` counts, for all row counts; ≤ 0 or None leaves torch's own number.
        reason: Why this executor and not a faster one; shown by `describe`.
        placement: Which weights and which layers lie elsewhere.
        captured: Runs will be captured: stacks of experts are dequantised when they are taken, not when they are used.
    """

    name = "reference"

    def __init__(
        self,
        device: str | torch.device = "cpu",
        *,
        threads: ThreadConfig | None = None,
        reason: str = "requested",
        placement: Placement | None = None,
        captured: bool = False,
    ) -> None:
        self._captured = captured
        self._device = torch.device(device)
        self.device = str(self._device)
        self._placement = placement or Placement()
        self._reason = reason
        n_threads = threads.n_threads if threads is not None else None
        self._n_threads = n_threads if n_threads is not None and n_threads > 0 else None
        self._elsewhere: dict[str, ReferenceExecutor] = {}  # what allocates on other devices

    def weight(self, tensor: QuantTensor) -> Weight:
        device = torch.device(self._placement.device_of(tensor.name, self.device))
        if len(tensor.shape) == 3:
            matrices = torch.from_numpy(tensor.dequantise()).to(device) if self._captured else None
            return ReferenceStack(tensor, device, matrices)
        return ReferenceWeight(tensor.name, tensor.type, torch.from_numpy(tensor.dequantise()).to(device))

    def vector(self, tensor: QuantTensor) -> Any:
        on = self._on(self.home_of(tensor.name))
        return super().vector(tensor) if on is self else on.vector(tensor)

    def for_layer(self, index: int) -> ReferenceExecutor:
        return self._on(self._placement.layer_device(index, self.device))

    def home_of(self, name: str) -> str:
        return self._placement.home_of(name, self.device)

    def _on(self, device: str) -> ReferenceExecutor:
        if device == self.device:
            return self
        if device not in self._elsewhere:
            self._elsewhere[device] = ReferenceExecutor(device)
        return self._elsewhere[device]

    def array(self, values: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> torch.Tensor:
        if self._device.type == "cpu":
            return torch.from_numpy(zeros(shape, dtype))
        return torch.zeros(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, device=self._device)

    def compile(self, trace: Callable[[Ops], None]) -> ReferenceProgram:
        return ReferenceProgram(trace, self._n_threads)

    def outline(self, tensor: QuantTensor) -> tuple[Weight, str, int]:
        device = self._placement.device_of(tensor.name, self.device)
        if len(tensor.shape) == 3:
            n_bytes = 4 * tensor.n_elements if self._captured else tensor.nbytes
            return ReferenceStack(tensor, torch.device(device)), device, n_bytes
        matrix = torch.empty(tensor.shape, device="meta")
        return ReferenceWeight(tensor.name, tensor.type, matrix), device, matrix.nbytes

    def program_bytes(self, trace: Callable[[Ops], None]) -> int:
        trace(SilentOps())
        return 0

    def describe(self) -> str:
        n_threads = self._n_threads or torch.get_num_threads()
        where = f"torch {torch.__version__}, {self.device}, {n_threads} thread{'s' if n_threads > 1 else ''}"
        return f"reference kernels ({where}): {self._reason}"
