"""`granite` and `granitemoe`: Granite 3, and 4 without recurrent layers (docs/targets.md §3.24).

llama.cpp `src/models/granite.cpp`, `granite-moe.cpp`.
A Llama with four factors: on embeddings, attention scores, what each branch adds, and (divided by) the logits.
"""

from __future__ import annotations

from dataclasses import replace

from specli.errors import UnsupportedError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Gating
from specli.models.architecture import ExpertConfig, Keys, ModelConfig
from specli.models.base import Model
from specli.models.experts import Experts, SharedExperts
from specli.models.layers import Attention, FeedForward, FeedForwardPart, Layer, RMSNorm
from specli.models.llama import require_plain_heads
from specli.models.tensors import Tensors


class Granite(Model):
    """Pre-norm layers with adjacent-pair rotary angles, or none, and scaled branches."""

    rope_factors = "optional"

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the factors and, in files that have them, experts."""
        config = ModelConfig.from_gguf(file)
        require_plain_heads(file, config)
        keys = Keys(file)
        if keys.is_array("deepstack_mapping"):
            raise UnsupportedError(
                f"{file.path}: granite with deepstack_mapping is a vision model's text part, which is not supported",
                hint="text-only Granite models are",
            )
        n_blocks = len(config.layers)
        experts: tuple[ExpertConfig | None, ...] = (None,) * n_blocks
        if config.n_experts:
            experts = keys.experts(
                n_blocks,
                gating=Gating.SOFTMAX,
                is_normalised=True,
                scale=keys.number("expert_weights_scale", 0.0),
                width="feed_forward_length",
                n_ff_shared=keys.integer("expert_shared_feed_forward_length", 0),
            )
        is_rotated = file.metadata.get(keys.full("rope.scaling.finetuned"), "bool", True)
        scale = keys.number("attention.scale", 0.0)
        layers = tuple(
            replace(
                layer,
                rope=replace(layer.rope, interleaved=True),
                is_rotated=is_rotated,
                attention_scale=scale or layer.attention_scale,
                experts=mixture,
            )
            for layer, mixture in zip(config.layers, experts, strict=True)
        )
        logit_scale = keys.number("logit_scale")
        if not logit_scale:
            raise keys.error("logit_scale", logit_scale, "more than 0")
        return replace(
            config,
            layers=layers,
            embedding_scale=keys.number("embedding_scale", 0.0) or 1.0,
            residual_scale=keys.number("residual_scale", 0.0) or 1.0,
            logit_scale=1 / logit_scale,
        )

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer with scaled branches."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        feed_forward: FeedForwardPart
        if layer.experts is None:
            feed_forward = FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation, biases="optional")
        elif layer.experts.n_ff_shared:
            feed_forward = SharedExperts(tensors, prefix, n_embd, layer.experts, config.activation)
        else:
            feed_forward = Experts(tensors, prefix, n_embd, layer.experts, config.activation)
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=feed_forward,
            residual_scale=config.residual_scale,
        )
