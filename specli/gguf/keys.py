"""Metadata keys of the architectures that specli reads and writes.

One row per key, with the enumerator of `src/llama-arch.cpp` (llama.cpp b11434) that names it, or the file that reads
it. The drafters' rows are missing from the `gguf` package (0.19), so this table is complete by itself. In key names
`A.` stands for the architecture.
"""

from __future__ import annotations

from dataclasses import dataclass

PER_LAYER_INTS = ("u32", "[u32]", "[i32]", "[bool]")  # a scalar, or an array with one value per layer
INTS = ("[i32]", "[u32]")
FLAGS = ("[bool]", "[i32]", "[u32]")
DEFAULT_BLOCK_SIZE = 16  # of a DFlash network that names none
MAX_BLOCK_SIZE = 128  # most rows that kernels promise to compute alike


@dataclass(frozen=True)
class Key:
    """One metadata key of a GGUF file, with its type and its source.

    Attributes:
        name: With `A.` for the architecture.
        kinds: Stored kinds llama.cpp accepts; the first is the one the converter writes.
        source: Where llama.cpp names or reads it.
    """

    name: str
    kinds: tuple[str, ...]
    source: str


def _keys(*rows: tuple[str, str | tuple[str, ...], str]) -> tuple[Key, ...]:
    return tuple(Key(name, (kinds,) if isinstance(kinds, str) else kinds, source) for name, kinds, source in rows)


GENERAL_KEYS = _keys(
    ("general.architecture", "str", "LLM_KV_GENERAL_ARCHITECTURE"),
    ("general.type", "str", "LLM_KV_GENERAL_TYPE"),
    ("general.alignment", "u32", "LLM_KV_GENERAL_ALIGNMENT"),
    ("general.file_type", "u32", "LLM_KV_GENERAL_FILE_TYPE"),
    ("general.quantization_version", "u32", "LLM_KV_GENERAL_QUANTIZATION_VERSION"),
    ("general.name", "str", "LLM_KV_GENERAL_NAME"),
    ("general.author", "str", "LLM_KV_GENERAL_AUTHOR"),
    ("general.version", "str", "LLM_KV_GENERAL_VERSION"),
    ("general.organization", "str", "gguf-py Keys.General.ORGANIZATION"),
    ("general.finetune", "str", "gguf-py Keys.General.FINETUNE"),
    ("general.basename", "str", "gguf-py Keys.General.BASENAME"),
    ("general.description", "str", "LLM_KV_GENERAL_DESCRIPTION"),
    ("general.quantized_by", "str", "gguf-py Keys.General.QUANTIZED_BY"),
    ("general.size_label", "str", "gguf-py Keys.General.SIZE_LABEL"),
    ("general.license", "str", "LLM_KV_GENERAL_LICENSE"),
    ("general.tags", "[str]", "gguf-py Keys.General.TAGS"),
    ("general.languages", "[str]", "gguf-py Keys.General.LANGUAGES"),
    ("general.sampling.sequence", "str", "LLM_KV_GENERAL_SAMPLING_SEQUENCE"),
    ("general.sampling.top_k", "i32", "LLM_KV_GENERAL_SAMPLING_TOP_K"),
    ("general.sampling.top_p", "f32", "LLM_KV_GENERAL_SAMPLING_TOP_P"),
    ("general.sampling.min_p", "f32", "LLM_KV_GENERAL_SAMPLING_MIN_P"),
    ("general.sampling.xtc_probability", "f32", "LLM_KV_GENERAL_SAMPLING_XTC_PROBABILITY"),
    ("general.sampling.xtc_threshold", "f32", "LLM_KV_GENERAL_SAMPLING_XTC_THRESHOLD"),
    ("general.sampling.temp", "f32", "LLM_KV_GENERAL_SAMPLING_TEMP"),
    ("general.sampling.penalty_last_n", "i32", "LLM_KV_GENERAL_SAMPLING_PENALTY_LAST_N"),
    ("general.sampling.penalty_repeat", "f32", "LLM_KV_GENERAL_SAMPLING_PENALTY_REPEAT"),
    ("general.sampling.mirostat", "i32", "LLM_KV_GENERAL_SAMPLING_MIROSTAT"),
    ("general.sampling.mirostat_tau", "f32", "LLM_KV_GENERAL_SAMPLING_MIROSTAT_TAU"),
    ("general.sampling.mirostat_eta", "f32", "LLM_KV_GENERAL_SAMPLING_MIROSTAT_ETA"),
    ("split.no", "u16", "LLM_KV_SPLIT_NO"),
    ("split.count", "u16", "LLM_KV_SPLIT_COUNT"),
    ("split.tensors.count", "i32", "LLM_KV_SPLIT_TENSORS_COUNT"),
)

