"""`olmo2`: OLMo 2 and 3 (docs/targets.md §3.22; llama.cpp `src/models/olmo2.cpp`).

Branches read the residual stream as it is and are normed before they are added. Queries and keys are normed across all
heads. OLMo 3 has sliding windows in three of four layers, whose angles are not scaled.
"""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.models.architecture import Keys, LayerConfig, ModelConfig
from specli.models.base import Model
from specli.models.layers import Attention, FeedForward, Layer, RMSNorm
from specli.models.llama import require_plain_heads
from specli.models.tensors import Tensors

_DEFAULT_PERIOD = 4


class Olmo2(Model):
    """Post-norm layers with split-half rotary angles."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds OLMo 3's windows."""
        config = ModelConfig.from_gguf(file)
        require_plain_heads(file, config)
        keys = Keys(file)
        window = keys.integer("attention.sliding_window", 0)
        if not window:
            return config
        slides = keys.sliding(len(config.layers), config.n_layers, _DEFAULT_PERIOD)

        def refine(index: int, layer: LayerConfig) -> LayerConfig:
            if not slides[index]:
                return layer
            rope = replace(layer.rope, scaling="none", factor=1.0, attention_factor=1.0)
            return replace(layer, window=window, rope=rope)

        return replace(config, layers=tuple(refine(index, layer) for index, layer in enumerate(config.layers)))

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A post-norm layer."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        return Layer(
            attn_norm=None,
            attention=Attention(
                tensors,
                prefix,
                layer,
                n_embd,
                eps=eps,
                head_norms="required",
                norms_stand="across",
                biases="no",
                output_bias="no",
            ),
            ffn_norm=None,
            feed_forward=FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation),
            post_attention_norm=RMSNorm(tensors, f"{prefix}post_attention_norm.weight", n_embd, eps=eps),
            post_ffw_norm=RMSNorm(tensors, f"{prefix}post_ffw_norm.weight", n_embd, eps=eps),
        )
