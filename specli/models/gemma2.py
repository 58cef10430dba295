"""`gemma2` (docs/targets.md §3.20; llama.cpp `src/models/gemma2.cpp`).

Every second layer, the first among them, sees a sliding window. Attention scores and logits are capped. Norm weights
in the file already contain Gemma's +1.
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

_LAYERS_27B = 46  # the one size whose attention scale is not 1/√head_size
_DEFAULT_PERIOD = 2
_DEFAULT_WINDOW = 4096
_DEFAULT_ATTENTION_CAP = 50.0
_DEFAULT_LOGIT_CAP = 30.0


class Gemma2(Model):
    """Layers with norms before and after each branch, GELU feed-forward, scaled embeddings, capped scores."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds windows, scales and caps."""
        config = ModelConfig.from_gguf(file)
        keys = Keys(file)
        window = keys.integer("attention.sliding_window", _DEFAULT_WINDOW)
        slides = keys.sliding(len(config.layers), config.n_layers, _DEFAULT_PERIOD)
        base = keys.positive("rope.freq_base_swa", config.layers[0].rope.base)
        cap = keys.number("attn_logit_softcapping", _DEFAULT_ATTENTION_CAP)

        def refine(index: int, layer: LayerConfig) -> LayerConfig:
            if config.n_layers == _LAYERS_27B:
                layer = replace(layer, attention_scale=(config.n_embd // layer.n_heads) ** -0.5)
            layer = replace(layer, attention_softcap=cap)
            return replace(layer, window=window, rope=replace(layer.rope, base=base)) if slides[index] else layer

        return replace(
            config,
            layers=tuple(refine(index, layer) for index, layer in enumerate(config.layers)),
            activation=Activation.GELU,
            embedding_scale=math.sqrt(config.n_embd),
            logit_softcap=keys.number("final_logit_softcapping", _DEFAULT_LOGIT_CAP),
        )

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A layer with post-norms."""
        layer, prefix = config.layers[index], f"blk.{index}."

        def norm(name: str) -> RMSNorm:
            return RMSNorm(tensors, f"{prefix}{name}.weight", config.n_embd, eps=config.rms_eps)

        return Layer(
            attn_norm=norm("attn_norm"),
            attention=Attention(tensors, prefix, layer, config.n_embd, eps=config.rms_eps, output_bias="no"),
            ffn_norm=norm("ffn_norm"),
            feed_forward=FeedForward(tensors, prefix, config.n_embd, layer.n_ff, config.activation),
            post_attention_norm=norm("post_attention_norm"),
            post_ffw_norm=norm("post_ffw_norm"),
        )