MODEL_KEYS = _keys(
    ("A.vocab_size", "u32", "LLM_KV_VOCAB_SIZE"),
    ("A.context_length", "u32", "LLM_KV_CONTEXT_LENGTH"),
    ("A.embedding_length", "u32", "LLM_KV_EMBEDDING_LENGTH"),
    ("A.embedding_length_out", "u32", "LLM_KV_EMBEDDING_LENGTH_OUT"),
    ("A.embedding_length_per_layer_input", "u32", "LLM_KV_EMBEDDING_LENGTH_PER_LAYER"),
    ("A.block_count", "u32", "LLM_KV_BLOCK_COUNT"),
    ("A.nextn_predict_layers", "u32", "LLM_KV_NEXTN_PREDICT_LAYERS"),
    ("A.leading_dense_block_count", "u32", "LLM_KV_LEADING_DENSE_BLOCK_COUNT"),
    ("A.feed_forward_length", PER_LAYER_INTS, "LLM_KV_FEED_FORWARD_LENGTH"),
    ("A.hidden_activation", "str", "LLM_KV_HIDDEN_ACT"),
    ("A.embedding_scale", "f32", "LLM_KV_EMBEDDING_SCALE"),
    ("A.residual_scale", "f32", "LLM_KV_RESIDUAL_SCALE"),
    ("A.logit_scale", "f32", "LLM_KV_LOGIT_SCALE"),
    ("A.attn_logit_softcapping", "f32", "LLM_KV_ATTN_LOGIT_SOFTCAPPING"),
    ("A.final_logit_softcapping", "f32", "LLM_KV_FINAL_LOGIT_SOFTCAPPING"),
    ("A.full_attention_interval", "u32", "LLM_KV_FULL_ATTENTION_INTERVAL"),
    ("A.expert_count", "u32", "LLM_KV_EXPERT_COUNT"),
    ("A.expert_used_count", PER_LAYER_INTS, "LLM_KV_EXPERT_USED_COUNT"),
    ("A.expert_shared_count", "u32", "LLM_KV_EXPERT_SHARED_COUNT"),
    ("A.expert_group_count", "u32", "LLM_KV_EXPERT_GROUP_COUNT"),
    ("A.expert_group_used_count", "u32", "LLM_KV_EXPERT_GROUP_USED_COUNT"),
    ("A.expert_feed_forward_length", PER_LAYER_INTS, "LLM_KV_EXPERT_FEED_FORWARD_LENGTH"),
    ("A.expert_shared_feed_forward_length", "u32", "LLM_KV_EXPERT_SHARED_FEED_FORWARD_LENGTH"),
    ("A.interleave_moe_layer_step", "u32", "LLM_KV_INTERLEAVE_MOE_LAYER_STEP"),
    ("A.expert_weights_scale", "f32", "LLM_KV_EXPERT_WEIGHTS_SCALE"),
    ("A.expert_weights_norm", "bool", "LLM_KV_EXPERT_WEIGHTS_NORM"),
    ("A.expert_gating_func", "u32", "LLM_KV_EXPERT_GATING_FUNC"),
    ("A.attention.head_count", PER_LAYER_INTS, "LLM_KV_ATTENTION_HEAD_COUNT"),
    ("A.attention.head_count_kv", PER_LAYER_INTS, "LLM_KV_ATTENTION_HEAD_COUNT_KV"),
    ("A.attention.key_length", "u32", "LLM_KV_ATTENTION_KEY_LENGTH"),
    ("A.attention.value_length", "u32", "LLM_KV_ATTENTION_VALUE_LENGTH"),
    ("A.attention.key_length_swa", "u32", "LLM_KV_ATTENTION_KEY_LENGTH_SWA"),
    ("A.attention.value_length_swa", "u32", "LLM_KV_ATTENTION_VALUE_LENGTH_SWA"),
    ("A.attention.layer_norm_rms_epsilon", "f32", "LLM_KV_ATTENTION_LAYERNORM_RMS_EPS"),
    ("A.attention.layer_norm_epsilon", "f32", "LLM_KV_ATTENTION_LAYERNORM_EPS"),
    ("A.attention.causal", "bool", "LLM_KV_ATTENTION_CAUSAL"),
    ("A.attention.scale", "f32", "LLM_KV_ATTENTION_SCALE"),
    ("A.attention.value_scale", "f32", "LLM_KV_ATTENTION_VALUE_SCALE"),
    ("A.attention.temperature_scale", "f32", "LLM_KV_ATTENTION_TEMPERATURE_SCALE"),
    ("A.attention.sliding_window", "u32", "LLM_KV_ATTENTION_SLIDING_WINDOW"),
    ("A.attention.sliding_window_pattern", ("[bool]", *PER_LAYER_INTS[:-1]), "LLM_KV_ATTENTION_SLIDING_WINDOW_PATTERN"),
    ("A.attention.shared_kv_layers", "u32", "LLM_KV_ATTENTION_SHARED_KV_LAYERS"),
    ("A.attention.recurrent_layers", FLAGS, "LLM_KV_ATTENTION_RECURRENT_LAYERS"),
    ("A.rope.dimension_count", "u32", "LLM_KV_ROPE_DIMENSION_COUNT"),
    ("A.rope.dimension_count_swa", "u32", "LLM_KV_ROPE_DIMENSION_COUNT_SWA"),
    ("A.rope.dimension_sections", INTS, "LLM_KV_ROPE_DIMENSION_SECTIONS"),
    ("A.rope.freq_base", "f32", "LLM_KV_ROPE_FREQ_BASE"),
    ("A.rope.freq_base_swa", "f32", "LLM_KV_ROPE_FREQ_BASE_SWA"),
    ("A.rope.scale_linear", "f32", "LLM_KV_ROPE_SCALE_LINEAR"),
    ("A.rope.scaling.type", "str", "LLM_KV_ROPE_SCALING_TYPE"),
    ("A.rope.scaling.factor", "f32", "LLM_KV_ROPE_SCALING_FACTOR"),
    ("A.rope.scaling.attn_factor", "f32", "LLM_KV_ROPE_SCALING_ATTN_FACTOR"),
    ("A.rope.scaling.original_context_length", "u32", "LLM_KV_ROPE_SCALING_ORIG_CTX_LEN"),
    ("A.rope.scaling.finetuned", "bool", "LLM_KV_ROPE_SCALING_FINETUNED"),
    ("A.rope.scaling.yarn_log_multiplier", "f32", "LLM_KV_ROPE_SCALING_YARN_LOG_MUL"),
    ("A.rope.scaling.yarn_ext_factor", "f32", "LLM_KV_ROPE_SCALING_YARN_EXT_FACTOR"),
    ("A.rope.scaling.yarn_attn_factor", "f32", "LLM_KV_ROPE_SCALING_YARN_ATTN_FACTOR"),
    ("A.rope.scaling.yarn_beta_fast", "f32", "LLM_KV_ROPE_SCALING_YARN_BETA_FAST"),
    ("A.rope.scaling.yarn_beta_slow", "f32", "LLM_KV_ROPE_SCALING_YARN_BETA_SLOW"),
    ("A.attention.q_lora_rank", "u32", "LLM_KV_ATTENTION_Q_LORA_RANK"),
    ("A.attention.kv_lora_rank", "u32", "LLM_KV_ATTENTION_KV_LORA_RANK"),
    ("A.attention.key_length_mla", "u32", "LLM_KV_ATTENTION_KEY_LENGTH_MLA"),
    ("A.attention.value_length_mla", "u32", "LLM_KV_ATTENTION_VALUE_LENGTH_MLA"),
    ("A.ssm.conv_kernel", "u32", "LLM_KV_SSM_CONV_KERNEL"),
    ("A.ssm.inner_size", "u32", "LLM_KV_SSM_INNER_SIZE"),
    ("A.ssm.state_size", "u32", "LLM_KV_SSM_STATE_SIZE"),
    ("A.ssm.time_step_rank", "u32", "LLM_KV_SSM_TIME_STEP_RANK"),
    ("A.ssm.group_count", "u32", "LLM_KV_SSM_GROUP_COUNT"),
)

