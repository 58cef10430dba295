"""Matrices as the reference keeps them, and products with them.

A product is computed where its matrix lies: rows of a model on another device are copied there, and the result back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from specli.gguf.quant import QuantTensor, QuantType
from specli.kernels.ops import Weight
from specli.kernels.reference.frame import by_tiles

_ROUND_TO = 16  # elements: with other lengths a product of the CPU depends on the row's place in the tile


class Matrix(ABC):
    """A matrix that operations can multiply with and look rows up in.

    Attributes:
        device: Where it lies.
    """

    device: torch.device

    @abstractmethod
    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """`[n, n_in]` float32 of `[n]` int32, both on the matrix's device."""

    @abstractmethod
    def times(self, rows: torch.Tensor) -> torch.Tensor:
        """`[n, n_in]` float32 rows on its device times the transposed matrix: `[n, n_out]`, a row like no other's."""


@dataclass(frozen=True, eq=False)
class ReferenceWeight(Matrix):
    """A dequantised matrix.

    Attributes:
        name: GGUF tensor name.
        type: The quant type of the file.
        matrix: float32 of the tensor's shape.
    """

    name: str
    type: QuantType
    matrix: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Torch order."""
        return tuple(self.matrix.shape)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it lies."""
        return self.matrix.device

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Its rows."""
        return self.matrix.index_select(0, ids)

    def times(self, rows: torch.Tensor) -> torch.Tensor:
        """The product, by tiles."""
        matrix = filled(self.matrix)
        return by_tiles(lambda tile: torch.mm(tile, matrix.t()), filled(rows))


@dataclass(frozen=True, eq=False)
class ReferenceStack:
    """The matrices of all experts.

    Attributes:
        tensor: `(n_expert, n_out, n_in)`, as stored.
        device: Where the matrices are multiplied.
        matrices: The same in float32 on the device. None: they are left as they are stored, and each is dequantised
            when it is used, which needs the host to know which.
    """

    tensor: QuantTensor
    device: torch.device
    matrices: torch.Tensor | None = None

    @property
    def name(self) -> str:
        """GGUF tensor name."""
        return self.tensor.name

    @property
    def type(self) -> QuantType:
        """The quant type of the file."""
        return self.tensor.type

    @property
    def shape(self) -> tuple[int, ...]:
        """Torch order."""
        return self.tensor.shape

    def chosen(self, experts: torch.Tensor) -> torch.Tensor:
        """`[n, n_out, n_in]` float32 of `[n]` numbers of experts."""
        if self.matrices is not None:
            return self.matrices.index_select(0, experts.to(self.device))
        numbers = experts.tolist()
        found = {index: torch.from_numpy(self.tensor.dequantise(index, index + 1)[0]) for index in set(numbers)}
        return torch.stack([found[index] for index in numbers]).to(self.device)


def matrix_of(weight: Weight) -> Matrix:
    """The weight of a linear layer or an embedding."""
    assert isinstance(weight, Matrix), "a weight of another executor, or a stack"
    return weight


def times(weight: Weight, rows: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`[n, n_in]` rows times the transposed matrix, plus bias: `[n, n_out]` on the rows' device."""
    matrix = matrix_of(weight)
    product = matrix.times(rows.to(matrix.device)).to(rows.device)
    return product if bias is None else product + bias


def times_own(matrices: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """`[TILE, n_in]` rows times matrices `[TILE, n_out, n_in]` of their own, transposed: `[TILE, n_out]`."""
    product = torch.bmm(filled(rows.to(matrices.device))[:, None], filled(matrices).transpose(1, 2))
    return product[:, 0].to(rows.device)


def filled(rows: torch.Tensor) -> torch.Tensor:
    """Rows filled up with zeros to a length that products treat alike at every place; usually they have one."""
    missing = -rows.shape[-1] % _ROUND_TO
    return F.pad(rows, (0, missing)) if missing else rows
