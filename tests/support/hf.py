"""Hugging Face checkpoints of the four dense families as F32 GGUF files without a tokenizer (docs/targets.md §3).

Written from the document, independently of `specli.convert`, so that each can be held against the other.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specli.gguf.quant import QuantType
from specli.gguf.write import GGUFWriter

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA_NAMES = _LAYER_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_hf_gguf(path: Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> Path:
    """Writes `path` from a parsed config.json (transformers 5 layout) and float32 arrays by checkpoint name."""
    architecture = ARCHITECTURES[config["model_type"]]
    tensors = {_gguf_name(name, architecture): _changed(name, array, config) for name, array in weights.items()}
    rope = config["rope_parameters"].get("full_attention", config["rope_parameters"])
    if rope["rope_type"] == "llama3":
        tensors = {"rope_freqs.weight": _llama3_factors(rope, config["head_dim"])} | tensors
    with GGUFWriter(path, architecture) as writer:
        for key, (kind, value) in _metadata(config, rope).items():
            writer.add(f"{architecture}.{key}", kind, value)
        for name, array in tensors.items():
            data = np.ascontiguousarray(array, np.float32).reshape(-1).view(np.uint8)
            writer.add_tensor(name, QuantType.F32, array.shape, data)
    return path


def _gguf_name(name: str, architecture: str) -> str:
    stem, suffix = name.rsplit(".", 1)
    if stem in _TOP_NAMES:
        return f"{_TOP_NAMES[stem]}.{suffix}"
    _, _, layer, part = stem.split(".", 3)
    names = _GEMMA_NAMES if architecture == "gemma3" else _LAYER_NAMES
    return f"blk.{layer}.{names[part]}.{suffix}"


def _changed(name: str, array: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    part = name.rsplit(".", 2)[-2]
    if config["model_type"] == "llama" and part in heads:  # row j of a half goes to 2j (+1 for the second half)
        n_rows = array.shape[0] // heads[part]
        return array.reshape(heads[part], 2, n_rows // 2, -1).swapaxes(1, 2).reshape(array.shape)
    if config["model_type"] == "gemma3_text" and name.endswith("norm.weight"):
        return array + np.float32(1)
    return array


def _llama3_factors(rope: Mapping[str, Any], head_size: int) -> np.ndarray:
    factors = []
    low, high, context = (
        rope[name] for name in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    for k in range(head_size // 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (2 * k / head_size)
        t = (context / wavelength - low) / (high - low)
        blended = 1 / ((1 - t) / rope["factor"] + t)
        is_short, is_long = wavelength < context / high, wavelength > context / low
        factors.append(1.0 if is_short else rope["factor"] if is_long else blended)
    return np.array(factors, np.float32)


def _metadata(config: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, tuple[str, object]]:
    head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    pairs: dict[str, tuple[str, object]] = {
        "block_count": ("u32", config["num_hidden_layers"]),
        "context_length": ("u32", config["max_position_embeddings"]),
        "embedding_length": ("u32", config["hidden_size"]),
        "feed_forward_length": ("u32", config["intermediate_size"]),
        "attention.head_count": ("u32", config["num_attention_heads"]),
        "attention.head_count_kv": ("u32", config["num_key_value_heads"]),
        "attention.key_length": ("u32", head_size),
        "attention.value_length": ("u32", head_size),
        "attention.layer_norm_rms_epsilon": ("f32", config["rms_norm_eps"]),
        "rope.freq_base": ("f32", rope["rope_theta"]),
        "vocab_size": ("u32", config["vocab_size"]),
    }
    if rope["rope_type"] in ("linear", "yarn"):
        pairs["rope.scaling.type"] = ("str", rope["rope_type"])
        pairs["rope.scaling.factor"] = ("f32", rope["factor"])
    if rope["rope_type"] == "yarn":
        pairs["rope.scaling.original_context_length"] = ("u32", rope["original_max_position_embeddings"])
    if config["model_type"] == "gemma3_text":
        pairs["attention.sliding_window"] = ("u32", config["sliding_window"])
        pairs["rope.freq_base_swa"] = ("f32", config["rope_parameters"]["sliding_attention"]["rope_theta"])
        if config.get("final_logit_softcapping"):
            pairs["final_logit_softcapping"] = ("f32", config["final_logit_softcapping"])
    return pairs
