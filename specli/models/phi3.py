"""`phi3`: Phi-3, 3.5 and 4 (docs/targets.md §3.21; llama.cpp `src/models/phi3.cpp`).

Queries, keys and values are one matrix, gate and up another. Long contexts divide the angles by one of two sets of
factors (longrope). The sliding window that files name is ignored, as llama.cpp does.
"""

from __future__ import annotations

from dataclasses import replace

from specli.errors import UnsupportedError
from specli.gguf.file import GGUFFile
from specli.models.architecture import ModelConfig
from specli.models.base import Model
from specli.models.layers import Attention, JoinedFeedForward, Layer, RMSNorm
from specli.models.tensors import Tensors

_LONG_FACTORS = "rope_factors_long.weight"


class Phi3(Model):
    """Pre-norm layers with joined projections."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds longrope to files that have its factors: no key names it."""
        config = ModelConfig.from_gguf(file)
        if config.n_experts:
            raise UnsupportedError(
                f"{file.path}: phi3 with experts (Phi-3.5-MoE) is not supported", hint="dense Phi-3, 3.5 and 4 are"
            )
        if _LONG_FACTORS not in file.tensors:
            return config
        layers = (replace(layer, rope=replace(layer.rope, scaling="longrope")) for layer in config.layers)
        return replace(config, layers=tuple(layers))

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps, output_bias="no"),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=JoinedFeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation),
        )
