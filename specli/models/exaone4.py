"""`exaone4` (docs/targets.md §3.27; llama.cpp `src/models/exaone4.cpp`).

Branches read the residual stream as it is and are normed before they are added. The 32B model has sliding windows in
three of four layers, and rotates queries and keys only there.
"""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.models.architecture import Keys, LayerConfig, ModelConfig
from specli.models.base import Model
from specli.models.layers import Attention, FeedForward, Layer, RMSNorm
from specli.models.tensors import Tensors

_LAYERS_32B = 64  # the size with windows
_DEFAULT_WINDOW = 4096
_DEFAULT_PERIOD = 4


class Exaone4(Model):
    """Post-norm layers with head norms and split-half rotary angles."""

    rope_factors = "optional"

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the windows of the 32B model; the same keys in another file mean nothing, as in llama.cpp."""
        config = ModelConfig.from_gguf(file)
        if config.n_layers != _LAYERS_32B:
            return config
        keys = Keys(file)
        window = keys.integer("attention.sliding_window", _DEFAULT_WINDOW)
        slides = keys.sliding(len(config.layers), config.n_layers, _DEFAULT_PERIOD)

        def refine(index: int, layer: LayerConfig) -> LayerConfig:
            return replace(layer, window=window) if slides[index] else replace(layer, is_rotated=False)

        return replace(config, layers=tuple(refine(index, layer) for index, layer in enumerate(config.layers)))

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A post-norm layer."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        return Layer(
            attn_norm=None,
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps, head_norms="required", output_bias="no"),
            ffn_norm=None,
            feed_forward=FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation),
            post_attention_norm=RMSNorm(tensors, f"{prefix}post_attention_norm.weight", n_embd, eps=eps),
            post_ffw_norm=RMSNorm(tensors, f"{prefix}post_ffw_norm.weight", n_embd, eps=eps),
        )
