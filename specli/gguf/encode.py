"""Float32 to quant blocks, vectorised over blocks (docs/quant-types.md §4).

Each encoder takes `[n, block_size]` float32 and gives `[n, block_bytes]` uint8. The rules are those of llama.cpp's
`quantize_row_*_ref` (ggml/src/ggml-quants.c): scales are stored as half, codes are computed with the unrounded scale.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from specli.errors import UnsupportedError
from specli.gguf.decode import FOUR, IQ4_VALUES, LOW, Bytes, Floats
from specli.gguf.encode_k import encode_q4_k, encode_q5_k, encode_q6_k
from specli.gguf.floats import extreme, half_bytes, reciprocal
from specli.gguf.types import QuantType

_AT_ONCE = 1 << 17  # elements, so that half a dozen float32 temporaries stay in the second-level cache


def _codes(values: Floats, top: int) -> Bytes:
    """Truncates to 0…top; NaN gives 0."""
    codes: Bytes = np.nan_to_num(values, nan=0.0).clip(0, top).astype(np.uint8)
    return codes


def _pack_nibbles(q: Bytes) -> Bytes:
    """`[n, 32]` codes 0…15 to `[n, 16]`: element j low, element 16+j high."""
    packed: Bytes = q[:, :16] | q[:, 16:] << FOUR
    return packed


def _pack_fifth_bits(q: Bytes) -> Bytes:
    """`[n, 32]` codes 0…31 to the `[n, 4]` bytes holding bit 4 of each, first element lowest."""
    return np.packbits(q >> FOUR, axis=1, bitorder="little")


def _f32(x: Floats) -> Bytes:
    return x.view(np.uint8)


def _f16(x: Floats) -> Bytes:
    return half_bytes(x)


def _bf16(x: Floats) -> Bytes:
    bits = x.view(np.uint32)
    rounded = bits + 0x7FFF + (bits >> 16 & 1)  # to nearest, ties to even
    quiet = bits | 0x40_0000  # NaN keeps its sign and payload's top bits, made quiet
    is_nan = bits & 0x7FFF_FFFF > 0x7F80_0000
    return (np.where(is_nan, quiet, rounded) >> 16).astype("<u2").view(np.uint8)


def _q8_0(x: Floats) -> Bytes:
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    scaled = x * reciprocal(d)
    q = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # halves away from zero
    return np.concatenate([half_bytes(d), q.astype(np.int8).view(np.uint8)], axis=1)


def _q4_0(x: Floats) -> Bytes:
    d = extreme(x) / np.float32(-8)
    q = _codes(x * reciprocal(d) + np.float32(8.5), 15)
    return np.concatenate([half_bytes(d), _pack_nibbles(q)], axis=1)


def _q4_1(x: Floats) -> Bytes:
    m = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - m) / np.float32(15)
    q = _codes((x - m) * reciprocal(d) + np.float32(0.5), 15)
    return np.concatenate([half_bytes(d), half_bytes(m), _pack_nibbles(q)], axis=1)


def _q5_0(x: Floats) -> Bytes:
    d = extreme(x) / np.float32(-16)
    q = _codes(x * reciprocal(d) + np.float32(16.5), 31)
    return np.concatenate([half_bytes(d), _pack_fifth_bits(q), _pack_nibbles(q & LOW)], axis=1)


def _q5_1(x: Floats) -> Bytes:
    m = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - m) / np.float32(31)
    q = _codes((x - m) * reciprocal(d) + np.float32(0.5), 31)
    return np.concatenate([half_bytes(d), half_bytes(m), _pack_fifth_bits(q), _pack_nibbles(q & LOW)], axis=1)


_IQ4_MIDPOINTS = (IQ4_VALUES[1:] + IQ4_VALUES[:-1]) / np.float32(2)


def _iq4_nl(x: Floats) -> Bytes:
    d = extreme(x) / IQ4_VALUES[0]
    q = np.searchsorted(_IQ4_MIDPOINTS, x * reciprocal(d), side="right").astype(np.uint8)  # a tie takes the upper level
    level = IQ4_VALUES[q]
    weight = x * x
    norm = (weight * level * level).sum(axis=1, keepdims=True)
    refit = (weight * level * x).sum(axis=1, keepdims=True) * reciprocal(norm)
    return np.concatenate([half_bytes(refit), _pack_nibbles(q)], axis=1)


ENCODERS: dict[QuantType, Callable[[Floats], Bytes]] = {
    QuantType.F32: _f32,
    QuantType.F16: _f16,
    QuantType.BF16: _bf16,
    QuantType.Q8_0: _q8_0,
    QuantType.Q4_0: _q4_0,
    QuantType.Q4_1: _q4_1,
    QuantType.Q5_0: _q5_0,
    QuantType.Q5_1: _q5_1,
    QuantType.IQ4_NL: _iq4_nl,
    QuantType.Q4_K: encode_q4_k,
    QuantType.Q5_K: encode_q5_k,
    QuantType.Q6_K: encode_q6_k,
}


def quantise(type: QuantType, values: npt.NDArray[np.float32]) -> Bytes:
    """Rows of float32 as the bytes of a quant type.

    Args:
        type: A key of `ENCODERS`.
        values: `[n_rows, n]` float32, finite; n is a whole number of the type's blocks.

    Returns:
        `[n_rows, row_bytes]` uint8, newly allocated.

    Raises:
        UnsupportedError: There is no quantiser for the type.
    """
    encode = ENCODERS.get(type)
    if encode is None:
        known = ", ".join(t.label for t in ENCODERS)
        raise UnsupportedError(f"cannot quantise to {type.label}, expected one of {known}")
    n_rows, n = values.shape
    row_bytes = type.row_bytes(n)
    blocks = np.ascontiguousarray(values, np.float32).reshape(-1, type.block_size)
    packed = np.empty((len(blocks), type.block_bytes), np.uint8)
    step = max(1, _AT_ONCE // type.block_size)
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), step):
            packed[start : start + step] = encode(blocks[start : start + step])
    return packed.reshape(n_rows, row_bytes)
