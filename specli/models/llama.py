"""`llama`: Llama 1-3.x, SmolLM2, Mistral 7B, Mixtral, … (docs/targets.md §3.1; llama.cpp `src/models/llama.cpp`).

The sliding window of Mistral 7B v0.1 is ignored, as llama.cpp does.
"""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Gating
from specli.models.architecture import ExpertConfig, Keys, ModelConfig
from specli.models.base import Model
from specli.models.experts import Experts
from specli.models.layers import Attention, FeedForward, FeedForwardPart, Layer, RMSNorm
from specli.models.tensors import Need, Tensors


def require_plain_heads(file: GGUFFile, config: ModelConfig) -> None:
    """Refuses heads whose key, value and rotated sizes differ; llama and qwen2 have no such variant."""
    for layer in config.layers:
        if not layer.head_size_k == layer.head_size_v == layer.rope.n_rot:
            sizes = f"{layer.head_size_k}, {layer.head_size_v} and {layer.rope.n_rot}"
            raise Keys(file).error("attention.key_length", sizes, "equal to value_length and rope.dimension_count")


class Llama(Model):
    """Pre-norm layers with adjacent-pair rotary angles and SiLU feed-forward."""

    rope_factors: Need = "optional"

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the pairing and Mixtral's experts, which are as wide as a dense feed-forward would be."""
        config = ModelConfig.from_gguf(file)
        require_plain_heads(file, config)
        n_blocks = len(config.layers)
        experts: tuple[ExpertConfig | None, ...] = (None,) * n_blocks
        if config.n_experts:
            experts = Keys(file).experts(
                n_blocks, gating=Gating.SOFTMAX, is_normalised=True, width="feed_forward_length"
            )
        layers = tuple(
            replace(layer, rope=replace(layer.rope, interleaved=True), experts=mixture)
            for layer, mixture in zip(config.layers, experts, strict=True)
        )
        return replace(config, layers=layers)

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer with optional biases everywhere."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        feed_forward: FeedForwardPart
        if layer.experts is None:
            feed_forward = FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation, biases="optional")
        else:
            feed_forward = Experts(tensors, prefix, n_embd, layer.experts, config.activation)
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=feed_forward,
        )
