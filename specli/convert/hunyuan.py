"""Dense Hunyuan targets (llama.cpp conversion/hunyuan.py)."""

from __future__ import annotations

from pathlib import Path

from specli.convert.job import Job, basic_sizes, with_defaults
from specli.convert.keys import KeyValues, full_rope, rope_block, rope_type, shared_keys
from specli.convert.llama import TOP, head_row
from specli.convert.plan import Blueprint, Row, at
from specli.convert.qwen import ATTENTION
from specli.convert.special import optional_object
from specli.convert.values import Values
from specli.convert.vocab import bpe_keys
from specli.errors import FormatError, UnsupportedError

BLOCK = (
    *ATTENTION,
    Row("self_attn.query_layernorm.weight", "attn_q_norm.weight", "D"),
    Row("self_attn.key_layernorm.weight", "attn_k_norm.weight", "D"),
    Row("mlp.gate_proj.weight", "ffn_gate.weight", "F E"),
    Row("mlp.up_proj.weight", "ffn_up.weight", "F E"),
    Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
)
CONTEXT = 256 << 10  # whatever the config says: it is for the base before scaling


def hunyuan_keys(directory: Path, n_tokens: int) -> KeyValues:
    """Byte-level BPE whose end of text is the config's `eod_token_id`."""
    keys = bpe_keys(directory, n_tokens)
    path = directory / "config.json"
    config = with_defaults(Values(path, optional_object(path) or {}))
    keys.add("tokenizer.ggml.eos_token_id", "u32", config.integer("eod_token_id"))
    path = directory / "generation_config.json"
    ends = Values(path, optional_object(path) or {}).raw("eos_token_id")
    if isinstance(ends, list) and len(ends) >= 2:
        keys.add("tokenizer.ggml.eot_token_id", "u32", ends[0])
    return keys


def plan_hunyuan_dense(job: Job) -> Blueprint:
    """The blueprint of dense Hunyuan."""
    config = job.config.merged({"num_experts": None})  # 1 in some configs
    sizes = basic_sizes(config)
    n_layers = config.need("num_hidden_layers")
    keys = shared_keys("hunyuan-dense", config, job.outtype, n_layers)
    rope = full_rope(rope_block(config))
    if rope_type(rope) == "dynamic":
        width, alpha = sizes["D"], rope.number("alpha")
        base = rope.number("rope_theta") or 10000.0
        if alpha is None or not alpha > 0 or width <= 2:
            raise FormatError(f"{config.path}: dynamic rope scaling without alpha above 0")
        if base != 10000 or config.integer("max_position_embeddings") not in (32 << 10, CONTEXT):
            raise UnsupportedError(
                f"{config.path}: dynamic rope scaling of another base than 10000 or another context than 32768 or "
                f"{CONTEXT}: the scaled context is not known"
            )
        keys.add("hunyuan-dense.rope.freq_base", "f32", base * alpha ** (width / (width - 2)))
        keys.add("hunyuan-dense.rope.scaling.type", "str", "none")
        keys.add("hunyuan-dense.rope.scaling.factor", "f32", 1.0)
        keys.add("hunyuan-dense.rope.scaling.original_context_length", "u32", CONTEXT)
        keys.add("hunyuan-dense.context_length", "u32", CONTEXT)
    rows = [*TOP, head_row(config)]
    for layer in range(n_layers):
        rows += at(BLOCK, f"model.layers.{layer}.", f"blk.{layer}.")
    is_tied = bool(config.flag("tie_word_embeddings"))
    return Blueprint(
        layout="Hunyuan",
        architecture="hunyuan-dense",
        rows=[row for row in rows if not is_tied or row.name != "output.weight"],
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: hunyuan_keys(job.checkpoint.directory, sizes["V"]),
        left_out={"lm_head.weight": "the head is the embedding table"} if is_tied else {},
    )
