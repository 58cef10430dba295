"""Checkpoint tensors that are read in slices, so that a conversion never holds more than one output tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specli.gguf.quant import QuantType

Array = npt.NDArray[Any]
Read = Callable[[int, int], Array]

CHUNK_BYTES = 2 << 20  # float32 bytes handled at a time: large against per-call cost, small enough to stay in the cache

FLOATS = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"})
"""Source dtypes that hold floating point numbers."""


@dataclass(frozen=True)
class LazyTensor:
    """A tensor known by shape and dtype whose values are read when asked for.

    Attributes:
        shape: Torch order; at least one axis.
        dtype: Source dtype as safetensors spells it ("BF16", "I64"), kept through transformations.
        read: `read(start, stop)` gives indices `[start, stop)` of the leading axis: float16 for F16 sources, float32
            for other floats, integers for integers. With `type` set: uint8 `[stop - start, …]` in that type's layout.
        step: Slices start and end at multiples of this (heads that must not be cut), except at the end.
        type: Set when the values are already bytes of this quant type, which is then also the type in the file.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Read
    step: int = 1
    type: QuantType | None = None

    @property
    def n_elements(self) -> int:
        """How many numbers the tensor has."""
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether the source holds floating point numbers."""
        return self.dtype in FLOATS

    def all(self) -> Array:
        """Every value at once; for small tensors."""
        return self.read(0, self.shape[0])

    def slices(self) -> Iterator[tuple[int, int]]:
        """Bounds of leading-axis slices of about `CHUNK_BYTES` each, in order."""
        n_rows = self.shape[0]
        row_bytes = 4 * max(1, math.prod(self.shape[1:]))
        size = max(1, CHUNK_BYTES // row_bytes // self.step) * self.step
        for start in range(0, n_rows, size):
            yield start, min(start + size, n_rows)

    def mapped(self, function: Callable[[Array], Array], *, step: int | None = None) -> LazyTensor:
        """The tensor with `function` applied to every slice; shape and dtype stay."""
        read = self.read
        return replace(self, read=lambda start, stop: function(read(start, stop)), step=step or self.step)


def constant(values: npt.NDArray[np.float32]) -> LazyTensor:
    """A tensor of float32 values that are computed here, not read from a checkpoint."""
    return LazyTensor(values.shape, "F32", lambda start, stop: values[start:stop])
