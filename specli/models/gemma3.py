"""`gemma3`, text (docs/targets.md §3.4; llama.cpp `src/models/gemma3.cpp`).

Five of six layers see a sliding window and have rotary angles of their own: base 10000 and no scaling, whatever the
full layers use. Norm weights in the file already contain Gemma's +1.
"""

from __future__ import annotations

import math
from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Activation
from specli.models.architecture import Keys, LayerConfig, ModelConfig
from specli.models.base import Model
from specli.models.layers import Attention, FeedForward, Layer, RMSNorm
from specli.models.tensors import Tensors

_LAYERS_27B = 62  # the one size whose attention scale is not 1/√head_size
_DEFAULT_PERIOD = 6
_DEFAULT_WINDOW_BASE = 10000.0


class Gemma3(Model):
    """Layers with norms before and after each branch, GELU feed-forward, scaled embeddings."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds windows, both kinds of angles, scales and the optional soft cap."""
        config = ModelConfig.from_gguf(file)
        keys = Keys(file)
        window = keys.integer("attention.sliding_window", 0)
        slides = keys.sliding(len(config.layers), config.n_layers, _DEFAULT_PERIOD) if window else None
        base = keys.positive("rope.freq_base_swa", _DEFAULT_WINDOW_BASE)

        def refine(index: int, layer: LayerConfig) -> LayerConfig:
            if config.n_layers == _LAYERS_27B:
                layer = replace(layer, attention_scale=(config.n_embd // layer.n_heads) ** -0.5)
            if slides is None or not slides[index]:
                return layer
            return replace(layer, window=window, rope=replace(layer.rope, base=base, scaling="none", factor=1.0))

        return replace(
            config,
            layers=tuple(refine(index, layer) for index, layer in enumerate(config.layers)),
            activation=Activation.GELU,
            embedding_scale=math.sqrt(config.n_embd),
            logit_softcap=keys.number("final_logit_softcapping", 0.0),
        )

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A layer with post-norms and head norms."""
        layer, prefix = config.layers[index], f"blk.{index}."

        def norm(name: str) -> RMSNorm:
            return RMSNorm(tensors, f"{prefix}{name}.weight", config.n_embd, eps=config.rms_eps)

        return Layer(
            attn_norm=norm("attn_norm"),
            attention=Attention(
                tensors, prefix, layer, config.n_embd, eps=config.rms_eps, head_norms="required", output_bias="no"
            ),
            ffn_norm=norm("ffn_norm"),
            feed_forward=FeedForward(tensors, prefix, config.n_embd, layer.n_ff, config.activation),
            post_attention_norm=norm("post_attention_norm"),
            post_ffw_norm=norm("post_ffw_norm"),
        )
