"""The ggml quant types: ids, block sizes and names (docs/quant-types.md §1)."""

from __future__ import annotations

import enum

from specli.errors import UnsupportedError


class QuantType(enum.IntEnum):
    """A ggml tensor type as stored in GGUF files. Rows are whole numbers of quant blocks."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42

    @property
    def block_size(self) -> int:
        """Elements per quant block; 1 for plain numbers."""
        return _SIZES[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes per quant block."""
        return _SIZES[self][1]

    @property
    def label(self) -> str:
        """Lower-case name as llama.cpp's options spell it, such as "q4_1" or "q4_k"."""
        return self.name.lower()

    def row_bytes(self, n: int) -> int:
        """Bytes of a row of `n` elements.

        Raises:
            ValueError: `n` is not a whole number of blocks.
        """
        if n % self.block_size:
            raise ValueError(f"{n} elements are not a whole number of {self.label} blocks of {self.block_size}")
        return n // self.block_size * self.block_bytes

    @classmethod
    def from_label(cls, label: str) -> QuantType:
        """The type with this name, in any case.

        Raises:
            UnsupportedError: There is no such type.
        """
        try:
            return cls[label.upper()]
        except KeyError:
            known = ", ".join(t.label for t in cls)
            raise UnsupportedError(f"unknown quant type {label!r}, expected one of {known}") from None


_SIZES: dict[QuantType, tuple[int, int]] = {  # type -> elements per block, bytes per block
    QuantType.F32: (1, 4),
    QuantType.F16: (1, 2),
    QuantType.Q4_0: (32, 18),
    QuantType.Q4_1: (32, 20),
    QuantType.Q5_0: (32, 22),
    QuantType.Q5_1: (32, 24),
    QuantType.Q8_0: (32, 34),
    QuantType.Q8_1: (32, 36),
    QuantType.Q2_K: (256, 84),
    QuantType.Q3_K: (256, 110),
    QuantType.Q4_K: (256, 144),
    QuantType.Q5_K: (256, 176),
    QuantType.Q6_K: (256, 210),
    QuantType.Q8_K: (256, 292),
    QuantType.IQ2_XXS: (256, 66),
    QuantType.IQ2_XS: (256, 74),
    QuantType.IQ3_XXS: (256, 98),
    QuantType.IQ1_S: (256, 50),
    QuantType.IQ4_NL: (32, 18),
    QuantType.IQ3_S: (256, 110),
    QuantType.IQ2_S: (256, 82),
    QuantType.IQ4_XS: (256, 136),
    QuantType.I8: (1, 1),
    QuantType.I16: (1, 2),
    QuantType.I32: (1, 4),
    QuantType.I64: (1, 8),
    QuantType.F64: (1, 8),
    QuantType.IQ1_M: (256, 56),
    QuantType.BF16: (1, 2),
    QuantType.TQ1_0: (256, 54),
    QuantType.TQ2_0: (256, 66),
    QuantType.MXFP4: (32, 17),
    QuantType.NVFP4: (64, 36),
    QuantType.Q1_0: (128, 18),
    QuantType.Q2_0: (64, 18),
}


CACHE_TYPES = (
    QuantType.F32,
    QuantType.F16,
    QuantType.BF16,
    QuantType.Q8_0,
    QuantType.Q4_0,
    QuantType.Q4_1,
    QuantType.IQ4_NL,
    QuantType.Q5_0,
    QuantType.Q5_1,
)
"""What a cache can hold, in the order of help."""
