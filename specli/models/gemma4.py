"""`gemma4`, text: dense, with experts, with per-layer inputs (docs/targets.md §3.5; llama.cpp `src/models/gemma4.cpp`).

Sliding and full layers differ in head size, key/value heads and angles. Full layers rotate a part of each head only:
`rope_freqs` divides the other angles by 10³⁰. The last layers may read an earlier layer's keys and values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Activation, Buffer, Gating, Ops
from specli.models.architecture import ExpertConfig, Keys, LayerConfig, ModelConfig
from specli.models.base import Model, Stage
from specli.models.experts import Experts
from specli.models.layers import Attention, FeedForward, Layer, RMSNorm, Rows, add_normed, normed_rows
from specli.models.tensors import Tensors

_DEFAULT_WINDOW_BASE = 10000.0
_DEFAULT_SOFTCAP = 30.0


class Gemma4(Model):
    """Layers with norms before and after each branch; a router in the file makes a layer a mixture."""

    rope_factors = "required"

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds both kinds of layers, shared caches, experts, per-layer embeddings."""
        config = ModelConfig.from_gguf(file)
        keys = Keys(file)
        n_blocks = len(config.layers)
        if not keys.is_array("attention.sliding_window_pattern"):
            raise keys.error("attention.sliding_window_pattern", "missing or no array", "one entry per block")
        slides = keys.sliding(n_blocks, config.n_layers, 0)
        experts: tuple[ExpertConfig | None, ...] = (None,) * n_blocks
        if config.n_experts:
            experts = keys.experts(n_blocks, gating=Gating.SOFTMAX, is_normalised=True)
        size = keys.count("attention.key_length_swa")
        if (
            keys.count("attention.value_length_swa") != size
            or config.layers[0].head_size_v != config.layers[0].head_size_k
        ):
            raise keys.error(
                "attention.value_length", config.layers[0].head_size_v, "equal to the key length, also _swa"
            )
        window = keys.count("attention.sliding_window")
        base = keys.positive("rope.freq_base_swa", _DEFAULT_WINDOW_BASE)
        n_rot = keys.count("rope.dimension_count_swa", config.layers[0].rope.n_rot)
        if n_rot > size or n_rot % 2:
            raise keys.error("rope.dimension_count_swa", n_rot, f"even and at most the head size ({size})")
        sources = _kv_sources(keys, slides[: config.n_layers])

        def refine(index: int, layer: LayerConfig) -> LayerConfig:
            layer = replace(layer, attention_scale=1.0, kv_source=sources.get(index), experts=experts[index])
            if not slides[index]:
                return layer
            rope = replace(layer.rope, n_rot=n_rot, base=base, scaling="none", factor=1.0, uses_factors=False)
            return replace(layer, head_size_k=size, head_size_v=size, window=window, rope=rope)

        return replace(
            config,
            layers=tuple(refine(index, layer) for index, layer in enumerate(config.layers)),
            activation=Activation.GELU,
            embedding_scale=math.sqrt(config.n_embd),
            logit_softcap=keys.number("final_logit_softcapping", _DEFAULT_SOFTCAP),
            n_layer_input=keys.integer("embedding_length_per_layer_input"),
        )

    def claim(self, tensors: Tensors) -> None:
        """Per-layer embeddings, where the model has them."""
        self._layer_inputs = LayerInputs(tensors, self.config) if self.config.n_layer_input else None

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A layer with post-norms and head norms."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd

        def norm(name: str) -> RMSNorm:
            return RMSNorm(tensors, f"{prefix}{name}.weight", n_embd, eps=eps)

        attention = Attention(
            tensors, prefix, layer, n_embd, eps=eps,
            head_norms="required", biases="no", output_bias="no", values="optional", norm_values=True,
        )  # fmt: skip
        is_mixture = f"{prefix}ffn_gate_inp.weight" in tensors
        return Gemma4Layer(
            attn_norm=norm("attn_norm"),
            attention=attention,
            ffn_norm=norm("ffn_norm"),
            feed_forward=FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation),
            post_attention_norm=norm("post_attention_norm"),
            post_ffw_norm=norm("post_ffw_norm"),
            layer_output_scale=tensors.scalar(f"{prefix}layer_output_scale.weight", "optional"),
            mixture=Mixture(tensors, prefix, config, layer) if is_mixture else None,
            layer_input=LayerInput(tensors, index, config) if config.n_layer_input else None,
        )

    def trace_embedded(self, ops: Ops, tokens: Buffer, x: Buffer, rows: Rows) -> None:
        """Makes the per-layer inputs of the rows."""
        if self._layer_inputs is not None:
            self._layer_inputs.trace(ops, x, tokens, rows)

    def trace_border(self, ops: Ops, before: Stage, after: Stage) -> None:
        """The per-layer inputs go along."""
        super().trace_border(ops, before, after)
        if self._layer_inputs is not None and after.layers:
            ops.copy(_layer_inputs(after.rows, self.config), _layer_inputs(before.rows, self.config))


