"""From the hidden states of a draft block's positions to candidates (docs/draft-networks.md §3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specli.kernels.ops import Array, Buffer, Executor, Ops
from specli.models.draft import N_CANDIDATES


@dataclass(frozen=True, eq=False)
class Proposal:
    """What one position proposes; views that the next run may overwrite.

    Attributes:
        values: `[C]` float32, logits or scores of the candidates, descending.
        ids: `[C]` int32, the candidates.
        confidence: Predicted probability that the position's token is accepted; 0 from heads that predict none.
    """

    values: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int32]
    confidence: np.float32


@dataclass(frozen=True, eq=False)
class BlockPositions:
    """The positions of draft blocks that predict, one row each: N for each sequence, one after the other.

    Attributes:
        hidden: `[S·N, D]` float32, after the last norm.
        logits: `[S·N, V_d]` float32.
        values: `[S·N, C]` float32, the logits (or scores) of the candidates, descending; where `is_normed` the best
            one's log-probability, or from heads that predict it the log-odds that it is accepted.
        ids: `[S·N, C]` int32, the candidates, as the target numbers them.
        confidence: `[S·N, 1]` float32, predicted probability that the position's token is accepted; only some heads
            fill it. None = nobody asks.
        mapping: `[V_d]` int32, the target's id of every draft token; None = the same.
        n_draft: Draft length, N.
        is_normed: See `values`.
    """

    hidden: Buffer
    logits: Buffer
    values: Buffer
    ids: Buffer
    confidence: Buffer | None
    mapping: Array | None
    n_draft: int
    is_normed: bool = False

    def rows_of(self, index: int, buffer: Buffer) -> Buffer:
        """The rows of a buffer like these that belong to position `index` of every block, a row per sequence."""
        return buffer.per_sequence(index, step=self.n_draft)

    def of(self, index: int) -> BlockPositions:
        """Slot `index` of every block, a row per sequence."""
        return BlockPositions(
            self.rows_of(index, self.hidden),
            self.rows_of(index, self.logits),
            self.rows_of(index, self.values),
            self.rows_of(index, self.ids),
            None if self.confidence is None else self.rows_of(index, self.confidence),
            self.mapping,
            1,
            self.is_normed,
        )

    def read(self, n: int | None = None) -> list[Proposal]:
        """The first `n` rows, or all, on the host."""
        assert self.confidence is not None, "made for whole drafts"
        values, ids, confidence = (b.read()[:n] for b in (self.values, self.ids, self.confidence))
        return [Proposal(*row) for row in zip(values, ids, confidence[:, 0], strict=True)]

    def trace_candidates(self, ops: Ops, values: Buffer, ids: Buffer) -> None:
        """The best logits and the target's ids for them."""
        ops.top_k(values, ids, self.logits)
        if self.mapping is not None:
            ops.map_ids(ids, ids, self.mapping)


class PositionHead(Protocol):
    """Turns logits into candidates.

    Attributes:
        is_chained: What a position proposes depends on the token before it.
        predicts: It gives log-odds that a token is accepted where log-probabilities are asked for (`BlockPositions`).
    """

    is_chained: bool
    predicts: bool

    def n_candidates(self, n_logits: int) -> int:
        """Candidates per position, C."""

    def allocate(self, executor: Executor, positions: BlockPositions) -> None:
        """Makes the head's own buffers."""

    def trace(self, ops: Ops, positions: BlockPositions) -> None:
        """What can be done for all positions at once."""

    def trace_position(self, ops: Ops, positions: BlockPositions, index: int, previous: Buffer) -> None:
        """The rest for position `index` of all blocks, given the tokens before it: `[S, 1]` int32, target's ids."""


class PlainHead:
    """Every position by itself: the best logits (DFlash)."""

    is_chained = False
    predicts = False

    def n_candidates(self, n_logits: int) -> int:
        """Ten, or all."""
        return min(N_CANDIDATES, n_logits)

    def allocate(self, executor: Executor, positions: BlockPositions) -> None:
        """Nothing."""

    def trace(self, ops: Ops, positions: BlockPositions) -> None:
        """Fills values and ids."""
        positions.trace_candidates(ops, positions.values, positions.ids)
        if positions.is_normed:
            ops.log_softmax(positions.values, positions.logits)

    def trace_position(self, ops: Ops, positions: BlockPositions, index: int, previous: Buffer) -> None:
        """Nothing: see `trace`."""
