"""DSpark drafters with a Gemma 4 body (llama.cpp conversion/gemma.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from specli.convert import dflash, dspark
from specli.convert.changes import proportional_rope_factors
from specli.convert.draft_vocabulary import draft_vocabulary_size
from specli.convert.eagle3 import check_vocabulary
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import shared_keys
from specli.convert.lazy import LazyTensor
from specli.convert.mask_embedding import FILE as MASK_FILE
from specli.convert.plan import Blueprint, Row, at
from specli.convert.rope import say_rope
from specli.convert.values import Values
from specli.errors import FormatError, UnsupportedError
from specli.files import is_there

ACTIVATION = "gelu_pytorch_tanh"
DEFAULT_ROPE = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}}
LAYER = (
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E"),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("self_attn.q_norm.weight", "attn_q_norm.weight", "D"),
    Row("self_attn.k_norm.weight", "attn_k_norm.weight", "D"),
    Row("post_attention_layernorm.weight", "post_attention_norm.weight", "E"),
    Row("pre_feedforward_layernorm.weight", "ffn_norm.weight", "E"),
    Row("post_feedforward_layernorm.weight", "post_ffw_norm.weight", "E"),
    Row("layer_scalar", "layer_output_scale.weight", "1", need="optional"),
    Row("mlp.gate_proj.weight", "ffn_gate.weight", "F E"),
    Row("mlp.up_proj.weight", "ffn_up.weight", "F E"),
    Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
)


def rename(name: str) -> str:
    """The normalised name of a tensor: as for DSpark, with the confidence head's other name replaced."""
    name = dspark.rename(name)
    return name.replace("confidence_proj.", "confidence_head.proj.") if name.startswith("confidence_proj.") else name


def plan_gemma4_dspark(job: Job) -> Blueprint:
    """The blueprint of a DSpark drafter whose layers are Gemma 4's full-attention layers with values equal to keys."""
    target = job.need_target("DSpark")
    job.config = dflash.draft_config(job)
    config = job.config
    names = {rename(name) for name in job.checkpoint.tensors}
    head, groups = config.need("global_head_dim"), config.need("num_global_key_value_heads")
    sizes = basic_sizes(config.merged({"head_dim": head, "num_key_value_heads": groups}))
    n_layers, n_tokens = config.need("num_hidden_layers"), config.need("vocab_size")
    rope: Mapping[str, Any] = config.section("rope_parameters").items or DEFAULT_ROPE
    rope = Values(config.path, rope).section("full_attention").items or rope
    _refuse(job, names, Values(config.path, rope), n_layers, n_tokens)
    check_vocabulary(job, target, n_tokens)
    dflash.check_width(job, target, sizes["E"])
    taps = dflash.choose_taps(job, target, "DSpark")
    rank = config.integer("markov_rank") or config.section("dflash_config").need("markov_rank")
    sizes |= {"T": len(taps) * target.width, "R": rank, "Y": sizes["E"] + rank}
    is_tied = bool(config.flag("tie_word_embeddings"))
    rows = [
        Row("fc.weight", "fc.weight", "E T"),
        Row("hidden_norm.weight", "enc.output_norm.weight", "E"),
        Row("norm.weight", "output_norm.weight", "E"),
        Row("embed_tokens.weight", "token_embd.weight", "V E", need="borrowed"),
        Row("lm_head.weight", "output.weight", "V E", need="borrowed" if is_tied else "required"),
        Row("markov_head.markov_w1.weight", "markov_w1.weight", "V R"),
        Row("markov_head.markov_w2.weight", "markov_w2.weight", "V R"),
    ]
    has_confidence = dspark.CONFIDENCE[0] in names
    if has_confidence:
        rows += [
            Row(dspark.CONFIDENCE[0], "conf_proj.weight", "1 Y"),
            Row(dspark.CONFIDENCE[1], "conf_proj.bias", "1", need="optional"),
        ]
    for number in range(n_layers):
        rows += at(LAYER, f"layers.{number}.", f"blk.{number}.")

    job.config = config.merged({"rope_parameters": dict(rope)})
    keys = shared_keys("dflash", job.config, job.outtype, n_layers)
    dflash.add_dflash_keys(keys, job, target, taps, sizes["D"])
    keys.add("dflash.attention.head_count_kv", "u32", groups)
    keys.add("dflash.attention.key_length", "u32", head)
    keys.add("dflash.attention.value_length", "u32", head)
    keys.add("dflash.rope.dimension_count", "u32", head)
    keys.add("dflash.embedding_scale", "f32", math.sqrt(sizes["E"]))
    keys.add("dflash.attention.scale", "f32", 1.0)
    keys.add("dflash.hidden_activation", "str", ACTIVATION)
    keys.add("dflash.sample_from_anchor", "bool", dspark.samples_from_anchor(job))
    keys.add("dflash.has_confidence_head", "bool", has_confidence)
    say_rope(job, keys, "dflash")
    return Blueprint(
        layout="DSpark, Gemma 4 body",
        architecture="dflash",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: dflash.with_mask(job, target.vocabulary(n_tokens), n_tokens),
        generated=_rope_factors(config, rope, head),
        rename=rename,
        left_out=dflash.LEFT_OUT,
    )


def _rope_factors(config: Values, rope: Mapping[str, Any], head: int) -> dict[str, LazyTensor]:
    if rope.get("rope_type") != "proportional":
        return {}
    share = Values(config.path, rope).fraction("partial_rotary_factor")
    share = 0.25 if share is None else share
    if not 0 < share <= 1 or head * share != 2 * int(head * share / 2):
        raise FormatError(f"{config.path}: partial_rotary_factor {share} of {head} is not a positive even width")
    return {"rope_freqs.weight": proportional_rope_factors(head, share)}


def _refuse(job: Job, names: set[str], rope: Values, n_layers: int, n_tokens: int) -> None:
    config = job.config
    nested = config.section("dflash_config")
    markov = nested.text("markov_head_type") or config.text("markov_head_type") or "vanilla"
    types = config.texts("layer_types")
    refusals = (
        (not config.flag("attention_k_eq_v"), "attention_k_eq_v is not true"),
        (types != ["full_attention"] * n_layers, "layer_types are not all full_attention"),
        ((config.text("hidden_activation") or ACTIVATION) != ACTIVATION, f"hidden_activation is not {ACTIVATION}"),
        (bool(config.flag("attention_bias")), "attention_bias is true"),
        (bool(config.flag("enable_moe_block")), "enable_moe_block is true"),
        (draft_vocabulary_size(job, n_tokens) != n_tokens, "the draft vocabulary is reduced"),
        (markov != "vanilla", f"markov_head_type is {markov!r}"),
        (config.flag("confidence_head_with_markov") is False, "the confidence head has no Markov input"),
        (rope.text("rope_type") not in ("default", "proportional"), f"rope type is {rope.text('rope_type')!r}"),
        (bool(config.number("final_logit_softcapping")), "final_logit_softcapping is set"),
        (bool(nested.flag("use_swa")) and not nested.integer("swa_window_size"), "use_swa without swa_window_size"),
        ("lm_head.weight" not in names and not config.flag("tie_word_embeddings"), "an untied head is missing"),
        (is_there(job.checkpoint.directory / MASK_FILE), f"there is a {MASK_FILE}"),
    )
    found = [reason for applies, reason in refusals if applies]
    if found:
        raise UnsupportedError(f"{config.path}: a Gemma 4 DSpark body is not handled when {'; '.join(found)}")
