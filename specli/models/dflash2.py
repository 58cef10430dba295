"""What DFlash2 adds: convolutions along the block, and a selector of candidates (docs/draft-networks.md §§3.6-3.7)."""

from __future__ import annotations

import numpy as np

from specli.kernels.ops import Buffer, Executor, Extent, Ops, RopeTable
from specli.models.cache import CacheLayer
from specli.models.dflash_config import SELECTOR_TENSOR, ConvolutionConfig, SelectorConfig
from specli.models.layers import AttentionPart, FeedForwardPart, Rows
from specli.models.positions import BlockPositions
from specli.models.tensors import Tensors


class Convolution:
    """A pair of convolutions around a sub-layer: side 0 on its input, side 1 on its output.

    The weights of both depend on the sub-layer's input, per position and group of channels, on top of learned ones.

    Args:
        tensors: Claims.
        prefix: Such as `blk.0.attn`.
        width: D.
        config: Kernel and group.
    """

    def __init__(self, tensors: Tensors, prefix: str, width: int, config: ConvolutionConfig) -> None:
        self._config = config
        self._n_weights = config.kernel * (width // config.group)  # of one side
        self._base = tensors.array(f"{prefix}_conv_base", (2, config.kernel, width))
        self._proj = tensors.matrix(f"{prefix}_conv_proj.weight", (2 * self._n_weights, width))

    def trace_input(self, ops: Ops, x: Buffer, rows: Rows) -> Buffer:
        """The sub-layer's input after side 0; keeps the weights for side 1."""
        ops.linear([self._weights(rows)], x, [self._proj.value])
        return self._trace_side(ops, x, rows, side=0)

    def trace_output(self, ops: Ops, out: Buffer, x: Buffer, rows: Rows, *, accumulate: bool) -> None:
        """`out (+)= side 1 of x`, the sub-layer's output."""
        convolved = self._trace_side(ops, x, rows, side=1)
        if accumulate:
            ops.add(out, convolved)
        else:
            ops.copy(out, convolved)

    def _trace_side(self, ops: Ops, x: Buffer, rows: Rows, *, side: int) -> Buffer:
        out = rows.scratch.buffer("convolved", x.width)
        weights = self._weights(rows).columns(side * self._n_weights, (side + 1) * self._n_weights)
        ops.convolve(out, x, self._base.value[side], weights, group=self._config.group, block=rows.block)
        return out

    def _weights(self, rows: Rows) -> Buffer:
        return rows.scratch.buffer("conv_weights", 2 * self._n_weights)


class ConvolvedAttention:
    """An attention part between two convolutions."""

    def __init__(self, inner: AttentionPart, convolution: Convolution) -> None:
        self._inner = inner
        self._convolution = convolution

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
        """`out (+)= conv(attention(conv(x)))`."""
        attended = rows.scratch.buffer("attention_out", x.width)
        self._inner.trace(ops, attended, self._convolution.trace_input(ops, x, rows), rows, cache, rope)
        self._convolution.trace_output(ops, out, attended, rows, accumulate=accumulate)


class ConvolvedFeedForward:
    """A feed-forward part between two convolutions."""

    def __init__(self, inner: FeedForwardPart, convolution: Convolution) -> None:
        self._inner = inner
        self._convolution = convolution

    def trace(self, ops: Ops, out: Buffer, x: Buffer, rows: Rows, *, accumulate: bool = False) -> None:
        """`out (+)= conv(feed_forward(conv(x)))`."""
        fed = rows.scratch.buffer("feed_forward_out", x.width)
        self._inner.trace(ops, fed, self._convolution.trace_input(ops, x, rows), rows)
        self._convolution.trace_output(ops, out, fed, rows, accumulate=accumulate)


class SelectorHead:
    """Scores the best tokens of a position by how they follow the token chosen before.

    `score(p → j) = ⟨successor[C[j]], predecessor[p] ⊙ W·hidden⟩ + logit[j]` over the position's `top_k` candidates C.

    Args:
        tensors: Claims.
        config: Rank and number of candidates.
        n_vocab: Tokens of the target.
        n_embd: Width, D.
    """

    is_chained = True
    predicts = False

    def __init__(self, tensors: Tensors, config: SelectorConfig, n_vocab: int, n_embd: int) -> None:
        self._config = config
        self._predecessor = tensors.matrix("selector_predecessor.weight", (n_vocab, config.rank))
        self._successor = tensors.matrix("selector_successor.weight", (n_vocab, config.rank))
        self._hidden = tensors.matrix(SELECTOR_TENSOR, (config.rank, n_embd))

    def n_candidates(self, n_logits: int) -> int:
        """As the file says."""
        return self._config.top_k

    def allocate(self, executor: Executor, positions: BlockPositions) -> None:
        """Candidates in the order of their logits, gates, and what one step of the walk needs."""
        n, extent, top_k = positions.hidden.capacity, positions.hidden.extent, self._config.top_k
        n_sequences = n // positions.n_draft
        self._gates = executor.buffer(n, self._config.rank, extent)
        self._unary = executor.buffer(n, top_k, extent)
        self._candidates = executor.buffer(n, top_k, extent, np.int32)
        self._scores = executor.buffer(n_sequences, top_k, Extent.SEQUENCES)
        self._gated = executor.buffer(n_sequences, self._config.rank, Extent.SEQUENCES)

    def trace(self, ops: Ops, positions: BlockPositions) -> None:
        """Gates and candidates of all positions."""
        ops.linear([self._gates], positions.hidden, [self._hidden.value])
        positions.trace_candidates(ops, self._unary, self._candidates)

    def trace_position(self, ops: Ops, positions: BlockPositions, index: int, previous: Buffer) -> None:
        """Scores given the predecessor, then candidates by score."""
        position, (gates, unary, candidates) = (
            positions.of(index),
            (positions.rows_of(index, buffer) for buffer in (self._gates, self._unary, self._candidates)),
        )
        ops.embed(self._gated, self._predecessor.value, previous)
        ops.multiply(self._gated, gates)
        ops.copy(self._scores, unary)
        ops.linear_rows(self._scores, self._gated, self._successor.value, candidates)
        ops.top_k(position.values, position.ids, self._scores)  # ids: places among the candidates
        if position.is_normed:
            ops.log_softmax(position.values, self._scores)
        ops.take(position.ids, candidates, position.ids)
