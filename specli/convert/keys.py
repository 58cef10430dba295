"""Metadata of a file to be written: an ordered collection, and the keys that every text model has.

Source: llama.cpp conversion/base.py, `TextModel.set_gguf_parameters`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from specli.convert.outtype import Outtype
from specli.convert.values import Values
from specli.errors import FormatError, UnsupportedError

GATING = {"softmax": 1, "sigmoid": 2, "sqrtsoftplus": 4}
"""Router score function to `expert_gating_func`."""


class KeyValues:
    """Metadata in writing order. Adding a key twice keeps its place and the last value, as llama.cpp's writer does."""

    def __init__(self) -> None:
        self._items: dict[str, tuple[str, Any]] = {}

    def add(self, key: str, kind: str, value: Any) -> None:
        """Adds a key; None, empty text and empty arrays are not written at all."""
        if value is None or (isinstance(value, str | list) and not value):
            return
        self._items[key] = (kind, value)

    def remove(self, key: str) -> None:
        """Takes a key out, if it is there."""
        self._items.pop(key, None)

    def update(self, other: KeyValues) -> None:
        """Adds all keys of `other`."""
        self._items.update(other._items)

    def __iter__(self) -> Iterator[tuple[str, str, Any]]:
        return ((key, kind, value) for key, (kind, value) in self._items.items())

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def get(self, key: str, default: Any) -> Any:
        """The value of a key, or the default."""
        return self._items[key][1] if key in self._items else default


# suffix, kind, config names; before the rope keys
_SIZES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "context_length",
        ("max_position_embeddings", "n_ctx", "n_positions", "max_length", "max_sequence_length", "model_max_length"),
    ),
    ("embedding_length", ("hidden_size", "n_embd", "dim")),
    (
        "feed_forward_length",
        ("prefix_dense_intermediate_size", "dense_intermediate_size", "intermediate_size", "n_inner", "hidden_dim"),
    ),
    ("attention.head_count", ("num_attention_heads", "n_head", "n_heads")),
    ("attention.head_count_kv", ("num_key_value_heads", "n_kv_heads")),
)
# after the rope keys
_NUMBERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("attention.layer_norm_rms_epsilon", "f32", ("rms_norm_eps", "norm_eps")),
    ("attention.layer_norm_epsilon", "f32", ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon")),
    ("expert_count", "u32", ("num_local_experts", "num_experts", "n_routed_experts")),
    ("expert_used_count", "u32", ("num_experts_per_tok", "num_experts_per_token", "top_k_experts")),
    ("expert_group_count", "u32", ("n_group",)),
    ("expert_group_used_count", "u32", ("topk_group",)),
)
_SCORE_NAMES = (
    "score_function", "scoring_func", "score_func", "moe_router_activation", "moe_router_activation_func",
    "expert_selection_fn",
)  # fmt: skip

_THETA_ALIASES = ("rope_theta", "global_rope_theta", "rope_global_theta", "rope_theta_global", "rotary_emb_base")
_LOCAL_THETA_ALIASES = (
    "local_rope_theta", "rope_local_theta", "rope_theta_local", "swa_rope_theta", "rope_local_base_freq",
)  # fmt: skip


def rope_block(config: Values) -> Values:
    """The rope settings of a config, from `rope_parameters`, `rope_scaling` or top-level names, old or new style."""
    block = dict(config.section("rope_parameters").items or config.section("rope_scaling").items)
    if "full_attention" in block or "sliding_attention" in block:
        return Values(config.path, block)
    for name, value in (
        ("rope_theta", config.raw(*_THETA_ALIASES)),
        ("partial_rotary_factor", config.raw("partial_rotary_factor", "rope_pct", "rope_percent")),
        ("original_max_position_embeddings", config.raw("original_max_position_embeddings")),
        ("rope_type", block.get("type")),
    ):
        if value is not None:
            block.setdefault(name, value)
    local = config.raw(*_LOCAL_THETA_ALIASES)
    if local is not None:
        block["sliding_attention"] = {"rope_theta": local}
    return Values(config.path, block)


def full_rope(rope: Values) -> Values:
    """The settings of full-attention layers."""
    return rope.section("full_attention") if "full_attention" in rope else rope


def rope_type(rope: Values) -> str:
    """Scaling type of full-attention layers, lower case; "default" when there is none."""
    return (full_rope(rope).text("rope_type") or "default").lower()


