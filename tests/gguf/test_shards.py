"""Split models."""

import struct
from pathlib import Path

import numpy as np
import pytest

from specli.errors import FormatError, ResourceError
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.gguf.write import GGUFWriter
from tests.support.raw_gguf import ARCHITECTURE, file_bytes, info, pair
from tests.support.refused import refusal


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    writer = GGUFWriter(tmp_path / "m.gguf", "llama", split_max_bytes=40)
    for index, name in enumerate("abcde"):
        writer.add_tensor(name, QuantType.F32, (4,), np.full(4, index, np.float32).view(np.uint8))
    return writer.close()


def shard_bytes(number: int, count: int, total: int, names: str) -> bytes:
    pairs = [
        ARCHITECTURE,
        pair("split.no", 2, struct.pack("<H", number)),
        pair("split.count", 2, struct.pack("<H", count)),
        pair("split.tensors.count", 5, struct.pack("<i", total)),
    ]
    infos = [info(name, (8,), QuantType.F32, 32 * index) for index, name in enumerate(names)]
    return file_bytes(pairs, infos, bytes(32 * len(names)))


def test_shards_load_as_one_model(shards: list[Path]) -> None:
    assert [path.name for path in shards] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    file = GGUFFile.open(shards[0])
    assert [(name, tensor.numbers()[0]) for name, tensor in file.tensors.items()] == list(
        zip("abcde", range(5), strict=True)
    )
    assert file.n_bytes == sum(path.stat().st_size for path in shards)


def test_a_later_shard_names_the_first(shards: list[Path]) -> None:
    with pytest.raises(FormatError) as caught:
        GGUFFile.open(shards[1])
    assert str(caught.value) == f"{shards[1]}: is shard 2 of 3, expected the first"
    assert caught.value.hint == f"use {shards[0]}"


def test_a_shard_is_missing(shards: list[Path]) -> None:
    shards[2].unlink()
    with pytest.raises(ResourceError) as caught:
        GGUFFile.open(shards[0])
    assert str(caught.value) == f"{shards[2]}: cannot open: no such file or directory"


def test_renamed_or_joined_shards(shards: list[Path], tmp_path: Path) -> None:
    joined = b"".join(path.read_bytes() for path in shards)
    expected = "is shard 1 of 3, its name must end in -00001-of-00003.gguf"
    assert refusal(tmp_path / "joined.gguf", joined) == expected


def test_shards_in_the_wrong_order(shards: list[Path]) -> None:
    shards[1].write_bytes(shards[2].read_bytes())
    with pytest.raises(FormatError) as caught:
        GGUFFile.open(shards[0])
    assert str(caught.value) == f"{shards[1]}: is shard 3 of 3 by its metadata, expected 2 of 3"


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    first.write_bytes(shard_bytes(0, 2, 4, "ab"))
    second.write_bytes(shard_bytes(1, 2, 4, "bc"))
    with pytest.raises(FormatError) as caught:
        GGUFFile.open(first)
    assert str(caught.value) == f"{second}: tensor 'b' is in an earlier shard too"


def test_a_tensor_is_missing_from_the_shards(tmp_path: Path) -> None:
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(shard_bytes(1, 2, 5, "c"))
    first = tmp_path / "m-00001-of-00002.gguf"
    assert refusal(first, shard_bytes(0, 2, 5, "ab")) == "2 shards hold 3 tensors, split.tensors.count is 5"


def test_absurd_shard_count(tmp_path: Path) -> None:
    content = shard_bytes(0, 65535, 5, "ab")
    (tmp_path / "m-00001-of-65535.gguf").write_bytes(content)
    with pytest.raises(ResourceError) as caught:
        GGUFFile.open(tmp_path / "m-00001-of-65535.gguf")
    assert str(caught.value) == f"{tmp_path}/m-00002-of-65535.gguf: cannot open: no such file or directory"
    wide = file_bytes([ARCHITECTURE, pair("split.count", 4, struct.pack("<I", 1 << 31))])
    assert refusal(tmp_path / "wide.gguf", wide) == "key 'split.count' is u32, expected u16"
