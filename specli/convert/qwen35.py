"""Qwen3.5 and Qwen3-Next targets with their MTP blocks (llama.cpp conversion/qwen.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specli.convert.changes import (
    Change,
    Sizes,
    chain,
    minus_exp,
    plus_one,
    squeeze_middle,
    tile_columns,
    tile_heads,
)
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import KeyValues, rope_block, shared_keys
from specli.convert.lazy import Array, LazyTensor
from specli.convert.llama import FEED_FORWARD
from specli.convert.mtp import NEXTN, layers
from specli.convert.plan import Blueprint, Row
from specli.convert.qwen import expert_rows
from specli.convert.values import Values
from specli.convert.vocab import bpe_keys
from specli.errors import FormatError

DEFAULT_SECTIONS = [11, 11, 10, 0]
DEFAULT_INTERVAL = 4
DEFAULT_ROTARY_SHARE = 0.25

NORMS = (
    Row("input_layernorm.weight", "attn_norm.weight", "E", plus_one),
    Row("post_attention_layernorm.weight", "post_attention_norm.weight", "E", plus_one),
)
FULL = (
    Row("self_attn.q_proj.weight", "attn_q.weight", "2Q E"),  # per head: query rows, then gate rows
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E"),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("self_attn.q_norm.weight", "attn_q_norm.weight", "D", plus_one),
    Row("self_attn.k_norm.weight", "attn_k_norm.weight", "D", plus_one),
)
_VALUE_ROWS = tile_heads("0", "lk", "lv/lk", "lvd")
_VALUE_SCALARS = tile_heads("0", "lk", "lv/lk", "1")
LINEAR = (
    Row("linear_attn.in_proj_qkv.weight", "attn_qkv.weight", "Lqkv E", tile_heads("Lqk", "lk", "lv/lk", "lvd")),
    Row("linear_attn.in_proj_z.weight", "attn_gate.weight", "Lv E", _VALUE_ROWS),
    Row("linear_attn.in_proj_a.weight", "ssm_alpha.weight", "lv E", _VALUE_SCALARS),
    Row("linear_attn.in_proj_b.weight", "ssm_beta.weight", "lv E", _VALUE_SCALARS),
    Row(
        "linear_attn.conv1d.weight",
        "ssm_conv1d.weight",
        "Lqkv 1 Lc",
        chain(squeeze_middle, tile_heads("Lqk", "lk", "lv/lk", "lvd")),
    ),
    Row("linear_attn.dt_bias", "ssm_dt.bias", "lv", _VALUE_SCALARS),
    Row("linear_attn.A_log", "ssm_a", "lv", chain(_VALUE_SCALARS, minus_exp)),
    Row("linear_attn.norm.weight", "ssm_norm.weight", "lvd"),
    Row("linear_attn.out_proj.weight", "ssm_out.weight", "E Lv", tile_columns("lk", "lv/lk", "lvd")),
)


def _of_key_heads(*parts: int) -> Change:
    """Of rows that are, per key head, parts of the sizes lkd, lkd, gv, gv: the named ones, each with all its heads.

    Args:
        parts: Numbers of the parts, one after the other in the result.
    """

    def change(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
        (source,) = sources
        widths = [sizes[name] for name in ("lkd", "lkd", "gv", "gv")]
        n_rows = sizes["lk"] * sum(widths[part] for part in parts)

        def read(start: int, stop: int) -> Array:
            heads = source.all().reshape(sizes["lk"], sum(widths), -1)
            split = np.split(heads, np.cumsum(widths)[:-1], axis=1)
            return np.concatenate([split[part].reshape(-1, heads.shape[-1]) for part in parts])[start:stop]

        return replace(source, shape=(n_rows, *source.shape[1:]), read=read)

    return change


NEXT_LINEAR = (
    Row("linear_attn.in_proj_qkvz.weight", "attn_qkv.weight", "Lqkvz E", _of_key_heads(0, 1, 2)),
    Row("linear_attn.in_proj_qkvz.weight", "attn_gate.weight", "Lqkvz E", _of_key_heads(3)),
    Row("linear_attn.in_proj_ba.weight", "ssm_ba.weight", "2lv E"),
    Row("linear_attn.conv1d.weight", "ssm_conv1d.weight", "Lqkv 1 Lc", squeeze_middle),
    Row("linear_attn.dt_bias", "ssm_dt.bias", "lv"),
    Row("linear_attn.A_log", "ssm_a", "lv", minus_exp),
    Row("linear_attn.norm.weight", "ssm_norm.weight", "lvd"),
    Row("linear_attn.out_proj.weight", "ssm_out.weight", "E Lv"),
)
"""Qwen3-Next's delta nets, whose value heads stay in the published order."""
SHARED_EXPERT = (
    Row("mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", "S E"),
    Row("mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", "S E"),
    Row("mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", "E S"),
    Row("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", "1 E"),
)
MTP_NAMES = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head.norm",
}
"""Name under `mtp.` to its name in a layer after the trunk."""

