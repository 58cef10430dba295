"""Config keys that a layout does not understand are named in a warning, so that no switch is lost in silence.

What a layout reads is a set of its own: a key that another layout reads counts for nothing here. Drafters name every
key that nobody knows; targets, whose configs have dozens of keys about training and generation, name those that change
what is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from specli.convert.job import Job
from specli.convert.keys import rope_block
from specli.errors import listed

BODY = frozenset({
    "architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "original_max_position_embeddings", "is_causal", "hidden_act",
    "hidden_activation", "quantization_config", "text_config",
})  # fmt: skip
"""Read for every layout."""

_DRAFTER = BODY | {
    "speculators_model_type", "transformer_layer_config", "draft_vocab_size", "truncated_vocab_size",
    "target_hidden_size",
}  # fmt: skip
_BLOCK = _DRAFTER | {
    "dflash_config", "block_size", "mask_token_id", "target_layer_ids", "aux_hidden_state_layer_ids",
    "num_target_layers", "layer_types", "sliding_window", "use_sliding_window", "sliding_window_non_causal",
    "final_logit_softcapping", "output_multiplier", "input_embedding_scale", "sample_from_anchor",
}  # fmt: skip
_QWEN_BLOCK = _BLOCK | {"partial_rotary_factor", "rope_is_neox_style", "has_embed_tokens"}
_WINDOW_KEYS = frozenset({"sliding_window", "use_sliding_window", "sliding_window_non_causal"})
_MARKOV = frozenset({"markov_rank", "markov_head_type", "confidence_head_with_markov"})
_EXPERTS = frozenset({"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"})
_GEMMA4 = _EXPERTS | {
    "layer_types", "sliding_window", "sliding_window_pattern", "final_logit_softcapping", "global_head_dim",
    "num_global_key_value_heads", "attention_k_eq_v", "enable_moe_block", "expert_intermediate_size", "top_k_experts",
    "num_kv_shared_layers", "hidden_size_per_layer_input", "vocab_size_per_layer_input", "use_double_wide_mlp",
    "per_layer_config", "rope_local_base_freq",
}  # fmt: skip
_LATENT = frozenset({
    "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace",
    "routed_scaling_factor", "norm_topk_prob", "n_group", "topk_group", "num_nextn_predict_layers", "scoring_func",
    "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
})  # fmt: skip
_QWEN35 = frozenset({
    "layer_types", "full_attention_interval", "partial_rotary_factor", "linear_num_key_heads",
    "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
    "mtp_num_hidden_layers",
})  # fmt: skip

_MULTIPLIERS = frozenset({
    "attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling",
})  # fmt: skip

READ: Mapping[str, frozenset[str]] = {
    "EAGLE-3": _DRAFTER | {
        "eagle_config", "eagle_aux_hidden_state_layer_ids", "target_layer_ids", "norm_before_residual",
        "norm_before_fc", "fc_norm", "norm_output", "layer_types", "sliding_window",
    },
    "EAGLE": BODY,
    "Medusa": BODY,
    "DFlash": _QWEN_BLOCK,
    "DSpark": _QWEN_BLOCK | _MARKOV,
    "DSpark, Gemma 4 body": _BLOCK - _WINDOW_KEYS - {"input_embedding_scale"} | _MARKOV | {
        "attention_k_eq_v", "enable_moe_block", "global_head_dim",
        "num_global_key_value_heads",
    },
    "Gemma 4 assistant": BODY | _GEMMA4 | {"backbone_hidden_size"},
    "Llama": BODY | {"num_local_experts", "num_experts_per_tok"},
    "Qwen2": BODY,
    "Qwen3": BODY,
    "Qwen3-MoE": BODY | _EXPERTS | {"norm_topk_prob", "shared_expert_intermediate_size"},
    "SmolLM3": BODY | {"no_rope_layers", "no_rope_layer_interval"},
    "Llama 4": BODY | {
        "num_local_experts", "num_experts_per_tok", "intermediate_size_mlp", "interleave_moe_layer_step", "moe_layers",
        "no_rope_layers", "no_rope_layer_interval", "attention_chunk_size", "attn_temperature_tuning", "floor_scale",
        "attn_scale",
    },
    "Mistral 3": BODY,
    "Phi-3": BODY | {"partial_rotary_factor", "sliding_window"},
    "OLMo 2": BODY | {"layer_types", "sliding_window", "sliding_window_pattern"},
    "Granite": BODY | _MULTIPLIERS,
    "Granite-MoE": BODY | _MULTIPLIERS | {"num_local_experts", "num_experts_per_tok", "shared_intermediate_size"},
    "GLM-4": BODY | {"partial_rotary_factor"},
    "Qwen2-MoE": BODY | _EXPERTS | {"norm_topk_prob", "shared_expert_intermediate_size"},
    "EXAONE 4": BODY | {"layer_types", "sliding_window", "sliding_window_pattern"},
    "Cohere 2": BODY | {
        "layer_types", "sliding_window", "sliding_window_pattern", "logit_scale", "rotary_pct",
        "layer_norm_eps",
    },
    "ERNIE 4.5": BODY,
    "ERNIE 4.5-MoE": BODY | {
        "moe_num_experts", "moe_k", "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval",
        "moe_intermediate_size", "moe_num_shared_experts",
    },
    "Hunyuan": BODY,
    "StarCoder 2": BODY | {"norm_epsilon", "sliding_window"},
    "Gemma 2": BODY | {
        "layer_types", "sliding_window", "sliding_window_pattern", "final_logit_softcapping",
        "attn_logit_softcapping", "query_pre_attn_scalar",
    },
    "Gemma 3": BODY | {
        "layer_types", "sliding_window", "sliding_window_pattern", "final_logit_softcapping",
        "attn_logit_softcapping", "rope_local_base_freq", "query_pre_attn_scalar",
    },
    "Gemma 4": BODY | _GEMMA4,
    "gpt-oss": BODY | {
        "layer_types", "sliding_window", "swiglu_limit", "num_local_experts", "num_experts", "num_experts_per_tok",
    },
    "GLM-4.5": BODY | {
        "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts",
        "first_k_dense_replace", "routed_scaling_factor", "norm_topk_prob", "n_group", "topk_group",
        "partial_rotary_factor", "num_nextn_predict_layers",
    },
    "DeepSeek": BODY | _LATENT,
    "GLM-4.7-Flash": BODY | _LATENT | {"mlp_layer_types"},
    "Qwen3.5": BODY | _QWEN35,
    "Qwen3-Next": BODY | _QWEN35 | _EXPERTS | {"shared_expert_intermediate_size"},
    "Qwen3.5-MoE": BODY | _QWEN35 | _EXPERTS | {"shared_expert_intermediate_size"},
}  # fmt: skip
"""Layout to the keys it reads: they decide what is written, or are checked."""

DECIDED_BY_TENSORS = frozenset({
    "attention_bias", "mlp_bias", "bias", "tie_word_embeddings", "enable_confidence_head", "use_qk_norm",
    "mlp_only_layers", "decoder_sparse_step", "medusa_num_heads", "medusa_num_layers", "use_bias",
})  # fmt: skip
"""What these say is seen from the tensors as well: a tensor too many or too few is an error."""

HARMLESS = DECIDED_BY_TENSORS | {
    "base_model_name_or_path",
    "_name_or_path", "auto_map", "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype", "dtype",
    "transformers_version", "speculators_version", "speculators_config", "initializer_range", "use_cache",
    "pretraining_tp", "attention_dropout", "hidden_dropout", "max_window_layers", "num_anchors", "max_anchors",
    "ttt_length", "step_loss_decay", "embed_requires_grad", "_attn_implementation", "num_aux_hidden_states",
    "confidence_head_alpha", "output_router_logits", "chunk_size_feed_forward", "id2label", "label2id", "return_dict",
    "output_attentions", "output_hidden_states", "problem_type", "is_encoder_decoder",
}  # fmt: skip
"""What describes training, packaging or the target."""

OF_THE_TARGET = frozenset({
    "num_experts", "top_k_experts", "moe_intermediate_size", "num_kv_shared_layers", "hidden_size_per_layer_input",
    "vocab_size_per_layer_input", "use_double_wide_mlp", "query_pre_attn_scalar", "attn_logit_softcapping",
})  # fmt: skip
"""What drafters' configs inherit from the target's and their layers do not have."""

SWITCHES = frozenset().union(*READ.values()) - BODY | {
    "attention_multiplier", "residual_multiplier", "embedding_multiplier", "logits_scaling", "logit_scale", "clip_qkv",
    "qk_layernorm", "no_rope_layers", "no_rope_layer_interval", "attn_temperature_tuning", "alibi", "parallel_attn",
    "attn_logit_softcapping", "query_pre_attn_scalar", "swa_window_size", "swiglu_limit",
}  # fmt: skip
"""Keys that change what is computed, in one architecture or another."""

_ROPE_READ = frozenset({
    "rope_theta", "rope_type", "type", "factor", "original_max_position_embeddings", "attention_factor", "attn_factor",
    "mscale", "mscale_all_dim", "beta_fast", "beta_slow", "extrapolation_factor", "truncate", "low_freq_factor",
    "high_freq_factor", "mrope_section", "mrope_interleaved", "full_attention", "sliding_attention", "finetuned",
})  # fmt: skip
"""Of `rope_parameters` or `rope_scaling`, besides `partial_rotary_factor`."""

_ROPE_READ_BY: Mapping[str, frozenset[str]] = {
    "Hunyuan": frozenset({"alpha"}),
    "Mistral 3": frozenset({"llama_4_scaling_beta", "max_position_embeddings"}),
    "Phi-3": frozenset({"long_factor", "short_factor"}),
}
"""Of the same, what only these layouts read."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(SWITCHES, (False, 0, "", [], {})),
    **dict.fromkeys(
        (
            "partial_rotary_factor", "attention_multiplier", "residual_multiplier", "embedding_multiplier",
            "logits_scaling", "logit_scale", "n_group", "topk_group", "routed_scaling_factor", "output_multiplier",
            "input_embedding_scale",
        ),
        (1,),
    ),
    **dict.fromkeys(("norm_topk_prob", "has_embed_tokens", "rope_is_neox_style"), (True,)),
}  # fmt: skip
"""Values with which a switch changes nothing."""
_WINDOWS = ("sliding_window", "swa_window_size", "use_sliding_window")

