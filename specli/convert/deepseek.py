"""Targets with latent attention: DeepSeek-V2, V3 and R1, Kimi-K2, GLM-4.7-Flash (llama.cpp conversion/deepseek.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from specli.convert.changes import Sizes
from specli.convert.glm import DENSE, experts, glm_keys
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import GATING, KeyValues, rope_block, rope_type, shared_keys
from specli.convert.lazy import Array, LazyTensor
from specli.convert.llama import TOP, head_row
from specli.convert.mtp import NEXTN, layers
from specli.convert.plan import Blueprint, Row
from specli.convert.values import Values
from specli.convert.vocab import bpe_keys
from specli.errors import UnsupportedError

_SIGMOID = frozenset({"deepseek_v3", "kimi_k2", "glm4_moe_lite"})
"""Model types whose router always uses the sigmoid, also where the config does not say it."""


def attention(*, has_lora: bool) -> tuple[Row, ...]:
    """Norms and attention of a layer; queries come from a narrower vector where `has_lora`."""
    queries = (
        (
            Row("self_attn.q_a_proj.weight", "attn_q_a.weight", "R E"),
            Row("self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight", "R"),
            Row("self_attn.q_b_proj.weight", "attn_q_b.weight", "Q R"),
        )
        if has_lora
        else (Row("self_attn.q_proj.weight", "attn_q.weight", "Q E"),)
    )
    return (
        Row("input_layernorm.weight", "attn_norm.weight", "E"),
        *queries,
        Row("self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight", "C E"),
        Row("self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight", "L"),
        Row("self_attn.kv_b_proj.weight", "attn_k_b.weight", "B L", absorbed_keys),
        Row("self_attn.kv_b_proj.weight", "attn_v_b.weight", "B L", absorbed_values),
        Row("self_attn.o_proj.weight", "attn_output.weight", "E O"),
        Row("post_attention_layernorm.weight", "ffn_norm.weight", "E"),
    )


def absorbed_keys(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
    """Rows of `kv_b_proj` that make each head's keys, turned round: (heads, latent, plain)."""
    n_plain = sizes["P"]
    return _of_heads(sources, sizes, lambda heads: heads[:, :n_plain].swapaxes(1, 2), (sizes["L"], n_plain))


def absorbed_values(sources: Sequence[LazyTensor], sizes: Sizes) -> LazyTensor:
    """Rows of `kv_b_proj` that make each head's values: (heads, value, latent)."""
    n_plain = sizes["P"]
    return _of_heads(sources, sizes, lambda heads: heads[:, n_plain:], (sizes["W"], sizes["L"]))


def _of_heads(
    sources: Sequence[LazyTensor], sizes: Sizes, pick: Callable[[Array], Array], shape: tuple[int, int]
) -> LazyTensor:
    (source,) = sources
    n_rows = sizes["P"] + sizes["W"]  # of a head

    def read(start: int, stop: int) -> Array:
        rows = source.read(start * n_rows, stop * n_rows)
        return np.ascontiguousarray(pick(rows.reshape(stop - start, n_rows, -1)))

    return LazyTensor((sizes["H"], *shape), source.dtype, read)


def latent_sizes(config: Values) -> dict[str, int]:
    """`basic_sizes` with those of latent attention.

    P and T are the plain and rotated elements of a key head, W the elements of a value head, L those of the latent
    vector, R those of the vector that queries are made from; C = L + T, Q = H·(P + T), B = H·(P + W), O = H·W.
    """
    sizes = basic_sizes(config)
    heads, plain, rotated = sizes["H"], config.need("qk_nope_head_dim"), config.need("qk_rope_head_dim")
    value, latent = config.need("v_head_dim"), config.need("kv_lora_rank")
    return sizes | {
        "P": plain, "T": rotated, "W": value, "L": latent, "R": config.integer("q_lora_rank") or 0,
        "C": latent + rotated, "Q": heads * (plain + rotated), "B": heads * (plain + value), "O": heads * value,
        "2E": 2 * sizes["E"],
    }  # fmt: skip


