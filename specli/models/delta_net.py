"""The gated delta net: a linear layer with memory in place of attention (docs/targets.md §3.8).

Gated Delta Networks (Yang, Kautz, Hatamizadeh 2024); llama.cpp `src/models/delta-net-base.cpp`. Token by token:
the chunked form rounds differently for every chunk length, the plain recurrence does not depend on the batch.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from specli.gguf.quant import QuantTensor
from specli.kernels.ops import Activation, Buffer, Ops, RopeTable
from specli.models.architecture import DeltaConfig
from specli.models.cache import CacheLayer
from specli.models.layers import RMSNorm, Rows
from specli.models.tensors import Tensors


class DeltaNet:
    """Projections, convolution over time, delta rule, gated norm, output projection.

    Args:
        tensors: Claims.
        prefix: Such as `blk.0.`.
        config: Heads and convolution.
        n_embd: Width of input and output.
        eps: ε of the norms.
        is_grouped: Neighbouring value heads share a key head, and strengths and rates are rows of one matrix,
            `ssm_ba`: for each key head the strengths of its value heads, then their rates (qwen3next).

    Otherwise value head j works with key head j mod n_key_heads. `ssm_a` holds the rates themselves, negative.
    """

    def __init__(
        self,
        tensors: Tensors,
        prefix: str,
        config: DeltaConfig,
        n_embd: int,
        *,
        eps: float,
        is_grouped: bool = False,
    ) -> None:
        self._config = config
        self._eps = eps
        self._is_grouped = is_grouped
        n_heads, n_values = config.n_heads, config.n_values
        self.attn_qkv = tensors.matrix(f"{prefix}attn_qkv.weight", (config.width, n_embd))
        self.attn_gate = tensors.matrix(f"{prefix}attn_gate.weight", (n_values, n_embd))
        self._scalars = (
            [
                tensors.matrix(
                    f"{prefix}ssm_ba.weight",
                    (2 * n_heads, n_embd),
                    change=partial(_strengths_first, n_groups=config.n_key_heads),
                )
            ]
            if is_grouped
            else [tensors.matrix(f"{prefix}{name}.weight", (n_heads, n_embd)) for name in ("ssm_beta", "ssm_alpha")]
        )
        self.ssm_conv1d = tensors.array(f"{prefix}ssm_conv1d.weight", (config.width, config.n_taps))
        self.ssm_dt = tensors.vector(f"{prefix}ssm_dt.bias", n_heads)
        self.ssm_a = tensors.vector(f"{prefix}ssm_a", n_heads)
        self.ssm_norm = RMSNorm(tensors, f"{prefix}ssm_norm.weight", config.head_size, eps=eps)
        self.ssm_out = tensors.matrix(f"{prefix}ssm_out.weight", (n_embd, n_values))

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
        """`out (+)= delta_net(x)`; the rows advance the states of their slots."""
        config, scratch, layer = self._config, rows.scratch, cache.recurrent
        projected = scratch.buffer("delta_qkv", config.width)  # [T, (2·H_k + H_v)·S]
        gate = scratch.buffer("delta_gate", config.n_values)
        scalars = scratch.buffer("delta_scalars", 2 * config.n_heads)
        beta, decay = scalars.columns(0, config.n_heads), scalars.columns(config.n_heads, 2 * config.n_heads)
        weights = [self.attn_qkv.value, self.attn_gate.value, *(scalar.value for scalar in self._scalars)]
        ops.linear([projected, gate, *([scalars] if self._is_grouped else [beta, decay])], x, weights)
        ops.add_row(decay, self.ssm_dt.value)
        ops.sigmoid(beta)
        ops.decay(decay, self.ssm_a.value)
        mixed = scratch.buffer("delta_mixed", config.width)
        ops.causal_convolve(mixed, projected, layer, rows.positions, rows.slots, self.ssm_conv1d.value)
        q, k, v = self._parts(ops, mixed)
        result = scratch.buffer("delta_result", config.n_values)
        ops.delta_scan(result, q, k, v, beta, decay, layer, rows.positions, rows.slots, is_grouped=self._is_grouped)
        self.ssm_norm.trace(ops, result, result)
        ops.join(gate, result, Activation.SILU)
        ops.linear([out], gate, [self.ssm_out.value], accumulate=accumulate)

    def _parts(self, ops: Ops, mixed: Buffer) -> tuple[Buffer, Buffer, Buffer]:
        """Queries, keys and values; queries and keys brought to length 1, queries then divided by √S.

        x / √(Σx² + ε) = x / √(mean(x²) + ε/S) / √S: the RMS norm of a head with ε/S, scaled.
        """
        size, n_keys = self._config.head_size, self._config.n_key_heads * self._config.head_size
        q, k, v = mixed.columns(0, n_keys), mixed.columns(n_keys, 2 * n_keys), mixed.columns(2 * n_keys, mixed.width)
        both = mixed.columns(0, 2 * n_keys)
        ops.rms_norm_heads(both, both, head_size=size, eps=self._eps / size)
        ops.scale(q, 1 / size)
        ops.scale(k, size**-0.5)
        return q, k, v


def _strengths_first(tensor: QuantTensor, *, n_groups: int) -> QuantTensor:
    """Per key head the rows of strengths, then of rates, as all strengths, then all rates; a copy."""
    rows = tensor.rows().reshape(n_groups, 2, -1)
    return replace(tensor, data=rows.transpose(1, 0, 2).reshape(-1))
