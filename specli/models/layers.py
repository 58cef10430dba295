"""The parts networks are made of, for targets and draft networks alike.

A part claims its tensors on construction and, later, issues operations: `trace` is called while an executor compiles.
Parts hold weights only. The rows they work on (`Rows`), the cache and the rotary table are arguments, so the same
weights serve several programs: prompt batches, single draft steps, injected context.

Tensor names are GGUF's; shapes in comments are torch order, T rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

import numpy as np

from specli.gguf.quant import QuantTensor
from specli.kernels.ops import Activation, AttentionSpec, Buffer, Executor, Extent, Ops, RopeTable
from specli.models.architecture import LayerConfig
from specli.models.cache import CacheLayer
from specli.models.tensors import Need, Scalar, Tensors, Vector, keep, value_of


class Scratch:
    """Intermediate buffers that the layers of a network share: one per name and width.

    Args:
        executor: Allocates them.
        rows: Rows of every buffer.
        extent: How many of them are live.
    """

    def __init__(self, executor: Executor, rows: int, extent: Extent) -> None:
        self._executor = executor
        self._rows = rows
        self._extent = extent
        self._buffers: dict[tuple[str, int], Buffer] = {}

    def buffer(self, name: str, width: int, *, is_int: bool = False) -> Buffer:
        """The buffer of this name and width, allocated when first asked for; its contents do not last."""
        key = name, width
        if key not in self._buffers:
            dtype = np.int32 if is_int else np.float32
            self._buffers[key] = self._executor.buffer(self._rows, width, self._extent, dtype)
        return self._buffers[key]

    def numbers(self, width: int) -> Buffer:
        """`[·, width]` int32, each row 0 … width-1: the choice of all experts in order. Nobody writes to it."""
        key = "numbers", width
        if key not in self._buffers:
            buffer = self.buffer("numbers", width, is_int=True)
            for number in range(width):
                buffer.columns(number, number + 1).spread(number)
        return self._buffers[key]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows a trace works on.

    Attributes:
        positions: `[T, 1]` int32, position of each row in its slot.
        slots: `[T, 1]` int32, cache slot of each row.
        scratch: Intermediate buffers with the same rows.
        ends: `[T, 1]` int32, first cell a row does not see; None = causal (position + 1).
        cells: `[T, 1]` int32, the cell each row is written to; None = its position.
        paths: `[T, 1 + N]` int32, where the latest ancestors of the rows of a draft tree lie (`Ops.attention`).
        block: Rows of a draft block; the blocks follow each other. Only convolutions along a block ask.
    """

    positions: Buffer
    slots: Buffer
    scratch: Scratch
    ends: Buffer | None = None
    cells: Buffer | None = None
    paths: Buffer | None = None
    block: int = 1


class AttentionPart(Protocol):
    """The first branch of a layer: attention, or what takes its place."""

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
        """`out (+)= attention(x)`."""


class FeedForwardPart(Protocol):
    """The second branch of a layer, which treats each row by itself: dense, or a mixture of experts."""

    def trace(self, ops: Ops, out: Buffer, x: Buffer, rows: Rows, *, accumulate: bool = False) -> None:
        """`out (+)= feed_forward(x)`."""


class RMSNorm:
    """`x / rms(x) ⊙ weight`.

    Args:
        tensors: Claims.
        name: Tensor name with suffix.
        size: Elements normalised together: the width, or a head.
        eps: Added to the mean square.
    """

    def __init__(self, tensors: Tensors, name: str, size: int, *, eps: float) -> None:
        self.weight: Vector = tensors.vector(name, size)
        self.eps = eps

    @classmethod
    def claim(cls, tensors: Tensors, name: str, size: int, need: Need, *, eps: float) -> RMSNorm | None:
        """The norm as far as it is needed: None for "no", or "optional" and absent."""
        if need == "no" or (need == "optional" and name not in tensors):
            return None
        return cls(tensors, name, size, eps=eps)

    def trace(self, ops: Ops, out: Buffer, x: Buffer) -> None:
        """`out = norm(x)`; may be in place."""
        ops.rms_norm(out, x, self.weight.value, eps=self.eps)


