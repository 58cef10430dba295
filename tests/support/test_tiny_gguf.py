"""The tiny files keep what they promise."""

import time
from pathlib import Path

import numpy as np
import pytest

from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantType
from tests.support.blocks import BLOCK_TYPES, random_rows
from tests.support.tiny_gguf import ARCHITECTURES, tiny_gguf
from tests.support.tiny_vocab import VOCABS


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("vocab", VOCABS)
def test_files_are_made_quickly_and_alike(tmp_path: Path, architecture: str, vocab: str) -> None:
    start = time.perf_counter()
    first = tiny_gguf(tmp_path / "a.gguf", architecture, vocab=vocab)
    assert time.perf_counter() - start < 0.5
    assert first.read_bytes() == tiny_gguf(tmp_path / "b.gguf", architecture, vocab=vocab).read_bytes()
    assert first.read_bytes() != tiny_gguf(tmp_path / "c.gguf", architecture, vocab=vocab, seed=1).read_bytes()
    file = GGUFFile.open(first)
    tokens = file.metadata.require("tokenizer.ggml.tokens", "[str]")
    assert file.architecture == architecture
    assert file.tensors["token_embd.weight"].shape == (len(tokens), 64)
    assert len(set(tokens)) == len(tokens) == len(file.metadata.require("tokenizer.ggml.token_type", "[i32]"))


@pytest.mark.parametrize("type", BLOCK_TYPES, ids=lambda t: t.label)
def test_every_quant_type_has_values_of_the_wanted_spread(tmp_path: Path, type: QuantType) -> None:
    file = GGUFFile.open(tiny_gguf(tmp_path / "m.gguf", quant=type.label))
    weight = file.tensors["blk.0.ffn_up.weight"]
    assert weight.type is type
    assert file.tensors["output_norm.weight"].type is QuantType.F32
    spread = weight.dequantise().std() * np.sqrt(weight.shape[1])
    assert 1.4 < spread < 2.9  # 2, within the next power of two for mxfp4
    rows = random_rows(type, 4, 512, np.random.default_rng(0))
    assert rows.shape == (4, type.row_bytes(512))


def test_types_with_an_encoder_share_their_weights(tmp_path: Path) -> None:
    exact = GGUFFile.open(tiny_gguf(tmp_path / "a.gguf", width=256)).tensors
    rounded = GGUFFile.open(tiny_gguf(tmp_path / "b.gguf", width=256, quant="q6_k")).tensors
    assert exact.keys() == rounded.keys()
    for name, tensor in exact.items():
        assert np.allclose(tensor.dequantise(), rounded[name].dequantise(), atol=0.05), name


def test_overrides(tmp_path: Path) -> None:
    bias = np.arange(64, dtype=np.float32)
    path = tiny_gguf(
        tmp_path / "m.gguf",
        tied=True,
        metadata={"llama.vocab_size": None, "general.name": ("str", "x"), "llama.context_length": ("u32", 9)},
        tensors={"blk.0.attn_norm.weight": None, "blk.0.attn_q.bias": bias},
    )
    file = GGUFFile.open(path)
    assert "llama.vocab_size" not in file.metadata
    assert file.metadata.require("general.name", "str") == "x"
    assert file.metadata.require("llama.context_length", "u32") == 9
    assert "output.weight" not in file.tensors
    assert "blk.0.attn_norm.weight" not in file.tensors
    assert file.tensors["blk.0.attn_q.bias"].numbers().tolist() == bias.tolist()
