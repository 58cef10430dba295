"""Quantised tensors as GGUF files hold them, and the conversions between quant blocks and float32."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specli.gguf.decode import dequantise
from specli.gguf.encode import quantise
from specli.gguf.types import QuantType

__all__ = ["QuantTensor", "QuantType", "dequantise", "quantise"]

_NUMBERS: dict[QuantType, str] = {
    QuantType.F32: "<f4",
    QuantType.F16: "<f2",
    QuantType.F64: "<f8",
    QuantType.I8: "<i1",
    QuantType.I16: "<i2",
    QuantType.I32: "<i4",
    QuantType.I64: "<i8",
}


@dataclass(frozen=True, eq=False)
class QuantTensor:
    """A tensor whose bytes stay as stored, usually mapped from the file.

    Attributes:
        name: GGUF tensor name.
        type: Quant type of every row.
        shape: Torch order: the last axis is the one that blocks run along.
        data: uint8, one-dimensional, `nbytes` long; read-only when mapped.
    """

    name: str
    type: QuantType
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Bytes as stored, without padding."""
        return self.data.nbytes

    @property
    def n_elements(self) -> int:
        """Numbers the tensor stands for."""
        return math.prod(self.shape)

    def rows(self) -> npt.NDArray[np.uint8]:
        """`[n_rows, row_bytes]` uint8 view; all axes but the last are joined, a vector is one row."""
        width = self.shape[-1] if self.shape else 1
        row_bytes = self.type.row_bytes(width)
        return self.data.reshape(self.nbytes // row_bytes if row_bytes else 0, row_bytes)

    def numbers(self) -> npt.NDArray[Any]:
        """The values as a view in their own number type, without a copy; for F16, F32, F64 and the integer types."""
        return self.data.view(_NUMBERS[self.type]).reshape(self.shape)

    def dequantise(self, start: int | None = None, stop: int | None = None) -> npt.NDArray[np.float32]:
        """The values as float32, newly allocated.

        Args:
            start: First index along the first axis; needs at least two axes.
            stop: Index after the last one.

        Returns:
            float32 of `shape`, or of `(stop - start, *shape[1:])`.
        """
        if start is None and stop is None:
            return dequantise(self.type, self.rows()).reshape(self.shape)
        if len(self.shape) < 2:
            raise ValueError(f"{self.name}: a tensor of shape {self.shape} has no leading rows to choose from")
        n_inner = math.prod(self.shape[1:-1])  # rows per index of the first axis
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        part = self.rows()[start * n_inner : stop * n_inner]
        return dequantise(self.type, part).reshape(max(0, stop - start), *self.shape[1:])
