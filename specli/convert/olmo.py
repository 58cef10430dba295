"""OLMo 2 and 3 targets (llama.cpp conversion/olmo.py)."""

from __future__ import annotations

from specli.convert.gemma import sliding_layers
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import rope_block, shared_keys
from specli.convert.llama import HEAD, TOP
from specli.convert.plan import Blueprint, Row, at
from specli.convert.vocab import bpe_keys

BLOCK = (
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E"),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E"),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("self_attn.q_norm.weight", "attn_q_norm.weight", "Q"),
    Row("self_attn.k_norm.weight", "attn_k_norm.weight", "K"),
    Row("mlp.gate_proj.weight", "ffn_gate.weight", "F E"),
    Row("mlp.up_proj.weight", "ffn_up.weight", "F E"),
    Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
    Row("post_attention_layernorm.weight", "post_attention_norm.weight", "E"),
    Row("post_feedforward_layernorm.weight", "post_ffw_norm.weight", "E"),
)
OLMO3_BASE = 500000.0


def plan_olmo2(job: Job) -> Blueprint:
    """The blueprint of OLMo 2, and of OLMo 3 with its windows."""
    config = job.config
    sizes = basic_sizes(config)
    n_layers = config.need("num_hidden_layers")
    rope = rope_block(config)
    if (
        config.integer("sliding_window") and "full_attention" not in rope
    ):  # the class keeps two blocks: one is not scaled
        plain = {"rope_type": "default", "rope_theta": rope.number("rope_theta") or OLMO3_BASE}
        blocks = {"full_attention": {**plain, **rope.items}, "sliding_attention": plain}
        config = config.merged({"rope_parameters": blocks})
    keys = shared_keys("olmo2", config, job.outtype, n_layers)
    window = config.integer("sliding_window")
    if window:
        slides = sliding_layers(config, 4) or [(layer + 1) % 4 > 0 for layer in range(n_layers)]
        keys.add("olmo2.attention.sliding_window", "u32", window)
        keys.add("olmo2.attention.sliding_window_pattern", "[bool]", slides)
    rows = [*TOP, HEAD]
    for layer in range(n_layers):
        rows += at(BLOCK, f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="OLMo 2",
        architecture="olmo2",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: bpe_keys(job.checkpoint.directory, sizes["V"]),
    )
