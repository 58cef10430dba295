"""Broken files: one clear line for everything that can be wrong."""

import os
import struct
from pathlib import Path

import pytest

from specli.errors import FormatError, ResourceError, UnsupportedError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from tests.support.raw_gguf import ARCHITECTURE, ARRAY, STR, U32, file_bytes, info, pair, text
from tests.support.refused import refusal
from tests.support.tiny_gguf import tiny_gguf

BOOL = 7


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


# Files that are not there or not files


def test_missing_file(path: Path) -> None:
    with pytest.raises(ResourceError) as caught:
        GGUFFile.open(path)
    assert str(caught.value) == f"{path}: cannot open: no such file or directory"


def test_directory_pipe_and_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(ResourceError, match="not a regular file"):
            GGUFFile.open(path)


def test_null_byte_in_the_path() -> None:
    with pytest.raises(ResourceError, match="cannot open: embedded null"):
        GGUFFile.open("a\0b")


# Headers


def test_empty_file(path: Path) -> None:
    assert refusal(path, b"") == "not a GGUF file: it is empty"


def test_other_file(path: Path) -> None:
    assert refusal(path, b"PK\3\4" + bytes(40)) == "not a GGUF file, but a zip archive, perhaps a PyTorch checkpoint"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, "GGUF version 0, expected 2 or 3"),
        (1, "GGUF version 1, expected 2 or 3"),
        (4, "GGUF version 4, expected 2 or 3"),
        (3 << 24, "big-endian GGUF, only little-endian files are read"),
    ],
)
def test_other_versions(path: Path, version: int, expected: str) -> None:
    assert refusal(path, file_bytes(version=version), UnsupportedError) == expected


@pytest.mark.parametrize("count", [100, 1 << 31, 1 << 62, (1 << 64) - 1])
def test_counts_beyond_the_file(path: Path, count: int) -> None:
    rest = len(file_bytes()) - 24
    for kind, content in {
        "key-value pairs": file_bytes(n_pairs=count),
        "tensors": file_bytes(n_tensors=count),
    }.items():
        assert refusal(path, content) == f"{count} {kind} at byte 24 do not fit into the remaining {rest} bytes"


def test_missing_architecture(path: Path) -> None:
    assert refusal(path, file_bytes([])) == "key 'general.architecture' is missing, expected str"
    number = pair("general.architecture", U32, bytes(4))
    assert refusal(path, file_bytes([number])) == "key 'general.architecture' is u32, expected str"


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    whole = tiny_gguf(tmp_path / "whole.gguf", n_layer=1).read_bytes()
    for size in [*range(400), *range(400, len(whole) - 32, 977)]:
        assert refusal(tmp_path / "cut.gguf", whole[:size])


# Key-value pairs


@pytest.mark.parametrize("length", [1 << 30, 1 << 62, (1 << 64) - 1])
def test_string_longer_than_the_file(path: Path, length: int) -> None:
    content = file_bytes([ARCHITECTURE, pair("k", STR, struct.pack("<Q", length))])
    at = 24 + len(ARCHITECTURE) + 9 + 4 + 8
    assert refusal(path, content) == f"truncated: key 'k' ends at byte {at + length}, the file has {len(content)} bytes"


def test_key_longer_than_the_file(path: Path) -> None:
    content = file_bytes([struct.pack("<Q", 1 << 40) + bytes(20)])
    assert (
        refusal(path, content) == f"truncated: key 0 ends at byte {32 + (1 << 40)}, the file has {len(content)} bytes"
    )


def test_key_longer_than_the_format_allows(path: Path) -> None:
    content = file_bytes([pair("k" * 70000, U32, bytes(4))])
    assert refusal(path, content) == "key 0 at byte 32 has 70000 bytes, expected at most 65535"


def test_key_that_is_not_utf8(path: Path) -> None:
    content = file_bytes([struct.pack("<Q", 1) + b"\xff" + struct.pack("<II", U32, 0)])
    assert refusal(path, content) == "key 0 at byte 32 is not UTF-8: invalid start byte"


def test_duplicate_key(path: Path) -> None:
    assert refusal(path, file_bytes([ARCHITECTURE] * 2)) == "key 'general.architecture' is there twice"


