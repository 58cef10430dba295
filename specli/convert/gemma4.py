"""Gemma 4 targets and their assistant drafters (llama.cpp conversion/gemma.py)."""

from __future__ import annotations

from pathlib import Path

from specli.convert.changes import first_rows, proportional_rope_factors
from specli.convert.gemma import VISION, add_gemma3_keys, real_vocabulary, rename
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import KeyValues, rope_block, shared_keys
from specli.convert.lazy import LazyTensor
from specli.convert.plan import Blueprint, Need, Row, at
from specli.convert.special import SpecialTokens, optional_object
from specli.convert.values import Values
from specli.convert.vocab import TokenType, fallback_list, read_merges
from specli.errors import FormatError, UnsupportedError

VISIBLE = frozenset(
    {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>'}
)
"""Tokens that chat parsers need to see, although the tokenizer hides them."""

NORMS = (
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("post_attention_layernorm.weight", "post_attention_norm.weight", "E"),
    Row("pre_feedforward_layernorm.weight", "ffn_norm.weight", "E"),
    Row("post_feedforward_layernorm.weight", "post_ffw_norm.weight", "E"),
    Row("layer_scalar", "layer_output_scale.weight", "1", need="optional"),
)
MIXTURE = (
    Row("router.proj.weight", "ffn_gate_inp.weight", "X E"),
    Row("router.scale", "ffn_gate_inp.scale", "E"),
    Row("router.per_expert_scale", "ffn_down_exps.scale", "X"),
    Row("experts.gate_up_proj", "ffn_gate_up_exps.weight", "X 2M E"),
    Row("experts.down_proj", "ffn_down_exps.weight", "X E M"),
    Row("pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", "E"),
    Row("post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", "E"),
    Row("post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight", "E"),
)
LAYER_INPUTS = (
    Row("per_layer_input_gate.weight", "inp_gate.weight", "P E"),
    Row("per_layer_projection.weight", "proj.weight", "E P"),
    Row("post_per_layer_input_norm.weight", "post_norm.weight", "E"),
)
TOP_LAYER_INPUTS = (
    Row("model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", "Vp LP"),
    Row("model.per_layer_model_projection.weight", "per_layer_model_proj.weight", "LP E"),
    Row("model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", "P"),
)


def attention(kind: str, *, has_keys: bool, values: bool) -> tuple[Row, ...]:
    """Projections of one layer; sizes of full layers carry a "g".

    Args:
        kind: "" for sliding layers, "g" for full ones.
        has_keys: False in layers that reuse an earlier layer's keys and values, where they may be absent.
        values: Whether values have their own projection.
    """
    need: Need = "required" if has_keys else "optional"
    rows = [
        Row("self_attn.q_proj.weight", "attn_q.weight", f"Q{kind} E"),
        Row("self_attn.o_proj.weight", "attn_output.weight", f"E Q{kind}"),
        Row("self_attn.q_norm.weight", "attn_q_norm.weight", f"D{kind}"),
        Row("self_attn.k_proj.weight", "attn_k.weight", f"K{kind} E", need=need),
        Row("self_attn.k_norm.weight", "attn_k_norm.weight", f"D{kind}", need=need),
    ]
    if values:
        rows.append(Row("self_attn.v_proj.weight", "attn_v.weight", f"K{kind} E", need=need))
    return tuple(rows)


def feed_forward(width: str) -> tuple[Row, ...]:
    """The rows of a layer's dense feed-forward."""
    return (
        Row("mlp.gate_proj.weight", "ffn_gate.weight", f"{width} E"),
        Row("mlp.up_proj.weight", "ffn_up.weight", f"{width} E"),
        Row("mlp.down_proj.weight", "ffn_down.weight", f"E {width}"),
    )


def full_sizes(config: Values, types: list[str]) -> tuple[int, int | None]:
    """Head width of full-attention layers, and their key/value heads if they have their own number.

    `per_layer_config` (settings by layer number) takes the place of the older keys, as in the config class, also of
    their defaults. Its first entry for a full layer counts; what it leaves out is as in sliding layers.
    """
    sizes = basic_sizes(config)
    if "per_layer_config" in config:
        entries = config.section("per_layer_config")
        own = [entries.section(str(i)) for i, kind in enumerate(types) if kind == "full_attention"]
        heads, groups = ([layer.integer(name) for layer in own] for name in ("head_dim", "num_key_value_heads"))
        return next(filter(None, heads), sizes["D"]), next(filter(None, groups), None)
    has_own = config.flag("attention_k_eq_v")
    return config.need("global_head_dim"), config.integer("num_global_key_value_heads") if has_own else None


def gemma4_keys(directory: Path, n_tokens: int) -> KeyValues:
    """Byte-fallback BPE with merges, as "gemma4"."""
    tokens = fallback_list(directory, n_tokens)
    for token, text in enumerate(tokens.texts):
        if text in VISIBLE:
            tokens.types[token] = int(TokenType.USER_DEFINED)
    keys = KeyValues()
    keys.add("tokenizer.ggml.model", "str", "gemma4")
    tokens.add_to(keys)
    keys.add("tokenizer.ggml.merges", "[str]", read_merges(directory))
    SpecialTokens(directory).add_to(keys)
    keys.add("tokenizer.ggml.add_space_prefix", "bool", False)
    keys.add("tokenizer.ggml.add_bos_token", "bool", True)
    return keys


def default_layer_types(n_layers: int) -> list[str]:
    """Every sixth layer and the last one full, as the config class fills in."""
    types = ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(n_layers)]
    return [*types[:-1], "full_attention"]


