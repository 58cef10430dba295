"""Typed, strict access to a GGUF file's key-value pairs (docs/targets.md §§1.1-1.2)."""

from __future__ import annotations

import enum
import mmap
import struct
from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import numpy as np

from specli.errors import FormatError

IntKind = Literal["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"]
FloatKind = Literal["f32", "f64"]
IntArrayKind = Literal["[u8]", "[i8]", "[u16]", "[i16]", "[u32]", "[i32]", "[u64]", "[i64]", "[int]"]
FloatArrayKind = Literal["[f32]", "[f64]"]

T = TypeVar("T")

_ANY_INT = "[int]"  # requested kind that takes every array of integers or booleans
_SHOWN = 80  # characters of an untrusted name that a message repeats


class ValueType(enum.IntEnum):
    """How a metadata value is stored."""

    U8 = 0
    I8 = 1
    U16 = 2
    I16 = 3
    U32 = 4
    I32 = 5
    F32 = 6
    BOOL = 7
    STR = 8
    ARRAY = 9
    U64 = 10
    I64 = 11
    F64 = 12

    @property
    def label(self) -> str:
        """Name used in messages and as the `kind` of a request, such as "u32"."""
        return self.name.lower()


NUMBER_FORMATS: dict[ValueType, str] = {  # little-endian `struct` codes; also valid numpy dtypes
    ValueType.U8: "<B",
    ValueType.I8: "<b",
    ValueType.U16: "<H",
    ValueType.I16: "<h",
    ValueType.U32: "<I",
    ValueType.I32: "<i",
    ValueType.F32: "<f",
    ValueType.BOOL: "<?",
    ValueType.U64: "<Q",
    ValueType.I64: "<q",
    ValueType.F64: "<d",
}
_INTEGERS = frozenset(
    f"[{t.label}]" for t in NUMBER_FORMATS if t not in (ValueType.F32, ValueType.F64)
)  # array kinds that "[int]" takes


def show(name: str) -> str:
    """An untrusted name as messages print it: quoted, control characters escaped, cut to a readable length."""
    return repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "…")


@dataclass(frozen=True)
class Value:
    """One stored value, decoded when it is first asked for.

    Attributes:
        kind: Stored type, such as "u32" or "[str]".
        load: Decodes it; arrays are decoded when they are asked for, not when the file is opened.
        length: Elements of an array; 0 for anything else.
    """

    kind: str
    load: Callable[[], Any]
    length: int = 0


def number_array(buffer: mmap.mmap, start: int, count: int, type: ValueType) -> list[Any]:
    """`count` numbers stored at byte `start`, as Python numbers."""
    dtype = np.dtype(NUMBER_FORMATS[type])
    if type is ValueType.BOOL:  # any byte but 0 is true; numpy would trust the byte
        return [byte != 0 for byte in buffer[start : start + count]]
    values: list[Any] = np.frombuffer(buffer, dtype, count, start).tolist()
    return values


def string_array(buffer: mmap.mmap, start: int, count: int) -> list[str]:
    """`count` strings stored at byte `start`. Their lengths were checked when the file was opened.

    Raises:
        UnicodeDecodeError: A string is not UTF-8.
    """
    length_at = struct.Struct("<Q").unpack_from
    position = start
    texts = []
    for _ in range(count):
        (length,) = length_at(buffer, position)
        position += 8
        texts.append(buffer[position : position + length].decode())
        position += length
    return texts


class Metadata:
    """The key-value pairs of one file. Types are strict: a u32 is never taken for an i32, as in llama.cpp.

    Args:
        path: The file, for messages.
        values: Key to stored value, in file order.
    """

    def __init__(self, path: Path, values: dict[str, Value]) -> None:
        self._path = path
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def keys(self) -> KeysView[str]:
        """All keys in file order."""
        return self._values.keys()

    def replaced(self, values: Mapping[str, Value]) -> Metadata:
        """A copy with some values in place of, or besides, those of the file."""
        return Metadata(self._path, {**self._values, **values})

    def kind(self, key: str) -> str:
        """The stored kind of a key, such as "u32" or "[f32]"; for keys that may be a scalar or an array.

        Raises:
            FormatError: The key is missing.
        """
        value = self._values.get(key)
        if value is None:
            raise FormatError(f"{self._path}: key {show(key)} is missing")
        return value.kind

    def length(self, key: str) -> int:
        """How many elements the array under a key has, without decoding it.

        Raises:
            FormatError: The key is missing or not an array.
        """
        if not self.kind(key).startswith("["):
            raise FormatError(f"{self._path}: key {show(key)} is {self.kind(key)}, expected an array")
        return self._values[key].length

    @overload
    def require(self, key: str, kind: IntKind) -> int: ...
    @overload
    def require(self, key: str, kind: FloatKind) -> float: ...
    @overload
    def require(self, key: str, kind: Literal["bool"]) -> bool: ...
    @overload
    def require(self, key: str, kind: Literal["str"]) -> str: ...
    @overload
    def require(self, key: str, kind: IntArrayKind) -> list[int]: ...
    @overload
    def require(self, key: str, kind: FloatArrayKind) -> list[float]: ...
    @overload
    def require(self, key: str, kind: Literal["[bool]"]) -> list[bool]: ...
    @overload
    def require(self, key: str, kind: Literal["[str]"]) -> list[str]: ...
    def require(self, key: str, kind: str) -> Any:
        """The value of a key that must be there.

        Args:
            key: Full key, such as "llama.block_count".
            kind: Exact stored kind, or "[int]" for any array of integers or booleans (as `list[int]`).

        Returns:
            int, float, bool, str, or a new list of them.

        Raises:
            FormatError: The key is missing, stored as another kind, or text that is not UTF-8.
        """
        value = self._values.get(key)
        if value is None:
            raise FormatError(f"{self._path}: key {show(key)} is missing, expected {kind}")
        return self._load(key, value, kind)

    @overload
    def get(self, key: str, kind: IntKind, default: T) -> int | T: ...
    @overload
    def get(self, key: str, kind: FloatKind, default: T) -> float | T: ...
    @overload
    def get(self, key: str, kind: Literal["bool"], default: T) -> bool | T: ...
    @overload
    def get(self, key: str, kind: Literal["str"], default: T) -> str | T: ...
    @overload
    def get(self, key: str, kind: IntArrayKind, default: T) -> list[int] | T: ...
    @overload
    def get(self, key: str, kind: FloatArrayKind, default: T) -> list[float] | T: ...
    @overload
    def get(self, key: str, kind: Literal["[bool]"], default: T) -> list[bool] | T: ...
    @overload
    def get(self, key: str, kind: Literal["[str]"], default: T) -> list[str] | T: ...
    def get(self, key: str, kind: str, default: Any) -> Any:
        """The value of a key, or the format's default where the key is absent. A wrong kind is an error even so."""
        value = self._values.get(key)
        return default if value is None else self._load(key, value, kind)

    def _load(self, key: str, value: Value, kind: str) -> Any:
        takes_any_int = kind == _ANY_INT and value.kind in _INTEGERS
        if value.kind != kind and not takes_any_int:
            raise FormatError(f"{self._path}: key {show(key)} is {value.kind}, expected {kind}")
        try:
            loaded = value.load()
        except UnicodeDecodeError as error:
            raise FormatError(f"{self._path}: key {show(key)} holds text that is not UTF-8: {error.reason}") from None
        return [int(item) for item in loaded] if takes_any_int and value.kind == "[bool]" else loaded
