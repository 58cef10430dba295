"""Float32 to Q4_K, Q5_K and Q6_K blocks, vectorised over sub-blocks (docs/quant-types.md §3).

The formats leave the choice of scales to the writer. As llama.cpp without an importance matrix
(`quantize_row_q*_K_ref`, ggml/src/ggml-quants.c), each sub-block tries a few step sizes around its range, fits scale
and minimum to the codes of each by weighted least squares, and keeps the one with the smallest weighted error; then the
scales themselves are rounded and the codes taken anew. Fewer step sizes are tried: 3 or 4 instead of
16 to 21. On normal, Student-t and uniform values and on Gemma 3's embeddings the root-mean-square error is at most
2 % above llama.cpp's, at several times its speed.

Sub-blocks are columns here, `[width, n]`: sums over a sub-block are then sums of long rows, which numpy does several
times faster than sums of short ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specli.gguf.decode import FOUR, LOW, Bytes, Floats
from specli.gguf.floats import extreme, half_bytes, reciprocal

# Added to the number of steps that the range is cut into. Below 0.5 for the affine types, so that no code exceeds top.
_STRETCHES_Q4 = (-0.8, -0.2, 0.3)
_STRETCHES_Q5 = (-1.0, -0.3, 0.4)
_STRETCHES_Q6 = (-0.7, -0.2, 0.3, 0.7)

_TRANSPOSED_AT_ONCE = 64  # rows: source and destination lines stay in the first-level cache, five times the speed


def _columns(x: Floats, width: int) -> Floats:
    """Sub-blocks of `[n, 256]` as columns: `[width, n * 256 / width]`, a copy."""
    rows = x.reshape(-1, width)
    columns = np.empty((width, len(rows)), np.float32)
    for start in range(0, len(rows), _TRANSPOSED_AT_ONCE):
        stop = start + _TRANSPOSED_AT_ONCE
        columns[:, start:stop] = rows[start:stop].T
    return columns


def _dot(a: Floats, b: Floats) -> Floats:
    """Σ a·b of each column: `[k, n]`, `[k, n]` → `[n]`."""
    sums: Floats = np.einsum("ij,ij->j", a, b)
    return sums


def _fit_affine(x: Floats, top: int, stretches: Sequence[float]) -> tuple[Floats, Floats]:
    """The scale s ≥ 0 and minimum m ≤ 0 of each column for x ≈ s·q + m with codes q of 0…top.

    Args:
        x: `[32, n]`.
        top: Largest code.
        stretches: Step sizes to try are (max - min) / (top + stretch); each below 0.5.

    Returns:
        s and m, each `[n]`.
    """
    low = np.minimum(x.min(axis=0), 0)
    span = x.max(axis=0) - low
    per_step = reciprocal(span)
    weight = np.abs(x)
    weight += np.sqrt(_dot(x, x) / np.float32(len(x)))  # large values count more
    weighted_x = weight * x
    shifted = x - low
    sum_w = weight.sum(axis=0)
    sum_wx = weighted_x.sum(axis=0)

    best_s, best_m = span / np.float32(top), low
    best_gain = np.full_like(sum_w, -np.inf)
    q, wq = np.empty_like(x), np.empty_like(x)
    for stretch in stretches:
        np.multiply(shifted, per_step * np.float32(top + stretch), out=q)
        np.rint(q, out=q)
        np.multiply(weight, q, out=wq)
        sum_wqx = _dot(q, weighted_x)
        sum_wq = wq.sum(axis=0)
        sum_wqq = _dot(wq, q)
        inverse = reciprocal(sum_w * sum_wqq - sum_wq * sum_wq)
        s = (sum_w * sum_wqx - sum_wx * sum_wq) * inverse
        m = (sum_wqq * sum_wx - sum_wq * sum_wqx) * inverse
        positive = m > 0  # the format can only subtract
        s = np.where(positive, sum_wqx * reciprocal(sum_wqq), s)
        m = np.where(positive, np.float32(0), m)
        # Σ w·x² minus the weighted squared error of s·q + m
        gain = 2 * (s * sum_wqx + m * sum_wx - s * m * sum_wq) - s * s * sum_wqq - m * m * sum_w
        better = (gain > best_gain) & (inverse > 0)
        best_s = np.where(better, s, best_s)
        best_m = np.where(better, m, best_m)
        best_gain = np.where(better, gain, best_gain)
    return best_s, best_m


def _pack_scales(scales: Bytes, minima: Bytes) -> Bytes:
    """Two `[n, 8]` arrays of 6-bit values to `[n, 12]` bytes; the inverse of `decode.unpack_scales_k`."""
    high = np.uint8(6)
    low = scales[:, :4] | (scales[:, 4:] >> FOUR) << high
    middle = minima[:, :4] | (minima[:, 4:] >> FOUR) << high
    last = (scales[:, 4:] & LOW) | (minima[:, 4:] & LOW) << FOUR
    return np.concatenate([low, middle, last], axis=1)


def _sixty_three(values: Floats) -> tuple[Floats, Bytes]:
    """Rounds the non-negative `[n, 8]` scales of a block to 6 bits: step `[n, 1]` as stored in half, codes `[n, 8]`."""
    largest = values.max(axis=1, keepdims=True)
    codes = np.rint(values * (np.float32(63) * reciprocal(largest)))
    step = (largest / np.float32(63)).astype(np.float16).astype(np.float32)
    return step, codes.astype(np.uint8)


def _affine_k(x: Floats, top: int, stretches: Sequence[float]) -> tuple[Bytes, Bytes]:
    """Header `[n, 16]` and codes `[n, 8, 32]` that Q4_K and Q5_K share; x is `[n, 256]`."""
    values = _columns(x, 32)
    s, m = _fit_affine(values, top, stretches)
    d, scales = _sixty_three(s.reshape(-1, 8))
    d_min, minima = _sixty_three(-m.reshape(-1, 8))
    values += (d_min * minima).reshape(-1)
    values *= reciprocal(d * scales).reshape(-1)
    np.rint(values, out=values)
    np.clip(values, 0, top, out=values)
    header = np.concatenate([half_bytes(d), half_bytes(d_min), _pack_scales(scales, minima)], axis=1)
    return header, np.ascontiguousarray(values.astype(np.uint8).T).reshape(-1, 8, 32)


def _pack_nibbles(q: Bytes) -> Bytes:
    """`[n, 8, 32]` codes 0…15 to `[n, 128]`: sub-blocks 2c low, 2c+1 high."""
    packed: Bytes = (q[:, 0::2] | q[:, 1::2] << FOUR).reshape(-1, 128)
    return packed


def encode_q4_k(x: Floats) -> Bytes:
    """`[n, 256]` float32 to `[n, 144]` bytes."""
    header, q = _affine_k(x, 15, _STRETCHES_Q4)
    return np.concatenate([header, _pack_nibbles(q)], axis=1)


def encode_q5_k(x: Floats) -> Bytes:
    """`[n, 256]` float32 to `[n, 176]` bytes."""
    header, q = _affine_k(x, 31, _STRETCHES_Q5)
    fifth = _joined(q >> FOUR, 1)  # bit j: sub-block j
    return np.concatenate([header, fifth, _pack_nibbles(q & LOW)], axis=1)


def _joined(q: Bytes, n_bits: int) -> Bytes:
    """`[…, k, 32]` codes of `n_bits` to `[…, 32]` bytes, code j in the bits from j · n_bits on."""
    joined: Bytes = q[..., 0, :].copy()
    for j in range(1, q.shape[-2]):
        joined |= q[..., j, :] << np.uint8(j * n_bits)
    return joined


def _fit_linear(x: Floats, bottom: int, stretches: Sequence[float]) -> Floats:
    """The scale s of each column of `[16, n]` for x ≈ s·q with codes q of bottom…-bottom-1: `[n]`, of either sign.

    The value of largest magnitude gets the code `bottom` or one near it, so s has the opposite sign.
    """
    high, low = x.max(axis=0), x.min(axis=0)
    per_extreme = reciprocal(np.where(high > -low, high, low))
    squares = x * x  # the weights
    weighted_x = squares * x
    best_s = np.zeros_like(per_extreme)
    best_gain = np.full_like(per_extreme, -np.inf)
    q = np.empty_like(x)
    for stretch in stretches:
        np.multiply(x, per_extreme * np.float32(bottom - stretch), out=q)
        np.rint(q, out=q)
        np.clip(q, bottom, -bottom - 1, out=q)
        sum_wqx = _dot(q, weighted_x)
        np.multiply(q, q, out=q)
        s = sum_wqx * reciprocal(_dot(q, squares))
        gain = s * sum_wqx
        better = gain > best_gain
        best_s = np.where(better, s, best_s)
        best_gain = np.where(better, gain, best_gain)
    return best_s


def encode_q6_k(x: Floats) -> Bytes:
    """`[n, 256]` float32 to `[n, 210]` bytes."""
    values = _columns(x, 16)
    s = _fit_linear(values, -32, _STRETCHES_Q6).reshape(-1, 16)
    unit = extreme(s) / np.float32(-128)
    scales = np.clip(np.rint(s * reciprocal(unit)), -128, 127).astype(np.int8)
    d = unit.astype(np.float16).astype(np.float32)
    values *= reciprocal(d * scales).reshape(-1)
    np.rint(values, out=values)
    np.clip(values, -32, 31, out=values)
    values += np.float32(32)
    q = np.ascontiguousarray(values.astype(np.uint8).T).reshape(-1, 2, 4, 32)  # half, quarter, byte
    low = (q[:, :, :2] & LOW) | (q[:, :, 2:] & LOW) << FOUR
    high = _joined(q >> FOUR, 2)
    return np.concatenate([low.reshape(-1, 128), high.reshape(-1, 64), scales.view(np.uint8), half_bytes(d)], axis=1)