def rope_factors(config: Values, width: int) -> dict[str, LazyTensor]:
    """`rope_freqs.weight` of the full-attention layers."""
    full = config.section("rope_parameters").section("full_attention")
    if full.text("rope_type") != "proportional":
        raise UnsupportedError(
            f"{config.path}: full-attention rope type is {full.text('rope_type')!r}, expected 'proportional'"
        )
    share = full.fraction("partial_rotary_factor")
    if share is None:
        raise FormatError(f"{config.path}: full-attention rope has no partial_rotary_factor")
    return {"rope_freqs.weight": proportional_rope_factors(width, share)}


def plan_gemma4(job: Job) -> Blueprint:
    """The blueprint of Gemma 4's text model, dense or a mixture of experts."""
    return _plan(job, "gemma4", "Gemma 4")


def plan_assistant(job: Job) -> Blueprint:
    """The blueprint of a Gemma 4 assistant: layers with queries only, which read the target's cache."""
    architecture = "gemma4-assistant"
    blueprint = _plan(job, architecture, "Gemma 4 assistant")
    backbone = job.config.need("backbone_hidden_size")
    n_layers = job.config.need("num_hidden_layers")
    blueprint.sizes = {**blueprint.sizes, "B": backbone, "2B": 2 * backbone}
    blueprint.rows += [
        Row("pre_projection.weight", "nextn.pre_projection.weight", "E 2B"),
        Row("post_projection.weight", "nextn.post_projection.weight", "B E"),
    ]
    blueprint.keys.add(f"{architecture}.embedding_length_out", "u32", backbone)
    blueprint.keys.add(f"{architecture}.nextn_predict_layers", "u32", n_layers)
    blueprint.left_out = {**blueprint.left_out, "masked_embedding.": "centroid search, dense logits are used instead"}
    return blueprint


