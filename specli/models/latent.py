"""Multi-head latent attention over an absorbed cache (DeepSeek-V2, arXiv 2405.04434 §2.1; docs/targets.md, deepseek2).

A cell holds one normed latent vector and one rotated key part, which all heads share. What would make a head's keys of
the latent vector (`attn_k_b`) is applied to its queries instead, what would make its values (`attn_v_b`) to what its
attention gives. So there is one key/value head, whose value is the first part of its key.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from specli.gguf.quant import QuantTensor
from specli.kernels.ops import AttentionSpec, Buffer, Ops, RopeTable
from specli.models.architecture import LayerConfig
from specli.models.cache import CacheLayer
from specli.models.layers import RMSNorm, Rows
from specli.models.tensors import Tensors


class LatentAttention:
    """Projections, rotary angles, cache write, attention of absorbed queries, output projection.

    Args:
        tensors: Claims.
        prefix: Such as `blk.0.`.
        config: Heads, scale and latent sizes; its rotary angles pair neighbours and cover all they are applied to.
        n_embd: Width of input and output.
        eps: ε of the norms.
    """

    def __init__(self, tensors: Tensors, prefix: str, config: LayerConfig, n_embd: int, *, eps: float) -> None:
        assert config.latent is not None, "the layer's attention is over latent vectors"
        self._config, self._latent = config, config.latent
        latent, n_heads, n_rot = config.latent, config.n_heads, config.rope.n_rot
        n_plain = latent.head_size_k - n_rot
        self._n_queries = n_heads * n_plain, n_heads * n_rot
        queries = (sum(self._n_queries), latent.n_lora_q or n_embd)
        rotated_last = partial(_rotated_last, n_heads=n_heads, n_plain=n_plain)
        self.attn_q_a = tensors.matrix(
            f"{prefix}attn_q_a.weight", (latent.n_lora_q, n_embd), "required" if latent.n_lora_q else "no"
        )
        self.attn_q_a_norm = RMSNorm.claim(
            tensors, f"{prefix}attn_q_a_norm.weight", latent.n_lora_q, "required" if latent.n_lora_q else "no", eps=eps
        )
        name = "attn_q_b" if latent.n_lora_q else "attn_q"
        self.attn_q = tensors.matrix(f"{prefix}{name}.weight", queries, change=rotated_last)
        self.attn_kv_a_mqa = tensors.matrix(f"{prefix}attn_kv_a_mqa.weight", (config.head_size_k, n_embd))
        self.attn_kv_a_norm = RMSNorm(tensors, f"{prefix}attn_kv_a_norm.weight", latent.n_lora_kv, eps=eps)
        self.attn_k_b = tensors.matrix(f"{prefix}attn_k_b.weight", (n_heads, latent.n_lora_kv, n_plain))
        self.attn_v_b = tensors.matrix(f"{prefix}attn_v_b.weight", (n_heads, latent.head_size_v, latent.n_lora_kv))
        self.attn_output = tensors.matrix(f"{prefix}attn_output.weight", (n_embd, n_heads * latent.head_size_v))

    def trace(
        self,
        ops: Ops,
        out: Buffer,
        x: Buffer,
        rows: Rows,
        cache: CacheLayer,
        rope: RopeTable,
        *,
        accumulate: bool = False,
    ) -> None:
        """`out (+)= attention(x)` after writing the rows' cells."""
        config, latent, n_heads = self._config, self._latent, self._config.n_heads
        buffer, heads = rows.scratch.buffer, rows.scratch.numbers(n_heads)
        projected = buffer("latent_q", sum(self._n_queries))  # plain elements of all heads, then rotated ones
        if self.attn_q_a is None or self.attn_q_a_norm is None:
            ops.linear([projected, self._key(rows)], x, [self.attn_q.value, self.attn_kv_a_mqa.value])
        else:
            low = buffer("latent_q_a", latent.n_lora_q)
            ops.linear([low, self._key(rows)], x, [self.attn_q_a.value, self.attn_kv_a_mqa.value])
            self.attn_q_a_norm.trace(ops, low, low)
            ops.linear([projected], low, [self.attn_q.value])
        self._store(ops, rows, cache, rope)
        plain, rotated = (
            projected.columns(0, self._n_queries[0]),
            projected.columns(self._n_queries[0], projected.width),
        )
        ops.rope(rotated, rows.positions, rope, head_size=rope.n_rot)
        absorbed = buffer("latent_absorbed", n_heads * latent.n_lora_kv)
        ops.expert_linear(absorbed, plain, heads, self.attn_k_b.value)
        q = buffer("latent_queries", n_heads * config.head_size_k)
        ops.join_heads(q, absorbed, rotated, n_heads=n_heads)
        spec = AttentionSpec(n_heads, config.attention_scale)
        ops.attention(absorbed, q, cache.kv, rows.positions, rows.slots, spec, ends=rows.ends, paths=rows.paths)
        values = buffer("attended", n_heads * latent.head_size_v)
        ops.expert_linear(values, absorbed, heads, self.attn_v_b.value)
        ops.linear([out], values, [self.attn_output.value], accumulate=accumulate)

    def inject(self, ops: Ops, x: Buffer, rows: Rows, cache: CacheLayer, rope: RopeTable) -> None:
        """Writes only the rows' cells: all that the context of a draft layer leaves behind."""
        ops.linear([self._key(rows)], x, [self.attn_kv_a_mqa.value])
        self._store(ops, rows, cache, rope)

    def _key(self, rows: Rows) -> Buffer:
        """`[T, n_lora_kv + n_rot]`: what goes into the cells."""
        return rows.scratch.buffer("latent_key", self._config.head_size_k)

    def _store(self, ops: Ops, rows: Rows, cache: CacheLayer, rope: RopeTable) -> None:
        """Norms and turns the projected cells, and writes them."""
        key, n_latent = self._key(rows), self._latent.n_lora_kv
        vector, rotated = key.columns(0, n_latent), key.columns(n_latent, key.width)
        self.attn_kv_a_norm.trace(ops, vector, vector)
        ops.rope(rotated, rows.positions, rope, head_size=rope.n_rot)
        ops.store(cache.kv, key, None, rows.cells or rows.positions, rows.slots)


def _rotated_last(tensor: QuantTensor, *, n_heads: int, n_plain: int) -> QuantTensor:
    """Rows of head 0, its rotated rows at the end, then head 1, … as the plain rows of all heads, then all rotated."""
    rows = tensor.rows().reshape(n_heads, -1, tensor.rows().shape[-1])
    parts = [rows[:, :n_plain].reshape(-1), rows[:, n_plain:].reshape(-1)]
    return replace(tensor, data=np.concatenate(parts))
