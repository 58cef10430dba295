"""`llama4`, text (docs/targets.md §3.33; llama.cpp `src/models/llama4.cpp`).

Three of four layers see only their chunk of 8192 positions, rotate queries and keys and norm them afterwards; the
others see everything, do not rotate, and have queries that grow with their position. An expert's input is multiplied
by its weight.
"""

from __future__ import annotations

import math
from dataclasses import replace

from specli.errors import UnsupportedError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Activation, Buffer, Gating, Ops
from specli.models.architecture import ExpertConfig, Keys, LayerConfig, ModelConfig, Temperature
from specli.models.base import Model
from specli.models.experts import Experts
from specli.models.layers import Attention, FeedForward, FeedForwardPart, Layer, RMSNorm, Rows
from specli.models.llama import require_plain_heads
from specli.models.tensors import Tensors

_CHUNK = 8192  # whatever the file says, as in llama.cpp
_PERIOD = 4
_TEMPERATURE = Temperature(scale=0.1, length=8192, offset=1)
_N_EXPERTS_UNNORMED = 128  # Maverick: the one size that does not norm queries and keys


class _WeightedInput:
    """One expert of a row, whose input is multiplied by its weight, beside one that every row gets."""

    def __init__(
        self, tensors: Tensors, prefix: str, n_embd: int, config: ExpertConfig, activation: Activation
    ) -> None:
        self._experts = Experts(tensors, prefix, n_embd, config, activation)
        self._shared = FeedForward(tensors, prefix, n_embd, config.n_ff_shared, activation, suffix="_shexp")

    def trace(self, ops: Ops, out: Buffer, x: Buffer, rows: Rows, *, accumulate: bool = False) -> None:
        """`out (+)= expert(w·x) + shared(x)`."""
        self._experts.trace_weighted_input(ops, out, x, rows, accumulate=accumulate)
        self._shared.trace(ops, out, x, rows, accumulate=True)


class Llama4(Model):
    """Pre-norm layers with adjacent-pair rotary angles; dense feed-forwards and experts in turn."""

    rope_factors = "optional"

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds chunks, temperature and experts."""
        config = ModelConfig.from_gguf(file)
        require_plain_heads(file, config)
        keys = Keys(file)
        if keys.full("attention.sliding_window") in file.metadata and not keys.integer("attention.sliding_window"):
            raise UnsupportedError(
                f"{file.path}: llama4 without chunks (MobileLLM) is not supported",
                hint="Llama 4 Scout and Maverick are",
            )
        step = keys.count("interleave_moe_layer_step")
        experts: tuple[ExpertConfig, ...] = ()
        if config.n_experts:
            width = keys.per_layer("expert_feed_forward_length", len(config.layers), 0)[-1]
            experts = keys.experts(
                len(config.layers),
                gating=Gating.SIGMOID,
                is_normalised=False,
                scale=keys.number("expert_weights_scale", 0.0),
                n_ff_shared=width,
            )
            if experts[0].n_used != 1:
                raise UnsupportedError(
                    f"{file.path}: llama4 with {experts[0].n_used} experts per token is not supported",
                    hint="Llama 4 Scout and Maverick use 1",
                )
        chunked = keys.sliding(len(config.layers), config.n_layers, _PERIOD)

        def refine(index: int, layer: LayerConfig) -> LayerConfig:
            rope = replace(layer.rope, interleaved=True)
            if (index + 1) % _PERIOD == 0:  # no angles: cosine 1, sine 0
                rope = replace(rope, scaling="linear", factor=math.inf, temperature=_TEMPERATURE)
            layer = replace(layer, rope=rope, chunk=_CHUNK if chunked[index] else 0)
            return replace(layer, experts=experts[index]) if experts and (index + 1) % step == 0 else layer

        return replace(config, layers=tuple(refine(index, layer) for index, layer in enumerate(config.layers)))

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        is_normed = layer.rope.temperature is None and config.n_experts != _N_EXPERTS_UNNORMED
        feed_forward: FeedForwardPart
        if layer.experts is None:
            feed_forward = FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation)
        else:
            feed_forward = _WeightedInput(tensors, prefix, n_embd, layer.experts, config.activation)
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(
                tensors,
                prefix,
                layer,
                n_embd,
                eps=eps,
                norms_stand="after, weightless" if is_normed else "before",
                biases="no",
                output_bias="no",
            ),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=feed_forward,
        )
