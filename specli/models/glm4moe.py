"""`glm4moe`: GLM-4.5, 4.5-Air, 4.6 (docs/targets.md §3.7; llama.cpp `src/models/glm4-moe.cpp`).

The first layers are dense, the others have experts chosen by biased sigmoid scores and one that every token gets. Half
of each head is rotated. For text all position streams are equal, so `rope.dimension_sections` changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Gating
from specli.models.architecture import Keys, ModelConfig
from specli.models.base import Model
from specli.models.experts import SharedExperts
from specli.models.layers import Attention, FeedForward, FeedForwardPart, Layer, RMSNorm
from specli.models.tensors import Tensors

_GATINGS = (Gating.SOFTMAX, Gating.SIGMOID)


class Glm4MoE(Model):
    """Pre-norm layers; optional biases and head norms, partial rotary angles, shared experts."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the experts of the layers that have them."""
        config = ModelConfig.from_gguf(file)
        keys = Keys(file)
        n_dense = keys.integer("leading_dense_block_count", 0)
        gating = keys.integer("expert_gating_func", 0) or Gating.SIGMOID
        if gating not in _GATINGS:
            raise keys.error("expert_gating_func", gating, "1 (softmax) or 2 (sigmoid)")
        width = keys.per_layer("expert_feed_forward_length", len(config.layers), 0)[-1]
        experts = keys.experts(
            len(config.layers),
            gating=Gating(gating),
            is_normalised=keys.flag("expert_weights_norm", False),
            scale=keys.number("expert_weights_scale", 0.0),
            n_ff_shared=width * keys.count("expert_shared_count"),
        )
        layers = tuple(
            layer if index < n_dense else replace(layer, experts=experts[index])
            for index, layer in enumerate(config.layers)
        )
        return replace(config, layers=layers)

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer; `post_attention_norm` stands before the feed-forward."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        feed_forward: FeedForwardPart
        if layer.experts is None:
            feed_forward = FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation)
        else:
            feed_forward = SharedExperts(
                tensors, prefix, n_embd, layer.experts, config.activation, selection_bias="required"
            )
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps, head_norms="optional", output_bias="no"),
            ffn_norm=RMSNorm(tensors, f"{prefix}post_attention_norm.weight", n_embd, eps=eps),
            feed_forward=feed_forward,
        )
