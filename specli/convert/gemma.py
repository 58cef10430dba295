"""Gemma 2 and 3 targets (llama.cpp conversion/gemma.py)."""

from __future__ import annotations

from pathlib import Path

from specli.convert.changes import first_rows, plus_one
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import KeyValues, shared_keys
from specli.convert.plan import Blueprint, Row, at
from specli.convert.special import objects, optional_object
from specli.convert.values import Values
from specli.convert.vocab import gemma3_keys, sentencepiece_keys
from specli.errors import FormatError, UnsupportedError
from specli.files import is_there

HEAD_NORMS = (
    Row("self_attn.q_norm.weight", "attn_q_norm.weight", "D", plus_one),
    Row("self_attn.k_norm.weight", "attn_k_norm.weight", "D", plus_one),
)
BLOCK = (
    Row("input_layernorm.weight", "attn_norm.weight", "E", plus_one),
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E"),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E"),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("post_attention_layernorm.weight", "post_attention_norm.weight", "E", plus_one),
    Row("pre_feedforward_layernorm.weight", "ffn_norm.weight", "E", plus_one),
    Row("post_feedforward_layernorm.weight", "post_ffw_norm.weight", "E", plus_one),
    Row("mlp.gate_proj.weight", "ffn_gate.weight", "F E"),
    Row("mlp.up_proj.weight", "ffn_up.weight", "F E"),
    Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
)
OUTSIDE = (
    "vision_tower.", "multi_modal_projector.", "lm_head.", "pre_projection.", "post_projection.", "masked_embedding.",
)  # fmt: skip
"""Prefixes of tensors that stand beside the text model, not in it."""
UNCAPPED = 1e9
VISION = {"multi_modal_projector.": "vision part", "vision_tower.": "vision part"}


def real_vocabulary(job: Job) -> int:
    """Tokens the tokenizer really has; embedding rows beyond are padding."""
    directory = job.checkpoint.directory
    n_tokens = job.config.need("vocab_size")
    if is_there(directory / "tokenizer.model"):
        return n_tokens
    path = directory / "tokenizer.json"
    tokenizer = Values(path, optional_object(path) or {})
    vocabulary = tokenizer.section("model").section("vocab").items
    return (
        min(n_tokens, len(vocabulary) + len(objects(path, "added_tokens", tokenizer.raw("added_tokens"))))
        if vocabulary
        else n_tokens
    )


def add_gemma3_keys(keys: KeyValues, architecture: str, config: Values) -> None:
    """Defaults the class has even where the config says nothing, the soft cap and the window."""
    for suffix, kind, value in (
        ("context_length", "u32", 131072),
        ("attention.head_count", "u32", 8),
        ("attention.head_count_kv", "u32", 4),
        ("attention.layer_norm_rms_epsilon", "f32", 1e-6),
        ("attention.key_length", "u32", 256),
        ("attention.value_length", "u32", 256),
        ("rope.freq_base", "f32", 1e6),
    ):
        if f"{architecture}.{suffix}" not in keys:
            keys.add(f"{architecture}.{suffix}", kind, value)
    keys.add(f"{architecture}.final_logit_softcapping", "f32", config.number("final_logit_softcapping") or None)
    if config.integer("sliding_window_pattern") != 1:
        keys.add(f"{architecture}.attention.sliding_window", "u32", config.integer("sliding_window"))


def sliding_layers(config: Values, default_period: int) -> list[bool] | None:
    """Which layers have a window, where that is not what readers of the architecture take for granted.

    Args:
        config: Merged config, with `layer_types` or a period in `sliding_window_pattern`.
        default_period: Every how many layers one sees everything, in files that say nothing.
    """
    n_layers = config.need("num_hidden_layers")
    types = config.texts("layer_types")
    if types is not None and len(types) != n_layers:
        raise FormatError(f"{config.path}: layer_types has {len(types)} entries for {n_layers} layers")
    period = config.integer("sliding_window_pattern") or default_period
    expected = [(layer + 1) % default_period > 0 for layer in range(n_layers)]
    slides = [(layer + 1) % period > 0 for layer in range(n_layers)]
    if types is not None:
        slides = [kind == "sliding_attention" for kind in types]
    return None if slides == expected else slides


