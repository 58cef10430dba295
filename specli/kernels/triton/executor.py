"""The executor whose matrices stay in their quant types; all but products and look-ups is the captured reference."""

# ruff: noqa: D102 - methods are documented where they are declared, in ops.py

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch

from specli.errors import ResourceError
from specli.gguf.quant import QuantTensor, QuantType
from specli.kernels.ops import Weight
from specli.kernels.placement import Placement
from specli.kernels.reference.graph import Graph, GraphExecutor
from specli.kernels.reference.weights import Matrix
from specli.kernels.threads import ThreadConfig


@dataclass(frozen=True, eq=False)
class TritonWeight(Matrix):
    """A matrix as it is stored.

    Attributes:
        name: GGUF tensor name.
        type: The type it is multiplied in.
        shape: Torch order.
        data: `[n_out, row_bytes]` uint8.
    """

    name: str
    type: QuantType
    shape: tuple[int, ...]
    data: torch.Tensor

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it lies."""
        return self.data.device

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Its rows, unpacked by a kernel."""
        from specli.kernels.triton.matrix import look_up

        return look_up(self.data, self.type, self.shape[1], ids)

    def times(self, rows: torch.Tensor) -> torch.Tensor:
        """The product, by a kernel."""
        from specli.kernels.triton.matrix import project

        return project(self.data, self.type, rows)


class TritonExecutor(GraphExecutor):
    """Graphs in which matrices are multiplied as they are stored.

    Types without a kernel are converted to f16 when taken. Stacks of experts are those of the reference.

    Args:
        device: A CUDA device, unless `new_graph` is given.
        threads: Without effect.
        exact: Without effect.
        placement: Which weights lie elsewhere: none can.
        new_graph: Makes graphs; None = CUDA's.

    Raises:
        ResourceError: Triton is missing, or weights lie on another device.
    """

    name = "triton"

    def __init__(
        self,
        device: str,
        *,
        threads: ThreadConfig | None = None,
        exact: bool = False,
        placement: Placement | None = None,
        new_graph: Callable[[], Graph] | None = None,
    ) -> None:
        if find_spec("triton") is None:
            raise ResourceError(
                "triton kernels need the package triton, which is not installed", hint="pip install 'specli[gpu]'"
            )
        super().__init__(device, threads=threads, exact=exact, placement=placement, new_graph=new_graph)
        self._converted: Counter[QuantType] = Counter()

    def weight(self, tensor: QuantTensor) -> Weight:
        if len(tensor.shape) == 3:
            return super().weight(tensor)
        type = _type_of(tensor)
        if type == tensor.type:
            data = tensor.rows()
        else:
            self._converted[tensor.type] += 1
            data = tensor.dequantise().astype(np.float16).view(np.uint8)
        return TritonWeight(tensor.name, type, tensor.shape, torch.tensor(data, device=self._device))

    def outline(self, tensor: QuantTensor) -> tuple[Weight, str, int]:
        if len(tensor.shape) == 3:
            return super().outline(tensor)
        type = _type_of(tensor)
        n_bytes = tensor.shape[0] * type.row_bytes(tensor.shape[1])
        weight = TritonWeight(tensor.name, type, tensor.shape, torch.empty(0, dtype=torch.uint8))
        return weight, self.device, n_bytes

    @property
    def notes(self) -> list[str]:
        return [
            f"{n} matri{'ces' if n > 1 else 'x'} of type {type.label} converted to f16 (no triton kernels for the type)"
            for type, n in self._converted.items()
        ]

    def describe(self) -> str:
        return (
            f"triton kernels (torch {torch.__version__}, {self.device}): products and look-ups of rows; "
            f"all other operations and stacks of experts are the reference, as CUDA graphs"
        )


def _type_of(tensor: QuantTensor) -> QuantType:
    from specli.kernels.triton.matrix import TYPES

    return tensor.type if tensor.type in TYPES else QuantType.F16
