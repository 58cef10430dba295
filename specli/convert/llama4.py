"""Llama 4 targets, text (llama.cpp conversion/llama.py)."""

from __future__ import annotations

from specli.convert.changes import chain, half, swap_last
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import shared_keys
from specli.convert.llama import TOP, head_row, llama_extra_keys, rope_factors
from specli.convert.plan import Blueprint, Row, at
from specli.convert.values import Values
from specli.convert.vocab import bpe_keys
from specli.errors import UnsupportedError

ATTENTION = (
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E"),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E"),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("post_attention_layernorm.weight", "ffn_norm.weight", "E"),
)
DENSE = (
    Row("feed_forward.gate_proj.weight", "ffn_gate.weight", "F E"),
    Row("feed_forward.up_proj.weight", "ffn_up.weight", "F E"),
    Row("feed_forward.down_proj.weight", "ffn_down.weight", "E F"),
)
EXPERTS = (
    Row("feed_forward.experts.gate_up_proj", "ffn_gate_exps.weight", "X E 2M", chain(swap_last, half(0))),
    Row("feed_forward.experts.gate_up_proj", "ffn_up_exps.weight", "X E 2M", chain(swap_last, half(1))),
    Row("feed_forward.experts.down_proj", "ffn_down_exps.weight", "X M E", swap_last),
    Row("feed_forward.router.weight", "ffn_gate_inp.weight", "X E"),
    Row("feed_forward.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", "M E"),
    Row("feed_forward.shared_expert.up_proj.weight", "ffn_up_shexp.weight", "M E"),
    Row("feed_forward.shared_expert.down_proj.weight", "ffn_down_shexp.weight", "E M"),
)
VISION = {"vision_model.": "vision part", "multi_modal_projector.": "vision part"}


def check_fixed(config: Values, n_layers: int, step: int, n_experts: int) -> None:
    """Refuses what readers of the architecture take for granted and the config has otherwise.

    Raises:
        UnsupportedError: Such a setting.
    """
    fixed = {
        "no_rope_layers": [int((layer + 1) % 4 > 0) for layer in range(n_layers)],
        "no_rope_layer_interval": 4,
        "attention_chunk_size": 8192,
        "attn_temperature_tuning": True,
        "floor_scale": 8192,
        "attn_scale": 0.1,
        "moe_layers": list(range(step - 1, n_layers, step)),
        "num_experts_per_tok": 1,
        "use_qk_norm": n_experts != 128,
    }
    for name, value in fixed.items():
        found = config.raw(name)
        if found is not None and found != value and found != []:
            raise UnsupportedError(
                f"{config.path}: {name} is {str(found)[:40]}, expected {str(value)[:40]}: files of llama4 mean that"
            )


def rename(name: str) -> str:
    """The normalised name of a tensor: the text model without its multimodal wrapper."""
    return name.replace("language_model.", "")


def plan_llama4(job: Job) -> Blueprint:
    """The blueprint of Llama 4 Scout and Maverick."""
    inner = job.config.need("intermediate_size")
    config = job.config.merged({"intermediate_size": job.config.need("intermediate_size_mlp")})
    sizes = basic_sizes(config)
    n_layers, n_experts = config.need("num_hidden_layers"), config.need("num_local_experts")
    step = config.need("interleave_moe_layer_step")
    check_fixed(config, n_layers, step, n_experts)
    sizes |= {"X": n_experts, "M": inner, "2M": 2 * inner}
    keys = shared_keys("llama4", config, job.outtype, n_layers)
    llama_extra_keys(keys, "llama4", config)
    keys.add("llama4.interleave_moe_layer_step", "u32", step)
    keys.add("llama4.expert_feed_forward_length", "u32", inner)
    rows = [*TOP, head_row(config)]
    for layer in range(n_layers):
        feed_forward = DENSE if (layer + 1) % step else EXPERTS
        rows += at((*ATTENTION, *feed_forward), f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="Llama 4",
        architecture="llama4",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: bpe_keys(job.checkpoint.directory, sizes["V"]),
        generated=rope_factors(config, sizes["D"]),
        rename=rename,
        left_out=VISION,
    )
