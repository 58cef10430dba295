"""Phi-3 and Phi-4 targets (llama.cpp conversion/phi.py)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from specli.convert.job import Job, basic_sizes
from specli.convert.keys import KeyValues, full_rope, rope_block, rope_type
from specli.convert.lazy import LazyTensor, constant
from specli.convert.llama import TOP, head_row
from specli.convert.plan import Blueprint, Row, at
from specli.convert.special import JsonObject, objects, optional_object
from specli.convert.values import Values
from specli.convert.vocab import TokenList, TokenType, bpe_keys, piece_keys, piece_list
from specli.errors import FormatError, UnsupportedError

BLOCK = (
    Row("input_layernorm.weight", "attn_norm.weight", "E"),
    Row("self_attn.qkv_proj.weight", "attn_qkv.weight", "QKV E"),
    Row("self_attn.o_proj.weight", "attn_output.weight", "E Q"),
    Row("post_attention_layernorm.weight", "ffn_norm.weight", "E"),
    Row("mlp.gate_up_proj.weight", "ffn_up.weight", "2F E"),
    Row("mlp.down_proj.weight", "ffn_down.weight", "E F"),
)


def phi3_keys(directory: Path, n_tokens: int) -> KeyValues:
    """Byte-level BPE for Phi-4; else SentencePiece, whose added tokens are special only where they are marked so."""
    config_path, path = directory / "tokenizer_config.json", directory / "tokenizer.json"
    config = Values(config_path, optional_object(config_path) or {})
    if config.text("tokenizer_class") == "GPT2Tokenizer":
        return bpe_keys(directory, n_tokens)
    tokens = piece_list(directory, n_tokens)
    for number, entry in config.section("added_tokens_decoder").items.items():
        if not number.isdecimal() or not isinstance(entry, dict):
            raise FormatError(f"{config_path}: added_tokens_decoder has a bad entry {number!r}")
        _add(tokens, config_path, int(number), entry)
    for entry in objects(path, "added_tokens", (optional_object(path) or {}).get("added_tokens")):
        _add(tokens, path, entry.get("id"), entry)
    return piece_keys(directory, tokens)


def _add(tokens: TokenList, path: Path, number: object, entry: JsonObject) -> None:
    text = entry.get("content")
    if not isinstance(number, int) or number < 0 or not isinstance(text, str):
        raise FormatError(f"{path}: added token {number!r} has no id or no content")
    tokens.put(number, text, -1000.0, TokenType.CONTROL if entry.get("special") else TokenType.USER_DEFINED)


def _longrope(config: Values, rope: Values, n_rot: int, context: int, original: int) -> dict[str, LazyTensor]:
    """Both sets of factors by tensor name; empty where there is no longrope.

    Raises:
        FormatError: The lists have other lengths than the rotated pairs.
    """
    if rope_type(rope) not in ("su", "longrope"):
        if "long_factor" in rope:
            raise UnsupportedError(f"{config.path}: rope type {rope_type(rope)!r} with long_factor, expected longrope")
        return {}
    tensors = {}
    for name in ("long", "short"):
        factors = rope.raw(f"{name}_factor")
        if not isinstance(factors, list) or not all(isinstance(f, int | float) and f > 0 for f in factors):
            raise FormatError(f"{config.path}: {name}_factor is not a list of numbers above 0")
        if len(factors) != n_rot // 2:
            raise FormatError(f"{config.path}: {name}_factor has {len(factors)} numbers, expected {n_rot // 2}")
        tensors[f"rope_factors_{name}.weight"] = constant(np.array(factors, np.float32))
    return tensors


def plan_phi3(job: Job) -> Blueprint:
    """The blueprint of Phi-3, 3.5 and 4."""
    config = job.config
    sizes = basic_sizes(config)
    sizes |= {"QKV": sizes["Q"] + 2 * sizes["K"], "2F": 2 * config.need("intermediate_size")}
    n_layers, context = config.need("num_hidden_layers"), config.need("max_position_embeddings")
    rope = full_rope(rope_block(config))
    original = rope.need("original_max_position_embeddings")
    partial = rope.fraction("partial_rotary_factor")
    n_rot = int((1.0 if partial is None else partial) * sizes["E"]) // sizes["H"]
    factors = _longrope(config, rope, n_rot, context, original)
    first_keys = KeyValues()
    if factors:
        scale = context / original
        magnitude = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
        first_keys.add("phi3.rope.scaling.attn_factor", "f32", magnitude)
    keys = KeyValues()
    for suffix, kind, value in (
        ("context_length", "u32", context),
        ("rope.scaling.original_context_length", "u32", original),
        ("embedding_length", "u32", sizes["E"]),
        ("feed_forward_length", "u32", sizes["F"]),
        ("block_count", "u32", n_layers),
        ("attention.head_count", "u32", sizes["H"]),
        ("attention.head_count_kv", "u32", sizes["G"]),
        ("attention.layer_norm_rms_epsilon", "f32", config.number("rms_norm_eps")),
        ("rope.dimension_count", "u32", n_rot),
        ("rope.freq_base", "f32", rope.number("rope_theta")),
    ):
        keys.add(f"phi3.{suffix}", kind, value)
    keys.add("general.file_type", "u32", job.outtype.file_type)
    window = config.integer("sliding_window") or 0
    keys.add("phi3.attention.sliding_window", "u32", window)
    if 0 < window < context:
        job.warnings.append(f"the sliding window of {window} tokens is not applied, as in llama.cpp")
    rows = [*TOP, head_row(config)]
    for layer in range(n_layers):
        rows += at(BLOCK, f"model.layers.{layer}.", f"blk.{layer}.")
    return Blueprint(
        layout="Phi-3",
        architecture="phi3",
        rows=rows,
        sizes=sizes,
        keys=keys,
        vocabulary=lambda: phi3_keys(job.checkpoint.directory, sizes["V"]),
        first_keys=first_keys,
        generated=factors,
    )
