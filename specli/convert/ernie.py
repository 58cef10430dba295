"""ERNIE 4.5 targets, dense and mixture of experts (llama.cpp conversion/ernie.py)."""

from __future__ import annotations

from pathlib import Path

from specli.convert.changes import stack
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import KeyValues, shared_keys
from specli.convert.llama import FEED_FORWARD, TOP, head_row
from specli.convert.plan import Blueprint, Row, at
from specli.convert.special import optional_object
from specli.convert.values import Values
from specli.convert.vocab import sentencepiece_keys
from specli.errors import UnsupportedError

ATTENTION = (
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E"),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E"),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("post_attention_layernorm.weight", "ffn_norm.weight", "E"),
)
DENSE = tuple(row for row in FEED_FORWARD if row.need == "required")
SHARED = (
    Row("mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", "S E"),
    Row("mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", "S E"),
    Row("mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", "E S"),
)
MTP = {
    **dict.fromkeys(("model.mtp_block.", "model.mtp_emb_norm.", "model.mtp_hidden_norm."), "MTP block, not read"),
    "model.mtp_linear_proj.": "MTP block, not read",
}


def experts(n_experts: int) -> tuple[Row, ...]:
    """Router with its bias, and experts stacked in id order."""

    def stacked(part: str, name: str, shape: str) -> Row:
        sources = tuple(f"mlp.experts.{e}.{part}_proj.weight" for e in range(n_experts))
        return Row(sources, f"{name}.weight", shape, stack, group="experts")

    return (
        Row("mlp.gate.weight", "ffn_gate_inp.weight", "X E"),
        Row("mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias", "1 X", need="optional"),
        stacked("gate", "ffn_gate_exps", "M E"),
        stacked("up", "ffn_up_exps", "M E"),
        stacked("down", "ffn_down_exps", "E M"),
    )


def ernie_keys(directory: Path, n_tokens: int) -> KeyValues:
    """SentencePiece, with a blank in front as the tokenizer's config says."""
    keys = sentencepiece_keys(directory, n_tokens)
    path = directory / "tokenizer_config.json"
    prefix = Values(path, optional_object(path) or {}).flag("add_prefix_space")
    keys.add("tokenizer.ggml.add_space_prefix", "bool", prefix)
    return keys


def rename(name: str) -> str:
    """The normalised name of a tensor."""
    return name.replace("ernie.", "model.")


def _plan(job: Job, architecture: str, layout: str, feed_forwards: list[tuple[Row, ...]]) -> Blueprint:
    config = job.config
    sizes = basic_sizes(config)
    rows = [*TOP, head_row(config)]
    for layer, feed_forward in enumerate(feed_forwards):
        rows += at((*ATTENTION, *feed_forward), f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout=layout,
        architecture=architecture,
        rows=rows,
        sizes=sizes,
        keys=shared_keys(architecture, config, job.outtype, len(feed_forwards)),
        vocabulary=lambda: ernie_keys(job.checkpoint.directory, sizes["V"]),
        rename=rename,
    )


def plan_ernie4_5(job: Job) -> Blueprint:
    """The blueprint of dense ERNIE 4.5."""
    return _plan(job, "ernie4_5", "ERNIE 4.5", [DENSE] * job.config.need("num_hidden_layers"))


def plan_ernie4_5_moe(job: Job) -> Blueprint:
    """The blueprint of ERNIE 4.5 with experts."""
    config = job.config
    n_layers, n_experts = config.need("num_hidden_layers"), config.need("moe_num_experts")
    first, interval = config.integer("moe_layer_start_index") or 0, config.integer("moe_layer_interval") or 1
    last = config.raw("moe_layer_end_index")
    if last not in (None, -1) and last < n_layers - 1:
        raise UnsupportedError(
            f"{config.path}: moe_layer_end_index is {last}: files have no place for dense layers after the last experts"
        )
    inner, n_shared = config.need("moe_intermediate_size"), config.integer("moe_num_shared_experts") or 0
    sparse = (*experts(n_experts), *(SHARED if n_shared else ()))
    feed_forwards = [sparse if layer >= first and (layer + 1) % interval == 0 else DENSE for layer in range(n_layers)]
    blueprint = _plan(job, "ernie4_5-moe", "ERNIE 4.5-MoE", feed_forwards)
    blueprint.sizes = {**blueprint.sizes, "X": n_experts, "M": inner, "S": n_shared * inner}
    blueprint.left_out = MTP
    for suffix, value in (
        ("expert_count", n_experts),
        ("expert_used_count", config.need("moe_k")),
        ("interleave_moe_layer_step", interval),
        ("leading_dense_block_count", first),
        ("expert_feed_forward_length", inner),
        ("expert_shared_count", n_shared),
        ("expert_shared_feed_forward_length", n_shared * inner or None),
    ):
        blueprint.keys.add(f"ernie4_5-moe.{suffix}", "u32", value)
    return blueprint
