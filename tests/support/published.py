"""Tiny checkpoints of families as they are published, with the tensors that `transformers` saves for their configs.

Names and shapes of the tensors, and the logits that `transformers` computes, are recorded in golden/published.json
(golden/record_published.py). A family is one row of `PUBLISHED`.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.hf_files import (
    Stored,
    V,
    bf16,
    random_values,
    write_bpe_tokenizer,
    write_checkpoint,
    write_json,
    write_sentencepiece_tokenizer,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "published.json"
PROMPT = np.random.default_rng(5).integers(3, 260, 40).tolist()
ROWS = (0, 1, 7, 22, 39)  # of the prompt, whose logits are recorded
IDS = tuple(range(0, V, 13))

_COMMON = {
    "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "hidden_act": "silu",
    "hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 512, "num_attention_heads": 4,
    "num_hidden_layers": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "vocab_size": V,
}  # fmt: skip
_GRANITE = {
    "attention_multiplier": 0.2, "embedding_multiplier": 2.5, "residual_multiplier": 0.4, "logits_scaling": 2.0,
    "rope_theta": 10000.0,
}  # fmt: skip
_LONGROPE = {
    "type": "longrope", "long_factor": [1.0 + 0.5 * i for i in range(6)],
    "short_factor": [1.0 + 0.1 * i for i in range(6)],
}  # fmt: skip
_LATENT = {
    "kv_lora_rank": 32, "q_lora_rank": 48, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 24,
    "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
    "routed_scaling_factor": 1.5, "first_k_dense_replace": 1, "norm_topk_prob": True, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
}  # fmt: skip
_YARN = {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32, "beta_slow": 1}
_EXAONE = {"head_dim": 16, "rope_theta": 10000.0}


@dataclass(frozen=True)
class Family:
    """A checkpoint.

    Attributes:
        architecture: `general.architecture` of the file.
        config: What its config.json has besides `_COMMON`.
        pieces: A SentencePiece tokenizer, not byte-level BPE.
        added: Further added tokens of a byte-level tokenizer.
        upstream: Why llama.cpp's converter cannot be compared with, or "".
    """

    architecture: str
    config: dict[str, Any]
    pieces: bool = False
    added: tuple[str, ...] = ()
    upstream: str = ""


PUBLISHED: dict[str, Family] = {
    "gemma2": Family("gemma2", {
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "head_dim": 32, "sliding_window": 16,
        "hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": 5.0, "final_logit_softcapping": 6.0,
        "query_pre_attn_scalar": 32, "rope_theta": 10000.0, "tie_word_embeddings": True, "rms_norm_eps": 1e-6,
    }, pieces=True),
    "phi3": Family("phi3", {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "original_max_position_embeddings": 512,
        "rope_theta": 10000.0, "rope_scaling": None,
    }, pieces=True),
    "phi3-long": Family("phi3", {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "original_max_position_embeddings": 32,
        "rope_theta": 10000.0, "rope_scaling": _LONGROPE, "partial_rotary_factor": 0.75, "num_hidden_layers": 2,
    }, pieces=True),
    "olmo2": Family("olmo2", {
        "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "rope_theta": 500000.0,
    }),
    "olmo3": Family("olmo2", {
        "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "rope_theta": 500000.0, "sliding_window": 16,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64,
        },
    }),
    "smollm3": Family("smollm3", {
        "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "rope_theta": 5000000.0,
        "no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4, "use_sliding_window": False,
        "tie_word_embeddings": True,
    }),
    "granite": Family("granite", {
        "architectures": ["GraniteForCausalLM"], "model_type": "granite", **_GRANITE, "tie_word_embeddings": True,
    }),
    "granitemoe": Family("granitemoe", {
        "architectures": ["GraniteMoeForCausalLM"], "model_type": "granitemoe", **_GRANITE, "num_local_experts": 6,
        "num_experts_per_tok": 2,
    }),
    "granitemoe-shared": Family("granitemoe", {
        "architectures": ["GraniteMoeSharedForCausalLM"], "model_type": "granitemoeshared", **_GRANITE,
        "num_local_experts": 6, "num_experts_per_tok": 2, "shared_intermediate_size": 32,
    }),
    "glm4": Family("glm4", {
        "architectures": ["Glm4ForCausalLM"], "model_type": "glm4", "head_dim": 16, "partial_rotary_factor": 0.5,
        "rope_theta": 10000.0, "attention_bias": True,
    }, added=("<|endoftext|>", "<|user|>")),
    "qwen2moe": Family("qwen2moe", {
        "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": 6,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 96,
        "norm_topk_prob": False, "rope_theta": 1000000.0,
    }),
    "exaone4": Family("exaone4", {
        "architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", **_EXAONE, "sliding_window": None,
        "sliding_window_pattern": None, "layer_types": ["full_attention"] * 4, "tie_word_embeddings": True,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    }),
    "exaone4-32b": Family("exaone4", {
        "architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", **_EXAONE, "sliding_window": 16,
        "sliding_window_pattern": "LLLG", "num_hidden_layers": 64, "hidden_size": 32, "num_attention_heads": 2,
        "num_key_value_heads": 1, "intermediate_size": 32,
        "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 16,
    }),
    "cohere2": Family("cohere2", {
        "architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "layer_norm_eps": 1e-5, "logit_scale": 0.25,
        "rotary_pct": 1.0, "rope_theta": 50000.0, "sliding_window": 16, "tie_word_embeddings": True,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "head_dim": 16,
    }),
    "mistral3": Family("mistral3", {
        "architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3", "head_dim": 16, "sliding_window": None,
        "rope_parameters": {
            "type": "yarn", "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 1.0,
            "llama_4_scaling_beta": 0.5,
        },
    }, pieces=True),
    "ernie4_5": Family("ernie4_5", {
        "architectures": ["Ernie4_5ForCausalLM"], "model_type": "ernie4_5", "head_dim": 16, "use_bias": False,
        "rope_theta": 500000.0, "tie_word_embeddings": True,
    }, pieces=True),
    "ernie4_5-moe": Family("ernie4_5-moe", {
        "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "use_bias": False,
        "rope_theta": 500000.0, "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 1,
    }, pieces=True),
    "hunyuan-dense": Family("hunyuan-dense", {
        "architectures": ["HunYuanDenseV1ForCausalLM"], "model_type": "hunyuan_v1_dense", "head_dim": 16,
        "max_position_embeddings": 32768, "rope_theta": 10000.0, "eod_token_id": 2, "tie_word_embeddings": True,
        "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
    }),
    "deepseek-v2": Family("deepseek2", {
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", **_LATENT,
        "norm_topk_prob": False, "n_group": 1, "topk_group": 1, "scoring_func": "softmax", "topk_method": "greedy",
        "rope_scaling": {**_YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
    }),
    "deepseek-v3-trunk": Family("deepseek2", {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", **_LATENT, "n_group": 4,
        "topk_group": 2, "scoring_func": "sigmoid", "num_nextn_predict_layers": 0,
        "rope_scaling": {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0},
    }),
    "glm4-flash-trunk": Family("deepseek2", {
        "architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite", **_LATENT, "n_group": 1,
        "topk_group": 1, "scoring_func": "sigmoid", "rope_theta": 1000000.0, "num_nextn_predict_layers": 0,
    }, added=("[gMASK]", "<|user|>", "<|endoftext|>", "<|observation|>")),
    "starcoder2": Family("starcoder2", {
        "architectures": ["Starcoder2ForCausalLM"], "model_type": "starcoder2", "hidden_act": "gelu_pytorch_tanh",
        "norm_epsilon": 1e-5, "use_bias": True, "rope_theta": 100000.0, "sliding_window": None,
    }),
    "llama4": Family("llama4", {
        "architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "head_dim": 16,
        "intermediate_size_mlp": 128, "num_local_experts": 6, "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2, "rope_theta": 500000.0, "use_qk_norm": True, "attn_temperature_tuning": True,
        "floor_scale": 8192, "attn_scale": 0.1, "attention_chunk_size": 8192,
    }),
}  # fmt: skip

PUBLISHED_ARCHITECTURES = {family.architecture for family in PUBLISHED.values()}


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """Name to "shapes" (tensor to shape, in file order) and "logits" (of `ROWS` and `IDS`)."""
    found: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))["families"]
    return found


def config_of(name: str) -> dict[str, Any]:
    """The config.json of a family."""
    return {**_COMMON, **PUBLISHED[name].config}


def weights_of(shapes: dict[str, list[int]]) -> dict[str, Stored]:
    """bf16 values, a function of the names, with which every part of a model matters."""
    return {name: bf16(_values(name, tuple(shape))) for name, shape in shapes.items()}


def _values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) == 1 and "norm" in name and name.endswith("weight"):
        return random_values(f"{name}.norm.weight", shape)  # near one
    if "embed_tokens" in name:
        return random_values(name, shape, 0.5)
    return random_values(name, shape, 0.1 if len(shape) == 1 or "bias" in name else 2 / np.sqrt(shape[-1]))


def write_published(directory: Path, name: str, shapes: dict[str, list[int]] | None = None) -> None:
    """Writes a family's checkpoint with a tokenizer."""
    family = PUBLISHED[name]
    write_checkpoint(directory, config_of(name), weights_of(shapes or recorded()[name]["shapes"]))
    if family.pieces:
        write_sentencepiece_tokenizer(directory)
    else:
        write_bpe_tokenizer(directory, family.added)
    write_json(directory / "generation_config.json", {"temperature": 0.7})
