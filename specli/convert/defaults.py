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
_QWEN35 = {
    **_QWEN, "vocab_size": 248320, "head_dim": 256, "num_attention_heads": 16, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "partial_rotary_factor": 0.25,
}  # fmt: skip
_LATENT = {
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128,
}  # fmt: skip
_SLIDING_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_GEMMA = {
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 256, "hidden_size": 2304, "intermediate_size": 9216, "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
}  # fmt: skip
_GEMMA4 = {
    **_GEMMA, "num_hidden_layers": 30, "vocab_size": 262144, "sliding_window": 512, "global_head_dim": 512,
    "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144,
    "rope_parameters": {
        "sliding_attention": _SLIDING_ROPE,
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    },
}  # fmt: skip

_OLMO = {
    "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
}  # fmt: skip
_GRANITE = {
    **_LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "embedding_multiplier": 1.0, "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
}  # fmt: skip
_ERNIE = {
    "vocab_size": 103424, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "tie_word_embeddings": True,
}  # fmt: skip

CLASS_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": _LLAMA,
    "mistral": {**_LLAMA, "max_position_embeddings": 131072, "num_key_value_heads": 8},
    "qwen2": _QWEN,
    "qwen3": {**_QWEN, "head_dim": 128},
    "qwen3_moe": {
        **_QWEN, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "num_key_value_heads": 4,
    },
    "qwen2_moe": {
        **_QWEN, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_key_value_heads": 16, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
        "num_experts_per_tok": 4, "num_experts": 60,
    },
    "smollm3": {
        "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "rope_theta": 2000000.0, "tie_word_embeddings": True,
    },
    "llama4_text": {
        "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "num_experts_per_tok": 1, "num_local_experts": 16,
        "interleave_moe_layer_step": 1, "rope_theta": 500000.0,
    },
    "ministral3": {
        "vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "type": "yarn", "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
            "original_max_position_embeddings": 16384,
            "max_position_embeddings": 262144, "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0,
            "mscale": 1.0, "llama_4_scaling_beta": 0.1,
        },
    },
    "phi3": {
        "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    },
    "olmo2": _OLMO,
    "olmo3": {**{k: v for k, v in _OLMO.items() if k != "rope_theta"}, "sliding_window": 4096},
    "granite": _GRANITE,
    "granitemoe": {**_GRANITE, "num_local_experts": 8, "num_experts_per_tok": 2},
    "granitemoeshared": {
        **_GRANITE, "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 0,
    },
    "glm4": {
        "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072,
        "rms_norm_eps": 1.5625e-7, "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
    },
    "exaone4": {
        "vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "sliding_window": 4096, "sliding_window_pattern": 4,
    },
    "cohere2": {
        "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "logit_scale": 0.0625,
        "num_hidden_layers": 40, "num_attention_heads": 64, "max_position_embeddings": 8192, "layer_norm_eps": 1e-5,
        "tie_word_embeddings": True, "rope_theta": 10000.0, "sliding_window": 4096,
    },
    "ernie4_5": {**_ERNIE, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18,
                 "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128},
    "ernie4_5_moe": {
        **_ERNIE, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28, "num_attention_heads": 20,
        "num_key_value_heads": 4, "moe_intermediate_size": 1536, "moe_k": 6, "moe_num_experts": 64,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_interval": 1,
    },
    "hunyuan_v1_dense": {
        "vocab_size": 290943, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "eod_token_id": 3,
    },
    "starcoder2": {
        "vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30,
        "num_attention_heads": 24, "num_key_value_heads": 2, "max_position_embeddings": 4096, "norm_epsilon": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": True,
    },
    "gemma2": {
        **_GEMMA, "num_hidden_layers": 26, "vocab_size": 256000, "max_position_embeddings": 8192,
        "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    },
    "gemma3_text": {
        **_GEMMA, "num_hidden_layers": 26, "vocab_size": 262208, "sliding_window": 4096,
        "rope_parameters": {
            "sliding_attention": _SLIDING_ROPE,
            "full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    },
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": {
        **{k: v for k, v in _GEMMA4.items() if not k.endswith("_per_layer_input")}, "sliding_window": 1024,
        "max_position_embeddings": 262144,
    },
    "gpt_oss": {
        "num_hidden_layers": 36, "num_experts": 128, "num_experts_per_tok": 4, "vocab_size": 201088,
        "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64, "num_attention_heads": 64,
        "num_key_value_heads": 8, "sliding_window": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": 4096, "rope_theta": 150000.0,
        },
    },
    "glm4_moe": {
        "vocab_size": 151552, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5, "num_key_value_heads": 8, "moe_intermediate_size": 1408,
        "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128, "routed_scaling_factor": 1.0,
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "norm_topk_prob": True,
        "num_nextn_predict_layers": 1,
    },
    "deepseek_v2": {
        **_LATENT, "head_dim": 64, "vocab_size": 102400, "max_position_embeddings": 2048, "intermediate_size": 11008,
        "n_routed_experts": 64, "n_shared_experts": 2, "routed_scaling_factor": 1.0, "first_k_dense_replace": 0,
        "norm_topk_prob": False, "moe_intermediate_size": 1407,
    },
    "deepseek_v3": {
        **_LATENT, "head_dim": 64, "vocab_size": 129280, "max_position_embeddings": 4096, "intermediate_size": 18432,
        "n_routed_experts": 256, "n_shared_experts": 1, "routed_scaling_factor": 2.5, "first_k_dense_replace": 3,
        "norm_topk_prob": True, "moe_intermediate_size": 2048, "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8,
        "num_nextn_predict_layers": 1,
    },
    "glm4_moe_lite": {
        **_LATENT, "vocab_size": 154880, "max_position_embeddings": 202752, "intermediate_size": 10240,
        "q_lora_rank": 768, "v_head_dim": 256, "qk_nope_head_dim": 192, "rms_norm_eps": 1e-5,
        "n_routed_experts": 64, "n_shared_experts": 1, "routed_scaling_factor": 1.8, "norm_topk_prob": True,
        "moe_intermediate_size": 1536, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 4,
    },
    "qwen3_next": {
        **_QWEN35, "vocab_size": 151936, "num_key_value_heads": 2, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10, "num_experts": 512,
    },
    "qwen3_5_text": {**_QWEN35, "num_key_value_heads": 4},
    "qwen3_5_moe_text": {
        **_QWEN35, "num_key_value_heads": 2, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "num_experts_per_tok": 8, "num_experts": 256,
    },
}  # fmt: skip
"""`model_type` to the class's defaults; `job.with_defaults` adds the computed ones."""

HEAD_DIM_FROM_WIDTH = frozenset({"llama", "mistral", "cohere2"})
"""Classes that set `head_dim = hidden_size // num_attention_heads` when it is absent."""