def _plan(job: Job, arch: str, layout: str) -> Blueprint:
    config = job.config
    n_layers = config.need("num_hidden_layers")
    types = config.texts("layer_types") or default_layer_types(n_layers)
    if len(types) != n_layers:
        raise FormatError(f"{config.path}: layer_types has {len(types)} entries for {n_layers} layers")
    n_shared = config.integer("num_kv_shared_layers") or 0
    sizes = basic_sizes(config) | {"F": config.need("intermediate_size")}
    head, groups = full_sizes(config, types)
    inputs = config.integer("hidden_size_per_layer_input") or 0
    inner = config.integer("expert_intermediate_size", "moe_intermediate_size") or 0
    sizes |= {
        "R": real_vocabulary(job), "Dg": head, "Qg": sizes["H"] * head, "Kg": (groups or sizes["G"]) * head,
        "F2": 2 * sizes["F"], "P": inputs, "LP": n_layers * inputs,
        "Vp": config.integer("vocab_size_per_layer_input") or sizes["V"],
        "X": config.integer("num_local_experts", "num_experts") or 0, "M": inner, "2M": 2 * inner,
    }  # fmt: skip
    is_mixture, is_double = bool(config.flag("enable_moe_block")), bool(config.flag("use_double_wide_mlp"))
    rows = [
        Row("model.embed_tokens.weight", "token_embd.weight", "V E", first_rows("R")),
        Row("model.norm.weight", "output_norm.weight", "E"),
        Row("lm_head.weight", "output.weight", "V E", need="optional"),
        *(TOP_LAYER_INPUTS if inputs else ()),
    ]
    for number, kind in enumerate(types):
        is_full = kind == "full_attention"
        is_shared = number >= n_layers - n_shared
        same = is_full and bool(config.flag("attention_k_eq_v"))
        block = (
            *NORMS,
            *attention("g" if is_full else "", has_keys=not is_shared, values=not same),
            *feed_forward("F2" if is_double and is_shared else "F"),
            *(MIXTURE if is_mixture else ()),
            *(LAYER_INPUTS if inputs else ()),
        )
        rows += at(block, f"model.layers.{number}.", f"blk.{number}.")
    keys = shared_keys(arch, config, job.outtype, n_layers)
    add_gemma3_keys(keys, arch, config)
    keys.add(f"{arch}.attention.shared_kv_layers", "u32", n_shared)
    keys.add(f"{arch}.embedding_length_per_layer_input", "u32", inputs)
    sliding = [kind == "sliding_attention" for kind in types]
    keys.add(f"{arch}.attention.sliding_window_pattern", "[bool]", sliding)
    keys.add(f"{arch}.attention.key_length", "u32", head)
    keys.add(f"{arch}.attention.value_length", "u32", head)
    keys.add(f"{arch}.attention.key_length_swa", "u32", sizes["D"])
    keys.add(f"{arch}.attention.value_length_swa", "u32", sizes["D"])
    keys.add(f"{arch}.expert_feed_forward_length", "u32", inner or None)
    if is_double:
        widths = [sizes["F"] * (2 if number >= n_layers - n_shared else 1) for number in range(n_layers)]
        keys.add(f"{arch}.feed_forward_length", "[i32]", widths)
    if groups is not None:
        keys.add(f"{arch}.attention.head_count_kv", "[i32]", [sizes["G"] if s else groups for s in sliding])
    share = rope_block(config).fraction("partial_rotary_factor")
    keys.add(f"{arch}.rope.dimension_count", "u32", head)
    keys.add(f"{arch}.rope.dimension_count_swa", "u32", int(sizes["D"] * (1.0 if share is None else share)))
    directory = job.checkpoint.directory
    names = job.checkpoint.config.texts("architectures") or [""]
    if names[0] == "Gemma4UnifiedForConditionalGeneration":
        path = directory / "generation_config.json"
        generation = Values(path, optional_object(path) or {})
        keys.add("tokenizer.ggml.suppress_tokens", "[i32]", generation.integers("suppress_tokens"))
    return Blueprint(
        layout=layout,
        architecture=arch,
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: gemma4_keys(directory, sizes["V"]),
        generated=rope_factors(config, head),
        rename=rename,
        left_out={**VISION, "model.audio_tower.": "audio part", "model.embed_audio.": "audio part",
                  "model.embed_vision.": "vision part"},
    )  # fmt: skip
