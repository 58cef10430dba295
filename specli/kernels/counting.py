"""What a model would take: an executor that adds up allocations instead of making programs and reading weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from specli.kernels.ops import Executor, KVLayer, Ops, Program, RecurrentLayer, Weight, zeros

if TYPE_CHECKING:
    from specli.gguf.quant import QuantTensor, QuantType


class CountingExecutor(Executor):
    """Stands in for another executor while a network is made. Nothing that it hands out can be run.

    Args:
        real: The executor that would run the network.

    Attributes:
        experts: Device → bytes of stacks of experts.
        n_cache: Bytes of keys, values and recurrent states on the model's device.
        n_buffers: Bytes of everything else there: buffers, constants, programs.
        elsewhere: Device → what layers take on another device, besides weights.
    """

    reads_weights = False

    def __init__(self, real: Executor) -> None:
        self.name, self.device = real.name, real.device
        self.experts: Counter[str] = Counter()
        self.n_cache = self.n_buffers = 0
        self._real = real
        self._taken: dict[str, Weight] = {}  # by name
        self._sizes: dict[str, list[int]] = {}  # device → of its matrices
        self._vectors: Counter[str] = Counter()  # device → bytes
        self.elsewhere: dict[str, CountingExecutor] = {}

    @property
    def weights(self) -> dict[str, int]:
        """Device → bytes of matrices and vectors, experts aside."""
        found = {device: self._real.packed_bytes(sizes) for device, sizes in self._sizes.items()}
        return {device: found.get(device, 0) + self._vectors[device] for device in {*found, *self._vectors}}

    def weight(self, tensor: QuantTensor) -> Weight:
        """Counts a matrix where it would lie; one that is taken twice (tied embeddings) counts as the executor does."""
        if tensor.name in self._taken and self._real.shares_weights:
            return self._taken[tensor.name]
        weight, device, n_bytes = self.outline(tensor)
        self._taken[tensor.name] = weight
        if len(tensor.shape) == 3:
            self.experts[device] += n_bytes
        else:
            self._sizes.setdefault(device, []).append(n_bytes)
        return weight

    def compile(self, trace: Callable[[Ops], None]) -> Program:
        """Counts what a program takes; tracing it makes the buffers of layers."""
        n_bytes = self.program_bytes(trace)  # adds those buffers to `n_buffers`
        self.n_buffers += n_bytes
        return _NoProgram()

    def for_layer(self, index: int) -> CountingExecutor:
        """What counts for the other executor's."""
        real = self._real.for_layer(index)
        if real is self._real:
            return self
        if real.device not in self.elsewhere:
            self.elsewhere[real.device] = CountingExecutor(real)
        return self.elsewhere[real.device]

    def outline(self, tensor: QuantTensor) -> tuple[Weight, str, int]:
        """That of the other executor."""
        return self._real.outline(tensor)

    def program_bytes(self, trace: Callable[[Ops], None]) -> int:
        """That of the other executor."""
        return self._real.program_bytes(trace)

    def describe(self) -> str:
        """The kernels that would run here."""
        return self._real.describe()

    def array(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Counts constants."""
        self.n_buffers += values.nbytes
        return values

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Counts storage, and gives storage of this shape that takes no memory as long as nothing is written."""
        found = zeros(shape, dtype)
        self.n_buffers += found.nbytes
        return found

    def vector(self, tensor: QuantTensor) -> npt.NDArray[Any]:
        """Counts a small tensor; its numbers are not read, there are ones instead, which can be divided by."""
        self._vectors[self._real.home_of(tensor.name)] += 4 * tensor.n_elements
        return np.ones(tensor.n_elements, np.float32)

    def kv_layer(
        self,
        n_slots: int,
        n_kv_heads: int,
        capacity: int,
        head_size_k: int,
        head_size_v: int,
        type_k: QuantType,
        type_v: QuantType,
        *,
        has_values: bool = True,
    ) -> KVLayer:
        """Counts a cache layer."""
        layer = super().kv_layer(
            n_slots, n_kv_heads, capacity, head_size_k, head_size_v, type_k, type_v, has_values=has_values
        )
        self._move_to_cache(layer.nbytes)
        return layer

    def recurrent_layer(
        self, n_slots: int, n_states: int, n_inputs: int, width: int, n_heads: int, head_size: int
    ) -> RecurrentLayer:
        """Counts the memory of a delta net layer."""
        layer = super().recurrent_layer(n_slots, n_states, n_inputs, width, n_heads, head_size)
        self._move_to_cache(layer.inputs.nbytes + layer.states.nbytes)
        return layer

    def _move_to_cache(self, n_bytes: int) -> None:
        """`zeros` counted these bytes as buffers."""
        self.n_buffers -= n_bytes
        self.n_cache += n_bytes


class _NoProgram(Program):
    """Cannot run."""

    def run(self, tokens: int = 0, outputs: int = 0, sequences: int = 0, steps: int = 0) -> None:
        """Never called."""
        raise AssertionError("a counted network cannot run")


def _nothing(self: Ops, *args: Any, **more: Any) -> None:
    """Does nothing."""


def _trace_once(self: Ops, body: Callable[[], None]) -> None:
    """Traces a repeated part."""
    body()


SilentOps: type[Ops] = type(
    "SilentOps", (Ops,), {**dict.fromkeys(Ops.__abstractmethods__, _nothing), "repeat": _trace_once}
)
"""Operations that do nothing: a trace of them only makes the buffers it asks for."""
