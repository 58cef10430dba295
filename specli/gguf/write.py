"""Writing GGUF version 3, laid out as llama.cpp's gguf-py does.

Tensor data is produced one tensor at a time while the file is written, so a conversion holds one tensor in memory. The
file appears under its name only when it is complete; an existing file stays as it was until then.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from specli.errors import FormatError
from specli.files import Output
from specli.gguf.file import DEFAULT_ALIGNMENT, MAGIC, MAX_AXES, MAX_TENSOR_NAME, padded
from specli.gguf.metadata import NUMBER_FORMATS, ValueType, show
from specli.gguf.types import QuantType

VERSION = 3

TensorData = npt.NDArray[np.uint8] | Callable[[], npt.NDArray[np.uint8]]

_TYPES = {type.label: type for type in ValueType}


@dataclass(frozen=True, eq=False)
class _Tensor:
    """A tensor to be written; `data` makes or holds its bytes."""

    name: str
    type: QuantType
    shape: tuple[int, ...]
    data: TensorData

    @property
    def nbytes(self) -> int:
        width = self.shape[-1] if self.shape else 1
        return math.prod(self.shape[:-1]) * self.type.row_bytes(width)


class GGUFWriter:
    """Collects metadata and tensors, and writes them on `close`.

    As a context manager it closes when the block ends well, and writes nothing when it raises.

    Args:
        path: File to write. With shards, "-00001-of-0000N" goes before its suffix.
        architecture: `general.architecture`, written first.
        split_max_bytes: Begins a new shard where a tensor would take one beyond this many bytes of tensor data;
            None for one file.
        split_max_tensors: Begins a new shard after this many tensors; None for no limit.
        first_without_tensors: Leaves the first of several shards without tensors.
    """

    def __init__(
        self,
        path: str | Path,
        architecture: str,
        *,
        split_max_bytes: int | None = None,
        split_max_tensors: int | None = None,
        first_without_tensors: bool = False,
    ) -> None:
        self.path = Path(path)
        self._split_max_bytes = split_max_bytes
        self._split_max_tensors = split_max_tensors
        self._first_without_tensors = first_without_tensors
        self._pairs: dict[str, bytes] = {}
        self._alignment = DEFAULT_ALIGNMENT
        self._tensors: dict[str, _Tensor] = {}
        self.add("general.architecture", "str", architecture)

    def add(self, key: str, kind: str, value: Any) -> None:
        """Sets a key; a second time it keeps its place and takes the new value.

        Args:
            key: Full key.
            kind: How it is stored: "u32", "f32", "bool", "str", … or an array such as "[str]".
            value: Number, bool, str or bytes; for arrays a sequence of them or a numpy array.

        Raises:
            FormatError: The value does not fit the kind.
        """
        try:
            self._pairs[key] = _packed_value(kind, value)
        except (struct.error, ArithmeticError, TypeError, ValueError) as error:  # UnicodeEncodeError is a ValueError
            raise FormatError(f"{self.path}: key {show(key)} cannot be stored as {kind}: {error}") from None
        if key == "general.alignment":
            self._alignment = value

    def add_tensor(self, name: str, type: QuantType, shape: tuple[int, ...], data: TensorData) -> None:
        """Appends a tensor.

        Args:
            name: At most 63 bytes, not used before.
            type: Quant type; the last axis must be a whole number of its blocks.
            shape: Torch order, at most 4 axes.
            data: The bytes (any shape), or a function that makes them when their turn to be written comes.

        Raises:
            FormatError: The name is taken or too long, or the shape has too many axes.
        """
        tensor = _Tensor(name, type, shape, data)
        if name in self._tensors:
            raise FormatError(f"{self.path}: tensor {show(name)} is added twice")
        if len(name.encode()) > MAX_TENSOR_NAME:
            raise FormatError(f"{self.path}: tensor name {show(name)} is longer than {MAX_TENSOR_NAME} bytes")
        if len(shape) > MAX_AXES or 0 in shape:
            raise FormatError(f"{self.path}: tensor {show(name)} has shape {shape}, expected 1 to {MAX_AXES} axes")
        type.row_bytes(shape[-1] if shape else 1)  # the caller chose the type for this width
        self._tensors[name] = tensor

    def close(self, progress: Callable[[int], None] = lambda n_bytes: None) -> list[Path]:
        """Writes everything.

        Args:
            progress: Called after each tensor with its size in bytes.

        Returns:
            The files written: `path`, or the shards in order.

        Raises:
            ResourceError: A file cannot be written. Existing files are then unchanged.
        """
        shards = self._shards()
        paths = self._shard_paths(len(shards))
        with contextlib.ExitStack() as unfinished:
            outputs = [Output(path) for path in paths]
            for number, (output, tensors) in enumerate(zip(outputs, shards, strict=True)):
                unfinished.callback(output.discard)
                with output.open() as file:
                    self._write(file, self._shard_pairs(number, len(shards)), tensors, progress)
            for output in outputs:
                output.commit()
        return paths

    def __enter__(self) -> GGUFWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def _shards(self) -> list[list[_Tensor]]:
        """The tensors of each file; one file without tensors is one empty list."""
        shards: list[list[_Tensor]] = [[]]
        size = 0
        for tensor in self._tensors.values():
            too_big = self._split_max_bytes is not None and size + tensor.nbytes > self._split_max_bytes
            if shards[-1] and (too_big or len(shards[-1]) == self._split_max_tensors):
                shards.append([])
                size = 0
            shards[-1].append(tensor)
            size += tensor.nbytes
        return [[], *shards] if self._first_without_tensors and len(shards) > 1 else shards

    def _shard_paths(self, count: int) -> list[Path]:
        if count == 1:
            return [self.path]
        stem = self.path.name.removesuffix(".gguf")
        return [self.path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]

    def _shard_pairs(self, number: int, count: int) -> dict[str, bytes]:
        """Key-value pairs of one file: the first has all of them, the others only say which shard they are."""
        if count == 1:
            return self._pairs
        pairs = dict(self._pairs) if number == 0 else {}
        if number and self._alignment != DEFAULT_ALIGNMENT:
            pairs["general.alignment"] = _packed_value("u32", self._alignment)
        pairs["split.no"] = _packed_value("u16", number)
        pairs["split.count"] = _packed_value("u16", count)
        pairs["split.tensors.count"] = _packed_value("i32", len(self._tensors))
        return pairs

    def _write(
        self, file: BinaryIO, pairs: dict[str, bytes], tensors: list[_Tensor], progress: Callable[[int], None]
    ) -> None:
        header = struct.pack("<4sIQQ", MAGIC, VERSION, len(tensors), len(pairs))
        header += b"".join(part for key, value in pairs.items() for part in (_packed_text(key), value))
        header += b"".join(self._tensor_infos(tensors))
        file.write(header.ljust(padded(len(header), self._alignment), b"\0"))
        for tensor in tensors:
            data = tensor.data() if callable(tensor.data) else tensor.data
            if data.nbytes != tensor.nbytes:
                raise ValueError(f"{tensor.name}: {data.nbytes} bytes made, {tensor.nbytes} needed")
            file.write(np.ascontiguousarray(data).data)
            file.write(bytes(padded(tensor.nbytes, self._alignment) - tensor.nbytes))
            progress(tensor.nbytes)

    def _tensor_infos(self, tensors: list[_Tensor]) -> Iterator[bytes]:
        offset = 0
        for tensor in tensors:
            n_axes = len(tensor.shape)
            yield _packed_text(tensor.name)
            yield struct.pack(f"<I{n_axes}QIQ", n_axes, *reversed(tensor.shape), tensor.type, offset)
            offset += padded(tensor.nbytes, self._alignment)


def _packed_text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def _packed_value(kind: str, value: Any) -> bytes:
    """Type and value as they stand after the key."""
    if not kind.startswith("["):
        type = _TYPES[kind]
        data = _packed_text(value) if type is ValueType.STR else struct.pack(NUMBER_FORMATS[type], value)
        return struct.pack("<I", type) + data
    type = _TYPES[kind[1:-1]]
    data = b"".join(map(_packed_text, value)) if type is ValueType.STR else _packed_numbers(type, value)
    return struct.pack("<IIQ", ValueType.ARRAY, type, len(value)) + data


def _packed_numbers(type: ValueType, values: Any) -> bytes:
    """An array's numbers; values that the type cannot hold exactly as integers raise OverflowError or TypeError."""
    given = np.asarray(values)
    dtype = np.dtype(NUMBER_FORMATS[type])
    if given.size and dtype.kind in "iu":
        if given.dtype.kind not in "iub":
            raise TypeError(f"expected integers, got {given.dtype}")
        limits = np.iinfo(dtype)
        if given.min() < limits.min or given.max() > limits.max:
            raise OverflowError(f"values from {given.min()} to {given.max()}")
    with np.errstate(over="raise"):
        return given.astype(dtype).tobytes()
