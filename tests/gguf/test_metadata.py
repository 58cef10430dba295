"""Typed access to metadata."""

import struct
from pathlib import Path

import pytest

from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from specli.gguf.metadata import Metadata
from specli.gguf.write import GGUFWriter
from tests.support.raw_gguf import ARCHITECTURE, ARRAY, STR, file_bytes, pair

VALUES = {
    "u8": 255,
    "i8": -128,
    "u16": 65535,
    "i16": -32768,
    "u32": (1 << 32) - 1,
    "i32": -(1 << 31),
    "f32": 0.5,
    "bool": True,
    "str": "häuser ▁\x00",
    "u64": (1 << 64) - 1,
    "i64": -(1 << 63),
    "f64": 0.1,
    "[u8]": [0, 255],
    "[i8]": [-128, 127],
    "[u16]": [65535],
    "[i16]": [-32768],
    "[u32]": [1, (1 << 32) - 1],
    "[i32]": [-1, 2],
    "[f32]": [0.5, -2.0],
    "[bool]": [True, False],
    "[str]": ["", "a", "Ġthe"],
    "[u64]": [(1 << 64) - 1],
    "[i64]": [-(1 << 63)],
    "[f64]": [0.1],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


@pytest.fixture
def metadata(path: Path) -> Metadata:
    """One key of every kind, named after it, and an empty array."""
    with GGUFWriter(path, "llama") as writer:
        for kind, value in VALUES.items():
            writer.add(kind, kind, value)
        writer.add("empty", "[str]", [])
    return GGUFFile.open(path).metadata


def refusal(metadata: Metadata, path: Path, key: str, kind: str) -> str:
    with pytest.raises(FormatError) as caught:
        metadata.require(key, kind)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("kind", VALUES)
def test_every_kind_comes_back_as_python_values(metadata: Metadata, kind: str) -> None:
    found = metadata.require(kind, kind)
    assert found == VALUES[kind]
    assert type(found) is type(VALUES[kind])
    assert metadata.get(kind, kind, None) == found
    assert metadata.kind(kind) == kind


@pytest.mark.parametrize("kind", VALUES)
def test_no_kind_is_taken_for_another(metadata: Metadata, path: Path, kind: str) -> None:
    for other in VALUES.keys() - {kind}:
        assert refusal(metadata, path, kind, other) == f"key '{kind}' is {kind}, expected {other}"
        with pytest.raises(FormatError):
            metadata.get(kind, other, None)


def test_any_integer_array(metadata: Metadata, path: Path) -> None:
    for kind in ("[u8]", "[i8]", "[u16]", "[i16]", "[u32]", "[i32]", "[u64]", "[i64]"):
        assert metadata.require(kind, "[int]") == VALUES[kind]
    flags = metadata.require("[bool]", "[int]")
    assert flags == [1, 0]
    assert type(flags[0]) is int
    for kind in ("[f32]", "[str]", "u32"):
        assert refusal(metadata, path, kind, "[int]") == f"key '{kind}' is {kind}, expected [int]"


def test_missing_keys(metadata: Metadata, path: Path) -> None:
    assert refusal(metadata, path, "llama.block_count", "u32") == "key 'llama.block_count' is missing, expected u32"
    assert metadata.get("llama.block_count", "u32", 7) == 7
    with pytest.raises(FormatError, match="key 'nope' is missing"):
        metadata.kind("nope")


def test_keys_are_in_file_order(metadata: Metadata) -> None:
    assert list(metadata.keys()) == ["general.architecture", *VALUES, "empty"]
    assert "u32" in metadata
    assert "nope" not in metadata


def test_empty_array(metadata: Metadata) -> None:
    assert metadata.require("empty", "[str]") == []


def test_lists_are_the_callers_own(metadata: Metadata) -> None:
    metadata.require("[i32]", "[i32]").clear()
    assert metadata.require("[i32]", "[i32]") == VALUES["[i32]"]


def test_any_byte_but_zero_is_true(path: Path) -> None:
    pairs = [ARCHITECTURE, pair("flag", 7, b"\2"), pair("flags", ARRAY, struct.pack("<IQ", 7, 3) + b"\0\1\x80")]
    path.write_bytes(file_bytes(pairs))
    metadata = GGUFFile.open(path).metadata
    assert metadata.require("flag", "bool") is True
    assert metadata.require("flags", "[bool]") == [False, True, True]


def test_text_that_is_not_utf8_fails_when_it_is_asked_for(path: Path) -> None:
    bad = struct.pack("<Q", 2) + b"a\xff"
    pairs = [ARCHITECTURE, pair("text", STR, bad), pair("texts", ARRAY, struct.pack("<IQ", STR, 1) + bad)]
    path.write_bytes(file_bytes(pairs))
    metadata = GGUFFile.open(path).metadata
    assert refusal(metadata, path, "text", "str") == "key 'text' holds text that is not UTF-8: invalid start byte"
    assert refusal(metadata, path, "texts", "[str]") == "key 'texts' holds text that is not UTF-8: invalid start byte"


def test_length_counts_without_decoding(metadata: Metadata, path: Path) -> None:
    assert metadata.length("[i32]") == len(VALUES["[i32]"])
    assert metadata.length("[str]") == len(VALUES["[str]"])
    assert metadata.length("empty") == 0
    with pytest.raises(FormatError) as error:
        metadata.length("u32")
    assert str(error.value) == f"{path}: key 'u32' is u32, expected an array"
