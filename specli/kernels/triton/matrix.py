"""Products with quantised matrices and look-ups of their rows.

Matrices lie in memory as in their file. A program makes a tile of the product, always of `ROWS` rows, and walks along
the whole of n_in in the same steps: what a row gives depends neither on the number of rows nor on what they hold.

No value here is a bfloat16: Triton's interpreter computes with those wrongly and without a word.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl

from specli.gguf.quant import QuantType

ROWS = 16  # rows of a tile
COLUMNS = 32  # outputs of a tile
STEP = 32  # elements along n_in that are multiplied at once
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}  # of the compiler; fused, unpacking would round otherwise

# Types that are multiplied as they are stored.
TYPES = frozenset(
    {
        *(QuantType.F32, QuantType.F16, QuantType.BF16, QuantType.Q8_0),
        *(QuantType.Q4_0, QuantType.Q4_1, QuantType.Q5_0, QuantType.Q5_1),
        *(QuantType.Q4_K, QuantType.Q5_K, QuantType.Q6_K),
    }
)


@triton.jit
def _byte(at, mask):
    """Bytes as int32."""
    return tl.load(at, mask=mask, other=0).to(tl.int32)


@triton.jit
def _half(at, mask):
    """The float16 at an even address as float32."""
    low = tl.load(at, mask=mask, other=0).to(tl.uint16)
    high = tl.load(at + 1, mask=mask, other=0).to(tl.uint16)
    return (low | (high << 8)).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def _scales_k(at, s, mask):
    """The 6-bit scale and minimum of sub-block `s` of Q4_K and Q5_K, as float32 (docs/quant-types.md §3)."""
    first = _byte(at + s % 4, mask)
    middle = _byte(at + 4 + s % 4, mask)
    last = _byte(at + 8 + s % 4, mask)
    scale = tl.where(s < 4, first & 63, (last & 15) | ((first >> 6) << 4))
    least = tl.where(s < 4, middle & 63, (last >> 4) | ((middle >> 6) << 4))
    return scale.to(tl.float32), least.to(tl.float32)


@triton.jit
def unpack(row, k, mask, TYPE: tl.constexpr):
    """Elements `k` of rows that begin at the addresses `row`, as float32. Types by their numbers in GGUF files."""
    if TYPE == 0:  # F32
        bits = _byte(row + 4 * k, mask) | _byte(row + 4 * k + 1, mask) << 8
        bits = bits | _byte(row + 4 * k + 2, mask) << 16 | _byte(row + 4 * k + 3, mask) << 24
        return bits.to(tl.float32, bitcast=True)
    elif TYPE == 1:  # F16
        return _half(row + 2 * k, mask)
    elif TYPE == 30:  # BF16: the upper half of a float32
        bits = _byte(row + 2 * k, mask) << 16 | _byte(row + 2 * k + 1, mask) << 24
        return bits.to(tl.float32, bitcast=True)
    elif TYPE == 8:  # Q8_0
        block = row + k // 32 * 34
        code = _byte(block + 2 + k % 32, mask)
        return _half(block, mask) * (code - (code >> 7 << 8)).to(tl.float32)
    elif TYPE == 2:  # Q4_0
        block, j = row + k // 32 * 18, k % 32
        code = _byte(block + 2 + j % 16, mask) >> (j // 16 * 4) & 15
        return _half(block, mask) * (code - 8).to(tl.float32)
    elif TYPE == 3:  # Q4_1
        block, j = row + k // 32 * 20, k % 32
        code = _byte(block + 4 + j % 16, mask) >> (j // 16 * 4) & 15
        return _half(block, mask) * code.to(tl.float32) + _half(block + 2, mask)
    elif TYPE == 6:  # Q5_0
        block, j = row + k // 32 * 22, k % 32
        code = _byte(block + 6 + j % 16, mask) >> (j // 16 * 4) & 15
        code = code | (_byte(block + 2 + j // 8, mask) >> (j % 8) & 1) << 4
        return _half(block, mask) * (code - 16).to(tl.float32)
    elif TYPE == 7:  # Q5_1
        block, j = row + k // 32 * 24, k % 32
        code = _byte(block + 8 + j % 16, mask) >> (j // 16 * 4) & 15
        code = code | (_byte(block + 4 + j // 8, mask) >> (j % 8) & 1) << 4
        return _half(block, mask) * code.to(tl.float32) + _half(block + 2, mask)
    elif TYPE == 12:  # Q4_K
        block, s = row + k // 256 * 144, k % 256 // 32
        scale, least = _scales_k(block + 4, s, mask)
        code = _byte(block + 16 + s // 2 * 32 + k % 32, mask) >> (s % 2 * 4) & 15
        return _half(block, mask) * scale * code.to(tl.float32) - _half(block + 2, mask) * least
    elif TYPE == 13:  # Q5_K
        block, s = row + k // 256 * 176, k % 256 // 32
        scale, least = _scales_k(block + 4, s, mask)
        code = _byte(block + 48 + s // 2 * 32 + k % 32, mask) >> (s % 2 * 4) & 15
        code = code | (_byte(block + 16 + k % 32, mask) >> s & 1) << 4
        return _half(block, mask) * scale * code.to(tl.float32) - _half(block + 2, mask) * least
    else:
        tl.static_assert(TYPE == 14)  # Q6_K
        block, i = row + k // 256 * 210, k % 256
        half, r = i // 128, i % 128
        code = _byte(block + half * 64 + r % 64, mask) >> (r // 64 * 4) & 15
        code = code | (_byte(block + 128 + half * 32 + r % 32, mask) >> (r // 32 * 2) & 3) << 4
        scale = _byte(block + 192 + i // 16, mask)
        scale = (scale - (scale >> 7 << 8)).to(tl.float32)
        return _half(block + 208, mask) * scale * (code - 32).to(tl.float32)


@triton.jit
def project_kernel(
    out, x, matrix, n_rows, n_in, n_out, row_bytes, x_stride,
    TYPE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """One tile of `out = x · matrixᵀ`, `out` `[n_rows, n_out]` contiguous, all float32."""
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    starts = matrix + columns.to(tl.int64)[:, None] * row_bytes
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, n_in, STEP):
        k = start + tl.arange(0, STEP)[None, :]
        at = x + rows[:, None] * x_stride + k
        values = tl.load(at, mask=(rows[:, None] < n_rows) & (k < n_in), other=0.0)
        weights = unpack(starts, k, (columns[:, None] < n_out) & (k < n_in), TYPE)
        total = tl.dot(values, tl.trans(weights), total, input_precision="tf32x3")
    at = out + rows.to(tl.int64)[:, None] * n_out + columns[None, :]
    tl.store(at, total, mask=(rows[:, None] < n_rows) & (columns[None, :] < n_out))


@triton.jit
def rows_kernel(out, matrix, ids, n_in, row_bytes, TYPE: tl.constexpr, STEP: tl.constexpr):
    """Part of a row: `out[i] = matrix[ids[i]]`, `out` `[n, n_in]` contiguous float32."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * STEP + tl.arange(0, STEP)
    start = matrix + tl.load(ids + row).to(tl.int64) * row_bytes
    tl.store(out + row * n_in + k, unpack(start, k, k < n_in, TYPE), mask=k < n_in)


