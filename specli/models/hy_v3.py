"""`hy_v3`: Hunyuan 3 (docs/targets.md, hy_v3; llama.cpp `src/models/hy-v3.cpp`).

As qwen3, with experts chosen by biased sigmoid scores and one that every token gets, in all layers that have a router.
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


class HyV3(Model):
    """Pre-norm layers with head norms, dense or with experts."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the experts of the layers that have a router."""
        config = ModelConfig.from_gguf(file)
        if not config.n_experts:
            return config
        keys = Keys(file)
        gating = keys.integer("expert_gating_func", 0) or Gating.SIGMOID
        if gating not in _GATINGS:
            raise keys.error("expert_gating_func", gating, "1 (softmax) or 2 (sigmoid)")
        width = keys.per_layer("expert_feed_forward_length", len(config.layers), 0)[-1]
        experts = keys.experts(
            len(config.layers),
            gating=Gating(gating),
            is_normalised=keys.flag("expert_weights_norm", False),
            scale=keys.number("expert_weights_scale", 0.0),
            n_ff_shared=keys.integer("expert_shared_feed_forward_length", 0) or width,
        )
        layers = tuple(
            replace(layer, experts=experts[index]) if f"blk.{index}.ffn_gate_inp.weight" in file.tensors else layer
            for index, layer in enumerate(config.layers)
        )
        return replace(config, layers=layers)

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        feed_forward: FeedForwardPart
        if layer.experts is None:
            feed_forward = FeedForward(tensors, prefix, n_embd, layer.n_ff, config.activation)
        else:
            feed_forward = SharedExperts(
                tensors,
                prefix,
                n_embd,
                layer.experts,
                config.activation,
                selection_bias="optional",
                bias_name="exp_probs_b",
            )
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps, head_norms="required"),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=feed_forward,
        )