@dataclass(frozen=True, eq=False)
class Gemma4Layer(Layer):
    """A layer that may have experts beside its dense feed-forward, and an embedding of its own.

    Attributes:
        mixture: Experts, or None.
        layer_input: Takes the layer's embedding in, or None.
    """

    mixture: Mixture | None = None
    layer_input: LayerInput | None = None

    def trace_feed_forward(self, ops: Ops, x: Buffer, rows: Rows) -> None:
        """`x += post_norm(dense(x) + experts(x))`."""
        if self.mixture is None:
            super().trace_feed_forward(ops, x, rows)
            return
        assert self.post_ffw_norm is not None, "gemma4 has post-norms"
        branch = rows.scratch.buffer("branch", x.width)
        normed = normed_rows(ops, x, self.ffn_norm, rows)
        self.feed_forward.trace(ops, branch, normed, rows)
        self.mixture.trace(ops, branch, x, rows)
        add_normed(ops, x, branch, self.post_ffw_norm)

    def trace_end(self, ops: Ops, x: Buffer, rows: Rows) -> None:
        """Embedding of the layer, then its output scale."""
        if self.layer_input is not None:
            self.layer_input.trace(ops, x, rows)
        super().trace_end(ops, x, rows)


class Mixture:
    """The experts of a layer, with norms of their own and a router that reads another scaling of the input.

    Args:
        tensors: Claims.
        prefix: Such as `blk.0.`.
        config: The model's.
        layer: The layer's.
    """

    def __init__(self, tensors: Tensors, prefix: str, config: ModelConfig, layer: LayerConfig) -> None:
        n_embd, eps = config.n_embd, config.rms_eps
        if layer.experts is None:
            raise Keys(tensors.file).error("expert_count", 0, f"at least 1, there is {prefix}ffn_gate_inp.weight")
        self.ffn_gate_inp_scale = RMSNorm(tensors, f"{prefix}ffn_gate_inp.scale", n_embd, eps=eps)
        self.pre_ffw_norm_2 = RMSNorm(tensors, f"{prefix}pre_ffw_norm_2.weight", n_embd, eps=eps)
        self.post_ffw_norm_1 = RMSNorm(tensors, f"{prefix}post_ffw_norm_1.weight", n_embd, eps=eps)
        self.post_ffw_norm_2 = RMSNorm(tensors, f"{prefix}post_ffw_norm_2.weight", n_embd, eps=eps)
        self.experts = Experts(tensors, prefix, n_embd, layer.experts, config.activation, output_scales="required")

    def trace(self, ops: Ops, branch: Buffer, x: Buffer, rows: Rows) -> None:
        """`branch = norm_1(branch) + norm_2(experts(pre_norm_2(x)))`, routed by `x / rms(x) / √D ⊙ scale`."""
        router_x, expert_x = rows.scratch.buffer("router_x", x.width), rows.scratch.buffer("expert_x", x.width)
        self.post_ffw_norm_1.trace(ops, branch, branch)
        self.ffn_gate_inp_scale.trace(ops, router_x, x)
        ops.scale(router_x, x.width**-0.5)
        self.pre_ffw_norm_2.trace(ops, expert_x, x)
        mixed = rows.scratch.buffer("mixed", x.width)
        self.experts.trace_routed(ops, mixed, expert_x, router_x, rows)
        add_normed(ops, branch, mixed, self.post_ffw_norm_2)


