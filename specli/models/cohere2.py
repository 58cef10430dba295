"""`cohere2`: Command R7B, Command A (docs/targets.md §3.28; llama.cpp `src/models/cohere2.cpp`).

Attention and feed-forward read the same normed rows. Three of four layers see a sliding window, and queries and keys
are rotated only there. Norms take the mean off and have no bias.
"""

from __future__ import annotations

from dataclasses import replace

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Buffer, Ops
from specli.models.architecture import Keys, ModelConfig
from specli.models.base import Model
from specli.models.layers import Attention, FeedForward, Layer, LayerNorm, Norm, Rows
from specli.models.tensors import Tensors

_DEFAULT_PERIOD = 4


class _ParallelLayer(Layer):
    """A layer whose feed-forward reads what attention read."""

    def trace_feed_forward(self, ops: Ops, x: Buffer, rows: Rows) -> None:
        """Adds the feed-forward of the rows that `trace_attention` normed to the residual stream."""
        self.feed_forward.trace(ops, x, rows.scratch.buffer("normed", x.width), rows, accumulate=True)


class Cohere2(Model):
    """Parallel branches behind one layer norm; scaled logits; a head that is the embedding table."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """Adds windows, pairing and the scale of the logits."""
        config = ModelConfig.from_gguf(file, eps="attention.layer_norm_epsilon")
        keys = Keys(file)
        window = keys.count("attention.sliding_window")
        slides = keys.sliding(len(config.layers), config.n_layers, _DEFAULT_PERIOD)
        layers = tuple(
            replace(
                layer,
                rope=replace(layer.rope, interleaved=True),
                window=window if slides[index] else 0,
                is_rotated=slides[index],
            )
            for index, layer in enumerate(config.layers)
        )
        return replace(config, layers=layers, logit_scale=keys.number("logit_scale") or 1.0)

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A layer with parallel branches."""
        layer, prefix = config.layers[index], f"blk.{index}."
        return _ParallelLayer(
            attn_norm=LayerNorm(tensors, f"{prefix}attn_norm", config.n_embd, eps=config.rms_eps),
            attention=Attention(tensors, prefix, layer, config.n_embd, eps=config.rms_eps, output_bias="no"),
            ffn_norm=None,
            feed_forward=FeedForward(tensors, prefix, config.n_embd, layer.n_ff, config.activation),
        )

    @classmethod
    def last_norm(cls, config: ModelConfig, tensors: Tensors) -> Norm:
        """A layer norm."""
        return LayerNorm(tensors, "output_norm", config.n_embd, eps=config.rms_eps)
