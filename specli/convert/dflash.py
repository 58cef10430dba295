"""DFlash drafters: z-lab and SpecForge, speculators, DFlash2 (llama.cpp conversion/qwen.py).

The speculators format is beyond llama.cpp's converter: its nested layer config and boundary lists are read here.
"""

from __future__ import annotations

import math
from dataclasses import replace

from specli.convert.changes import Change, keep, unpair_heads
from specli.convert.draft_vocabulary import absolute_ids, draft_vocabulary_size
from specli.convert.eagle3 import check_vocabulary
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import KeyValues, rope_block, shared_keys
from specli.convert.layouts import GELU
from specli.convert.llama import rope_factors
from specli.convert.mask_embedding import mask_embedding_tensors
from specli.convert.plan import Blueprint, Row, at
from specli.convert.rope import override_rope, say_rope
from specli.convert.taps import choose, default_block
from specli.convert.target import Target
from specli.convert.values import Values
from specli.errors import FormatError, IncompatibleError
from specli.gguf.keys import DEFAULT_BLOCK_SIZE, MAX_BLOCK_SIZE

LEFT_OUT = {
    "t2d": "the inverse of d2t, not used at run time",
    "verifier_norm.weight": "the target's own",
    "verifier_lm_head.weight": "the target's own",
}
CONV_KEYS = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")


def layer_rows(sinks: bool, query: Change = keep, key: Change = keep) -> tuple[Row, ...]:
    """One decoder layer; `query` and `key` reorder rows of interleaved-rope checkpoints."""
    rows = (
        Row("input_layernorm.weight", "attn_norm.weight", "E"),
        Row("self_attn.q_proj.weight", "attn_q.weight", "Q E", query),
        Row("self_attn.k_proj.weight", "attn_k.weight", "K E", key),
        Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
        Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
        Row("self_attn.q_norm.weight", "attn_q_norm.weight", "D", _norm_order(query)),
        Row("self_attn.k_norm.weight", "attn_k_norm.weight", "D", _norm_order(key)),
        Row("post_attention_layernorm.weight", "ffn_norm.weight", "E"),
        Row("mlp.gate_proj.weight", "ffn_gate.weight", "F E"),
        Row("mlp.up_proj.weight", "ffn_up.weight", "F E"),
        Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
    )
    return (*rows, Row("self_attn.sinks", "attn_sinks.weight", "H")) if sinks else rows


def _norm_order(rows: Change) -> Change:
    """Head norms follow the rows they scale: one head's worth of entries."""
    return keep if rows is keep else unpair_heads("1")


CONV_ROWS = (
    Row("attention_conv.base_kernel", "attn_conv_base", "2 C E"),
    Row("attention_conv.kernel_projection.weight", "attn_conv_proj.weight", "P E"),
    Row("mlp_conv.base_kernel", "ffn_conv_base", "2 C E"),
    Row("mlp_conv.kernel_projection.weight", "ffn_conv_proj.weight", "P E"),
)
SELECTOR_ROWS = (
    Row("candidate_selector.predecessor_codebook", "selector_predecessor.weight", "V S"),
    Row("candidate_selector.successor_codebook", "selector_successor.weight", "V S"),
    Row("candidate_selector.hidden_projection", "selector_hidden.weight", "S E"),
)


def rename(name: str) -> str:
    """`model.` removed, the two spellings of attention sinks joined, codebook names without `.weight`."""
    name = name.removeprefix("model.").removesuffix(".weight") if ".sink" in name else name.removeprefix("model.")
    if name.endswith("self_attn.attention_sink_bias"):
        return name.replace("attention_sink_bias", "sinks")
    if name.startswith("candidate_selector."):
        return name.removesuffix(".weight")
    return name


def draft_config(job: Job) -> Values:
    """The drafter's own settings: a nested speculators layer config over the root."""
    return override_rope(job, job.config.merged(job.checkpoint.config.section("transformer_layer_config").items))