def _layer_inputs(rows: Rows, config: ModelConfig) -> Buffer:
    """`[T, n_layers·P]`, filled once per forward and read by every layer."""
    return rows.scratch.buffer("layer_inputs", config.n_layers * config.n_layer_input)


class LayerInputs:
    """What layers get of a token besides the residual stream, P numbers each.

    `(norm(proj·x₀ / √D) + √P · table[token]) / √2`, x₀ the scaled embedding.

    Args:
        tensors: Claims.
        config: The model's.
    """

    def __init__(self, tensors: Tensors, config: ModelConfig) -> None:
        self._config = config
        n, total = config.n_layer_input, config.n_layers * config.n_layer_input
        self.per_layer_token_embd = tensors.matrix("per_layer_token_embd.weight", (config.n_vocab, total))
        self.per_layer_model_proj = tensors.matrix("per_layer_model_proj.weight", (total, config.n_embd))
        self.per_layer_proj_norm = RMSNorm(tensors, "per_layer_proj_norm.weight", n, eps=config.rms_eps)

    def trace(self, ops: Ops, x: Buffer, tokens: Buffer, rows: Rows) -> None:
        """Fills the rows' inputs of all layers."""
        out = _layer_inputs(rows, self._config)
        embedded = rows.scratch.buffer("layer_embeddings", out.width)
        ops.linear([out], x, [self.per_layer_model_proj.value])
        ops.scale(out, x.width**-0.5)
        self.per_layer_proj_norm.trace(ops, out, out)
        ops.embed(embedded, self.per_layer_token_embd.value, tokens, scale=math.sqrt(self._config.n_layer_input))
        ops.add(out, embedded)
        ops.scale(out, math.sqrt(0.5))


class LayerInput:
    """Takes one layer's input in: `x += norm(proj · (GELU(inp_gate · x) ⊙ input))`.

    Args:
        tensors: Claims.
        index: Number of the layer.
        config: The model's.
    """

    def __init__(self, tensors: Tensors, index: int, config: ModelConfig) -> None:
        self._config = config
        self._index = index
        prefix, n, n_embd = f"blk.{index}.", config.n_layer_input, config.n_embd
        self.inp_gate = tensors.matrix(f"{prefix}inp_gate.weight", (n, n_embd))
        self.proj = tensors.matrix(f"{prefix}proj.weight", (n_embd, n))
        self.post_norm = RMSNorm(tensors, f"{prefix}post_norm.weight", n_embd, eps=config.rms_eps)

    def trace(self, ops: Ops, x: Buffer, rows: Rows) -> None:
        """Adds to the residual stream."""
        n = self._config.n_layer_input
        own = _layer_inputs(rows, self._config).columns(self._index * n, (self._index + 1) * n)
        gate, branch = rows.scratch.buffer("layer_input_gate", n), rows.scratch.buffer("branch", x.width)
        ops.linear([gate], x, [self.inp_gate.value])
        ops.join(gate, own, self._config.activation)
        ops.linear([branch], gate, [self.proj.value])
        add_normed(ops, x, branch, self.post_norm)


def _kv_sources(keys: Keys, slides: tuple[bool, ...]) -> dict[int, int]:
    """Layers without keys and values of their own → the layer they read: the last of their kind that has some."""
    n_shared = keys.integer("attention.shared_kv_layers", 0)
    if n_shared == 0:
        return {}
    n_own = len(slides) - n_shared
    if n_own < 2 or not slides[n_own - 2] or slides[n_own - 1]:
        raise keys.error("attention.shared_kv_layers", n_shared, "to leave a sliding and then a full layer before them")
    return {index: n_own - 2 if slides[index] else n_own - 1 for index in range(n_own, len(slides))}
