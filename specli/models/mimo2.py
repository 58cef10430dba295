"""`mimo2`: MiMo-V2 (docs/targets.md, mimo2; llama.cpp `src/models/mimo2.cpp`).

Sliding and full layers with their own rotary base and numbers of heads, optional sinks, a factor on what attention
gives; experts chosen by biased sigmoid scores in all layers that have a router. Several MTP blocks, which are dense.
"""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Gating
from specli.models.architecture import Keys, LayerConfig, ModelConfig
from specli.models.base import Model
from specli.models.experts import Experts
from specli.models.layers import Attention, FeedForward, FeedForwardPart, Layer, RMSNorm
from specli.models.tensors import Tensors

_DEFAULT_WINDOW_BASE = 10000.0


class Mimo2(Model):
    """Pre-norm layers, sliding or full, dense or with experts."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds windows, the factor on attention, and the experts of the layers that have a router."""
        config = ModelConfig.from_gguf(file)
        keys = Keys(file)
        n = len(config.layers)
        window = keys.count("attention.sliding_window")
        if not keys.is_array("attention.sliding_window_pattern"):
            raise keys.error("attention.sliding_window_pattern", "missing", "an array with a flag per block")
        slides = keys.per_layer("attention.sliding_window_pattern", n, 0)  # MTP blocks may slide, too
        base = keys.positive("rope.freq_base_swa", _DEFAULT_WINDOW_BASE)
        value_scale = keys.number("attention.value_scale", 0.0) or 1.0
        experts = keys.experts(n, gating=Gating.SIGMOID, is_normalised=True) if config.n_experts else None

        def refine(index: int, layer: LayerConfig) -> LayerConfig:
            layer = replace(layer, value_scale=value_scale)
            if slides[index]:
                layer = replace(layer, window=window, rope=replace(layer.rope, base=base))
            has_router = f"blk.{index}.ffn_gate_inp.weight" in file.tensors
            return replace(layer, experts=experts[index]) if experts is not None and has_router else layer

        layers = tuple(refine(index, layer) for index, layer in enumerate(config.layers))
        return replace(config, layers=layers, nextn_is_normed=False)

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        feed_forward: FeedForwardPart
        if layer.experts is None:
            feed_forward = FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation)
        else:
            feed_forward = Experts(tensors, prefix, n_embd, layer.experts, config.activation, selection_bias="optional")
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps, sinks="optional", output_bias="no"),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=feed_forward,
        )
