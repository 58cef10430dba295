"""Cohere 2 targets: Command R7B, Command A (llama.cpp conversion/command_r.py)."""

from __future__ import annotations

from specli.convert.gemma import sliding_layers
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import shared_keys
from specli.convert.llama import FEED_FORWARD, TOP
from specli.convert.plan import Blueprint, Row, at
from specli.convert.vocab import bpe_keys
from specli.errors import UnsupportedError

BLOCK = (
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E"),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E"),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    *(row for row in FEED_FORWARD if row.need == "required"),
)


def plan_cohere2(job: Job) -> Blueprint:
    """The blueprint of Cohere 2."""
    config = job.config
    sizes = basic_sizes(config)
    n_layers = config.need("num_hidden_layers")
    if sliding_layers(config, 4) is not None:
        raise UnsupportedError(
            f"{config.path}: windows are not in three of four layers, which is what files of cohere2 mean"
        )
    if config.flag("use_qk_norm"):
        raise UnsupportedError(f"{config.path}: use_qk_norm is true, files of cohere2 have no place for such norms")
    if config.flag("tie_word_embeddings") is False:
        raise UnsupportedError(f"{config.path}: tie_word_embeddings is false, files of cohere2 have no head")
    keys = shared_keys("cohere2", config, job.outtype, n_layers)
    keys.add("cohere2.logit_scale", "f32", config.number("logit_scale"))
    keys.add("cohere2.attention.sliding_window", "u32", config.need("sliding_window"))
    keys.add("cohere2.vocab_size", "u32", sizes["V"])
    partial = config.fraction("rotary_pct")
    n_rot = int((1.0 if partial is None else partial) * (sizes["E"] // sizes["H"]))
    keys.add("cohere2.rope.dimension_count", "u32", n_rot)
    keys.add("cohere2.rope.scaling.type", "str", "none")
    rows = [*TOP]
    for layer in range(n_layers):
        rows += at(BLOCK, f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="Cohere 2",
        architecture="cohere2",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: bpe_keys(job.checkpoint.directory, sizes["V"]),
        left_out={"lm_head.weight": "the head is the embedding table"},
    )
