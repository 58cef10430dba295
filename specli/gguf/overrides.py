"""Metadata that is read as something else than the file has: `--override-kv`, typed and checked."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from specli.errors import FormatError
from specli.gguf.keys import find_key
from specli.gguf.metadata import NUMBER_FORMATS, Metadata, Value, ValueType, show

Override = tuple[str, int | float | bool | str]
"""Key and value; the type of the value says what the key must hold."""

WORDS = {bool: "bool", int: "int", float: "float", str: "str"}
INTEGERS = frozenset({"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"})
KINDS = {"bool": frozenset({"bool"}), "int": INTEGERS, "float": frozenset({"f32", "f64"}), "str": frozenset({"str"})}
COMMON = ("general", "tokenizer", "split")
"""First parts of keys that every file may have; others are names of architectures."""


def with_overrides(path: Path, metadata: Metadata, overrides: Sequence[Override]) -> Metadata:
    """The metadata of a file with those overrides that concern it: its architecture's keys, and the common ones.

    Raises:
        FormatError: A value does not fit the kind of its key.
    """
    architecture = metadata.require("general.architecture", "str")
    changed: dict[str, Value] = {}
    for key, value in overrides:
        if key not in metadata and key.partition(".")[0] not in (architecture, *COMMON):
            continue
        row = find_key(key, architecture)
        kind = metadata.kind(key) if key in metadata else row.kinds[0] if row else WORDS[type(value)]
        changed[key] = _value(path, key, kind, value)
    return metadata.replaced(changed)


def _value(path: Path, key: str, kind: str, value: int | float | bool | str) -> Value:
    word = WORDS[type(value)]
    if kind not in KINDS[word]:
        raise FormatError(f"{path}: key {show(key)} is {kind}, --override-kv gives {word}")
    if kind in INTEGERS:
        try:
            struct.pack(NUMBER_FORMATS[ValueType[kind.upper()]], value)
        except struct.error:
            raise FormatError(f"{path}: key {show(key)} is {kind}, {value} does not fit") from None
    return Value(kind, lambda: value)
