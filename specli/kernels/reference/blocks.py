"""The cache types in torch, so that rows are packed and unpacked where the cache lies (docs/quant-types.md §4).

The bytes and numbers are those of `specli.gguf.encode` and `specli.gguf.decode`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch

from specli.gguf.decode import IQ4_VALUES
from specli.gguf.quant import QuantType

_FLOATS = {QuantType.F32: torch.float32, QuantType.F16: torch.float16, QuantType.BF16: torch.bfloat16}
_LEVELS = tuple(IQ4_VALUES.tolist())


def encode(type: QuantType, rows: torch.Tensor) -> torch.Tensor:
    """`[…, head_size]` float32 as `[…, row_bytes]` uint8."""
    dtype = _FLOATS.get(type)
    if dtype is not None:
        return rows.to(dtype).contiguous().view(torch.uint8)
    return _ENCODERS[type](_split(rows, type.block_size)).flatten(-2)


def decode(type: QuantType, cells: torch.Tensor) -> torch.Tensor:
    """`[…, row_bytes]` uint8 as `[…, head_size]` float32, newly allocated."""
    dtype = _FLOATS.get(type)
    if dtype is not None:
        return cells.view(dtype).to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    return _DECODERS[type](_split(cells, type.block_bytes)).flatten(-2)


def _split(x: torch.Tensor, size: int) -> torch.Tensor:
    """`[…, n]` as `[…, n / size, size]`."""
    return x.reshape(*x.shape[:-1], -1, size)


def _halves(values: torch.Tensor) -> torch.Tensor:
    """`[…, k]` float32 as `[…, 2k]` bytes of float16."""
    return values.to(torch.float16).view(torch.uint8)


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The float16 at byte `at` of every block: `[…, 1]` float32."""
    return blocks[..., at : at + 2].contiguous().view(torch.float16).float()


def _reciprocal(x: torch.Tensor) -> torch.Tensor:
    """1/x, and 0 where x is 0."""
    return torch.where(x == 0, 0, 1 / x)


def _extreme(x: torch.Tensor) -> torch.Tensor:
    """The signed value of largest magnitude of each block, the first one on a tie."""
    return x.gather(-1, x.abs().argmax(dim=-1, keepdim=True))


def _codes(x: torch.Tensor, top: int) -> torch.Tensor:
    return x.nan_to_num(nan=0.0).clamp(0, top).to(torch.uint8)


def _pack(codes: torch.Tensor) -> torch.Tensor:
    """Codes 0…15 in pairs: element j low, element 16+j high."""
    return codes[..., :16] | codes[..., 16:] << 4


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    return torch.cat([packed & 15, packed >> 4], dim=-1)


def _pack_fifth(codes: torch.Tensor) -> torch.Tensor:
    """Bit 4 of 32 codes as 4 bytes, first element lowest."""
    bits = _split(codes >> 4, 8) << torch.arange(8, dtype=torch.uint8, device=codes.device)
    return bits.sum(dim=-1, dtype=torch.uint8)


def _fifth(packed: torch.Tensor) -> torch.Tensor:
    """`[…, 4]` bytes as the bits 4 of 32 codes."""
    bits = packed[..., None] >> torch.arange(8, dtype=torch.uint8, device=packed.device) & 1
    return bits.flatten(-2) << 4


def _sum(x: torch.Tensor) -> torch.Tensor:
    """The sum of 32 elements in NumPy's order: eight sums of every eighth element, which are added in pairs."""
    parts = _split(x, 8)
    total = ((parts[..., 0, :] + parts[..., 1, :]) + parts[..., 2, :]) + parts[..., 3, :]
    while total.shape[-1] > 1:
        total = total[..., 0::2] + total[..., 1::2]
    return total


def _level(codes: torch.Tensor) -> torch.Tensor:
    """The levels of IQ4_NL, without a table, which the host would have to bring."""
    level = torch.full_like(codes, _LEVELS[0], dtype=torch.float32)
    for code, (lower, upper) in enumerate(pairwise(_LEVELS), start=1):
        level += (codes >= code) * (upper - lower)
    return level


def _encode_q8_0(x: torch.Tensor) -> torch.Tensor:
    d = x.abs().amax(dim=-1, keepdim=True) / 127
    scaled = x * _reciprocal(d)
    codes = torch.trunc(scaled + torch.copysign(torch.full_like(scaled, 0.5), scaled))  # halves away from zero
    return torch.cat([_halves(d), codes.to(torch.int8).view(torch.uint8)], dim=-1)


def _decode_q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return _half(blocks, 0) * blocks[..., 2:].contiguous().view(torch.int8)


def _encode_signed(x: torch.Tensor, middle: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and codes around `middle`, the largest value being code 0."""
    d = _extreme(x) / -middle
    return _halves(d), _codes(x * _reciprocal(d) + (middle + 0.5), 2 * middle - 1)


def _encode_offset(x: torch.Tensor, top: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and minimum, and codes from the minimum on."""
    least = x.amin(dim=-1, keepdim=True)
    d = (x.amax(dim=-1, keepdim=True) - least) / top
    header = torch.cat([_halves(d), _halves(least)], dim=-1)
    return header, _codes((x - least) * _reciprocal(d) + 0.5, top)


def _encode_4(header: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    return torch.cat([header, _pack(codes)], dim=-1)


def _encode_5(header: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    return torch.cat([header, _pack_fifth(codes), _pack(codes & 15)], dim=-1)


def _encode_iq4_nl(x: torch.Tensor) -> torch.Tensor:
    scaled = x * _reciprocal(_extreme(x) / _LEVELS[0])
    codes = torch.zeros_like(x, dtype=torch.uint8)
    for lower, upper in pairwise(_LEVELS):
        codes += scaled >= (lower + upper) / 2  # a tie takes the upper level
    level = _level(codes)
    weight = x * x
    d = _sum(weight * level * x) * _reciprocal(_sum(weight * level * level))
    return _encode_4(_halves(d), codes)


def _decode_q5(blocks: torch.Tensor, header: int) -> torch.Tensor:
    return _nibbles(blocks[..., header + 4 :]) | _fifth(blocks[..., header : header + 4])


_ENCODERS: dict[QuantType, Callable[[torch.Tensor], torch.Tensor]] = {
    QuantType.Q8_0: _encode_q8_0,
    QuantType.Q4_0: lambda x: _encode_4(*_encode_signed(x, 8)),
    QuantType.Q4_1: lambda x: _encode_4(*_encode_offset(x, 15)),
    QuantType.Q5_0: lambda x: _encode_5(*_encode_signed(x, 16)),
    QuantType.Q5_1: lambda x: _encode_5(*_encode_offset(x, 31)),
    QuantType.IQ4_NL: _encode_iq4_nl,
}

_DECODERS: dict[QuantType, Callable[[torch.Tensor], torch.Tensor]] = {
    QuantType.Q8_0: _decode_q8_0,
    QuantType.Q4_0: lambda blocks: _half(blocks, 0) * (_nibbles(blocks[..., 2:]).float() - 8),
    QuantType.Q4_1: lambda blocks: _half(blocks, 0) * _nibbles(blocks[..., 4:]) + _half(blocks, 2),
    QuantType.Q5_0: lambda blocks: _half(blocks, 0) * (_decode_q5(blocks, 2).float() - 16),
    QuantType.Q5_1: lambda blocks: _half(blocks, 0) * _decode_q5(blocks, 4) + _half(blocks, 2),
    QuantType.IQ4_NL: lambda blocks: _half(blocks, 0) * _level(_nibbles(blocks[..., 2:])),
}