class LayerNorm:
    """`(x - mean(x)) / deviation(x) ⊙ weight + bias`.

    Args:
        tensors: Claims.
        name: Tensor name without suffix.
        size: Elements of a row.
        eps: Added to the variance.
        bias: Whether there is one.
    """

    def __init__(self, tensors: Tensors, name: str, size: int, *, eps: float, bias: Need = "no") -> None:
        self.weight: Vector = tensors.vector(f"{name}.weight", size)
        self.bias = tensors.vector(f"{name}.bias", size, bias)
        self.eps = eps

    def trace(self, ops: Ops, out: Buffer, x: Buffer) -> None:
        """`out = norm(x)`; may be in place."""
        if out is not x:
            ops.copy(out, x)
        ops.centre(out)
        ops.rms_norm(out, out, self.weight.value, eps=self.eps)
        if self.bias is not None:
            ops.add_row(out, self.bias.value)


Norm = RMSNorm | LayerNorm
HeadNorms = Literal["before", "after", "across", "after, weightless"]
"""Norms of queries and keys: of each head before the angles or after them, or across all heads before them."""


class Attention:
    """Projections, norms of queries and keys, rotary angles, cache write, attention, output projection.

    Args:
        tensors: Claims.
        prefix: Such as `blk.0.`.
        config: Heads, scale, window.
        n_embd: Width of the output.
        eps: ε of the head norms.
        n_in: Width of the input; None = `n_embd` (EAGLE-3: twice that).
        head_norms: Whether queries and keys are RMS-normed (`attn_q_norm`, `attn_k_norm`).
        norms_stand: Where, and over what; "after, weightless" needs no tensors.
        sinks: Whether heads have a learned extra logit (`attn_sinks`).
        biases: Whether queries, keys and values have biases.
        output_bias: Whether the output projection has one.
        values: "optional" lets a layer without `attn_v` take its raw key projection as values.
        norm_values: RMS norm without weight on each value head; implied for values taken from keys.
        is_gated: `attn_q` has a gate beside each query head; what heads give is multiplied by σ(gate).

    A layer whose `kv_source` is another one has queries only, and ignores what else the file has. A file may carry
    `attn_qkv` [q+k+v, n_in] in place of the three projections, biases fused or not.
    """

    def __init__(
        self,
        tensors: Tensors,
        prefix: str,
        config: LayerConfig,
        n_embd: int,
        *,
        eps: float,
        n_in: int | None = None,
        head_norms: Need = "no",
        norms_stand: HeadNorms = "before",
        sinks: Need = "no",
        biases: Need = "optional",
        output_bias: Need = "optional",
        values: Need = "required",
        norm_values: bool = False,
        is_gated: bool = False,
    ) -> None:
        assert not is_gated or config.head_size_k == config.head_size_v, "a gate is as wide as the head's values"
        self._config = config
        self._eps = eps
        self._is_gated = is_gated
        self._has_keys = config.kv_source is None
        widths = {
            "attn_q": config.n_heads * config.head_size_k * (1 + is_gated),
            "attn_k": config.n_kv_heads * config.head_size_k,
            "attn_v": config.n_kv_heads * config.head_size_v,
        }
        self._widths = tuple(widths.values())
        n_in = n_embd if n_in is None else n_in
        n_fused = sum(self._widths)
        self._is_fused = not is_gated and self._has_keys and f"{prefix}attn_qkv.weight" in tensors
        self._values_from_keys = values == "optional" and not self._is_fused and f"{prefix}attn_v.weight" not in tensors
        if not self._has_keys:
            tensors.skip(f"{prefix}attn_k")
            del widths["attn_k"]
        if not self._has_keys or self._values_from_keys:
            tensors.skip(f"{prefix}attn_v")
            del widths["attn_v"]
        changes = {"attn_q": partial(_gates_last, n_heads=config.n_heads)} if is_gated else {}
        projections = {"attn_qkv": n_fused} if self._is_fused else widths
        self._projections = [
            tensors.matrix(f"{prefix}{name}.weight", (n, n_in), change=changes.get(name, keep))
            for name, n in projections.items()
        ]
        self._fused_bias = tensors.vector(
            f"{prefix}attn_qkv.bias", n_fused, "optional" if self._is_fused and biases != "no" else "no"
        )
        separate: Need = biases if self._fused_bias is None else "no"
        self._biases = [tensors.vector(f"{prefix}{name}.bias", n, separate) for name, n in widths.items()]
        self._norm_values = norm_values or self._values_from_keys
        self._norms_stand = norms_stand
        n_normed = (config.n_heads, config.n_kv_heads) if norms_stand == "across" else (1, 1)
        q_size, k_size = (n * config.head_size_k for n in n_normed)
        self.attn_q_norm = RMSNorm.claim(tensors, f"{prefix}attn_q_norm.weight", q_size, head_norms, eps=eps)
        key_norm = head_norms if self._has_keys else "no"
        self.attn_k_norm = RMSNorm.claim(tensors, f"{prefix}attn_k_norm.weight", k_size, key_norm, eps=eps)
        self.attn_sinks = tensors.vector(f"{prefix}attn_sinks.weight", config.n_heads, sinks)
        n_heads_out = config.n_heads * config.head_size_v
        self.attn_output = tensors.matrix(f"{prefix}attn_output.weight", (n_embd, n_heads_out))
        self.attn_output_bias = tensors.vector(f"{prefix}attn_output.bias", n_embd, output_bias)

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
        """`out (+)= attention(x)` after writing the rows' keys and values to the cache."""
        q = self._project_and_store(ops, x, rows, cache, rope)
        attended = rows.scratch.buffer("attended", self._config.n_heads * self._config.head_size_v)
        spec = AttentionSpec(
            self._config.n_heads,
            self._config.attention_scale,
            window=self._config.window,
            sinks=value_of(self.attn_sinks),
            chunk=self._config.chunk,
            softcap=self._config.attention_softcap,
        )
        ops.attention(attended, q, cache.kv, rows.positions, rows.slots, spec, ends=rows.ends, paths=rows.paths)
        if cache.rotation_v:
            ops.rotate(attended, block=cache.rotation_v)
        if self._is_gated:
            gate = self._buffer(rows).columns(attended.width, 2 * attended.width)
            ops.sigmoid(gate)
            ops.multiply(attended, gate)
        if self._config.value_scale != 1:
            ops.scale(attended, self._config.value_scale)
        bias = value_of(self.attn_output_bias)
        ops.linear([out], attended, [self.attn_output.value], biases=[bias], accumulate=accumulate)

    def inject(self, ops: Ops, x: Buffer, rows: Rows, cache: CacheLayer, rope: RopeTable) -> None:
        """Writes only keys and values of the rows to the cache: all that the context of a draft layer leaves behind."""
        if self._is_fused:  # queries cannot be skipped
            self._project_and_store(ops, x, rows, cache, rope)
            return
        _, k, v = self._parts(self._buffer(rows))
        self._project(ops, [k, v], x, first=1)
        self._store(ops, k, v, rows, cache, rope)

    def _project_and_store(self, ops: Ops, x: Buffer, rows: Rows, cache: CacheLayer, rope: RopeTable) -> Buffer:
        """Queries ready for attention, `[T, n_heads·head_size_k]`."""
        qkv = self._buffer(rows)
        q, k, v = self._parts(qkv)
        if self._is_fused:
            ops.linear([qkv], x, [self._projections[0].value], biases=[value_of(self._fused_bias)])
            for part, bias in zip((q, k, v), self._biases, strict=True):
                if bias is not None:
                    ops.add_row(part, bias.value)
        else:
            self._project(ops, [q, k, v], x)
        if self._is_gated:
            q = q.columns(0, q.width // 2)
        turns = rope.queries or rope
        self._turn(ops, q, self.attn_q_norm, rows, turns, cache.rotation_k)
        if self._has_keys:
            self._store(ops, k, v, rows, cache, rope)
        return q

    def _project(self, ops: Ops, outs: list[Buffer], x: Buffer, *, first: int = 0) -> None:
        """The separate projections from number `first` on; a layer without `attn_v` leaves the last of `outs` alone."""
        weights = [projection.value for projection in self._projections[first:]]
        biases = [value_of(bias) for bias in self._biases[first:]]
        ops.linear(outs[: len(weights)], x, weights, biases=biases)

    def _store(self, ops: Ops, k: Buffer, v: Buffer, rows: Rows, cache: CacheLayer, rope: RopeTable) -> None:
        if self._values_from_keys:
            ops.copy(v, k)
        if self._norm_values:
            ops.rms_norm_heads(v, v, head_size=self._config.head_size_v, eps=self._eps)
        self._turn(ops, k, self.attn_k_norm, rows, rope, cache.rotation_k)
        if cache.rotation_v:
            ops.rotate(v, block=cache.rotation_v)
        ops.store(cache.kv, k, v, rows.cells or rows.positions, rows.slots)

    def _turn(self, ops: Ops, heads: Buffer, norm: RMSNorm | None, rows: Rows, rope: RopeTable, rotation: int) -> None:
        """Norm, rotary angles and Hadamard rotation of queries or keys, in place."""
        is_after = self._norms_stand.startswith("after")
        if norm is not None and not is_after:
            norm.trace(ops, heads, heads)
        if self._config.is_rotated:
            ops.rope(heads, rows.positions, rope, head_size=self._config.head_size_k)
        if norm is not None and is_after:
            norm.trace(ops, heads, heads)
        if self._norms_stand == "after, weightless":
            ops.rms_norm_heads(heads, heads, head_size=self._config.head_size_k, eps=self._eps)
        if rotation:
            ops.rotate(heads, block=rotation)

    def _buffer(self, rows: Rows) -> Buffer:
        return rows.scratch.buffer("qkv", sum(self._widths))

    def _parts(self, qkv: Buffer) -> tuple[Buffer, Buffer, Buffer]:
        n_q, n_k, n_v = self._widths
        return qkv.columns(0, n_q), qkv.columns(n_q, n_q + n_k), qkv.columns(n_q + n_k, n_q + n_k + n_v)


def _gates_last(tensor: QuantTensor, *, n_heads: int) -> QuantTensor:
    """Rows of head 0, gates of head 0, rows of head 1, … as the rows of all heads, then all gates; a copy."""
    rows = tensor.rows().reshape(n_heads, 2, -1)  # [n_heads, (queries, gates), head_size · row_bytes]
    return replace(tensor, data=rows.transpose(1, 0, 2).reshape(-1))


class FeedForward:
    """`down(act(gate(x), up(x)))`.

    Args:
        tensors: Claims.
        prefix: Such as `blk.0.`.
        n_embd: Width of input and output.
        n_ff: Inner width.
        activation: How gate and up are joined.
        biases: Whether the three projections have biases.
        suffix: After the tensor names: `_shexp` for a shared expert.
    """

    def __init__(
        self,
        tensors: Tensors,
        prefix: str,
        n_embd: int,
        n_ff: int,
        activation: Activation,
        *,
        biases: Need = "no",
        suffix: str = "",
    ) -> None:
        self._n_ff = n_ff
        self._activation = activation
        gate, up, down = (f"{prefix}ffn_{part}{suffix}" for part in ("gate", "up", "down"))
        self.ffn_gate = tensors.matrix(f"{gate}.weight", (n_ff, n_embd))
        self.ffn_up = tensors.matrix(f"{up}.weight", (n_ff, n_embd))
        self.ffn_down = tensors.matrix(f"{down}.weight", (n_embd, n_ff))
        self.ffn_gate_bias = tensors.vector(f"{gate}.bias", n_ff, biases)
        self.ffn_up_bias = tensors.vector(f"{up}.bias", n_ff, biases)
        self.ffn_down_bias = tensors.vector(f"{down}.bias", n_embd, biases)

    def trace(self, ops: Ops, out: Buffer, x: Buffer, rows: Rows, *, accumulate: bool = False) -> None:
        """`out (+)= feed_forward(x)`."""
        inner = rows.scratch.buffer("ffn", self._n_ff)
        ops.gated_linear(
            inner,
            x,
            self.ffn_gate.value,
            self.ffn_up.value,
            self._activation,
            gate_bias=value_of(self.ffn_gate_bias),
            up_bias=value_of(self.ffn_up_bias),
        )
        bias = value_of(self.ffn_down_bias)
        ops.linear([out], inner, [self.ffn_down.value], biases=[bias], accumulate=accumulate)


class JoinedFeedForward:
    """`down(act(gate(x), up(x)))` of a file whose `ffn_up` holds gate rows before up rows.

    Args:
        tensors: Claims.
        prefix: Such as `blk.0.`.
        n_embd: Width of input and output.
        n_ff: Inner width.
        activation: How gate and up are joined.
    """

    def __init__(self, tensors: Tensors, prefix: str, n_embd: int, n_ff: int, activation: Activation) -> None:
        self._n_ff = n_ff
        self._activation = activation
        self.ffn_up = tensors.matrix(f"{prefix}ffn_up.weight", (2 * n_ff, n_embd))
        self.ffn_down = tensors.matrix(f"{prefix}ffn_down.weight", (n_embd, n_ff))

    def trace(self, ops: Ops, out: Buffer, x: Buffer, rows: Rows, *, accumulate: bool = False) -> None:
        """`out (+)= feed_forward(x)`."""
        both = rows.scratch.buffer("ffn", 2 * self._n_ff)
        ops.linear([both], x, [self.ffn_up.value])
        gate = both.columns(0, self._n_ff)
        ops.join(gate, both.columns(self._n_ff, both.width), self._activation)
        ops.linear([out], gate, [self.ffn_down.value], accumulate=accumulate)


@dataclass(frozen=True, eq=False)
class Layer:
    """A block (docs/targets.md §3): attention, then feed-forward, each added to the residual stream.

    Attributes:
        attn_norm: Before attention, or None.
        attention: Writes its own keys and values.
        ffn_norm: Before the feed-forward, or None.
        feed_forward: Dense or experts.
        post_attention_norm: On the attention's output before it is added (gemma), or None.
        post_ffw_norm: The same for the feed-forward.
        layer_output_scale: Factor on the whole stream at the end (gemma4), or None.
        residual_scale: Factor on both branches before they are added (granite).
    """

    attn_norm: Norm | None
    attention: AttentionPart
    ffn_norm: Norm | None
    feed_forward: FeedForwardPart
    post_attention_norm: RMSNorm | None = None
    post_ffw_norm: RMSNorm | None = None
    layer_output_scale: Scalar | None = None
    residual_scale: float = 1.0

    def trace(self, ops: Ops, x: Buffer, rows: Rows, cache: CacheLayer, rope: RopeTable) -> None:
        """Advances the residual stream `x` `[T, D]` by one layer, in place."""
        self.trace_attention(ops, x, rows, cache, rope)
        self.trace_feed_forward(ops, x, rows)
        self.trace_end(ops, x, rows)

    def trace_attention(self, ops: Ops, x: Buffer, rows: Rows, cache: CacheLayer, rope: RopeTable) -> None:
        """Adds attention, or what takes its place, to the residual stream."""
        normed = normed_rows(ops, x, self.attn_norm, rows)
        if self._adds_directly(self.post_attention_norm):
            self.attention.trace(ops, x, normed, rows, cache, rope, accumulate=True)
        else:
            branch = rows.scratch.buffer("branch", x.width)
            self.attention.trace(ops, branch, normed, rows, cache, rope)
            add_normed(ops, x, branch, self.post_attention_norm, scale=self.residual_scale)

    def trace_feed_forward(self, ops: Ops, x: Buffer, rows: Rows) -> None:
        """Adds the feed-forward to the residual stream."""
        normed = normed_rows(ops, x, self.ffn_norm, rows)
        if self._adds_directly(self.post_ffw_norm):
            self.feed_forward.trace(ops, x, normed, rows, accumulate=True)
        else:
            branch = rows.scratch.buffer("branch", x.width)
            self.feed_forward.trace(ops, branch, normed, rows)
            add_normed(ops, x, branch, self.post_ffw_norm, scale=self.residual_scale)

    def _adds_directly(self, norm: RMSNorm | None) -> bool:
        """Whether what a branch gives goes into the stream as it is."""
        return norm is None and self.residual_scale == 1

    def trace_end(self, ops: Ops, x: Buffer, rows: Rows) -> None:
        """What the layer does to the residual stream after both branches, such as scaling it."""
        if self.layer_output_scale is not None:
            ops.scale(x, self.layer_output_scale.value)


def normed_rows(ops: Ops, x: Buffer, norm: Norm | None, rows: Rows) -> Buffer:
    """What a branch reads: the stream after its norm, or the stream itself."""
    if norm is None:
        return x
    normed = rows.scratch.buffer("normed", x.width)
    norm.trace(ops, normed, x)
    return normed


def add_normed(ops: Ops, x: Buffer, branch: Buffer, norm: RMSNorm | None, *, scale: float = 1.0) -> None:
    """`x += scale · norm(branch)`; the branch is overwritten."""
    if norm is not None:
        norm.trace(ops, branch, branch)
    if scale != 1:
        ops.scale(branch, scale)
    ops.add(x, branch)
