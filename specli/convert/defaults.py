"""What a config class of `transformers` adds to a config.json that leaves a value out, per `model_type`.

llama.cpp's converter reads configs through these classes, so their defaults reach the GGUF file as if written in the
config. Only keys that end up in the file are listed. Values: transformers 5.19, checked by tests where it is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LLAMA = {
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "vocab_size": 32000,
}  # fmt: skip
_QWEN = {"max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "vocab_size": 151936}
_GEMMA_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
}
_GEMMA = {
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 256, "hidden_size": 2304, "intermediate_size": 9216, "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip

CLASS_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": _LLAMA,
    "mistral": {**_LLAMA, "max_position_embeddings": 131072, "num_key_value_heads": 8},
    "qwen2": _QWEN,
    "qwen3": {**_QWEN, "head_dim": 128},
    "qwen3_moe": {
        **_QWEN, "num_local_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "num_key_value_heads": 4,
    },
    "gemma3_text": {
        **_GEMMA, "num_hidden_layers": 26, "vocab_size": 262208, "sliding_window": 4096, "rope_parameters": _GEMMA_ROPE,
    },
}  # fmt: skip
"""`model_type` to the class's defaults; `with_defaults` adds the computed ones."""

HEAD_DIM_FROM_WIDTH = frozenset({"llama", "mistral"})
"""Classes that set `head_dim = hidden_size // num_attention_heads` when it is absent."""
