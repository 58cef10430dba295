"""EAGLE-1, EAGLE-2 and HASS drafters (SafeAILab/EAGLE `eagle/model/cnets1.py`, HArmonizedSS); vLLM adds `model.`.

llama.cpp has no such architecture, so the file's keys and tensor names are this program's (`specli/models/eagle.py`).
"""

from __future__ import annotations

from specli.convert.changes import pair_heads
from specli.convert.eagle3 import check_vocabulary
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import KeyValues, shared_keys
from specli.convert.llama import llama_extra_keys, rope_factors
from specli.convert.plan import Blueprint, Row, at
from specli.convert.rope import override_rope, say_rope
from specli.errors import IncompatibleError, UnsupportedError

TOP = (
    Row("embed_tokens.weight", "token_embd.weight", "V E", need="borrowed"),
    Row("fc.weight", "fc.weight", "E 2E"),
    Row("fc.bias", "fc.bias", "E", need="optional"),
)
LAYER = (
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E", pair_heads("H")),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E", pair_heads("G")),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.q_proj.bias", "attn_q.bias", "Q", pair_heads("H"), need="optional"),
    Row("self_attn.k_proj.bias", "attn_k.bias", "K", pair_heads("G"), need="optional"),
    Row("self_attn.v_proj.bias", "attn_v.bias", "K", need="optional"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("post_attention_layernorm.weight", "ffn_norm.weight", "E"),
    Row("mlp.gate_proj.weight", "ffn_gate.weight", "F E"),
    Row("mlp.up_proj.weight", "ffn_up.weight", "F E"),
    Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
)
LEFT_OUT = {"lm_head.weight": "the target's own"}
NOT_UPSTREAM = "llama.cpp has no EAGLE-1 drafters, so it does not load the file"


def rename(name: str) -> str:
    """The normalised name of a tensor."""
    return name.removeprefix("model.")


def plan_eagle(job: Job) -> Blueprint:
    """The blueprint of an EAGLE-1 drafter."""
    target = job.need_target("EAGLE")
    job.config = config = override_rope(job, job.config)
    n_layers = config.integer("num_hidden_layers")
    if n_layers not in (None, 1):
        raise UnsupportedError(f"{config.path}: EAGLE with {n_layers} decoder layers is not handled, expected 1")
    sizes = basic_sizes(config)
    if sizes["E"] != target.width:
        raise IncompatibleError(
            f"{config.path}: hidden_size {sizes['E']} does not match {target.path} ({target.width})"
        )
    check_vocabulary(job, target, sizes["V"])
    sizes["2E"] = 2 * sizes["E"]
    first = KeyValues()
    first.add("eagle.target_layers", "[i32]", [target.n_layers])
    keys = shared_keys("eagle", config, job.outtype, 1)
    llama_extra_keys(keys, "eagle", config)
    say_rope(job, keys, "eagle")
    job.warnings.append(NOT_UPSTREAM)
    return Blueprint(
        layout="EAGLE",
        architecture="eagle",
        rows=[*TOP, *at(LAYER, "layers.0.", "blk.0.")],
        sizes=sizes,
        keys=keys,
        first_keys=first,
        vocabulary=lambda: target.vocabulary(sizes["V"]),
        generated=rope_factors(config, sizes["D"]),
        rename=rename,
        left_out=LEFT_OUT,
    )