_MTP_LAYER = re.compile(r"mtp\.layers\.([0-9]{1,4})\.(.+)")
VISION = {"model.visual.": "vision part", "visual.": "vision part"}


def rename_with(n_trunk: int, name: str) -> str:
    """Wrapper prefixes removed, `mtp.*` as layers after the trunk."""
    name = name.replace("language_model.", "")
    name = name.removeprefix("model.") if name.startswith("model.mtp.") else name
    layer = _MTP_LAYER.fullmatch(name)
    if layer is not None:
        return f"model.layers.{n_trunk + int(layer[1])}.{layer[2]}"
    if name.startswith("mtp."):
        part, _, suffix = name.removeprefix("mtp.").rpartition(".")
        if part in MTP_NAMES:
            return f"model.layers.{n_trunk}.{MTP_NAMES[part]}.{suffix}"
    return name


def _nextn() -> tuple[Row, ...]:
    """The MTP block's own rows; its norms are stored as differences from one, too."""
    norms = {"enorm.weight", "hnorm.weight", "shared_head.norm.weight"}
    return tuple(
        Row(row.source, row.name, row.shape, plus_one, row.need) if row.source in norms else row
        for row in NEXTN
        if row.source not in ("embed_tokens.weight", "shared_head.head.weight")
    )


def _count_mtp(job: Job) -> int:
    """MTP blocks: as configured, else as many as there are tensors for."""
    configured = job.config.integer("mtp_num_hidden_layers")
    if configured:
        return configured
    names = (name.removeprefix("model.") for name in job.checkpoint.tensors)
    return max((int(found[1]) + 1 for name in names if (found := _MTP_LAYER.fullmatch(name))), default=0)


def _layer_types(config: Values, n_trunk: int, interval: int) -> list[str]:
    types = config.texts("layer_types")
    if types is None:
        return ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(n_trunk)]
    if len(types) != n_trunk:
        raise FormatError(f"{config.path}: layer_types has {len(types)} entries for {n_trunk} layers")
    return types


