"""DSpark's Markov and confidence heads (docs/draft-networks.md §§4.3-4.4; llama.cpp `src/models/dflash.cpp`)."""

from __future__ import annotations

from specli.kernels.ops import Buffer, Executor, Ops
from specli.models.dflash_config import CONFIDENCE_TENSOR, MARKOV_TENSOR, DFlashConfig
from specli.models.draft import N_CANDIDATES
from specli.models.positions import BlockPositions
from specli.models.tensors import Tensors, value_of


class MarkovHead:
    """Adds to a position's logits what its predecessor makes likely: `z' = z + W2·W1[previous]`.

    `W1` has a row per token of the target, `W2` one per draft token. Where a reduced vocabulary leaves a token out its
    logit is -inf, and no bias changes that, so all of it happens in the draft vocabulary.

    Args:
        tensors: Claims.
        config: Ranks and widths.
        n_logits: Draft tokens, V_d.
    """

    is_chained = True

    def __init__(self, tensors: Tensors, config: DFlashConfig, n_logits: int) -> None:
        self._n_embd = config.network.n_embd
        self._rank = config.markov_rank
        self._markov_w1 = tensors.matrix(MARKOV_TENSOR, (config.network.n_vocab, self._rank))
        self._markov_w2 = tensors.matrix("markov_w2.weight", (n_logits, self._rank))
        self._conf_proj = tensors.matrix(CONFIDENCE_TENSOR, (1, self._n_embd + self._rank), "optional")
        self.predicts = self._conf_proj is not None
        self._conf_bias = tensors.vector("conf_proj.bias", 1, "optional" if self._conf_proj is not None else "no")

    def n_candidates(self, n_logits: int) -> int:
        """Ten, or all."""
        return min(N_CANDIDATES, n_logits)

    def allocate(self, executor: Executor, positions: BlockPositions) -> None:
        """`[N, D + R]`: hidden state and predecessor's embedding side by side, as the confidence head reads them."""
        hidden = positions.hidden
        self._joined = executor.buffer(hidden.capacity, self._n_embd + self._rank, hidden.extent)

    def trace(self, ops: Ops, positions: BlockPositions) -> None:
        """The hidden half of the confidence head's input."""
        if positions.confidence is not None or (positions.is_normed and self.predicts):
            ops.copy(self._joined.columns(0, self._n_embd), positions.hidden)

    def trace_position(self, ops: Ops, positions: BlockPositions, index: int, previous: Buffer) -> None:
        """Biased logits, candidates, confidence where it is asked for."""
        position, joined = positions.of(index), positions.rows_of(index, self._joined)
        markov = joined.columns(self._n_embd, self._n_embd + self._rank)
        ops.embed(markov, self._markov_w1.value, previous)
        ops.linear([position.logits], markov, [self._markov_w2.value], accumulate=True)
        position.trace_candidates(ops, position.values, position.ids)
        if self._conf_proj is None:
            if position.is_normed:
                ops.log_softmax(position.values, position.logits)
            return
        bias = value_of(self._conf_bias)
        if position.is_normed:
            ops.linear([position.values], joined, [self._conf_proj.value], biases=[bias])
        elif position.confidence is not None:
            ops.linear([position.confidence], joined, [self._conf_proj.value], biases=[bias])
            ops.sigmoid(position.confidence)