def latent_keys(architecture: str, job: Job, n_blocks: int, n_dense: int) -> KeyValues:
    """The keys of a model with latent attention and experts."""
    config = job.config
    keys = shared_keys(architecture, config.merged({"num_key_value_heads": 1}), job.outtype, n_blocks)
    rope = rope_block(config)
    _check_yarn(rope)
    keys.remove(f"{architecture}.rope.scaling.attn_factor")  # the multiplier below says it
    sizes = latent_sizes(config)
    counts = {
        "leading_dense_block_count": n_dense,
        "vocab_size": sizes["V"],
        "attention.q_lora_rank": sizes["R"] or None,
        "attention.kv_lora_rank": sizes["L"],
        "attention.key_length": sizes["C"],
        "attention.value_length": sizes["L"],
        "attention.key_length_mla": sizes["P"] + sizes["T"],
        "attention.value_length_mla": sizes["W"],
        "expert_feed_forward_length": config.need("moe_intermediate_size"),
        "expert_count": config.integer("n_routed_experts"),
        "expert_shared_count": config.need("n_shared_experts"),
    }
    for name, value in counts.items():
        keys.add(f"{architecture}.{name}", "u32", value)
    keys.add(f"{architecture}.expert_weights_scale", "f32", config.number("routed_scaling_factor"))
    keys.add(f"{architecture}.expert_weights_norm", "bool", config.flag("norm_topk_prob") or None)
    keys.add(f"{architecture}.rope.dimension_count", "u32", sizes["T"])
    all_dim = rope.number("mscale_all_dim")
    keys.add(f"{architecture}.rope.scaling.yarn_log_multiplier", "f32", None if all_dim is None else 0.1 * all_dim)
    gating = f"{architecture}.expert_gating_func"
    if gating not in keys and config.text("model_type") in _SIGMOID:
        keys.add(gating, "u32", GATING["sigmoid"])
    return keys


def _check_yarn(rope: Values) -> None:
    """Refuses magnitudes that no reader of these files computes: it takes mscale and mscale_all_dim for equal."""
    if rope_type(rope) != "yarn":
        return
    scale, all_dim = rope.number("mscale"), rope.number("mscale_all_dim")
    if scale != all_dim or not scale or rope.number("attention_factor", "attn_factor") is not None:
        raise UnsupportedError(
            f"{rope.path}: yarn rope scaling with mscale {scale}, mscale_all_dim {all_dim} and attention_factor "
            f"{rope.number('attention_factor', 'attn_factor')}: expected mscale = mscale_all_dim, no attention_factor"
        )


def n_dense_layers(config: Values) -> int:
    """Layers before the first with experts."""
    kinds = config.texts("mlp_layer_types")
    if "first_k_dense_replace" in config or kinds is None:
        return config.integer("first_k_dense_replace") or 0
    n_dense = kinds.index("sparse") if "sparse" in kinds else len(kinds)
    if "dense" in kinds[n_dense:]:
        raise UnsupportedError(f"{config.path}: mlp_layer_types has dense layers behind sparse ones")
    return n_dense


def plan_deepseek2(job: Job) -> Blueprint:
    """The blueprint of DeepSeek-V2 and V3, and of Kimi-K2; the MTP block is written by itself, with `--mtp`, only."""
    n_trunk = job.config.need("num_hidden_layers")
    n_mtp = job.config.integer("num_nextn_predict_layers") or 0 if job.request.mtp == "only" else 0
    blueprint = _plan(job, n_mtp)
    first = f"model.layers.{n_trunk}."
    left_out = {} if n_mtp else {first: "MTP block, as llama.cpp's converter leaves it out; --mtp makes a file of it"}
    return replace(
        blueprint,
        layout="DeepSeek",
        vocabulary=lambda: bpe_keys(job.checkpoint.directory, blueprint.sizes["V"]),
        left_out={**blueprint.left_out, **left_out},
    )


def plan_glm4_moe_lite(job: Job) -> Blueprint:
    """The blueprint of GLM-4.7-Flash."""
    blueprint = _plan(job, job.config.integer("num_nextn_predict_layers") or 0)
    return replace(
        blueprint,
        layout="GLM-4.7-Flash",
        vocabulary=lambda: glm_keys(job.checkpoint.directory, blueprint.sizes["V"]),
    )


def _plan(job: Job, n_mtp: int) -> Blueprint:
    config = job.config
    inner, n_experts = config.need("moe_intermediate_size"), config.need("n_routed_experts")
    sizes = latent_sizes(config)
    sizes |= {"M": inner, "X": n_experts, "S": config.need("n_shared_experts") * inner}
    n_trunk, n_dense = config.need("num_hidden_layers"), n_dense_layers(config)
    own = attention(has_lora=bool(sizes["R"]))
    mixture = (
        replace(row, need="optional") if row.name == "exp_probs_b.bias" else row for row in experts(n_experts)
    )  # DeepSeek-V2 has none
    sparse = (*own, *mixture)
    trunk = [(*own, *DENSE) if layer < n_dense else sparse for layer in range(n_trunk)]
    rows, left_out = layers(job, trunk, [(*sparse, *NEXTN)] * n_mtp)
    n_written = 0 if job.request.mtp == "without" else n_mtp
    keys = latent_keys("deepseek2", job, n_trunk + n_written, n_dense)
    if n_written:
        keys.add("deepseek2.nextn_predict_layers", "u32", n_mtp)
    return Blueprint(
        layout="DeepSeek",
        architecture="deepseek2",
        rows=[*TOP, head_row(config), *rows],
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: bpe_keys(job.checkpoint.directory, sizes["V"]),
        rename=lambda name: name.replace("language_model.", ""),
        left_out=left_out,
    )
