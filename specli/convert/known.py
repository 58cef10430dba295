"""Config keys a drafter's conversion understands; any other is named in a warning, so no switch is lost in silence.

`READ` lists what the layout modules use, `HARMLESS` what describes training, packaging or the target.
"""

from __future__ import annotations

from collections.abc import Iterable

from specli.convert.job import Job
from specli.errors import listed

READ = frozenset({
    "architectures", "model_type", "speculators_model_type", "speculators_config", "transformer_layer_config",
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "draft_vocab_size", "truncated_vocab_size", "target_hidden_size", "max_position_embeddings",
    "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "rope_is_neox_style",
    "original_max_position_embeddings", "layer_types", "sliding_window", "use_sliding_window", "is_causal",
    "eagle_config", "eagle_aux_hidden_state_layer_ids", "norm_before_residual", "norm_before_fc", "fc_norm",
    "norm_output", "dflash_config", "block_size", "mask_token_id", "target_layer_ids", "aux_hidden_state_layer_ids",
    "num_target_layers", "final_logit_softcapping", "output_multiplier", "input_embedding_scale", "has_embed_tokens",
    "markov_rank", "markov_head_type", "confidence_head_with_markov", "enable_confidence_head", "sample_from_anchor",
    "tie_word_embeddings", "attention_bias", "global_head_dim", "num_global_key_value_heads", "attention_k_eq_v",
    "hidden_act", "hidden_activation", "sliding_window_non_causal", "enable_moe_block", "quantization_config",
})  # fmt: skip

HARMLESS = frozenset({
    "_name_or_path", "auto_map", "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype", "dtype",
    "transformers_version", "speculators_version", "initializer_range", "use_cache", "pretraining_tp",
    "attention_dropout", "hidden_dropout", "mlp_bias", "bias", "max_window_layers", "num_anchors",
    "max_anchors", "ttt_length", "step_loss_decay", "embed_requires_grad", "_attn_implementation",
    "num_aux_hidden_states", "confidence_head_alpha", "num_experts", "top_k_experts",
    "moe_intermediate_size", "num_kv_shared_layers", "hidden_size_per_layer_input", "vocab_size_per_layer_input",
    "use_double_wide_mlp", "mlp_only_layers", "decoder_sparse_step", "output_router_logits", "chunk_size_feed_forward",
    "id2label", "label2id", "return_dict", "output_attentions", "output_hidden_states", "problem_type",
    "is_encoder_decoder", "query_pre_attn_scalar", "attn_logit_softcapping",
})  # fmt: skip

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


def warn_of_unknown_keys(job: Job) -> None:
    """Names config keys of a drafter that nothing here reads."""
    raw = job.checkpoint.config
    unknown = sorted(_unknown(raw.items, READ | HARMLESS))
    unknown += sorted(_unknown(raw.section("transformer_layer_config").items, READ | HARMLESS))
    for section, known in READ_NESTED.items():
        unknown += [f"{section}.{name}" for name in sorted(_unknown(raw.section(section).items, known))]
    if unknown:
        job.warnings.append(f"config keys that are not understood and have no effect: {listed(unknown)}")


def _unknown(names: Iterable[str], known: frozenset[str]) -> list[str]:
    return [name for name in names if name not in known]