DRAFT_KEYS = _keys(
    ("A.target_layers", INTS, "LLM_KV_TARGET_LAYERS"),
    ("A.target_hidden_size", "u32", "LLM_KV_TARGET_HIDDEN_SIZE"),
    ("A.norm_before_residual", "bool", "LLM_KV_NORM_BEFORE_RESIDUAL"),
    ("A.norm_before_fc", "bool", "LLM_KV_NORM_BEFORE_FC"),
    ("A.block_size", "u32", "LLM_KV_DFLASH_BLOCK_SIZE"),
    ("A.conv_kernel_size", "u32", "LLM_KV_DFLASH_CONV_KERNEL_SIZE"),
    ("A.conv_group_size", "u32", "LLM_KV_DFLASH_CONV_GROUP_SIZE"),
    ("A.selector_rank", "u32", "LLM_KV_DFLASH_SELECTOR_RANK"),
    ("A.selector_top_k", "u32", "LLM_KV_DFLASH_SELECTOR_TOP_K"),
    ("A.sample_from_anchor", "bool", "common/speculative.cpp, common_speculative_impl_draft_dflash"),
    ("A.has_confidence_head", "bool", "common/speculative.cpp, common_speculative_impl_draft_dflash"),
    # not llama.cpp's
    ("A.fc_norm", "bool", "specli/models/eagle3.py: each tapped state is normed by itself"),
    ("A.norm_output", "bool", "specli/models/eagle3.py: the next step reads the normed state"),
    ("A.residual_count", "u32", "specli/models/medusa.py: residual parts of a head"),
    ("A.attention.causal_pattern", FLAGS, "specli/models/dflash_config.py: layers that are causal within a block"),
)

