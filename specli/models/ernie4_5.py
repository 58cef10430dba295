"""`ernie4_5` and `ernie4_5-moe` (docs/targets.md §3.30; llama.cpp `src/models/ernie4-5.cpp`, `ernie4-5-moe.cpp`)."""

from __future__ import annotations

from dataclasses import replace

from specli.errors import UnsupportedError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Gating
from specli.models.architecture import Keys, ModelConfig
from specli.models.base import Model
from specli.models.experts import Experts, SharedExperts
from specli.models.layers import Attention, FeedForward, FeedForwardPart, Layer, RMSNorm
from specli.models.llama import require_plain_heads
from specli.models.tensors import Tensors


class Ernie45(Model):
    """Pre-norm layers with adjacent-pair rotary angles."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the pairing."""
        config = ModelConfig.from_gguf(file)
        require_plain_heads(file, config)
        if any(file.metadata.get(f"{file.architecture}.rope.dimension_sections", "[int]", [])):
            raise UnsupportedError(
                f"{file.path}: ernie4_5 with rope.dimension_sections is a vision model's text part, "
                "which is not supported",
                hint="text-only ERNIE 4.5 models are",
            )
        layers = (replace(layer, rope=replace(layer.rope, interleaved=True)) for layer in config.layers)
        return replace(config, layers=tuple(layers))

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=cls.feed_forward(config, tensors, index),
        )

    @classmethod
    def feed_forward(cls, config: ModelConfig, tensors: Tensors, index: int) -> FeedForwardPart:
        """The feed-forward of layer `index`."""
        return FeedForward(tensors, f"blk.{index}.", config.n_embd, config.layers[index].n_ff, config.activation)


class Ernie45MoE(Ernie45):
    """ERNIE 4.5 with experts, and one that every token gets, after the first layers."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the experts: chosen by biased scores of a softmax over all, their weights normalised."""
        config = super().configure(file)
        keys = Keys(file)
        n_dense = keys.integer("leading_dense_block_count", 0)
        step = keys.count("interleave_moe_layer_step")
        experts = keys.experts(
            len(config.layers),
            gating=Gating.SOFTMAX,
            is_normalised=True,
            scale=keys.number("expert_weights_scale", 0.0),
            n_ff_shared=keys.integer("expert_shared_feed_forward_length", 0),
        )
        layers = tuple(
            replace(layer, experts=experts[index]) if index >= n_dense and (index + 1) % step == 0 else layer
            for index, layer in enumerate(config.layers)
        )
        return replace(config, layers=layers)

    @classmethod
    def feed_forward(cls, config: ModelConfig, tensors: Tensors, index: int) -> FeedForwardPart:
        """Dense, or a mixture of experts with or without a shared one."""
        mixture = config.layers[index].experts
        if mixture is None:
            return super().feed_forward(config, tensors, index)
        part = SharedExperts if mixture.n_ff_shared else Experts
        return part(tensors, f"blk.{index}.", config.n_embd, mixture, config.activation, selection_bias="optional")
