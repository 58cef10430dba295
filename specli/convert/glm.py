"""GLM-4 targets, and GLM-4.5 with their MTP block (llama.cpp conversion/glm.py)."""

from __future__ import annotations

from pathlib import Path

from specli.convert.changes import stack
from specli.convert.job import Job, basic_sizes
from specli.convert.keys import GATING, KeyValues, rope_block, shared_keys
from specli.convert.llama import TOP, head_row
from specli.convert.mtp import NEXTN, layers
from specli.convert.plan import Blueprint, Row, at
from specli.convert.vocab import bpe_keys
from specli.errors import UnsupportedError

PROJECTIONS = (
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("self_attn.q_proj.weight", "attn_q.weight", "Q E"),
    Row("self_attn.k_proj.weight", "attn_k.weight", "K E"),
    Row("self_attn.v_proj.weight", "attn_v.weight", "K E"),
    Row("self_attn.q_proj.bias", "attn_q.bias", "Q", need="optional"),
    Row("self_attn.k_proj.bias", "attn_k.bias", "K", need="optional"),
    Row("self_attn.v_proj.bias", "attn_v.bias", "K", need="optional"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
)
ATTENTION = (
    *PROJECTIONS,
    Row("self_attn.q_norm.weight", "attn_q_norm.weight", "D", need="optional"),
    Row("self_attn.k_norm.weight", "attn_k_norm.weight", "D", need="optional"),
    Row("post_attention_layernorm.weight", "post_attention_norm.weight", "E"),
)
DENSE = (
    Row("mlp.gate_proj.weight", "ffn_gate.weight", "F E"),
    Row("mlp.up_proj.weight", "ffn_up.weight", "F E"),
    Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
)
GLM4_BLOCK = (
    *PROJECTIONS,
    Row("post_self_attn_layernorm.weight", "post_attention_norm.weight", "E"),
    Row("post_attention_layernorm.weight", "ffn_norm.weight", "E"),
    Row("post_mlp_layernorm.weight", "post_ffw_norm.weight", "E"),
    Row("mlp.gate_up_proj.weight", "ffn_up.weight", "2F E"),
    Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
)
# kind of the role, text of the added token
ROLES = (("bos", "[gMASK]"), ("eot", "<|user|>"), ("unk", "<|endoftext|>"), ("eom", "<|observation|>"))

DENSE_ROLES = (
    ("eos", "<|endoftext|>"), ("eot", "<|user|>"), ("unk", "<|endoftext|>"), ("bos", "<|endoftext|>"),
)  # fmt: skip


def experts(n_experts: int) -> tuple[Row, ...]:
    """Router with its bias, routed experts stacked in id order, shared expert."""

    def stacked(part: str, name: str, shape: str) -> Row:
        sources = tuple(f"mlp.experts.{e}.{part}_proj.weight" for e in range(n_experts))
        return Row(sources, f"{name}.weight", shape, stack, group="experts")

    return (
        Row("mlp.gate.weight", "ffn_gate_inp.weight", "X E"),
        Row("mlp.gate.e_score_correction_bias", "exp_probs_b.bias", "X"),
        Row("mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", "S E"),
        Row("mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", "S E"),
        Row("mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", "E S"),
        stacked("down", "ffn_down_exps", "E M"),
        stacked("gate", "ffn_gate_exps", "M E"),
        stacked("up", "ffn_up_exps", "M E"),
    )


def glm_keys(directory: Path, n_tokens: int) -> KeyValues:
    """Byte-level BPE with GLM's own roles where none are configured."""
    return bpe_keys(directory, n_tokens, ROLES)


def glm4_keys(directory: Path, n_tokens: int) -> KeyValues:
    """Byte-level BPE with the roles of dense GLM-4 where none are configured."""
    return bpe_keys(directory, n_tokens, DENSE_ROLES)


def plan_glm4(job: Job) -> Blueprint:
    """The blueprint of dense GLM-4."""
    config = job.config
    rope = rope_block(config)
    if "mrope_section" in rope:
        raise UnsupportedError(
            f"{config.path}: mrope_section belongs to vision models, which are not handled",
            hint="text-only GLM-4 checkpoints are",
        )
    sizes = basic_sizes(config)
    sizes["2F"] = 2 * config.need("intermediate_size")
    n_layers = config.need("num_hidden_layers")
    keys = shared_keys("glm4", config, job.outtype, n_layers)
    partial = rope.fraction("partial_rotary_factor")
    keys.add("glm4.rope.dimension_count", "u32", int(sizes["D"] * (0.5 if partial is None else partial)))
    rows = [*TOP, head_row(config)]
    for layer in range(n_layers):
        rows += at(GLM4_BLOCK, f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="GLM-4",
        architecture="glm4",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: glm4_keys(job.checkpoint.directory, sizes["V"]),
    )


def plan_glm4_moe(job: Job) -> Blueprint:
    """The blueprint of GLM-4.5 and GLM-4.5-Air."""
    config = job.config
    sizes = basic_sizes(config)
    inner, n_experts = config.need("moe_intermediate_size"), config.need("n_routed_experts")
    n_shared = config.integer("n_shared_experts") or 1
    sizes |= {"2E": 2 * sizes["E"], "M": inner, "X": n_experts, "S": n_shared * inner}
    n_trunk = config.need("num_hidden_layers")
    n_mtp = config.integer("num_nextn_predict_layers") or 0
    n_dense = config.integer("first_k_dense_replace") or 0
    sparse = (*ATTENTION, *experts(n_experts))
    trunk = [(*ATTENTION, *DENSE) if layer < n_dense else sparse for layer in range(n_trunk)]
    rows, left_out = layers(job, trunk, [(*sparse, *NEXTN)] * n_mtp)
    without = job.request.mtp == "without"

    keys = shared_keys("glm4moe", config, job.outtype, n_trunk + (0 if without else n_mtp))
    partial = rope_block(config).fraction("partial_rotary_factor")
    keys.add("glm4moe.rope.dimension_count", "u32", int(sizes["D"] * (0.5 if partial is None else partial)))
    keys.add("glm4moe.expert_count", "u32", n_experts)
    keys.add("glm4moe.expert_feed_forward_length", "u32", inner)
    keys.add("glm4moe.expert_shared_count", "u32", config.integer("n_shared_experts"))
    keys.add("glm4moe.leading_dense_block_count", "u32", config.integer("first_k_dense_replace"))
    keys.add("glm4moe.expert_gating_func", "u32", GATING["sigmoid"])
    keys.add("glm4moe.expert_weights_scale", "f32", config.number("routed_scaling_factor"))
    keys.add("glm4moe.expert_weights_norm", "bool", config.flag("norm_topk_prob"))
    if not without:
        keys.add("glm4moe.nextn_predict_layers", "u32", config.integer("num_nextn_predict_layers"))
    return Blueprint(
        layout="GLM-4.5",
        architecture="glm4moe",
        rows=[*TOP, head_row(config), *rows],
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: glm_keys(job.checkpoint.directory, sizes["V"]),
        rename=lambda name: name.replace("language_model.", ""),
        left_out=left_out,
    )