ORIGIN_KEYS = _keys(
    ("specli.target.name", "str", "specli/gguf/origin.py, NAME"),
    ("specli.target.vocabulary", "str", "specli/gguf/origin.py, VOCABULARY"),
    ("specli.target.embeddings", "[f32]", "specli/gguf/origin.py, EMBEDDINGS"),
)

TOKENIZER_KEYS = _keys(
    ("tokenizer.ggml.model", "str", "LLM_KV_TOKENIZER_MODEL"),
    ("tokenizer.ggml.pre", "str", "LLM_KV_TOKENIZER_PRE"),
    ("tokenizer.ggml.tokens", "[str]", "LLM_KV_TOKENIZER_LIST"),
    ("tokenizer.ggml.scores", ("[f32]", "[i32]"), "LLM_KV_TOKENIZER_SCORES"),
    ("tokenizer.ggml.token_type", "[i32]", "LLM_KV_TOKENIZER_TOKEN_TYPE"),
    ("tokenizer.ggml.merges", "[str]", "LLM_KV_TOKENIZER_MERGES"),
    ("tokenizer.ggml.bos_token_id", "u32", "LLM_KV_TOKENIZER_BOS_ID"),
    ("tokenizer.ggml.eos_token_id", "u32", "LLM_KV_TOKENIZER_EOS_ID"),
    ("tokenizer.ggml.eot_token_id", "u32", "LLM_KV_TOKENIZER_EOT_ID"),
    ("tokenizer.ggml.eom_token_id", "u32", "LLM_KV_TOKENIZER_EOM_ID"),
    ("tokenizer.ggml.unknown_token_id", "u32", "LLM_KV_TOKENIZER_UNK_ID"),
    ("tokenizer.ggml.seperator_token_id", "u32", "LLM_KV_TOKENIZER_SEP_ID"),
    ("tokenizer.ggml.padding_token_id", "u32", "LLM_KV_TOKENIZER_PAD_ID"),
    ("tokenizer.ggml.cls_token_id", "u32", "LLM_KV_TOKENIZER_CLS_ID"),
    ("tokenizer.ggml.mask_token_id", "u32", "LLM_KV_TOKENIZER_MASK_ID"),
    ("tokenizer.ggml.fim_pre_token_id", "u32", "LLM_KV_TOKENIZER_FIM_PRE_ID"),
    ("tokenizer.ggml.fim_suf_token_id", "u32", "LLM_KV_TOKENIZER_FIM_SUF_ID"),
    ("tokenizer.ggml.fim_mid_token_id", "u32", "LLM_KV_TOKENIZER_FIM_MID_ID"),
    ("tokenizer.ggml.fim_pad_token_id", "u32", "LLM_KV_TOKENIZER_FIM_PAD_ID"),
    ("tokenizer.ggml.fim_rep_token_id", "u32", "LLM_KV_TOKENIZER_FIM_REP_ID"),
    ("tokenizer.ggml.fim_sep_token_id", "u32", "LLM_KV_TOKENIZER_FIM_SEP_ID"),
    ("tokenizer.ggml.prefix_token_id", "u32", "LLM_KV_TOKENIZER_PREFIX_ID"),
    ("tokenizer.ggml.suffix_token_id", "u32", "LLM_KV_TOKENIZER_SUFFIX_ID"),
    ("tokenizer.ggml.middle_token_id", "u32", "LLM_KV_TOKENIZER_MIDDLE_ID"),
    ("tokenizer.ggml.add_bos_token", "bool", "LLM_KV_TOKENIZER_ADD_BOS"),
    ("tokenizer.ggml.add_eos_token", "bool", "LLM_KV_TOKENIZER_ADD_EOS"),
    ("tokenizer.ggml.add_sep_token", "bool", "LLM_KV_TOKENIZER_ADD_SEP"),
    ("tokenizer.ggml.add_space_prefix", "bool", "LLM_KV_TOKENIZER_ADD_PREFIX"),
    ("tokenizer.ggml.remove_extra_whitespaces", "bool", "LLM_KV_TOKENIZER_REMOVE_EXTRA_WS"),
    ("tokenizer.ggml.suppress_tokens", "[i32]", "LLM_KV_TOKENIZER_SUPPRESS_TOKENS"),
    ("tokenizer.ggml.normalizer.lowercase", "bool", "LLM_KV_TOKENIZER_NORMALIZER_LOWERCASE"),
    ("tokenizer.ggml.normalizer.strip_accents", "bool", "LLM_KV_TOKENIZER_NORMALIZER_STRIP_ACCENTS"),
    ("tokenizer.huggingface.json", "str", "LLM_KV_TOKENIZER_HF_JSON"),
    ("tokenizer.chat_template", "str", "LLM_KV_TOKENIZER_CHAT_TEMPLATE"),
    ("tokenizer.chat_templates", "[str]", "gguf-py Keys.Tokenizer.CHAT_TEMPLATES"),
)

KEYS: dict[str, Key] = {key.name: key for key in GENERAL_KEYS + MODEL_KEYS + DRAFT_KEYS + ORIGIN_KEYS + TOKENIZER_KEYS}

_CHAT_TEMPLATE = "tokenizer.chat_template."  # one key per named template follows


def find_key(key: str, architecture: str) -> Key | None:
    """The row of a key such as "llama.block_count", or None for one that nothing reads."""
    if key.startswith(_CHAT_TEMPLATE):
        return KEYS[_CHAT_TEMPLATE[:-1]]
    prefix = f"{architecture}."
    return KEYS.get(f"A.{key.removeprefix(prefix)}" if key.startswith(prefix) else key)


def is_known(key: str) -> bool:
    """Whether anything reads the key, in a file of whatever architecture its name begins with."""
    return any(find_key(key, architecture) for architecture in ("", key.partition(".")[0]))