def shared_keys(
    architecture: str, config: Values, outtype: Outtype, n_layers: int, *, yarn_magnitude: bool = True
) -> KeyValues:
    """Keys every text model has, `general.file_type` last.

    Args:
        architecture: Prefix of the keys.
        config: Merged config.
        outtype: For `general.file_type`.
        n_layers: `block_count`, MTP blocks included.
        yarn_magnitude: Whether the file says with `rope.scaling.attn_factor` how YaRN scales cos and sin.
    """
    keys = KeyValues()
    keys.add(f"{architecture}.block_count", "u32", n_layers)
    for suffix, names in _SIZES:
        keys.add(f"{architecture}.{suffix}", "u32", config.integer(*names))
    if config.flag("is_causal") is False:
        keys.add(f"{architecture}.attention.causal", "bool", False)
    _add_rope(keys, architecture, rope_block(config), yarn_magnitude=yarn_magnitude)
    for suffix, kind, names in _NUMBERS:
        value = config.number(*names) if kind == "f32" else config.integer(*names)
        keys.add(f"{architecture}.{suffix}", kind, value)
    score = config.text(*_SCORE_NAMES)
    if score is not None:
        if score not in GATING:
            raise UnsupportedError(f"{config.path}: router scores {score!r}, expected one of {', '.join(GATING)}")
        keys.add(f"{architecture}.expert_gating_func", "u32", GATING[score])
    head_dim = config.integer("head_dim")
    keys.add(f"{architecture}.attention.key_length", "u32", head_dim)
    keys.add(f"{architecture}.attention.value_length", "u32", head_dim)
    keys.add("general.file_type", "u32", outtype.file_type)
    return keys


def _yarn_attention_factor(rope: Values, factor: float) -> float | None:
    """What `rope.scaling.attn_factor` must be so that cos and sin get the config's magnitude; None for YaRN's own.

    transformers modeling_rope_utils.py, `_compute_yarn_parameters`. A reader of GGUF files multiplies the key by YaRN's
    own magnitude, 0.1·ln(factor) + 1 (llama.cpp src/llama-context.cpp and ggml `rope_yarn`). `yarn_attn_factor`, which
    llama.cpp's converter writes, is overwritten there and counts for Grok only.

    Worked example: factor 4 has the magnitude 1.1386; for an `attention_factor` of 1 the key is 1 / 1.1386 = 0.8783.
    """

    def magnitude(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1

    wanted = rope.number("attention_factor")
    if wanted is None:
        wanted = rope.number("attn_factor")
    scale, all_scale = rope.number("mscale"), rope.number("mscale_all_dim")
    if wanted is None and scale and all_scale:
        whole = magnitude(all_scale)
        wanted = magnitude(scale) / whole if whole else 0.0
    if wanted is None:
        return None
    if not wanted > 0:
        raise FormatError(f"{rope.path}: attention factor of yarn rope scaling is {wanted:g}, expected more than 0")
    return wanted / magnitude(1)


def _add_rope(keys: KeyValues, architecture: str, rope: Values, *, yarn_magnitude: bool) -> None:
    full = full_rope(rope)
    kind = rope_type(rope)
    prefix = f"{architecture}.rope.scaling"
    factor = full.number("factor")
    if kind in ("linear", "yarn") and factor is not None:
        keys.add(f"{prefix}.type", "str", kind)
        keys.add(f"{prefix}.factor", "f32", factor)
    if kind == "yarn" and factor is not None:
        original = full.integer("original_max_position_embeddings")
        if original is None:
            raise FormatError(f"{rope.path}: yarn rope scaling without original_max_position_embeddings")
        keys.add(f"{prefix}.original_context_length", "u32", original)
        keys.add(f"{prefix}.yarn_ext_factor", "f32", full.number("extrapolation_factor"))
        if yarn_magnitude:
            keys.add(f"{prefix}.attn_factor", "f32", _yarn_attention_factor(full, factor))
        keys.add(f"{prefix}.yarn_beta_fast", "f32", full.number("beta_fast"))
        keys.add(f"{prefix}.yarn_beta_slow", "f32", full.number("beta_slow"))
    if kind in ("su", "longrope"):
        raise UnsupportedError(f"{rope.path}: rope type {kind!r} is not handled")
    sections = rope.integers("mrope_section")
    if sections is not None:
        keys.add(f"{architecture}.rope.dimension_sections", "[i32]", (sections + [0] * 4)[:4])
    keys.add(f"{architecture}.rope.freq_base", "f32", full.number("rope_theta"))
    keys.add(f"{architecture}.rope.freq_base_swa", "f32", rope.section("sliding_attention").number("rope_theta"))
