"""SmolLM2 as a GGUF file, turned into a Hugging Face checkpoint by hand, converts to a file with the same logits."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from specli.convert import ConvertConfig, convert
from specli.gguf.file import GGUFFile
from specli.gguf.quant import QuantTensor
from specli.tokenizer import Tokenizer
from tests.support.hf_files import Stored, write_safetensors
from tests.support.running import all_logits, open_model

TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
PROMPT = "The capital of France is Paris, and the capital of Italy is"


def checkpoint_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.weight"
    layer, part = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem).groups()
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"


def checkpoint_tensor(tensor: QuantTensor, n_heads: dict[str, int]) -> Stored:
    """Float32 values; rows of queries and keys go from adjacent pairs back to halves: 2j + r to (r, j)."""
    values = tensor.dequantise()
    for part, heads in n_heads.items():
        if tensor.name.endswith(f"{part}.weight"):
            half = values.shape[0] // heads // 2
            order = [2 * j + r + 2 * half * head for head in range(heads) for r in (0, 1) for j in range(half)]
            values = values[order]
    return Stored("F32", values.shape, np.ascontiguousarray(values, "<f4").tobytes())


def write_directory(source: Path, target: Path, directory: Path) -> Path:
    """The weights of the GGUF file `source` with config and tokenizer of the checkpoint folder `target`."""
    shutil.copytree(target, directory)
    config = json.loads((directory / "config.json").read_text())
    n_heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    with GGUFFile.open(source) as file:
        tensors = {checkpoint_name(name): checkpoint_tensor(t, n_heads) for name, t in file.tensors.items()}
    write_safetensors(directory / "model.safetensors", tensors)
    return directory


@pytest.mark.real
def test_smollm2_round_trip_keeps_weights_and_logits(shared: Path, smollm2_path: Path, tmp_path: Path) -> None:
    """Float32 holds every dequantised value, and the reference multiplies in float32: not one bit may differ."""
    directory = write_directory(smollm2_path, shared / "drafters" / "target", tmp_path / "hf")
    report = convert(ConvertConfig(directory, outfile=tmp_path / "again.gguf", outtype="f32"))
    (path,) = report.paths
    with GGUFFile.open(smollm2_path) as before, GGUFFile.open(path) as after:
        assert before.tensors.keys() == after.tensors.keys()
        for name, tensor in before.tensors.items():
            assert np.array_equal(after.tensors[name].dequantise(), tensor.dequantise()), name
        tokens = Tokenizer.from_gguf(before).encode(PROMPT, add_special=True, parse_special=False)
        assert tokens == Tokenizer.from_gguf(after).encode(PROMPT, add_special=True, parse_special=False)
    assert torch.equal(all_logits(open_model(path), tokens), all_logits(open_model(smollm2_path), tokens))
