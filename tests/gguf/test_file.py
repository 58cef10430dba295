"""Opening files: what is read, what stays on disk, how fast."""

import time
from pathlib import Path

import numpy as np
import pytest

from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from specli.gguf.write import GGUFWriter
from tests.support.raw_gguf import file_bytes, info
from tests.support.tiny_gguf import tiny_gguf


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


def test_reads_metadata_and_tensors(path: Path) -> None:
    with GGUFWriter(path, "llama") as writer:
        writer.add("llama.block_count", "u32", 7)
        writer.add_tensor("a.weight", QuantType.F32, (3, 2), np.arange(6, dtype=np.float32).view(np.uint8))
        writer.add_tensor("b.weight", QuantType.Q8_0, (2, 32), np.zeros(68, np.uint8))
        writer.add_tensor("scalar", QuantType.F32, (), np.array([1.5], np.float32).view(np.uint8))
    with GGUFFile.open(path) as file:
        assert file.path == path
        assert file.architecture == "llama"
        assert file.metadata.require("llama.block_count", "u32") == 7
        assert list(file.tensors) == ["a.weight", "b.weight", "scalar"]
        a = file.tensors["a.weight"]
        assert (a.type, a.shape, a.nbytes, a.n_elements) == (QuantType.F32, (3, 2), 24, 6)
        assert a.numbers().tolist() == [[0, 1], [2, 3], [4, 5]]
        assert file.tensors["b.weight"].rows().shape == (2, 34)
        assert file.tensors["scalar"].shape == (1,)
        assert file.tensors["scalar"].numbers().tolist() == [1.5]
        assert file.n_bytes == path.stat().st_size


def test_tensor_data_is_mapped_and_outlives_the_file(path: Path) -> None:
    file = GGUFFile.open(tiny_gguf(path))
    weight = file.tensors["token_embd.weight"]
    assert not weight.data.flags.writeable
    assert not weight.data.flags.owndata
    before = weight.dequantise()
    file.close()
    assert not file.tensors
    assert np.array_equal(weight.dequantise(), before)


def test_version_2_is_read(path: Path) -> None:
    path.write_bytes(file_bytes(version=2))
    assert GGUFFile.open(path).architecture == "llama"


def test_missing_padding_at_the_end_is_tolerated(path: Path) -> None:
    path.write_bytes(file_bytes(infos=[info("t", (3,), QuantType.F32, 0)], data=bytes(12)))
    assert GGUFFile.open(path).tensors["t"].nbytes == 12


def test_bytes_after_the_last_tensor_are_tolerated(path: Path) -> None:
    path.write_bytes(file_bytes(infos=[info("t", (3,), QuantType.F32, 0)], data=bytes(1000)))
    assert GGUFFile.open(path).tensors["t"].nbytes == 12


def test_alignment_moves_the_data(path: Path) -> None:
    with GGUFWriter(path, "llama") as writer:
        writer.add("general.alignment", "u32", 256)
        for name in "ab":
            writer.add_tensor(name, QuantType.F32, (1,), np.array([7], np.float32).view(np.uint8))
    file = GGUFFile.open(path)
    assert [tensor.numbers().item() for tensor in file.tensors.values()] == [7, 7]
    assert path.stat().st_size % 256 == 0


@pytest.mark.real
def test_a_large_vocabulary_opens_in_half_a_second(gemma3_path: Path) -> None:
    start = time.process_time()  # not the clock: other tests may share the cores
    with GGUFFile.open(gemma3_path) as file:
        tokens = file.metadata.require("tokenizer.ggml.tokens", "[str]")
        file.metadata.require("tokenizer.ggml.scores", "[f32]")
        file.metadata.require("tokenizer.ggml.token_type", "[i32]")
    assert time.process_time() - start < 0.5  # measured: 0.13 s
    assert len(tokens) == 262144
