"""`qwen3`: dense Qwen 3 (target-models.md §3.3; llama.cpp `src/models/qwen3.cpp`)."""

from __future__ import annotations

from specli.gguf.file import GGUFFile
from specli.models.base import Model
from specli.models.config import ModelConfig
from specli.models.layers import Attention, FeedForward, Layer, RMSNorm
from specli.models.tensors import Tensors


class Qwen3(Model):
    """Pre-norm layers whose queries and keys are normed per head before the split-half rotary angles."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """The common keys."""
        return ModelConfig.from_gguf(file)

    def layer(self, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer with head norms."""
        config, layer, prefix = self.config, self.config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps, head_norms="required", output_bias="no"),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation),
        )