def warn_of_scale(job: Job, n_layers: int) -> None:
    """Says when attention is scaled otherwise than readers do: by the head's width, in 62 layers the hidden one's."""
    config, sizes = job.config, basic_sizes(job.config)
    taken = sizes["E"] // sizes["H"] if n_layers == 62 else sizes["D"]
    given = config.number("query_pre_attn_scalar")
    if given is not None and given != taken:
        job.warnings.append(f"query_pre_attn_scalar {given:g} is taken as {taken}: files have no place for it")


def rename(name: str) -> str:
    """The normalised name of a tensor: multimodal wrappers put `language_model.` in front of the text model."""
    name = name.replace("language_model.", "")
    if name.startswith(OUTSIDE):
        return name
    if name.startswith(("model.vision_tower.", "model.multi_modal_projector.")):
        return name.removeprefix("model.")
    return name if name.startswith("model.") else f"model.{name}"


def gemma2_keys(directory: Path, n_tokens: int) -> KeyValues:
    """SentencePiece without a blank in front."""
    keys = sentencepiece_keys(directory, n_tokens)
    keys.add("tokenizer.ggml.add_space_prefix", "bool", False)
    return keys


def plan_gemma2(job: Job) -> Blueprint:
    """The blueprint of Gemma 2."""
    config = job.config
    sizes = basic_sizes(config)
    n_layers = config.need("num_hidden_layers")
    if sliding_layers(config, 2) is not None:
        raise UnsupportedError(f"{config.path}: the windows are not in layers 0, 2, …, which is what gemma2 files mean")
    given, taken = config.number("query_pre_attn_scalar"), sizes["E"] // sizes["H"] if n_layers == 46 else sizes["D"]
    if given is not None and given != taken:
        job.warnings.append(f"query_pre_attn_scalar {given:g} is taken as {taken}: files have no place for it")
    keys = KeyValues()
    for suffix, kind, value in (
        ("context_length", "u32", config.integer("max_position_embeddings")),
        ("embedding_length", "u32", sizes["E"]),
        ("block_count", "u32", n_layers),
        ("feed_forward_length", "u32", config.need("intermediate_size")),
        ("attention.head_count", "u32", sizes["H"]),
        ("attention.head_count_kv", "u32", sizes["G"]),
        ("attention.layer_norm_rms_epsilon", "f32", config.number("rms_norm_eps")),
        ("attention.key_length", "u32", sizes["D"]),
        ("attention.value_length", "u32", sizes["D"]),
    ):
        keys.add(f"gemma2.{suffix}", kind, value)
    keys.add("general.file_type", "u32", job.outtype.file_type)
    # without the keys readers cap at 50 and 30; where nothing is capped, a cap that no score reaches
    for suffix in ("attn_logit_softcapping", "final_logit_softcapping"):
        keys.add(f"gemma2.{suffix}", "f32", config.number(suffix) or UNCAPPED)
    keys.add("gemma2.attention.sliding_window", "u32", config.need("sliding_window"))
    rows = [
        Row("model.embed_tokens.weight", "token_embd.weight", "V E"),
        Row("model.norm.weight", "output_norm.weight", "E", plus_one),
    ]
    for layer in range(n_layers):
        rows += at(BLOCK, f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="Gemma 2",
        architecture="gemma2",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: gemma2_keys(job.checkpoint.directory, sizes["V"]),
        left_out={"lm_head.weight": "the head is the embedding table"},
    )


def plan_gemma3(job: Job) -> Blueprint:
    """The blueprint of Gemma 3's text model."""
    config = job.config
    if "attn_logit_softcapping" in config:
        raise UnsupportedError(f"{config.path}: attn_logit_softcapping is set, expected null for Gemma 3")
    sizes = basic_sizes(config)
    sizes["R"] = real_vocabulary(job)
    n_layers = config.need("num_hidden_layers")
    keys = shared_keys("gemma3", config, job.outtype, n_layers)
    add_gemma3_keys(keys, "gemma3", config)
    if "gemma3.attention.sliding_window" in keys:
        keys.add("gemma3.attention.sliding_window_pattern", "[bool]", sliding_layers(config, 6))
    warn_of_scale(job, n_layers)
    rows = [
        Row("model.embed_tokens.weight", "token_embd.weight", "V E", first_rows("R")),
        Row("model.norm.weight", "output_norm.weight", "E", plus_one),
        Row("lm_head.weight", "output.weight", "V E", need="optional"),
    ]
    for layer in range(n_layers):
        rows += at((*BLOCK, *HEAD_NORMS), f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="Gemma 3",
        architecture="gemma3",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: gemma3_keys(job.checkpoint.directory, sizes["V"]),
        rename=rename,
        left_out=VISION,
    )
