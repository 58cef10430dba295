"""Opening GGUF files: header, metadata and tensor table are checked, tensor data stays mapped (docs/targets.md §1.1).

Every count, length and offset is compared with the file's size before anything is allocated or skipped, so a broken
file costs no more than reading its header. Layout rules are those of llama.cpp's gguf_init_from_file
(ggml/src/gguf.cpp): offsets without holes, unique names, at most 4 axes.
"""

from __future__ import annotations

import math
import mmap
import re
import stat
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from specli.errors import FormatError, ResourceError, UnsupportedError
from specli.files import SNIFFED, content_of
from specli.gguf.metadata import NUMBER_FORMATS, Metadata, Value, ValueType, number_array, show, string_array
from specli.gguf.overrides import Override, with_overrides
from specli.gguf.quant import QuantTensor, QuantType

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_AXES = 4
MAX_TENSOR_NAME = 63  # bytes
MAX_KEY = 65535  # bytes

_HEADER = struct.Struct("<4sIQQ")  # magic, version, tensors, key-values
_VERSIONS = (2, 3)
_MIN_PAIR_BYTES = 8 + 4 + 1  # empty key, type, one byte
_MIN_TENSOR_BYTES = 8 + 4 + 4 + 8  # empty name, no axes, type, offset
_SHARD_NAME = re.compile(r"^(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$", re.DOTALL)


class GGUFFile:
    """A model file, or all shards of a split one.

    Attributes:
        path: The file that was asked for (the first shard).
        architecture: `general.architecture`.
        metadata: Key-value pairs of the first shard.
        tensors: Name to mapped tensor, in file order over all shards.
        n_bytes: Size on disk of all shards.
        shards: Paths of all shards, the first one included.
    """

    def __init__(
        self,
        path: Path,
        metadata: Metadata,
        tensors: dict[str, QuantTensor],
        n_bytes: int,
        others: Sequence[Path] = (),
    ) -> None:
        self.path = path
        self.shards = (path, *others)
        self.architecture = metadata.require("general.architecture", "str")
        self.metadata = metadata
        self.tensors = tensors
        self.n_bytes = n_bytes

    @classmethod
    def open(cls, path: str | Path, overrides: Sequence[Override] = ()) -> GGUFFile:
        """Maps a file and checks its header; tensor data is not read.

        Args:
            path: The file, or the first shard of a split one.
            overrides: Metadata to read in place of what the file has.

        Raises:
            ResourceError: The file cannot be opened.
            FormatError: The file is broken, no GGUF file, or not the first part of a split one.
            UnsupportedError: The file has another version of the format, is big-endian, or has an unknown quant type.
        """
        path = Path(path)
        first = _Shard(path)
        n_shards = first.metadata.get("split.count", "u16", 0)
        metadata = with_overrides(path, first.metadata, overrides) if overrides else first.metadata
        if n_shards <= 1:
            return cls(path, metadata, first.tensors, first.n_bytes)
        tensors = dict(first.tensors)
        n_bytes = first.n_bytes
        others = _other_shards(path, first.metadata, n_shards)
        for number, shard_path in enumerate(others, 1):
            shard = _Shard(shard_path)
            _check_shard(shard, number, n_shards)
            twice = tensors.keys() & shard.tensors.keys()
            if twice:
                raise FormatError(f"{shard_path}: tensor {show(min(twice))} is in an earlier shard too")
            tensors |= shard.tensors
            n_bytes += shard.n_bytes
        total = first.metadata.require("split.tensors.count", "i32")
        if total != len(tensors):
            raise FormatError(f"{path}: {n_shards} shards hold {len(tensors)} tensors, split.tensors.count is {total}")
        return cls(path, metadata, tensors, n_bytes, others)

    def close(self) -> None:
        """Lets go of the tensors. The mapping ends when nobody holds a tensor's data any more."""
        self.tensors = {}

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _other_shards(path: Path, metadata: Metadata, n_shards: int) -> list[Path]:
    """Paths of shards 2…n, after checking that `path` is named and numbered as the first."""
    number = metadata.require("split.no", "u16")
    name = _SHARD_NAME.match(path.name)
    if name is None or int(name["count"]) != n_shards or int(name["number"]) != number + 1:
        expected = f"-{number + 1:05d}-of-{n_shards:05d}.gguf"
        raise FormatError(f"{path}: is shard {number + 1} of {n_shards}, its name must end in {expected}")
    others = [path.with_name(f"{name['prefix']}-{i:05d}-of-{n_shards:05d}.gguf") for i in range(1, n_shards + 1)]
    if number != 0:
        raise FormatError(f"{path}: is shard {number + 1} of {n_shards}, expected the first", hint=f"use {others[0]}")
    return others[1:]