def plan_dflash(job: Job, layout: str = "DFlash") -> Blueprint:
    """The blueprint of a DFlash drafter in any layout; that of DSpark starts from it."""
    target = job.need_target(layout)
    job.config = draft_config(job)
    config = job.config
    nested = config.section("dflash_config")
    names = {rename(name) for name in job.checkpoint.tensors}
    sizes = basic_sizes(config)
    n_layers = config.need("num_hidden_layers")
    n_tokens = config.need("vocab_size")
    check_vocabulary(job, target, n_tokens)
    check_width(job, target, sizes["E"])
    taps = choose_taps(job, target, layout)
    sizes |= {"T": len(taps) * target.width, "N": draft_vocabulary_size(job, n_tokens), "1": 1}
    is_reduced = sizes["N"] < n_tokens

    interleaved = config.flag("rope_is_neox_style") is False
    order: tuple[Change, Change] = (unpair_heads("H"), unpair_heads("G")) if interleaved else (keep, keep)
    layer = layer_rows(any(name.endswith("self_attn.sinks") for name in names), *order)
    rows = [
        Row("fc.weight", "fc.weight", "E T"),
        Row("hidden_norm.weight", "enc.output_norm.weight", "E"),
        Row("norm.weight", "output_norm.weight", "E"),
        Row("embed_tokens.weight", "token_embd.weight", "V E", need="borrowed"),
        Row("lm_head.weight", "output.weight", "N E", need="required" if is_reduced else "borrowed"),
    ]
    table = Row("d2t", "d2t", "N", absolute_ids(job, n_tokens), integer=True, place=1)
    rows.append(table if is_reduced else replace(table, need="optional"))
    if "conv_kernel_size" in nested:
        kernel, group = nested.need("conv_kernel_size"), nested.need("conv_group_size")
        if sizes["E"] % group:
            raise FormatError(f"{config.path}: hidden_size {sizes['E']} is not a multiple of conv_group_size {group}")
        sizes |= {"C": kernel, "P": 2 * kernel * (sizes["E"] // group), "S": nested.need("selector_rank")}
        layer = (*layer, *CONV_ROWS)
        rows += SELECTOR_ROWS
    for number in range(n_layers):
        rows += at(layer, f"layers.{number}.", f"blk.{number}.")
    left_out = dict(LEFT_OUT)
    if config.flag("has_embed_tokens") is False:
        left_out["embed_tokens.weight"] = "has_embed_tokens is false"
        rows = [row for row in rows if row.source != "embed_tokens.weight"]

    own = {rename(name): tensor for name, tensor in job.checkpoint.tensors.items() if rename(name) not in left_out}
    made = mask_embedding_tensors(job, target, own, mask_token(config))
    if made:
        left_out["embed_tokens.weight"] = "replaced, with the row of the mask token from mask_embedding.pt"
        rows = [row for row in rows if row.name not in made]

    keys = shared_keys("dflash", config, job.outtype, n_layers)
    add_dflash_keys(keys, job, target, taps, sizes["D"])
    said = job.request.sample_from_anchor
    if layout == "DFlash" and (config.flag("sample_from_anchor") if said is None else said):
        add_anchor_key(job, keys)
    say_rope(job, keys, "dflash")
    return Blueprint(
        layout=layout,
        architecture="dflash",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: with_mask(job, target.vocabulary(n_tokens), n_tokens),
        generated={**rope_factors(config, sizes["D"]), **made},
        rename=rename,
        left_out=left_out,
    )


def check_width(job: Job, target: Target, width: int) -> None:
    """A block drafter borrows the target's embeddings and head, so both have one width.

    Raises:
        IncompatibleError: The widths or the layer count differ.
    """
    if target.width != width:
        raise IncompatibleError(f"{job.config.path}: hidden_size {width} does not match {target.path} ({target.width})")
    said = job.config.integer("target_hidden_size") or width
    if said != width:
        raise IncompatibleError(f"{job.config.path}: target_hidden_size {said} does not match {target.path} ({width})")
    n_layers = job.config.integer("num_target_layers")
    if n_layers is not None and n_layers != target.n_layers:
        raise IncompatibleError(
            f"{job.config.path}: num_target_layers {n_layers} does not match {target.path} ({target.n_layers})"
        )


def choose_taps(job: Job, target: Target, layout: str) -> list[int]:
    """Boundaries from `aux_hidden_state_layer_ids` (inputs) or `target_layer_ids` (outputs), nested or not."""
    config = job.config
    inputs = config.integers("aux_hidden_state_layer_ids")
    outputs = config.section("dflash_config").integers("target_layer_ids") or config.integers("target_layer_ids")
    if inputs:
        found, origin = inputs, "from aux_hidden_state_layer_ids, which lists inputs"
    else:
        found, origin = [tap + 1 for tap in outputs or []], "from target_layer_ids, which lists outputs"
    fusion = next((t for name, t in job.checkpoint.tensors.items() if rename(name) == "fc.weight"), None)
    n_taps = max(1, fusion.shape[-1] // target.width) if fusion is not None else 5
    return choose(job, target, found, origin, default_block(target.n_layers, n_taps), layout)


def add_dflash_keys(keys: KeyValues, job: Job, target: Target, taps: list[int], head_width: int) -> None:
    """Keys of the `dflash` architecture after the shared ones, in llama.cpp's order."""
    config = job.config
    nested = config.section("dflash_config")

    def scaler(name: str) -> float | None:
        value = nested.number(name)
        return value if value is not None else config.number(name)

    partial = rope_block(config).fraction("partial_rotary_factor")
    if partial is not None:
        keys.add("dflash.rope.dimension_count", "u32", int(head_width * partial))
    keys.add("dflash.attention.value_scale", "f32", nested.number("attention_value_scale"))
    block_size = nested.integer("block_size")
    if block_size is None:
        block_size = config.integer("block_size")
    if block_size is None:
        job.notes.append(f"block size {DEFAULT_BLOCK_SIZE} (default, the checkpoint names none)")
        block_size = DEFAULT_BLOCK_SIZE
    if not 1 <= block_size <= MAX_BLOCK_SIZE:
        raise FormatError(f"{config.path}: block_size is {block_size}, expected 1 to {MAX_BLOCK_SIZE}")
    keys.add("dflash.block_size", "u32", block_size)
    if config.text("hidden_act") in GELU:
        keys.add("dflash.hidden_activation", "str", config.text("hidden_act"))
    for name in CONV_KEYS:
        keys.add(f"dflash.{name}", "u32", nested.integer(name) if "conv_kernel_size" in nested else None)
    keys.add("dflash.logit_scale", "f32", scaler("output_multiplier"))
    keys.add("dflash.final_logit_softcapping", "f32", scaler("final_logit_softcapping") or None)
    scale = scaler("input_embedding_scale")
    if scale is None and target.is_gemma:
        scale = math.sqrt(target.width)
    keys.add("dflash.embedding_scale", "f32", scale)
    keys.add("dflash.target_layers", "[i32]", taps)
    _add_causal(job, keys, nested, _add_window(keys, config, nested))
    if target.has_mrope:
        keys.add("dflash.rope.dimension_sections", "[i32]", [head_width // 2, 0, 0, 0])


def add_anchor_key(job: Job, keys: KeyValues) -> None:
    """Adds the key that says that the anchor's position predicts too, for a drafter without a Markov head."""
    keys.add("dflash.sample_from_anchor", "bool", True)
    job.warnings.append(
        "the anchor's position predicts: llama.cpp takes it as reserved in a DFlash file, and drafts badly"
    )


def _add_window(keys: KeyValues, config: Values, nested: Values) -> list[bool]:
    """Window keys, written only when a layer has one: a file with a window and no windowed layer does not load.

    Returns:
        Layers that `layer_types` says slide; empty if nobody reads it.
    """
    everywhere = bool(nested.flag("use_swa"))
    window = nested.integer("swa_window_size") or config.integer("sliding_window")
    if not (everywhere or config.flag("use_sliding_window")) or not window:
        return []
    types = config.texts("layer_types") or []
    n_layers = config.need("num_hidden_layers")
    if not everywhere and len(types) != n_layers:
        raise FormatError(f"{config.path}: layer_types has {len(types)} entries for {n_layers} layers")
    pattern = [everywhere or kind == "sliding_attention" for kind in (types or [""] * n_layers)]
    if any(pattern):
        keys.add("dflash.attention.sliding_window", "u32", window)
        keys.add("dflash.attention.sliding_window_pattern", "[bool]", pattern)
    return [] if everywhere else pattern


def _add_causal(job: Job, keys: KeyValues, nested: Values, slides: list[bool]) -> None:
    """Whether a position of a block is kept from seeing later ones: as the config says, else where layers slide.

    The latter is what z-lab's dflash, SpecForge and speculators do; speculators has a switch for it. llama.cpp has one
    flag for all layers.
    """
    config = job.config
    causal = config.flag("is_causal")
    if causal is None:
        causal = nested.flag("causal")
    if causal is None and any(slides) and not config.flag("sliding_window_non_causal"):
        if all(slides):
            causal = True
        else:
            keys.add("dflash.attention.causal_pattern", "[bool]", slides)
            job.warnings.append(
                "only sliding layers are causal within a block: llama.cpp takes none to be, and drafts worse"
            )
    keys.add("dflash.attention.causal", "bool", causal)


def mask_token(config: Values) -> int | None:
    """The id of the mask token, which stands at the positions to be filled."""
    nested = config.section("dflash_config").integer("mask_token_id")
    return config.integer("mask_token_id") if nested is None else nested


def with_mask(job: Job, keys: KeyValues, n_tokens: int) -> KeyValues:
    """The tokenizer keys with the drafter's mask id.

    Raises:
        FormatError: No mask token is named, or its id is outside the vocabulary.
    """
    mask = mask_token(job.config)
    if mask is None or mask >= n_tokens:
        raise FormatError(f"{job.config.path}: mask_token_id is {mask}, expected an id below {n_tokens}")
    keys.add("tokenizer.ggml.mask_token_id", "u32", mask)
    return keys
