"""`hunyuan-dense` (docs/targets.md §3.31; llama.cpp `src/models/hunyuan-vl.cpp`, whose graph it shares)."""

from __future__ import annotations

from specli.gguf.file import GGUFFile
from specli.models.architecture import ModelConfig
from specli.models.base import Model
from specli.models.layers import Attention, FeedForward, Layer, RMSNorm
from specli.models.tensors import Tensors


class HunyuanDense(Model):
    """Pre-norm layers whose queries and keys are normed per head after the split-half rotary angles."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """The configuration from the common keys alone."""
        return ModelConfig.from_gguf(file)

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer with head norms."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(
                tensors,
                prefix,
                layer,
                n_embd,
                eps=eps,
                head_norms="required",
                norms_stand="after",
                output_bias="no",
            ),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation),
        )
