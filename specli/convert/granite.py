"""Granite targets, dense and mixture of experts (llama.cpp conversion/granite.py)."""

from __future__ import annotations

from dataclasses import replace

from specli.convert.changes import half, row_part
from specli.convert.job import Job
from specli.convert.llama import FEED_FORWARD, plan_as
from specli.convert.plan import Blueprint, Row

EXPERTS = (
    Row("block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight", "X E"),
    Row("block_sparse_moe.input_linear.weight", "ffn_gate_exps.weight", "X 2F E", half(0)),
    Row("block_sparse_moe.input_linear.weight", "ffn_up_exps.weight", "X 2F E", half(1)),
    Row("block_sparse_moe.output_linear.weight", "ffn_down_exps.weight", "X E F"),
)
SHARED = (
    Row("shared_mlp.input_linear.weight", "ffn_gate_shexp.weight", "2S E", row_part(0)),
    Row("shared_mlp.input_linear.weight", "ffn_up_shexp.weight", "2S E", row_part(1)),
    Row("shared_mlp.output_linear.weight", "ffn_down_shexp.weight", "E S"),
)
_SCALES = (
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
)


def plan_granite(job: Job) -> Blueprint:
    """The blueprint of dense Granite."""
    return _plan(job, "granite", "Granite")


def plan_granite_moe(job: Job) -> Blueprint:
    """The blueprint of Granite's mixtures of experts, with a shared one or without."""
    config = job.config
    shared = config.integer("shared_intermediate_size") or 0
    blueprint = _plan(job, "granitemoe", "Granite-MoE", (*EXPERTS, *(SHARED if shared else ())))
    n_ff = config.need("intermediate_size")
    blueprint.sizes = {
        **blueprint.sizes, "X": config.need("num_local_experts"), "2F": 2 * n_ff, "S": shared, "2S": 2 * shared,
    }  # fmt: skip
    blueprint.keys.add("granitemoe.expert_shared_feed_forward_length", "u32", shared or None)
    return blueprint


def _plan(job: Job, architecture: str, layout: str, feed_forward: tuple[Row, ...] = FEED_FORWARD) -> Blueprint:
    config = job.config.merged({"head_dim": None})  # no reader of these files knows another width of heads
    blueprint = plan_as(replace(job, config=config), architecture, layout, feed_forward)
    for suffix, name in _SCALES:
        blueprint.keys.add(f"{architecture}.{suffix}", "f32", config.number(name) or None)
    return blueprint
