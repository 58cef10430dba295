"""StarCoder 2 targets (llama.cpp conversion/starcoder.py)."""

from __future__ import annotations

from specli.convert.job import Job, basic_sizes
from specli.convert.keys import shared_keys
from specli.convert.llama import TOP, head_row
from specli.convert.plan import Blueprint, Row, at
from specli.convert.vocab import bpe_keys

_MATRICES = (
    ("self_attn.q_proj", "attn_q", "Q", "E"),
    ("self_attn.k_proj", "attn_k", "K", "E"),
    ("self_attn.v_proj", "attn_v", "K", "E"),
    ("self_attn.o_proj", "attn_output", "E", "Q"),
    ("mlp.c_fc", "ffn_up", "F", "E"),
    ("mlp.c_proj", "ffn_down", "E", "F"),
)
_NORMS = (("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"))
BLOCK = (
    *(Row(f"{source}.weight", f"{name}.weight", f"{n_out} {n_in}") for source, name, n_out, n_in in _MATRICES),
    *(Row(f"{source}.bias", f"{name}.bias", n_out) for source, name, n_out, _ in _MATRICES),
    *(Row(f"{source}.{kind}", f"{name}.{kind}", "E") for source, name in _NORMS for kind in ("weight", "bias")),
)


def plan_starcoder2(job: Job) -> Blueprint:
    """The blueprint of StarCoder 2."""
    config = job.config
    sizes = basic_sizes(config)
    n_layers = config.need("num_hidden_layers")
    window = config.integer("sliding_window") or 0
    if 0 < window < (config.integer("max_position_embeddings") or 0):
        job.warnings.append(f"the sliding window of {window} tokens is not written: no reader applies it")
    rows = [*TOP, Row("model.norm.bias", "output_norm.bias", "E"), head_row(config)]
    for layer in range(n_layers):
        rows += at(BLOCK, f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="StarCoder 2",
        architecture="starcoder2",
        rows=rows,
        sizes=sizes,
        keys=shared_keys("starcoder2", config, job.outtype, n_layers),
        vocabulary=lambda: bpe_keys(job.checkpoint.directory, sizes["V"]),
    )
