"""`glm4`: GLM-4-0414, GLM-Z1, GLM-4-9B in its newer format (docs/targets.md §3.25; llama.cpp `src/models/glm4.cpp`).

Half of each head is rotated, in adjacent pairs. Each branch is normed before and after; gate and up are one matrix.
"""

from __future__ import annotations

from dataclasses import replace

from specli.errors import UnsupportedError
from specli.gguf.file import GGUFFile
from specli.models.architecture import Keys, ModelConfig
from specli.models.base import Model
from specli.models.layers import Attention, JoinedFeedForward, Layer, RMSNorm
from specli.models.tensors import Tensors


class Glm4(Model):
    """Layers with norms around both branches and partial rotary angles."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the pairing."""
        config = ModelConfig.from_gguf(file)
        keys = Keys(file)
        if any(file.metadata.get(keys.full("rope.dimension_sections"), "[int]", [])):
            raise UnsupportedError(
                f"{file.path}: glm4 with rope.dimension_sections is a vision model's text part, which is not supported",
                hint="text-only GLM-4 models are",
            )
        layers = (replace(layer, rope=replace(layer.rope, interleaved=True)) for layer in config.layers)
        return replace(config, layers=tuple(layers))

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
            feed_forward=JoinedFeedForward(tensors, prefix, config.n_embd, layer.n_ff, config.activation),
            post_attention_norm=norm("post_attention_norm"),
            post_ffw_norm=norm("post_ffw_norm"),
        )
