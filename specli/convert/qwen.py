"""Qwen2 and Qwen3 targets, dense and mixture of experts (llama.cpp conversion/qwen.py)."""

from __future__ import annotations

from specli.convert.changes import half, keep, stack
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import shared_keys
from specli.convert.llama import FEED_FORWARD, HEAD, TOP, head_row
from specli.convert.plan import Blueprint, Row, at
from specli.convert.vocab import bpe_keys, qwen_keys

ATTENTION = (
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E"),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E"),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("post_attention_layernorm.weight", "ffn_norm.weight", "E"),
)
BIASES = (
    Row("self_attn.q_proj.bias", "attn_q.bias", "Q"),
    Row("self_attn.k_proj.bias", "attn_k.bias", "K"),
    Row("self_attn.v_proj.bias", "attn_v.bias", "K"),
)
SHARED_EXPERT = (
    Row("mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", "S E"),
    Row("mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", "S E"),
    Row("mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", "E S"),
    Row("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", "1 E"),
)
HEAD_NORMS = (
    Row("self_attn.q_norm.weight", "attn_q_norm.weight", "D"),
    Row("self_attn.k_norm.weight", "attn_k_norm.weight", "D"),
)


def expert_rows(n_experts: int, *, stacked: bool, prefix: str = "mlp.") -> tuple[Row, ...]:
    """Router and experts, stored one by one or already stacked with gate and up joined.

    Sizes: X experts, M inner width of one, 2M both.
    """
    router = Row(f"{prefix}gate.weight", "ffn_gate_inp.weight", "X E")
    if stacked:
        return (
            router,
            Row(f"{prefix}experts.gate_up_proj", "ffn_gate_exps.weight", "X 2M E", half(0)),
            Row(f"{prefix}experts.gate_up_proj", "ffn_up_exps.weight", "X 2M E", half(1)),
            Row(f"{prefix}experts.down_proj", "ffn_down_exps.weight", "X E M", keep),
        )

    def one_by_one(part: str, name: str, shape: str) -> Row:
        sources = tuple(f"{prefix}experts.{e}.{part}_proj.weight" for e in range(n_experts))
        return Row(sources, f"{name}.weight", shape, stack, group="experts")

    return (
        router,
        one_by_one("down", "ffn_down_exps", "E M"),
        one_by_one("gate", "ffn_gate_exps", "M E"),
        one_by_one("up", "ffn_up_exps", "M E"),
    )


def rename(name: str) -> str:
    """The normalised name of a tensor: wrapper prefixes are removed, and a bare `Qwen2Model` gets its `model.`."""
    name = name.replace("language_model.", "")
    return name if name.startswith(("model.", "lm_head.")) else f"model.{name}"


def _plan(job: Job, architecture: str, layout: str, block: tuple[Row, ...]) -> Blueprint:
    config = job.config
    sizes = basic_sizes(config)
    n_layers = config.need("num_hidden_layers")
    rows = [*TOP, head_row(config)]
    for layer in range(n_layers):
        rows += at(block, f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout=layout,
        architecture=architecture,
        rows=rows,
        sizes=sizes,
        keys=shared_keys(architecture, config, job.outtype, n_layers),
        vocabulary=lambda: qwen_keys(job.checkpoint.directory, sizes["V"]),
        rename=rename,
    )


def plan_qwen2(job: Job) -> Blueprint:
    """The blueprint of Qwen2 and Qwen2.5."""
    return _plan(job, "qwen2", "Qwen2", (*ATTENTION, *BIASES, *FEED_FORWARD))


def plan_qwen2_moe(job: Job) -> Blueprint:
    """The blueprint of the Qwen 1.5 and 2 mixtures of experts, with a gated shared expert."""
    config = job.config
    sizes = basic_sizes(config)
    n_experts = config.need("num_local_experts", "num_experts")
    inner, shared = config.need("moe_intermediate_size"), config.need("shared_expert_intermediate_size")
    sizes |= {"X": n_experts, "M": inner, "2M": 2 * inner, "S": shared}
    if config.flag("norm_topk_prob"):
        job.warnings.append("norm_topk_prob is true: the experts' weights are left as they are, as in llama.cpp")
    stacked = any(name.endswith("mlp.experts.gate_up_proj") for name in job.checkpoint.tensors)
    n_layers = config.need("num_hidden_layers")
    keys = shared_keys("qwen2moe", config, job.outtype, n_layers)
    keys.add("qwen2moe.expert_feed_forward_length", "u32", inner)
    keys.add("qwen2moe.expert_shared_feed_forward_length", "u32", shared)
    rows = [*TOP, HEAD]
    block = (*ATTENTION, *BIASES, *expert_rows(n_experts, stacked=stacked), *SHARED_EXPERT)
    for layer in range(n_layers):
        rows += at(block, f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="Qwen2-MoE",
        architecture="qwen2moe",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: bpe_keys(job.checkpoint.directory, sizes["V"]),
    )


def plan_qwen3(job: Job) -> Blueprint:
    """The blueprint of dense Qwen3."""
    return _plan(job, "qwen3", "Qwen3", (*ATTENTION, *HEAD_NORMS, *FEED_FORWARD))


def plan_qwen3_moe(job: Job) -> Blueprint:
    """The blueprint of the Qwen3 mixture of experts."""
    config = job.config
    n_experts = config.need("num_local_experts", "num_experts")
    inner = config.need("moe_intermediate_size")
    stacked = any(name.endswith("mlp.experts.gate_up_proj") for name in job.checkpoint.tensors)
    blueprint = _plan(job, "qwen3moe", "Qwen3-MoE", (*ATTENTION, *HEAD_NORMS, *expert_rows(n_experts, stacked=stacked)))
    blueprint.sizes = {**blueprint.sizes, "X": n_experts, "M": inner, "2M": 2 * inner}
    blueprint.keys.add("qwen3moe.expert_feed_forward_length", "u32", inner)
    if config.flag("norm_topk_prob") is False:
        job.warnings.append(
            "norm_topk_prob is false: the experts' weights are normalised all the same, as in llama.cpp"
        )
    shared = config.integer("shared_expert_intermediate_size")
    blueprint.keys.add("qwen3moe.expert_shared_feed_forward_length", "u32", shared)
    blueprint.vocabulary = lambda: bpe_keys(job.checkpoint.directory, blueprint.sizes["V"])
    return blueprint
