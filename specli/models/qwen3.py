"""`qwen3` and `qwen3moe` (docs/targets.md §3.3; llama.cpp `src/models/qwen3.cpp`, `qwen3moe.cpp`)."""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Gating
from specli.models.architecture import Keys, ModelConfig
from specli.models.base import Model
from specli.models.experts import Experts
from specli.models.layers import Attention, FeedForward, FeedForwardPart, Layer, RMSNorm
from specli.models.tensors import Tensors


class Qwen3(Model):
    """Pre-norm layers whose queries and keys are normed per head before the split-half rotary angles."""

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
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps, head_norms="required", output_bias="no"),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=cls.feed_forward(config, tensors, index),
        )

    @classmethod
    def feed_forward(cls, config: ModelConfig, tensors: Tensors, index: int) -> FeedForwardPart:
        """The feed-forward of layer `index`."""
        return FeedForward(tensors, f"blk.{index}.", config.n_embd, config.layers[index].n_ff, config.activation)


class Qwen3MoE(Qwen3):
    """Qwen 3 with a mixture of experts in every layer."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the experts: softmax over all, weights of the chosen ones normalised."""
        config = ModelConfig.from_gguf(file)
        keys = Keys(file)
        n_used = max(1, keys.per_layer("expert_used_count", len(config.layers), 0)[0])
        experts = keys.experts(
            len(config.layers),
            gating=Gating.SOFTMAX,
            is_normalised=True,
            default_width=config.layers[0].n_ff // n_used,
        )
        layers = zip(config.layers, experts, strict=True)
        return replace(config, layers=tuple(replace(layer, experts=mixture) for layer, mixture in layers))

    @classmethod
    def feed_forward(cls, config: ModelConfig, tensors: Tensors, index: int) -> FeedForwardPart:
        """The mixture of experts of layer `index`."""
        mixture = config.layers[index].experts
        assert mixture is not None, "every layer has experts"
        return Experts(tensors, f"blk.{index}.", config.n_embd, mixture, config.activation)