def project(data: torch.Tensor, type: QuantType, rows: torch.Tensor) -> torch.Tensor:
    """Rows times a transposed matrix.

    Args:
        data: `[n_out, row_bytes]` uint8, the matrix as stored.
        type: Its type, one of `TYPES`.
        rows: `[n, n_in]` float32, the last axis contiguous.

    Returns:
        `[n, n_out]` float32, newly allocated.
    """
    n, n_in = rows.shape
    n_out, row_bytes = data.shape
    out = torch.empty(n, n_out, device=rows.device)
    grid = triton.cdiv(n_out, COLUMNS), triton.cdiv(n, ROWS)
    project_kernel[grid](
        out, rows, data, n, n_in, n_out, row_bytes, rows.stride(0),
        TYPE=int(type), ROWS=ROWS, COLUMNS=COLUMNS, STEP=STEP, **OPTIONS,
    )  # fmt: skip
    return out


def look_up(data: torch.Tensor, type: QuantType, n_in: int, ids: torch.Tensor) -> torch.Tensor:
    """Rows of a matrix.

    Args:
        data: `[n_out, row_bytes]` uint8.
        type: Its type, one of `TYPES`.
        n_in: Elements of a row.
        ids: `[n]` int32, inside the matrix.

    Returns:
        `[n, n_in]` float32, newly allocated.
    """
    out = torch.empty(len(ids), n_in, device=ids.device)
    step = 256
    rows_kernel[len(ids), triton.cdiv(n_in, step)](
        out, data, ids.contiguous(), n_in, data.shape[1], TYPE=int(type), STEP=step, **OPTIONS
    )
    return out
