"""`deepseek2`: DeepSeek-V2, V3 and R1, Kimi-K2, GLM-4.7-Flash (docs/targets.md, deepseek2).

Attention over latent vectors. The first layers are dense, the others have chosen experts and some that every token
gets. Source: llama.cpp `src/models/deepseek2.cpp`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from specli.errors import UnsupportedError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Gating
from specli.models.architecture import ExpertConfig, Keys, LatentConfig, LayerConfig, ModelConfig
from specli.models.base import Model
from specli.models.experts import SharedExperts
from specli.models.latent import LatentAttention
from specli.models.layers import FeedForward, FeedForwardPart, Layer, RMSNorm
from specli.models.tensors import Tensors

_GATINGS = (Gating.SOFTMAX, Gating.SIGMOID)
# llama.cpp tells models without these keys by depth and vocabulary
_LITE_DEPTHS = (26, 27)  # no q_lora_rank, whatever the key says
_LITE_KANANA = (48, 128256)
_GLM_FLASH = ((47, 154880), (48, 154880))  # sigmoid


class DeepSeek2(Model):
    """Pre-norm layers with latent attention."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds latent sizes, attention scale, and the experts of the layers that have them."""
        config = ModelConfig.from_gguf(file)
        keys = Keys(file)
        if keys.full("attention.key_length_mla") not in file.metadata:
            raise UnsupportedError(
                f"{file.path}: attention over expanded keys and values (attn_kv_b), as files before April 2025 have it",
                hint="convert the checkpoint again, or take a newer file",
            )
        if keys.number("attention.temperature_scale", 0.0):
            raise UnsupportedError(f"{file.path}: {keys.full('attention.temperature_scale')} is not supported")
        layers = [_latent_layer(keys, config, layer) for layer in config.layers]
        experts = cls.experts(keys, config) if config.n_experts else None
        n_dense = keys.integer("leading_dense_block_count", 0)
        if experts is None and n_dense < len(layers):
            raise keys.error("expert_count", 0, f"experts for layers from {n_dense} on")
        return replace(
            config,
            layers=tuple(
                layer if index < n_dense or experts is None else replace(layer, experts=experts[index])
                for index, layer in enumerate(layers)
            ),
        )

    @classmethod
    def experts(cls, keys: Keys, config: ModelConfig) -> tuple[ExpertConfig, ...]:
        """The mixture of experts of every layer."""
        default = Gating.SIGMOID if (config.n_layers, config.n_vocab) in _GLM_FLASH else Gating.SOFTMAX
        gating = keys.integer("expert_gating_func", 0) or default
        if gating not in _GATINGS:
            raise keys.error("expert_gating_func", gating, "1 (softmax) or 2 (sigmoid)")
        width = keys.per_layer("expert_feed_forward_length", len(config.layers), 0)[-1]
        return keys.experts(
            len(config.layers),
            gating=Gating(gating),
            is_normalised=keys.flag("expert_weights_norm", False),
            scale=keys.number("expert_weights_scale", 0.0),
            n_ff_shared=width * keys.count("expert_shared_count"),
        )

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
                tensors, prefix, n_embd, layer.experts, config.activation, selection_bias="optional"
            )
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=LatentAttention(tensors, prefix, layer, n_embd, eps=eps),
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=feed_forward,
        )


def _latent_layer(keys: Keys, config: ModelConfig, layer: LayerConfig) -> LayerConfig:
    """A layer with its latent sizes, and YaRN's magnitudes as llama.cpp has them for this family."""
    n_rot, n_lora_kv = layer.rope.n_rot, keys.count("attention.kv_lora_rank")
    has_lora_q = config.n_layers not in _LITE_DEPTHS and (config.n_layers, config.n_vocab) != _LITE_KANANA
    latent = LatentConfig(
        n_lora_q=keys.integer("attention.q_lora_rank", 0) if has_lora_q else 0,
        n_lora_kv=n_lora_kv,
        head_size_k=keys.count("attention.key_length_mla"),
        head_size_v=keys.count("attention.value_length_mla"),
    )
    if latent.head_size_k <= n_rot:
        raise keys.error("attention.key_length_mla", latent.head_size_k, f"more than the rotated elements ({n_rot})")
    if layer.n_kv_heads != 1:
        raise keys.error("attention.head_count_kv", layer.n_kv_heads, "1")
    if (layer.head_size_k, layer.head_size_v) != (n_lora_kv + n_rot, n_lora_kv):
        raise keys.error(
            "attention.key_length and value_length",
            f"{layer.head_size_k} and {layer.head_size_v}",
            f"kv_lora_rank + rotated elements and kv_lora_rank ({n_lora_kv + n_rot} and {n_lora_kv})",
        )
    rope, magnitude = replace(layer.rope, interleaved=True), layer.rope.attention_factor
    multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0.0) / 0.1
    growth = 0.1 * math.log(max(1.0, rope.factor))
    if rope.scaling == "yarn" and multiplier:
        rope = replace(rope, attention_factor=magnitude / (1 + growth))  # takes back YaRN's own magnitude
    elif rope.scaling == "yarn":
        magnitude *= 1 + growth  # llama.cpp counts it in the scale as well
    scale = (magnitude * (1 + multiplier * growth)) ** 2 * latent.head_size_k**-0.5
    return replace(layer, latent=latent, rope=rope, attention_scale=scale)
