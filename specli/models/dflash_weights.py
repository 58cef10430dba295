"""The tensors of a `dflash` file (docs/draft-networks.md §§3.2, 4.1)."""

from __future__ import annotations

from specli.errors import FormatError
from specli.gguf.file import GGUFFile
from specli.kernels.ops import Buffer, Ops, RopeTable
from specli.models.cache import CacheLayer
from specli.models.dflash2 import Convolution, ConvolvedAttention, ConvolvedFeedForward, SelectorHead
from specli.models.dflash_config import DFlashConfig
from specli.models.draft import draft_vocabulary
from specli.models.dspark import MarkovHead
from specli.models.layers import Attention, AttentionPart, FeedForward, FeedForwardPart, Layer, RMSNorm, Rows
from specli.models.positions import PlainHead, PositionHead
from specli.models.tensors import Tensors


class DFlashWeights:
    """The parts of the network.

    Args:
        file: The open draft file.
        config: Its shape.

    Attributes:
        tensors: The claims.
        mapping: `[V_d]` int32, the target's ids of the draft vocabulary; None = the whole vocabulary.
        n_logits: V_d.
        token_embd: The network's own embeddings; None = it reads the target's.
        output: Its own head, which is `token_embd` where the file has no other; None = it uses the target's.
        layers: The decoder layers of the block.
        attentions: Their attention parts as such, for writing context.
        head: From logits to candidates.

    Raises:
        FormatError: Tensors do not fit.
    """

    def __init__(self, file: GGUFFile, config: DFlashConfig) -> None:
        self._config = config
        network = config.network
        n_vocab, n_embd, eps = network.n_vocab, network.n_embd, network.rms_eps
        self.tensors = tensors = Tensors(file)
        self.mapping = draft_vocabulary(file, n_vocab)
        self.n_logits = n_vocab if self.mapping is None else len(self.mapping)
        tensors.skip("d2t")
        self.token_embd = tensors.matrix("token_embd.weight", (n_vocab, n_embd), "optional")
        self.output = tensors.matrix("output.weight", (self.n_logits, n_embd), "optional")
        if self.output is None and self.n_logits != n_vocab:
            raise FormatError(
                f"{file.path}: d2t names {self.n_logits} of {n_vocab} tokens, but output.weight, their head, is missing"
            )
        self.output = self.output or self.token_embd
        self.fc = tensors.matrix("fc.weight", (n_embd, len(config.taps) * n_embd))
        self.enc_norm = RMSNorm(tensors, "enc.output_norm.weight", n_embd, eps=eps)
        self.attentions: list[Attention] = []
        self.layers = [self._layer(index) for index in range(network.n_layers)]
        self.output_norm = RMSNorm(tensors, "output_norm.weight", n_embd, eps=eps)
        self.rope_factors = tensors.vector("rope_freqs.weight", network.layers[0].rope.n_rot // 2, "optional")
        self.head = self._head()
        tensors.check()

    def _layer(self, index: int) -> Layer:
        tensors, network, prefix = self.tensors, self._config.network, f"blk.{index}."
        layer, n_embd, eps = network.layers[index], network.n_embd, network.rms_eps
        own = Attention(
            tensors, prefix, layer, n_embd, eps=eps,
            head_norms="required", sinks="optional", biases="no", output_bias="no", values="optional",
        )  # fmt: skip
        self.attentions.append(own)
        attention: AttentionPart = own
        feed_forward: FeedForwardPart = FeedForward(tensors, prefix, n_embd, layer.n_ff, network.activation)
        if self._config.value_scale != 1:
            attention = ScaledAttention(attention, self._config.value_scale)
        if self._config.convolution is not None:
            around = (Convolution(tensors, prefix + part, n_embd, self._config.convolution) for part in ("attn", "ffn"))
            attention = ConvolvedAttention(attention, next(around))
            feed_forward = ConvolvedFeedForward(feed_forward, next(around))
        return Layer(
            attn_norm=RMSNorm(tensors, f"{prefix}attn_norm.weight", n_embd, eps=eps),
            attention=attention,
            ffn_norm=RMSNorm(tensors, f"{prefix}ffn_norm.weight", n_embd, eps=eps),
            feed_forward=feed_forward,
            post_attention_norm=RMSNorm.claim(
                tensors, f"{prefix}post_attention_norm.weight", n_embd, "optional", eps=eps
            ),
            post_ffw_norm=RMSNorm.claim(tensors, f"{prefix}post_ffw_norm.weight", n_embd, "optional", eps=eps),
            layer_output_scale=tensors.scalar(f"{prefix}layer_output_scale.weight", "optional"),
        )

    def _head(self) -> PositionHead:
        config, network = self._config, self._config.network
        if config.is_dspark:
            return MarkovHead(self.tensors, config, self.n_logits)
        if config.selector is not None:
            return SelectorHead(self.tensors, config.selector, network.n_vocab, network.n_embd)
        return PlainHead()


class ScaledAttention:
    """An attention part whose output is multiplied by a constant."""

    def __init__(self, inner: AttentionPart, factor: float) -> None:
        self._inner = inner
        self._factor = factor

    def trace(
        self,
        ops: Ops,
        out: Buffer,
        x: Buffer,
        rows: Rows,
        cache: CacheLayer,
        rope: RopeTable,
        *,
        accumulate: bool = False,
    ) -> None:
        """`out (+)= factor · attention(x)`."""
        scaled = rows.scratch.buffer("scaled", out.width)
        self._inner.trace(ops, scaled, x, rows, cache, rope)
        ops.scale(scaled, self._factor)
        if accumulate:
            ops.add(out, scaled)
        else:
            ops.copy(out, scaled)
