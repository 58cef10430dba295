"""`llama`: Llama 1-3.x, SmolLM2, Mistral 7B and relatives (target-models.md §3.1; llama.cpp `src/models/llama.cpp`).

The sliding window of Mistral 7B v0.1 is ignored, as upstream does.
"""

from __future__ import annotations

from dataclasses import replace

from specli.errors import UnsupportedError
from specli.gguf.file import GGUFFile
from specli.models.base import Model
from specli.models.config import Keys, ModelConfig
from specli.models.layers import Attention, FeedForward, Layer, RMSNorm
from specli.models.tensors import Tensors


def require_plain_heads(file: GGUFFile, config: ModelConfig) -> None:
    """Refuses heads whose key, value and rotated sizes differ; llama and qwen2 have no such variant."""
    for layer in config.layers:
        if not layer.head_size_k == layer.head_size_v == layer.rope.n_rot:
            sizes = f"{layer.head_size_k}, {layer.head_size_v} and {layer.rope.n_rot}"
            raise Keys(file).error("attention.key_length", sizes, "equal to value_length and rope.dimension_count")


class Llama(Model):
    """Pre-norm layers with adjacent-pair rotary angles and SiLU feed-forward."""

    rope_factors = "optional"

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the pairing; refuses mixtures of experts."""
        config = ModelConfig.from_gguf(file)
        if config.n_experts:
            raise UnsupportedError(f"{file.path}: {config.n_experts} experts, only dense llama models are handled")
        require_plain_heads(file, config)
        layers = tuple(replace(layer, rope=replace(layer.rope, interleaved=True)) for layer in config.layers)
        return replace(config, layers=layers)

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer with optional biases everywhere."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation, biases="optional"),
        )