def _check_shard(shard: _Shard, number: int, n_shards: int) -> None:
    """Checks that a shard says it is number `number` (from 0) of `n_shards`."""
    found = shard.metadata.require("split.no", "u16")
    count = shard.metadata.require("split.count", "u16")
    if (found, count) != (number, n_shards):
        raise FormatError(
            f"{shard.path}: is shard {found + 1} of {count} by its metadata, expected {number + 1} of {n_shards}"
        )


_AGAIN = "copy or download it again"


class _Shard:
    """One mapped file: `metadata`, `tensors`, `n_bytes`. Parses on construction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._buffer = self._map()
        self.n_bytes = len(self._buffer)
        self._position = 0  # of the next byte to read
        n_tensors, n_pairs = self._read_header()
        self.metadata = self._read_metadata(n_pairs)
        self.tensors = self._read_tensors(n_tensors)

    def _fail(self, message: str, hint: str | None = None) -> NoReturn:
        raise FormatError(f"{self.path}: {message}", hint=hint)

    def _fail_as_truncated(self, what: str, end: int) -> NoReturn:
        self._fail(f"truncated: {what} at byte {end}, the file has {self.n_bytes} bytes", _AGAIN)

    def _map(self) -> mmap.mmap:
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for a writer
                raise ResourceError(f"{self.path}: not a regular file")
            with self.path.open("rb") as file:
                head = file.read(SNIFFED)
                if not head.startswith(MAGIC):
                    self._fail(*_not_gguf(head))
                if status.st_size < _HEADER.size:
                    self.n_bytes = status.st_size
                    self._fail_as_truncated("the header ends", _HEADER.size)
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
            raise ResourceError(f"{self.path}: cannot open: {reason}") from None

    # Reading forward. `what` names the thing read in the error for a file that ends too early.

    def _take(self, n: int, what: str) -> int:
        """Moves past `n` bytes; returns where they begin."""
        start = self._position
        if n > self.n_bytes - start:
            self._fail_as_truncated(f"{what} ends", start + n)
        self._position += n
        return start

    def _number(self, code: str, what: str) -> Any:
        start = self._take(struct.calcsize(code), what)
        return struct.unpack_from(code, self._buffer, start)[0]

    def _text(self, limit: int, what: str) -> str:
        length = self._number("<Q", f"length of {what}")
        start = self._take(length, what)
        if length > limit:
            self._fail(f"{what} at byte {start} has {length} bytes, expected at most {limit}")
        try:
            return self._buffer[start : start + length].decode()
        except UnicodeDecodeError as error:
            self._fail(f"{what} at byte {start} is not UTF-8: {error.reason}")

    def _check_count(self, count: int, bytes_each: int, what: str) -> None:
        """Fails when `count` items cannot fit into the rest of the file."""
        rest = self.n_bytes - self._position
        if count * bytes_each > rest:
            self._fail(f"{count} {what} at byte {self._position} do not fit into the remaining {rest} bytes")

    def _read_header(self) -> tuple[int, int]:
        """Numbers of tensors and of key-value pairs."""
        _, version, n_tensors, n_pairs = _HEADER.unpack_from(self._buffer, self._take(_HEADER.size, "header"))
        if version and version & 0xFFFF == 0:
            raise UnsupportedError(f"{self.path}: big-endian GGUF, only little-endian files are read")
        if version not in _VERSIONS:
            raise UnsupportedError(f"{self.path}: GGUF version {version}, expected 2 or 3")
        self._check_count(n_pairs, _MIN_PAIR_BYTES, "key-value pairs")
        self._check_count(n_tensors, _MIN_TENSOR_BYTES, "tensors")
        return n_tensors, n_pairs

    def _read_metadata(self, n_pairs: int) -> Metadata:
        values: dict[str, Value] = {}
        for index in range(n_pairs):
            key = self._text(MAX_KEY, f"key {index}")
            if key in values:
                self._fail(f"key {show(key)} is there twice")
            values[key] = self._read_value(f"key {show(key)}")
        return Metadata(self.path, values)

    def _value_type(self, what: str) -> ValueType:
        number = self._number("<I", f"type of {what}")
        try:
            return ValueType(number)
        except ValueError:
            self._fail(f"{what} has value type {number}, expected 0 to {max(ValueType)}")

    def _read_value(self, what: str) -> Value:
        type = self._value_type(what)
        if type is ValueType.ARRAY:
            return self._read_array(what)
        if type is ValueType.STR:
            length = self._number("<Q", f"length of {what}")
            start = self._take(length, what)
            return Value("str", lambda: self._buffer[start : start + length].decode())
        start = self._take(struct.calcsize(NUMBER_FORMATS[type]), what)
        number = struct.unpack_from(NUMBER_FORMATS[type], self._buffer, start)[0]
        return Value(type.label, lambda: number)

    def _read_array(self, what: str) -> Value:
        type = self._value_type(f"elements of {what}")
        if type is ValueType.ARRAY:
            self._fail(f"{what} is an array of arrays, expected an array of numbers or strings")
        count = self._number("<Q", f"element count of {what}")
        load: Callable[[], Any]
        if type is ValueType.STR:
            self._check_count(count, 8, f"strings of {what}")
            load = partial(string_array, self._buffer, self._position, count)
            self._skip_strings(count, what)
        else:
            size = struct.calcsize(NUMBER_FORMATS[type])
            self._check_count(count, size, f"numbers of {what}")
            load = partial(number_array, self._buffer, self._take(count * size, what), count, type)
        return Value(f"[{type.label}]", load, count)

    def _skip_strings(self, count: int, what: str) -> None:
        """Moves past `count` strings. The loop of large vocabularies: 262,144 strings take about 50 ms."""
        buffer, position = self._buffer, self._position
        length_at = struct.Struct("<Q").unpack_from
        last = self.n_bytes - 8  # where a length can begin at the latest
        for index in range(count):
            if position > last:
                self._fail(f"{what} ends inside string {index} of {count}")
            position += 8 + length_at(buffer, position)[0]
        if position > self.n_bytes:
            self._fail(f"{what} ends inside string {count - 1} of {count}")
        self._position = position

    def _read_tensors(self, n_tensors: int) -> dict[str, QuantTensor]:
        alignment = self.metadata.get("general.alignment", "u32", DEFAULT_ALIGNMENT)
        if alignment & (alignment - 1) or alignment == 0:
            self._fail(f"general.alignment is {alignment}, expected a power of two")
        infos = [self._read_tensor_info(index) for index in range(n_tensors)]
        base = padded(self._position, alignment)
        data = np.frombuffer(self._buffer, np.uint8)
        tensors: dict[str, QuantTensor] = {}
        expected = end = 0
        for name, type, shape, offset in infos:
            what = f"tensor {show(name)}"
            if name in tensors:
                self._fail(f"{what} is there twice")
            if offset != expected:
                self._fail(f"{what} has offset {offset}, expected {expected}")
            n_bytes = math.prod(shape[:-1]) * type.row_bytes(shape[-1])
            end = base + offset + n_bytes
            tensors[name] = QuantTensor(name, type, shape, data[base + offset : base + offset + n_bytes])
            expected = padded(offset + n_bytes, alignment)
        if end > self.n_bytes:
            self._fail_as_truncated("the last tensor ends", end)
        return tensors

    def _read_tensor_info(self, index: int) -> tuple[str, QuantType, tuple[int, ...], int]:
        """Name, type, shape in torch order, and offset into the data area."""
        name = self._text(MAX_TENSOR_NAME, f"name of tensor {index}")
        what = f"tensor {show(name)}"
        n_axes = self._number("<I", f"axis count of {what}")
        if n_axes > MAX_AXES:
            self._fail(f"{what} has {n_axes} axes, expected at most {MAX_AXES}")
        extents = [self._number("<Q", f"axis of {what}") for _ in range(n_axes)] or [1]  # no axes: one number
        if 0 in extents:
            self._fail(f"{what} has an empty axis: {extents}")
        number = self._number("<I", f"type of {what}")
        try:
            type = QuantType(number)
        except ValueError:
            raise UnsupportedError(f"{self.path}: {what} has unknown quant type {number}") from None
        if extents[0] % type.block_size:
            self._fail(
                f"{what} has rows of {extents[0]} elements, expected a multiple of {type.block_size} ({type.label})"
            )
        offset: int = self._number("<Q", f"offset of {what}")
        return name, type, tuple(reversed(extents)), offset


def _not_gguf(head: bytes) -> tuple[str, str | None]:
    """What a file is that is no GGUF file, by its first bytes, and what can be done."""
    other = content_of(head)
    if other is not None:
        return f"not a GGUF file, but {other.what}", other.hint
    if not any(head):
        return f"not a GGUF file: it {'starts with zeros' if head else 'is empty'}", _AGAIN
    return f"not a GGUF file: starts with {head[:4]!r}, expected {MAGIC!r}", None


def padded(n: int, alignment: int) -> int:
    """`n` rounded up to a multiple of `alignment`, a power of two."""
    return (n + alignment - 1) & -alignment
