"""`qwen35`, `qwen35moe` and `qwen3next` (docs/targets.md §3.8; llama.cpp `src/models/qwen35.cpp`, `qwen35moe.cpp`).

Three of four layers are gated delta nets, the others attention with an output gate. For text all position streams of
the rotary angles are equal, so `rope.dimension_sections` changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from specli.errors import UnsupportedError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Gating
from specli.models.architecture import DeltaConfig, Keys, LayerConfig, ModelConfig
from specli.models.base import Model
from specli.models.delta_net import DeltaNet
from specli.models.experts import SharedExperts
from specli.models.layers import Attention, AttentionPart, FeedForward, FeedForwardPart, Layer, RMSNorm
from specli.models.tensors import Tensors

_DEFAULT_INTERVAL = 4


class Qwen35(Model):
    """Pre-norm layers with either kind of mixer and a dense feed-forward."""

    is_grouped = False  # see DeltaNet

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the delta nets of the layers that are recurrent."""
        config = ModelConfig.from_gguf(file)
        keys = Keys(file)
        first = config.layers[0]
        if first.head_size_k != first.head_size_v:  # a gate is as wide as the values
            raise keys.error("attention.value_length", first.head_size_v, f"the key length ({first.head_size_k})")
        delta = _delta_config(keys)
        interval = keys.count("full_attention_interval", _DEFAULT_INTERVAL)
        default = [(index + 1) % interval != 0 for index in range(len(config.layers))]
        flags = keys.per_layer("attention.recurrent_layers", len(config.layers), default)

        def refine(index: int, layer: LayerConfig) -> LayerConfig:
            is_recurrent = bool(flags[index]) and index < config.n_layers
            return replace(layer, delta=delta) if is_recurrent else layer

        return replace(config, layers=tuple(refine(index, layer) for index, layer in enumerate(config.layers)))

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer; `post_attention_norm` stands before the feed-forward."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        mixer: AttentionPart
        if layer.delta is not None:
            mixer = DeltaNet(tensors, prefix, layer.delta, n_embd, eps=eps, is_grouped=cls.is_grouped)
        else:
            mixer = Attention(
                tensors, prefix, layer, n_embd, eps=eps, head_norms="required", output_bias="no", is_gated=True
            )
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=mixer,
            ffn_norm=RMSNorm(tensors, f"{prefix}post_attention_norm.weight", n_embd, eps=eps),
            feed_forward=cls.feed_forward(config, tensors, index),
        )

    @classmethod
    def feed_forward(cls, config: ModelConfig, tensors: Tensors, index: int) -> FeedForwardPart:
        """The feed-forward of layer `index`."""
        return FeedForward(tensors, f"blk.{index}.", config.n_embd, config.layers[index].n_ff, config.activation)


class Qwen35MoE(Qwen35):
    """Experts in every layer, and one that every token gets through a gate of its own."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds the experts: softmax over all, weights of the chosen ones normalised."""
        config = super().configure(file)
        keys = Keys(file)
        n_ff = config.layers[0].n_ff
        experts = keys.experts(
            len(config.layers),
            gating=Gating.SOFTMAX,
            is_normalised=True,
            default_width=n_ff // max(1, keys.per_layer("expert_used_count", len(config.layers), 0)[0]),
            n_ff_shared=keys.integer("expert_shared_feed_forward_length", n_ff),
        )
        layers = zip(config.layers, experts, strict=True)
        return replace(config, layers=tuple(replace(layer, experts=mixture) for layer, mixture in layers))

    @classmethod
    def feed_forward(cls, config: ModelConfig, tensors: Tensors, index: int) -> FeedForwardPart:
        """The layer's experts, chosen and shared."""
        mixture = config.layers[index].experts
        assert mixture is not None, "every layer has experts"
        return SharedExperts(tensors, f"blk.{index}.", config.n_embd, mixture, config.activation, is_gated=True)


class Qwen3Next(Qwen35MoE):
    """Qwen3-Next: as qwen35moe, with value heads in another order (llama.cpp `src/models/qwen3next.cpp`)."""

    is_grouped = True

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """As its parent; early files have the projections of delta nets in one matrix."""
        if any(name.endswith(".ssm_in.weight") for name in file.tensors):
            raise UnsupportedError(
                f"{file.path}: delta nets with ssm_in, as files before January 2026 have it, are not supported",
                hint="convert the checkpoint again, or take a newer file",
            )
        return super().configure(file)


def _delta_config(keys: Keys) -> DeltaConfig:
    delta = DeltaConfig(
        n_taps=keys.count("ssm.conv_kernel"),
        n_key_heads=keys.count("ssm.group_count"),
        n_heads=keys.count("ssm.time_step_rank"),
        head_size=keys.count("ssm.state_size"),
    )
    if delta.n_heads % delta.n_key_heads:
        raise keys.error("ssm.time_step_rank", delta.n_heads, f"a multiple of ssm.group_count ({delta.n_key_heads})")
    n_values = keys.count("ssm.inner_size")
    if n_values != delta.n_values:
        raise keys.error("ssm.inner_size", n_values, f"time_step_rank · state_size ({delta.n_values})")
    return delta
