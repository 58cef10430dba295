"""`qwen2` and `qwen2moe`: Qwen 1.5, 2, 2.5 (docs/targets.md §§3.2, 3.26; llama.cpp `src/models/qwen2*.cpp`)."""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Gating
from specli.models.architecture import Keys, ModelConfig
from specli.models.base import Model
from specli.models.experts import SharedExperts
from specli.models.layers import Attention, FeedForward, FeedForwardPart, Layer, RMSNorm
from specli.models.llama import require_plain_heads
from specli.models.tensors import Need, Tensors


class Qwen2(Model):
    """Pre-norm layers with split-half rotary angles and biases on queries, keys and values."""

    output_bias: Need = "optional"

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
            feed_forward=cls.feed_forward(config, tensors, index),
        )

    @classmethod
    def feed_forward(cls, config: ModelConfig, tensors: Tensors, index: int) -> FeedForwardPart:
        """The feed-forward of layer `index`."""
        return FeedForward(tensors, f"blk.{index}.", config.n_embd, config.layers[index].n_ff, config.activation)


class Qwen2MoE(Qwen2):
    """Qwen 1.5 and 2 with a mixture of experts in every layer, and a gated one that every token gets."""

    output_bias = "no"

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the experts: softmax over all, weights of the chosen ones as they are."""
        config = super().configure(file)
        keys = Keys(file)
        n_ff, n_used = config.layers[0].n_ff, max(1, keys.per_layer("expert_used_count", len(config.layers), 0)[0])
        experts = keys.experts(
            len(config.layers),
            gating=Gating.SOFTMAX,
            is_normalised=False,
            scale=keys.number("expert_weights_scale", 0.0),
            default_width=n_ff // n_used,
            n_ff_shared=keys.integer("expert_shared_feed_forward_length", 0) or n_ff,
        )
        layers = zip(config.layers, experts, strict=True)
        return replace(config, layers=tuple(replace(layer, experts=mixture) for layer, mixture in layers))

    @classmethod
    def feed_forward(cls, config: ModelConfig, tensors: Tensors, index: int) -> FeedForwardPart:
        """The mixture of experts of layer `index`."""
        mixture = config.layers[index].experts
        assert mixture is not None, "every layer has experts"
        return SharedExperts(tensors, f"blk.{index}.", config.n_embd, mixture, config.activation, is_gated=True)