def test_unknown_value_type(path: Path) -> None:
    assert refusal(path, file_bytes([pair("k", 13, bytes(8))])) == "key 'k' has value type 13, expected 0 to 12"


def test_control_characters_do_not_reach_the_message(path: Path) -> None:
    found = refusal(path, file_bytes([pair("a\n\x1b[31m" + "b" * 500, 99, b"")]))
    assert found == r"key 'a\n\x1b[31m" + "b" * 73 + "…' has value type 99, expected 0 to 12"


@pytest.mark.parametrize("count", [1 << 20, 1 << 61, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize(("type", "kind"), [(U32, "numbers"), (BOOL, "numbers"), (STR, "strings")])
def test_array_longer_than_the_file(path: Path, type: int, kind: str, count: int) -> None:
    content = file_bytes([pair("k", ARRAY, struct.pack("<IQ", type, count))])
    at = 24 + 9 + 4 + 12
    rest = len(content) - at
    expected = f"{count} {kind} of key 'k' at byte {at} do not fit into the remaining {rest} bytes"
    assert refusal(path, content) == expected


def test_array_ends_inside_a_string(path: Path) -> None:
    array = struct.pack("<IQ", STR, 2) + text("ab") + struct.pack("<Q", 1 << 40)
    assert refusal(path, file_bytes([pair("k", ARRAY, array)])) == "key 'k' ends inside string 1 of 2"
    array = struct.pack("<IQ", STR, 3) + text("ab") + struct.pack("<Q", 1 << 63) + text("c")
    assert refusal(path, file_bytes([pair("k", ARRAY, array)])) == "key 'k' ends inside string 2 of 3"


@pytest.mark.parametrize("depth", [2, 5000, 100_000])
def test_nested_arrays(path: Path, depth: int) -> None:
    value = struct.pack("<IQ", ARRAY, 1) * depth + struct.pack("<IQ", U32, 0)
    expected = "key 'k' is an array of arrays, expected an array of numbers or strings"
    assert refusal(path, file_bytes([pair("k", ARRAY, value)])) == expected


@pytest.mark.parametrize("alignment", [0, 3, 48])
def test_alignment_that_is_no_power_of_two(path: Path, alignment: int) -> None:
    pairs = [ARCHITECTURE, pair("general.alignment", U32, struct.pack("<I", alignment))]
    assert refusal(path, file_bytes(pairs)) == f"general.alignment is {alignment}, expected a power of two"


def test_huge_alignment(path: Path) -> None:
    pairs = [ARCHITECTURE, pair("general.alignment", U32, struct.pack("<I", 1 << 30))]
    content = file_bytes(pairs, [info("t", (1,), QuantType.F32, 0)], bytes(4))
    assert (
        refusal(path, content)
        == f"truncated: the last tensor ends at byte {(1 << 30) + 4}, the file has {len(content)} bytes"
    )


def test_alignment_of_another_type(path: Path) -> None:
    pairs = [ARCHITECTURE, pair("general.alignment", 10, struct.pack("<Q", 32))]
    assert refusal(path, file_bytes(pairs)) == "key 'general.alignment' is u64, expected u32"


# Tensors


@pytest.mark.parametrize(
    ("extents", "n_bytes"),
    [
        (((1 << 42) + 1,), ((1 << 42) + 1) * 4),
        (((1 << 64) - 1, 2), ((1 << 64) - 1) * 8),
        ((1 << 32, 1 << 32), 1 << 66),
        ((1 << 63, 1 << 63, 1 << 63, 1 << 63), 1 << 254),
    ],
)
def test_sizes_do_not_wrap(path: Path, extents: tuple[int, ...], n_bytes: int) -> None:
    content = file_bytes(infos=[info("t", extents, QuantType.F32, 0)], data=bytes(64))
    at = len(content) - 64
    assert (
        refusal(path, content)
        == f"truncated: the last tensor ends at byte {at + n_bytes}, the file has {at + 64} bytes"
    )


def test_rows_that_are_no_whole_blocks(path: Path) -> None:
    content = file_bytes(infos=[info("t", (33, 2), QuantType.Q4_0, 0)], data=bytes(64))
    assert refusal(path, content) == "tensor 't' has rows of 33 elements, expected a multiple of 32 (q4_0)"


@pytest.mark.parametrize("type", [4, 31, 36, 999, (1 << 32) - 1])
def test_unknown_quant_type(path: Path, type: int) -> None:
    content = file_bytes(infos=[info("t", (32,), type, 0)], data=bytes(64))
    assert refusal(path, content, UnsupportedError) == f"tensor 't' has unknown quant type {type}"


def test_tensor_past_the_end(path: Path) -> None:
    content = file_bytes(infos=[info("t", (16,), QuantType.F32, 0)], data=bytes(63))
    at = len(content) - 63
    assert refusal(path, content) == f"truncated: the last tensor ends at byte {at + 64}, the file has {at + 63} bytes"


@pytest.mark.parametrize("offset", [16, 32, 255, (1 << 64) - 1])
def test_offset_that_leaves_a_hole_or_is_not_aligned(path: Path, offset: int) -> None:
    content = file_bytes(infos=[info("t", (1,), QuantType.F32, offset)], data=bytes(256))
    assert refusal(path, content) == f"tensor 't' has offset {offset}, expected 0"


def test_overlapping_tensors(path: Path) -> None:
    infos = [info("a", (16,), QuantType.F32, 0), info("b", (16,), QuantType.F32, 32)]
    assert refusal(path, file_bytes(infos=infos, data=bytes(256))) == "tensor 'b' has offset 32, expected 64"


def test_duplicate_tensor(path: Path) -> None:
    infos = [info("a", (8,), QuantType.F32, 0), info("a", (8,), QuantType.F32, 32)]
    assert refusal(path, file_bytes(infos=infos, data=bytes(64))) == "tensor 'a' is there twice"


def test_tensor_name_longer_than_upstream_allows(path: Path) -> None:
    content = file_bytes(infos=[info("n" * 64, (8,), QuantType.F32, 0)], data=bytes(64))
    at = 24 + len(ARCHITECTURE) + 8
    assert refusal(path, content) == f"name of tensor 0 at byte {at} has 64 bytes, expected at most 63"


def test_too_many_axes(path: Path) -> None:
    content = file_bytes(infos=[info("t", (1,) * 5, QuantType.F32, 0)], data=bytes(64))
    assert refusal(path, content) == "tensor 't' has 5 axes, expected at most 4"
    huge = file_bytes(infos=[text("t") + struct.pack("<I", (1 << 32) - 1) + bytes(16)])
    assert refusal(path, huge) == "tensor 't' has 4294967295 axes, expected at most 4"


def test_empty_axis(path: Path) -> None:
    content = file_bytes(infos=[info("t", (32, 0), QuantType.F32, 0)])
    assert refusal(path, content) == "tensor 't' has an empty axis: [32, 0]"


OTHERS = {
    "HTML": (b"<!DOCTYPE html>\n<html>", "not a GGUF file, but an HTML page"),
    "HTML after blanks": (b"\n\n  <HTML lang=en>", "not a GGUF file, but an HTML page"),
    "git-LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 1\n",
        "not a GGUF file, but a git-LFS pointer",
    ),
    "safetensors": (
        (50).to_bytes(8, "little") + b'{"a":{"dtype"' + bytes(60),
        "not a GGUF file, but a safetensors file",
    ),
    "JSON": (b'\xef\xbb\xbf{"error": "not found"}', "not a GGUF file, but JSON"),
    "pickle": (b"\x80\x02}q\x00." + bytes(30), "not a GGUF file, but a Python pickle, perhaps a PyTorch checkpoint"),
    "gzip": (b"\x1f\x8b\x08" + bytes(30), "not a GGUF file, but a gzip archive"),
    "GGJT": (b"tjgg\3\0\0\0" + bytes(30), "not a GGUF file, but a model in the format before GGUF"),
    "zeros": (bytes(100), "not a GGUF file: it starts with zeros"),
    "short text": (b"hi", "not a GGUF file: starts with b'hi', expected b'GGUF'"),
    "short": (b"GGUF\3\0", "truncated: the header ends at byte 24, the file has 6 bytes"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_are_named(path: Path, name: str) -> None:
    content, message = OTHERS[name]
    assert refusal(path, content) == message
    if "starts with b" not in message:
        with pytest.raises(FormatError) as caught:
            GGUFFile.open(path)
        assert caught.value.hint
