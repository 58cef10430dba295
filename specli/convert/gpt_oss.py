"""gpt-oss targets, MXFP4 experts repacked as they are (llama.cpp conversion/gpt_oss.py)."""

from __future__ import annotations

from specli.convert.changes import alternate, chain, mxfp4, swap_last
from specli.convert.gemma import sliding_layers
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import shared_keys
from specli.convert.llama import HEAD, TOP
from specli.convert.plan import Blueprint, Row, at
from specli.convert.vocab import bpe_keys
from specli.errors import FormatError, UnsupportedError

SWIGLU_LIMIT = 7.0  # of every reader

BLOCK = (
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E"),
    Row("self_attn.q_proj.bias", "attn_q.bias", "Q"),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E"),
    Row("self_attn.k_proj.bias", "attn_k.bias", "K"),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.v_proj.bias", "attn_v.bias", "K"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("self_attn.o_proj.bias", "attn_output.bias", "E"),
    Row("self_attn.sinks", "attn_sinks.weight", "H"),
    Row("post_attention_layernorm.weight", "post_attention_norm.weight", "E"),
    Row("mlp.router.weight", "ffn_gate_inp.weight", "X E"),
    Row("mlp.router.bias", "ffn_gate_inp.bias", "X"),
    Row("mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", "X 2F", alternate(0)),
    Row("mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", "X 2F", alternate(1)),
    Row("mlp.experts.down_proj_bias", "ffn_down_exps.bias", "X E"),
)
_GATE_UP = ("mlp.experts.gate_up_proj_blocks", "mlp.experts.gate_up_proj_scales")
_DOWN = ("mlp.experts.down_proj_blocks", "mlp.experts.down_proj_scales")
_GATE_UP_SHAPES, _DOWN_SHAPES = ("X 2F Eb 16", "X 2F Eb"), ("X E Fb 16", "X E Fb")
MXFP4_EXPERTS = (
    Row(_DOWN, "ffn_down_exps.weight", _DOWN_SHAPES, mxfp4(slice(None)), integer=True, place=-1),
    Row(_GATE_UP, "ffn_gate_exps.weight", _GATE_UP_SHAPES, mxfp4(slice(0, None, 2)), integer=True, place=-1),
    Row(_GATE_UP, "ffn_up_exps.weight", _GATE_UP_SHAPES, mxfp4(slice(1, None, 2)), integer=True, place=-1),
)
PLAIN_EXPERTS = (
    Row("mlp.experts.gate_up_proj", "ffn_gate_exps.weight", "X E 2F", chain(swap_last, alternate(0))),
    Row("mlp.experts.gate_up_proj", "ffn_up_exps.weight", "X E 2F", chain(swap_last, alternate(1))),
    Row("mlp.experts.down_proj", "ffn_down_exps.weight", "X F E", swap_last),
)


def plan_gpt_oss(job: Job) -> Blueprint:
    """The blueprint of gpt-oss with MXFP4 or plain experts."""
    config = job.config
    sizes = basic_sizes(config) | {"F": config.need("intermediate_size")}
    is_packed = any(name.endswith("_blocks") for name in job.checkpoint.tensors)
    if is_packed and (sizes["E"] % 32 or sizes["F"] % 32):
        raise FormatError(f"{config.path}: widths {sizes['E']} and {sizes['F']} are not whole MXFP4 blocks of 32")
    if not is_packed and not job.request.vocab_only:
        job.warnings.append("the experts are not MXFP4; they are converted to the output type")
    sizes |= {"X": config.need("num_local_experts", "num_experts"), "2F": 2 * sizes["F"]}
    sizes |= {"Eb": sizes["E"] // 32, "Fb": sizes["F"] // 32}
    if config.number("swiglu_limit") not in (None, SWIGLU_LIMIT):
        raise UnsupportedError(f"{config.path}: swiglu_limit is not {SWIGLU_LIMIT:g}, which is the one handled")
    n_layers = config.need("num_hidden_layers")
    keys = shared_keys("gpt-oss", config, job.outtype, n_layers)
    keys.add("gpt-oss.attention.sliding_window", "u32", config.need("sliding_window"))
    keys.add("gpt-oss.attention.sliding_window_pattern", "[bool]", sliding_layers(config, 2))
    keys.add("gpt-oss.expert_feed_forward_length", "u32", sizes["F"])
    rows = [*TOP, HEAD]
    for layer in range(n_layers):
        block = (*BLOCK, *(MXFP4_EXPERTS if is_packed else PLAIN_EXPERTS))
        rows += at(block, f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="gpt-oss",
        architecture="gpt-oss",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: bpe_keys(job.checkpoint.directory, sizes["V"]),
    )
