"""Safetensors files by their header: names, dtypes, shapes and byte ranges, checked against the file before use.

Layout: u64 header length, JSON header, tensor bytes; offsets are relative to the end of the header
(https://github.com/huggingface/safetensors, format section). Tensors are read with plain reads rather than mapped, so
that peak memory is what is being converted and not the page cache.
"""

from __future__ import annotations

import json
import math
import os
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from specli.convert.lazy import Array, LazyTensor
from specli.errors import FormatError

MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation

NUMPY_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "u1",
}  # fmt: skip
"""Safetensors dtype to the numpy type its bytes are read as; BF16 and fp8 are decoded afterwards."""


def _float8_table(exponent_bits: int, bias: int, *, has_infinity: bool) -> Array:
    """All 256 values of an 8-bit float with sign, `exponent_bits` and the remaining mantissa bits, as float32.

    Worked example, E4M3 code 0x38 = 0 0111 000: 2^(7-7) * (1 + 0/8) = 1.
    """
    mantissa_bits = 7 - exponent_bits
    codes = np.arange(256)
    exponent = codes >> mantissa_bits & (1 << exponent_bits) - 1
    fraction = (codes & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    values = np.where(exponent > 0, 2.0 ** (exponent - bias) * (1 + fraction), 2.0 ** (1 - bias) * fraction)
    if has_infinity:
        top = exponent == (1 << exponent_bits) - 1
        values[top] = np.where(fraction[top] == 0, np.inf, np.nan)
    else:
        values[codes & 0x7F == 0x7F] = np.nan
    return np.where(codes & 0x80, -values, values).astype(np.float32)


FLOAT8 = {"F8_E4M3": _float8_table(4, 7, has_infinity=False), "F8_E5M2": _float8_table(5, 15, has_infinity=True)}
"""fp8 code to value."""


def decode(dtype: str, raw: Array) -> Array:
    """Numbers as conversion uses them: float16 stays, other floats become float32, integers stay."""
    if dtype == "BF16":
        bits = raw.astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32)
    if dtype in FLOAT8:
        return FLOAT8[dtype][raw]
    if dtype == "F64":
        return raw.astype(np.float32)
    return raw


class TensorFile:
    """A file of raw tensors, opened at the first read and kept open.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def close(self) -> None:
        """Closes the file; a later read opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def tensor(self, dtype: str, shape: tuple[int, ...], offset: int) -> LazyTensor:
        """The tensor whose bytes start at `offset`; a scalar gets one axis."""
        return LazyTensor(shape or (1,), dtype, partial(self._read, dtype, shape or (1,), offset))

    def _read(self, dtype: str, shape: tuple[int, ...], offset: int, start: int, stop: int) -> Array:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDONLY)
        raw = np.empty((stop - start, *shape[1:]), np.dtype(NUMPY_TYPES[dtype]))
        view = memoryview(raw.reshape(-1).view(np.uint8).data)
        position = offset + start * math.prod(shape[1:]) * raw.itemsize
        done = 0
        while done < len(view):
            n = os.preadv(self._descriptor, [view[done:]], position + done)
            if n == 0:
                raise FormatError(f"{self.path}: ends at byte {position + done} while being read")
            done += n
        return decode(dtype, raw)


def read_header(path: Path) -> dict[str, Any]:
    """The JSON header of a safetensors file, with `__data__` set to the offset of the tensor bytes.

    Raises:
        FormatError: The file is truncated or its header is not JSON.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        n_header = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or n_header > size - 8:
            raise FormatError(f"{path}: truncated: header of {n_header} bytes in a file of {size} bytes")
        if n_header > MAX_HEADER_BYTES:
            raise FormatError(f"{path}: header of {n_header} bytes is above the limit of {MAX_HEADER_BYTES}")
        text = file.read(n_header)
    try:
        header = json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{path}: header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise FormatError(f"{path}: header is a JSON {type(header).__name__}, expected an object")
    header["__data__"] = 8 + n_header
    return header


def _entry(path: Path, name: str, entry: Any, n_data: int) -> tuple[str, tuple[int, ...], int]:
    """Dtype, shape and relative offset of one header entry, checked."""
    if not isinstance(entry, dict):
        raise FormatError(f"{path}: tensor {name!r} has no description")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in NUMPY_TYPES:
        raise FormatError(f"{path}: tensor {name!r} has dtype {dtype!r}, expected one of {', '.join(NUMPY_TYPES)}")
    if not _counts(shape):
        raise FormatError(f"{path}: tensor {name!r} has shape {shape!r}, expected a list of sizes")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(f"{path}: tensor {name!r} has data offsets {offsets!r}, expected [begin, end]")
    n_bytes = math.prod(shape) * np.dtype(NUMPY_TYPES[dtype]).itemsize
    if offsets[1] - offsets[0] != n_bytes:
        raise FormatError(
            f"{path}: tensor {name!r} has {offsets[1] - offsets[0]} bytes, expected {n_bytes} for {dtype} {shape}"
        )
    if offsets[1] > n_data:
        raise FormatError(f"{path}: truncated: tensor {name!r} ends at byte {offsets[1]} of {n_data}")
    return dtype, tuple(shape), offsets[0]


def _counts(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in values)


def open_safetensors(path: Path) -> tuple[TensorFile, dict[str, LazyTensor]]:
    """The tensors of one file in name order.

    Raises:
        FormatError: The file is truncated or inconsistent.
    """
    header = read_header(path)
    data = header.pop("__data__")
    header.pop("__metadata__", None)
    file = TensorFile(path)
    n_data = path.stat().st_size - data
    tensors = {}
    for name in sorted(header):
        dtype, shape, offset = _entry(path, name, header[name], n_data)
        tensors[name] = file.tensor(dtype, shape, data + offset)
    return file, tensors
