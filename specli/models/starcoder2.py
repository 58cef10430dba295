"""`starcoder2` (docs/targets.md §3.32; llama.cpp `src/models/starcoder2.cpp`).

Layer norms and biases everywhere; a feed-forward without gate. The sliding window of the checkpoints is not in the
files, so it is not applied, as in llama.cpp.
"""

from __future__ import annotations

from specli.gguf.file import GGUFFile
from specli.kernels.ops import Buffer, Ops
from specli.models.architecture import ModelConfig
from specli.models.base import Model
from specli.models.layers import Attention, Layer, LayerNorm, Norm, Rows
from specli.models.llama import require_plain_heads
from specli.models.tensors import Tensors


class _PlainFeedForward:
    """`down(gelu(up(x)))` with biases."""

    def __init__(self, tensors: Tensors, prefix: str, n_embd: int, n_ff: int) -> None:
        self._n_ff = n_ff
        self.ffn_up = tensors.matrix(f"{prefix}ffn_up.weight", (n_ff, n_embd))
        self.ffn_up_bias = tensors.vector(f"{prefix}ffn_up.bias", n_ff)
        self.ffn_down = tensors.matrix(f"{prefix}ffn_down.weight", (n_embd, n_ff))
        self.ffn_down_bias = tensors.vector(f"{prefix}ffn_down.bias", n_embd)

    def trace(self, ops: Ops, out: Buffer, x: Buffer, rows: Rows, *, accumulate: bool = False) -> None:
        """`out (+)= feed_forward(x)`."""
        inner = rows.scratch.buffer("ffn", self._n_ff)
        ops.linear([inner], x, [self.ffn_up.value], biases=[self.ffn_up_bias.value])
        ops.gelu(inner)
        ops.linear([out], inner, [self.ffn_down.value], biases=[self.ffn_down_bias.value], accumulate=accumulate)


class Starcoder2(Model):
    """Pre-norm layers with split-half rotary angles."""

    @classmethod
    def configure(cls, file: GGUFFile) -> ModelConfig:
        """The configuration from the common keys alone."""
        config = ModelConfig.from_gguf(file, eps="attention.layer_norm_epsilon")
        require_plain_heads(file, config)
        return config

    @classmethod
    def layer(cls, config: ModelConfig, tensors: Tensors, index: int) -> Layer:
        """A pre-norm layer with biases."""
        layer, prefix = config.layers[index], f"blk.{index}."
        eps, n_embd = config.rms_eps, config.n_embd
        return Layer(
            attn_norm=LayerNorm(tensors, f"{prefix}attn_norm", n_embd, eps=eps, bias="required"),
            attention=Attention(tensors, prefix, layer, n_embd, eps=eps, output_bias="required"),
            ffn_norm=LayerNorm(tensors, f"{prefix}ffn_norm", n_embd, eps=eps, bias="required"),
            feed_forward=_PlainFeedForward(tensors, prefix, n_embd, layer.n_ff),
        )

    @classmethod
    def last_norm(cls, config: ModelConfig, tensors: Tensors) -> Norm:
        """A layer norm with a bias."""
        return LayerNorm(tensors, "output_norm", config.n_embd, eps=config.rms_eps, bias="required")
