"""DSpark's Markov and confidence heads (docs/draft-networks.md §§4.3-4.4; llama.cpp `src/models/dflash.cpp`)."""

from __future__ import annotations

from specli.kernels.ops import Buffer, Executor, Ops
from specli.models.dflash_config import CONFIDENCE_TENSOR, MARKOV_TENSOR, DFlashConfig
from specli.models.draft import N_CANDIDATES
from specli.models.slots import Slots
from specli.models.tensors import Tensors, value_of


class MarkovHead:
    """Adds to a slot's logits what its predecessor makes likely: `z' = z + W2·W1[previous]`.

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
        self._conf_bias = tensors.vector("conf_proj.bias", 1, "optional" if self._conf_proj is not None else "no")

    def n_candidates(self, n_logits: int) -> int:
        """Ten, or all."""
        return min(N_CANDIDATES, n_logits)

    def allocate(self, executor: Executor, slots: Slots) -> None:
        """`[N, D + R]`: hidden state and predecessor's embedding side by side, as the confidence head reads them."""
        hidden = slots.hidden
        self._joined = executor.buffer(hidden.capacity, self._n_embd + self._rank, hidden.extent)

    def trace(self, ops: Ops, slots: Slots) -> None:
        """The hidden half of the confidence head's input."""
        if slots.confidence is not None:
            ops.copy(self._joined.columns(0, self._n_embd), slots.hidden)

    def trace_slot(self, ops: Ops, slots: Slots, index: int, previous: Buffer) -> None:
        """Biased logits, candidates, confidence where it is asked for."""
        slot, joined = slots.of(index), slots.rows_of(index, self._joined)
        markov = joined.columns(self._n_embd, self._n_embd + self._rank)
        ops.embed(markov, self._markov_w1.value, previous)
        ops.linear([slot.logits], markov, [self._markov_w2.value], accumulate=True)
        slot.trace_candidates(ops, slot.values, slot.ids)
        if self._conf_proj is not None and slot.confidence is not None:
            ops.linear([slot.confidence], joined, [self._conf_proj.value], biases=[value_of(self._conf_bias)])
            ops.sigmoid(slot.confidence)
