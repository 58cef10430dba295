"""`gpt-oss` (docs/targets.md §3.6; llama.cpp `src/models/openai-moe.cpp`).

Every layer has learned sinks and biases and a mixture of experts with clamped SwiGLU; every second layer, the first
among them, sees a sliding window. YaRN reaches both kinds of layers.
"""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Activation, Gating
from specli.models.architecture import Keys, LayerConfig, ModelConfig
from specli.models.base import Model
from specli.models.experts import Experts
from specli.models.layers import Attention, Layer, RMSNorm
from specli.models.tensors import Tensors

_DEFAULT_PERIOD = 2


class GptOss(Model):
    """Alternating windows, sinks, experts weighted by a softmax over the chosen ones."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds windows and experts; heads are as wide as their rotated part."""
        config = ModelConfig.from_gguf(file)
        keys = Keys(file)
        n_blocks = len(config.layers)
        window = keys.count("attention.sliding_window")
        slides = keys.sliding(n_blocks, config.n_layers, _DEFAULT_PERIOD)
        experts = keys.experts(n_blocks, gating=Gating.SOFTMAX_CHOSEN, is_normalised=False)
        base = keys.positive("rope.freq_base_swa", config.layers[0].rope.base)

        def refine(index: int, layer: LayerConfig) -> LayerConfig:
            n_rot = layer.rope.n_rot
            if not layer.head_size_k == layer.head_size_v == n_rot:
                raise keys.error("attention.key_length", layer.head_size_k, f"rope.dimension_count ({n_rot})")
            layer = replace(layer, experts=experts[index])
            return replace(layer, window=window, rope=replace(layer.rope, base=base)) if slides[index] else layer

        return replace(
            config,
            layers=tuple(refine(index, layer) for index, layer in enumerate(config.layers)),
            activation=Activation.SWIGLU_OAI,
            nextn_is_normed=False,
        )

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer with sinks and experts; `post_attention_norm` stands before the experts."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        assert layer.experts is not None, "every layer has experts"
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=Attention(
                tensors, prefix, layer, n_embd, eps=eps, sinks="required", biases="optional", output_bias="required"
            ),
            ffn_norm=RMSNorm(tensors, f"{prefix}post_attention_norm.weight", n_embd, eps=eps),
            feed_forward=Experts(tensors, prefix, n_embd, layer.experts, config.activation, biases="required"),
        )
