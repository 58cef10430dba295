"""`qwen2`: Qwen 1.5, 2 and 2.5 (docs/targets.md §3.2; llama.cpp `src/models/qwen2.cpp`)."""

from __future__ import annotations

from specli.gguf.file import GGUFFile
from specli.models.architecture import ModelConfig
from specli.models.base import Model
from specli.models.layers import Attention, FeedForward, Layer, RMSNorm
from specli.models.llama import require_plain_heads
from specli.models.tensors import Tensors


class Qwen2(Model):
    """Pre-norm layers with split-half rotary angles and biases on queries, keys and values."""

    output_bias = "optional"

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """The configuration from the common keys alone."""
        config = ModelConfig.from_gguf(file)
        require_plain_heads(file, config)
        return config

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer with biases on queries, keys and values."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps, output_bias="no"),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation),
        )
