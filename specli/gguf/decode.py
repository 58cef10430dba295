"""Quant blocks to float32, vectorised over blocks (docs/quant-types.md §§2-3).

Each decoder reads `[n, block_bytes]` uint8 and fills `[n, block_size]` float32, both contiguous. The results
equal llama.cpp's `dequantize_row_*` (ggml/src/ggml-quants.c) and `gguf.quants.dequantize` bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from specli.errors import UnsupportedError
from specli.gguf.types import QuantType

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Decoder = Callable[[Bytes, Floats], None]

CHUNK_ELEMENTS = 1 << 18  # decoded at a time, so that the temporaries (1 MB each as float32) stay in the cache

IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)  # levels of IQ4_NL and IQ4_XS
MXFP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)  # twice the E2M1 values

ONE, TWO, FOUR = np.uint8(1), np.uint8(2), np.uint8(4)  # shift counts and single bits
CRUMB, LOW, SIX_BITS = np.uint8(3), np.uint8(15), np.uint8(63)  # masks of 2, 4 and 6 bits


def _shifts(*values: int, axis: int, ndim: int) -> Bytes:
    """Shift counts laid along one axis of an `ndim`-dimensional array."""
    shape = [1] * ndim
    shape[axis] = len(values)
    return np.array(values, np.uint8).reshape(shape)


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of every block: `[n, 1]` float32."""
    return blocks[:, at : at + 2].view(np.float16).astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """`[…, k]` bytes to `[…, 2k]` values 0…15: all low nibbles, then all high ones."""
    return np.concatenate([packed & LOW, packed >> FOUR], axis=-1)


def _bits(packed: Bytes) -> Bytes:
    """`[n, k]` bytes to `[n, 8k]` values 0 or 1, lowest bit of the first byte first."""
    return np.unpackbits(packed, axis=1, bitorder="little")


def _plain(dtype: str) -> Decoder:
    def decode(blocks: Bytes, out: Floats) -> None:
        out[:] = blocks.view(dtype)

    return decode


def _bf16(blocks: Bytes, out: Floats) -> None:
    bits = out.view(np.uint32)
    bits[:] = blocks.view("<u2")
    bits <<= np.uint32(16)


def _q4_0(blocks: Bytes, out: Floats) -> None:
    np.multiply(_half(blocks, 0), _nibbles(blocks[:, 2:]).view(np.int8) - np.int8(8), out=out)


def _q4_1(blocks: Bytes, out: Floats) -> None:
    np.multiply(_half(blocks, 0), _nibbles(blocks[:, 4:]), out=out)
    out += _half(blocks, 2)


def _q5_0(blocks: Bytes, out: Floats) -> None:
    q = _nibbles(blocks[:, 6:]) | _bits(blocks[:, 2:6]) << FOUR
    np.multiply(_half(blocks, 0), q.view(np.int8) - np.int8(16), out=out)


def _q5_1(blocks: Bytes, out: Floats) -> None:
    q = _nibbles(blocks[:, 8:]) | _bits(blocks[:, 4:8]) << FOUR
    np.multiply(_half(blocks, 0), q, out=out)
    out += _half(blocks, 2)


def _q8_0(blocks: Bytes, out: Floats) -> None:
    np.multiply(_half(blocks, 0), blocks[:, 2:].view(np.int8), out=out)


def _crumbs(packed: Bytes) -> Bytes:
    """`[n, 64]` bytes to `[n, 2, 4, 32]` values 0…3: half, shift/2, byte of the half."""
    crumbs: Bytes = packed.reshape(-1, 2, 1, 32) >> _shifts(0, 2, 4, 6, axis=2, ndim=4) & CRUMB
    return crumbs


def _q2_k(blocks: Bytes, out: Floats) -> None:
    scales = blocks[:, :16]
    q = _crumbs(blocks[:, 16:80]).reshape(-1, 16, 16)
    factor = _half(blocks, 80) * (scales & LOW)  # [n, 16]
    offset = _half(blocks, 82) * (scales >> FOUR)
    values = out.reshape(-1, 16, 16)
    np.multiply(factor[:, :, None], q, out=values)
    values -= offset[:, :, None]