def _plan(
    job: Job,
    architecture: str,
    layout: str,
    feed_forward: tuple[Row, ...],
    extra: dict[str, int],
    *,
    linear: tuple[Row, ...] = LINEAR,
    has_sections: bool = True,
) -> Blueprint:
    config = job.config
    sizes = basic_sizes(config) | extra
    lk, lv = config.need("linear_num_key_heads"), config.need("linear_num_value_heads")
    lkd, lvd = config.need("linear_key_head_dim"), config.need("linear_value_head_dim")
    if lv % lk or (2 * lk * lkd) % lvd:
        raise FormatError(f"{config.path}: {lv} value heads of {lvd} do not divide over {lk} key heads of {lkd}")
    sizes |= {
        "2E": 2 * sizes["E"], "2Q": 2 * sizes["Q"], "0": 0, "1": 1, "lk": lk, "lv": lv, "lvd": lvd, "lv/lk": lv // lk,
        "lkd": lkd, "gv": lv // lk * lvd, "2lv": 2 * lv, "Lqkvz": 2 * lk * lkd + 2 * lv * lvd,
        "Lqk": 2 * lk * lkd, "Lv": lv * lvd, "Lqkv": 2 * lk * lkd + lv * lvd,
        "Lc": config.need("linear_conv_kernel_dim"),
    }  # fmt: skip
    n_trunk = config.need("num_hidden_layers")
    n_mtp = _count_mtp(job)
    interval = config.integer("full_attention_interval") or DEFAULT_INTERVAL
    types = _layer_types(config, n_trunk, interval)
    trunk = [(*NORMS, *(linear if kind == "linear_attention" else FULL), *feed_forward) for kind in types]
    rows, left_out = layers(
        job, trunk, [(*NORMS, *FULL, *feed_forward, *(_nextn() if j == 0 else ())) for j in range(n_mtp)]
    )
    n_written = 0 if job.request.mtp == "without" else n_mtp

    keys = shared_keys(architecture, config, job.outtype, n_trunk + n_written)
    for name, value in (
        ("expert_feed_forward_length", config.integer("moe_intermediate_size")),
        ("expert_shared_feed_forward_length", config.integer("shared_expert_intermediate_size")),
        ("nextn_predict_layers", n_written or None),
        ("ssm.conv_kernel", sizes["Lc"]),
        ("ssm.state_size", lkd),
        ("ssm.group_count", lk),
        ("ssm.time_step_rank", lv),
        ("ssm.inner_size", sizes["Lv"]),
    ):
        keys.add(f"{architecture}.{name}", "u32", value)
    recurrent = [kind == "linear_attention" for kind in types] + [False] * n_written
    keys.add(f"{architecture}.attention.recurrent_layers", "[bool]", recurrent)
    keys.add(f"{architecture}.full_attention_interval", "u32", interval)
    share = rope_block(config).fraction("partial_rotary_factor")
    n_rotary = int(sizes["D"] * (DEFAULT_ROTARY_SHARE if share is None else share))
    keys.add(f"{architecture}.rope.dimension_count", "u32", n_rotary)
    if has_sections and f"{architecture}.rope.dimension_sections" not in keys:
        keys.add(f"{architecture}.rope.dimension_sections", "[i32]", DEFAULT_SECTIONS)
    is_tied = bool(config.flag("tie_word_embeddings"))
    top = [
        Row("model.embed_tokens.weight", "token_embd.weight", "V E"),
        Row("model.norm.weight", "output_norm.weight", "E", plus_one),
        Row("lm_head.weight", "output.weight", "V E", need="optional" if is_tied else "required"),
    ]
    return Blueprint(
        layout=layout,
        architecture=architecture,
        rows=[*top, *rows],
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: _vocabulary(job, sizes["V"]),
        rename=lambda name: rename_with(n_trunk, name),
        left_out={**left_out, **VISION},
    )


def _vocabulary(job: Job, n_tokens: int) -> KeyValues:
    return bpe_keys(job.checkpoint.directory, n_tokens)


def plan_qwen35(job: Job) -> Blueprint:
    """The blueprint of dense Qwen3.5."""
    return _plan(job, "qwen35", "Qwen3.5", FEED_FORWARD[:3], {})


def plan_qwen35_moe(job: Job) -> Blueprint:
    """The blueprint of the Qwen3.5 mixture of experts."""
    feed_forward, sizes = _experts(job)
    return _plan(job, "qwen35moe", "Qwen3.5-MoE", feed_forward, sizes)


def plan_qwen3_next(job: Job) -> Blueprint:
    """The blueprint of Qwen3-Next."""
    feed_forward, sizes = _experts(job)
    return _plan(job, "qwen3next", "Qwen3-Next", feed_forward, sizes, linear=NEXT_LINEAR, has_sections=False)


def _experts(job: Job) -> tuple[tuple[Row, ...], dict[str, int]]:
    """Rows of a mixture with its shared expert, and their sizes."""
    config = job.config
    n_experts, inner = config.need("num_local_experts", "num_experts"), config.need("moe_intermediate_size")
    stacked = any(name.endswith("mlp.experts.gate_up_proj") for name in job.checkpoint.tensors)
    sizes = {"X": n_experts, "M": inner, "2M": 2 * inner, "S": config.need("shared_expert_intermediate_size")}
    return (*expert_rows(n_experts, stacked=stacked), *SHARED_EXPERT), sizes