READ_NESTED = {
    "eagle_config": frozenset({"eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state"}),
    "dflash_config": frozenset({
        "mask_token_id", "target_layer_ids", "block_size", "use_swa", "swa_window_size", "causal",
        "attention_sink_bias", "attention_value_scale", "final_logit_softcapping", "output_multiplier",
        "input_embedding_scale", "conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k",
        "markov_rank", "markov_head_type", "enable_confidence_head", "confidence_head_with_markov",
        "confidence_head_alpha", "projector_type",
        "attention_mode",
    }),
}  # fmt: skip


def warn_of_unknown_keys(job: Job, layout: str, *, is_drafter: bool) -> None:
    """Names config keys that have a value and no effect."""
    raw, known = job.checkpoint.config, READ[layout]
    if is_drafter:
        lost = _lost(raw.items, known | HARMLESS | OF_THE_TARGET)
        lost += _lost(raw.section("transformer_layer_config").items, known | HARMLESS | OF_THE_TARGET)
        for name, nested in READ_NESTED.items():
            if name in known:
                lost += [f"{name}.{key}" for key in _lost(raw.section(name).items, nested)]
    else:
        lost = [key for key in _lost(job.config.items, known | HARMLESS) if key in SWITCHES]
    rope = _ROPE_READ | _ROPE_READ_BY.get(layout, frozenset()) | (known & {"partial_rotary_factor"})
    lost += [f"rope_parameters.{key}" for key in _lost(rope_block(job.config).items, rope) if key not in lost]
    if lost:
        job.warnings.append(f"config keys that are not understood and have no effect: {listed(lost)}")


def _lost(items: Mapping[str, Any], known: Iterable[str]) -> list[str]:
    """Keys outside the known ones whose values say something."""
    return sorted(key for key, value in items.items() if key not in known and not _is_neutral(key, value, items))


def _is_neutral(key: str, value: Any, items: Mapping[str, Any]) -> bool:
    """Whether a key says what holds without it."""
    if value is None or value in _NEUTRAL.get(key, ()):
        return True
    if key in _WINDOWS and (items.get("use_sliding_window") is False or items.get("layer_types")):
        return True  # switched off; or said by the layers' types
    if key == "layer_types":
        return isinstance(value, list) and set(map(str, value)) == {"full_attention"}
    return key == "query_pre_attn_scalar" and value == items.get("head_dim")