def _q3_k(blocks: Bytes, out: Floats) -> None:
    packed = blocks[:, 96:108]
    low = _nibbles(packed[:, :8])  # [n, 16]
    high = (packed[:, None, 8:] >> _shifts(0, 2, 4, 6, axis=1, ndim=3) & CRUMB).reshape(-1, 16)
    scales = (low | high << FOUR).view(np.int8) - np.int8(32)
    bit = blocks[:, None, :32] >> _shifts(*range(8), axis=1, ndim=3) & ONE  # [n, 8, 32]
    code = _crumbs(blocks[:, 32:96]).reshape(-1, 8, 32) | bit << TWO
    q = code.view(np.int8) - np.int8(4)  # a set mask bit makes up for the 4
    factor = _half(blocks, 108) * scales  # [n, 16]
    np.multiply(factor[:, :, None], q.reshape(-1, 16, 16), out=out.reshape(-1, 16, 16))


def unpack_scales_k(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 6-bit scales and minima of Q4_K and Q5_K.

    Args:
        packed: `[n, 12]`.

    Returns:
        Scales and minima, each `[n, 8]`, 0…63.
    """
    low, middle, last = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    six = np.uint8(6)
    scales = np.concatenate([low & SIX_BITS, (last & LOW) | (low >> six) << FOUR], axis=1)
    minima = np.concatenate([middle & SIX_BITS, (last >> FOUR) | (middle >> six) << FOUR], axis=1)
    return scales, minima


def _scale_k(blocks: Bytes, q: Bytes, out: Floats) -> None:
    """`[n, 8, 32]` codes to values with the header d, dmin, scales that Q4_K and Q5_K share."""
    scales, minima = unpack_scales_k(blocks[:, 4:16])
    factor = _half(blocks, 0) * scales  # [n, 8]
    offset = _half(blocks, 2) * minima
    values = out.reshape(-1, 8, 32)
    np.multiply(factor[:, :, None], q, out=values)
    values -= offset[:, :, None]


def _nibbles_k(packed: Bytes) -> Bytes:
    """`[n, 128]` bytes to `[n, 8, 32]`: each 32 bytes give the low nibbles, then the high ones."""
    return _nibbles(packed.reshape(-1, 4, 32)).reshape(-1, 8, 32)


def _q4_k(blocks: Bytes, out: Floats) -> None:
    _scale_k(blocks, _nibbles_k(blocks[:, 16:]), out)


def _q5_k(blocks: Bytes, out: Floats) -> None:
    bit = blocks[:, None, 16:48] >> _shifts(*range(8), axis=1, ndim=3) & ONE  # [n, 8, 32]
    _scale_k(blocks, _nibbles_k(blocks[:, 48:]) | bit << FOUR, out)


def _q6_k(blocks: Bytes, out: Floats) -> None:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)  # half, quarter, byte
    q = (low | _crumbs(blocks[:, 128:192]) << FOUR).view(np.int8) - np.int8(32)
    factor = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)  # [n, 16]
    np.multiply(factor[:, :, None], q.reshape(-1, 16, 16), out=out.reshape(-1, 16, 16))


def _iq4_nl(blocks: Bytes, out: Floats) -> None:
    np.multiply(_half(blocks, 0), IQ4_VALUES[_nibbles(blocks[:, 2:])], out=out)


def _iq4_xs(blocks: Bytes, out: Floats) -> None:
    low = (blocks[:, 4:8, None] >> _shifts(0, 4, axis=2, ndim=3) & LOW).reshape(-1, 8)
    high = (blocks[:, 2:4, None] >> _shifts(0, 2, 4, 6, axis=2, ndim=3) & CRUMB).reshape(-1, 8)
    factor = _half(blocks, 0) * ((low | high << FOUR).view(np.int8) - np.int8(32))  # [n, 8]
    q = _nibbles(blocks[:, 8:].reshape(-1, 8, 16))  # [n, 8, 32]
    np.multiply(factor[:, :, None], IQ4_VALUES[q], out=out.reshape(-1, 8, 32))


def _mxfp4(blocks: Bytes, out: Floats) -> None:
    scale = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    np.multiply(scale, MXFP4_VALUES[_nibbles(blocks[:, 1:])], out=out)


def _q1_0(blocks: Bytes, out: Floats) -> None:
    sign = _bits(blocks[:, 2:]).view(np.int8) * np.int8(2) - np.int8(1)
    np.multiply(_half(blocks, 0), sign, out=out)


def _q2_0(blocks: Bytes, out: Floats) -> None:
    q = (blocks[:, 2:, None] >> _shifts(0, 2, 4, 6, axis=2, ndim=3) & CRUMB).reshape(-1, 64)
    np.multiply(_half(blocks, 0), q.view(np.int8) - np.int8(1), out=out)


def _package(type: QuantType) -> Decoder:
    """The decoder of the `gguf` package, for lattice and ternary types whose tables live there."""

    def decode(blocks: Bytes, out: Floats) -> None:
        import gguf  # 150 ms to import; only files with these types pay

        out[:] = gguf.dequantize(blocks, gguf.GGMLQuantizationType(type))

    return decode


DECODERS: dict[QuantType, Decoder] = {
    QuantType.F32: _plain("<f4"),
    QuantType.F16: _plain("<f2"),
    QuantType.F64: _plain("<f8"),
    QuantType.I8: _plain("<i1"),
    QuantType.I16: _plain("<i2"),
    QuantType.I32: _plain("<i4"),
    QuantType.I64: _plain("<i8"),
    QuantType.BF16: _bf16,
    QuantType.Q4_0: _q4_0,
    QuantType.Q4_1: _q4_1,
    QuantType.Q5_0: _q5_0,
    QuantType.Q5_1: _q5_1,
    QuantType.Q8_0: _q8_0,
    QuantType.Q2_K: _q2_k,
    QuantType.Q3_K: _q3_k,
    QuantType.Q4_K: _q4_k,
    QuantType.Q5_K: _q5_k,
    QuantType.Q6_K: _q6_k,
    QuantType.IQ4_NL: _iq4_nl,
    QuantType.IQ4_XS: _iq4_xs,
    QuantType.MXFP4: _mxfp4,
    QuantType.Q1_0: _q1_0,
    QuantType.Q2_0: _q2_0,
} | {
    type: _package(type)
    for type in (
        QuantType.IQ1_S,
        QuantType.IQ1_M,
        QuantType.IQ2_XXS,
        QuantType.IQ2_XS,
        QuantType.IQ2_S,
        QuantType.IQ3_XXS,
        QuantType.IQ3_S,
        QuantType.TQ1_0,
        QuantType.TQ2_0,
        QuantType.NVFP4,
    )
}


def dequantise(type: QuantType, data: npt.NDArray[Any]) -> Floats:
    """The numbers that quantised rows stand for.

    Args:
        type: The rows' quant type.
        data: `[n_rows, row_bytes]` uint8; row_bytes is a whole number of blocks.

    Returns:
        `[n_rows, n]` float32, newly allocated. Broken scales give infinities or NaN, never an error.

    Raises:
        UnsupportedError: A work format (q8_1, q8_k), which no file holds.
    """
    decode = DECODERS.get(type)
    if decode is None:
        raise UnsupportedError(f"cannot dequantise {type.label}: a work format, not a storage type")
    n_rows, row_bytes = data.shape
    n_blocks, rest = divmod(row_bytes, type.block_bytes)
    if rest:
        raise ValueError(f"rows of {row_bytes} bytes are not whole {type.label} blocks of {type.block_bytes}")
    blocks = np.ascontiguousarray(data).reshape(n_rows * n_blocks, type.block_bytes)
    values = np.empty((n_rows * n_blocks, type.block_size), np.float32)
    step = max(1, CHUNK_ELEMENTS // type.block_size)
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), step):
            decode(blocks[start : start + step], values[start : start + step])
    return values.reshape(n_rows, n_blocks * type.block_size)
