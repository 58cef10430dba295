"""Safetensors files by their header: names, dtypes, shapes and byte ranges, checked against the file before use.

Layout: u64 header length, JSON header, tensor bytes; offsets are relative to the end of the header
(https://github.com/huggingface/safetensors, format section). Tensors are read with plain reads rather than mapped, so
that peak memory is what is being converted and not the page cache.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from specli.convert.lazy import Array, LazyTensor
from specli.convert.values import parse_json
from specli.errors import FormatError
from specli.files import SNIFFED, content_of, file_size
from specli.gguf.metadata import show

MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation
MAX_NAME = 500  # characters, far above any layout's

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
            try:
                self._descriptor = os.open(self.path, os.O_RDONLY)
            except OSError as error:
                raise FormatError(f"{self.path}: cannot be read: {error.strerror}") from None
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


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The JSON header of a safetensors file, and how many bytes stand before the tensors'.

    Raises:
        FormatError: The file is truncated, or its header is not a JSON object whose keys are all different.
    """
    size = file_size(path)
    try:
        with path.open("rb") as file:
            head = file.read(SNIFFED)
            n_header = int.from_bytes(head[:8], "little")
            other = content_of(head)
            if other is not None and other.what != "a safetensors file":
                raise FormatError(f"{path}: not a safetensors file, but {other.what}", hint=other.hint)
            if len(head) < 8 or n_header > size - 8:
                raise FormatError(f"{path}: truncated: header of {n_header} bytes in a file of {size} bytes")
            if n_header > MAX_HEADER_BYTES:
                raise FormatError(f"{path}: header of {n_header} bytes is above the limit of {MAX_HEADER_BYTES}")
            file.seek(8)
            content = file.read(n_header)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: header is not UTF-8: {error}") from None
    if not text.startswith("{"):
        raise FormatError(f"{path}: header starts with {text[:8]!r}, expected a JSON object")
    header: dict[str, Any] = parse_json(path, text, "header is ", unique=True)
    return header, 8 + n_header


def _entry(path: Path, name: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Dtype, shape, relative offset and end of one header entry, checked."""
    if not isinstance(entry, dict):
        raise FormatError(f"{path}: tensor {name!r} has no description")
    if not name.isprintable() or len(name) > MAX_NAME:
        raise FormatError(f"{path}: tensor name {show(name)} is no name of at most {MAX_NAME} printable characters")
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
    return dtype, tuple(shape), offsets[0], offsets[1]


def _counts(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 64 for v in values
    )


def _is_text(value: Any) -> bool:
    """Whether it is a string that can be written as UTF-8."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def open_safetensors(path: Path) -> tuple[TensorFile, dict[str, LazyTensor]]:
    """The tensors of one file in name order.

    Raises:
        FormatError: The file is truncated or inconsistent.
    """
    header, start = read_header(path)
    metadata = header.pop("__metadata__", None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(_is_text(value) for value in metadata.values()):
        raise FormatError(f"{path}: __metadata__ of the header is not an object of texts")
    file = TensorFile(path)
    entries = {name: _entry(path, name, header[name]) for name in sorted(header)}
    _check_tiling(path, {name: (first, last) for name, (_, _, first, last) in entries.items()}, file_size(path) - start)
    return file, {name: file.tensor(dtype, shape, start + first) for name, (dtype, shape, first, _) in entries.items()}


def _check_tiling(path: Path, spans: Mapping[str, tuple[int, int]], n_data: int) -> None:
    """The format demands that the tensors fill the data area in some order, without gaps and overlaps.

    Args:
        path: For messages.
        spans: First byte and end of every tensor in the data area.
        n_data: Bytes of the data area.
    """
    end, before = 0, "the header"
    for name, (first, last) in sorted(spans.items(), key=lambda item: item[1]):
        if last > n_data:
            raise FormatError(f"{path}: truncated: tensor {name!r} ends at byte {last} of {n_data}")
        if first != end:
            fault = "overlaps" if first < end else "leaves a gap after"
            raise FormatError(
                f"{path}: tensor {name!r} at bytes {first} to {last} {fault} {before}, which ends at {end}"
            )
        end, before = last, f"tensor {name!r}"
    if end != n_data:
        raise FormatError(f"{path}: {n_data - end} bytes after the last tensor belong to none")
