"""From the hidden states of a draft block's slots to candidates (draft-models.md §3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from specli.kernels.ops import Array, Buffer, Executor, Ops
from specli.models.draft import N_CANDIDATES


@dataclass(frozen=True, eq=False)
class Proposal:
    """What one slot proposes; views that the next run may overwrite.

    Attributes:
        values: `[C]` float32, logits or scores of the candidates, descending.
        ids: `[C]` int32, the candidates.
        confidence: Predicted probability that the slot's token is accepted; 0 from heads that predict none.
    """

    values: npt.NDArray[np.float32]
    ids: npt.NDArray[np.int32]
    confidence: np.float32


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of a block that predict, one row each; N = draft length.

    Attributes:
        hidden: `[N, D]` float32, after the last norm.
        logits: `[N, V_d]` float32.
        values: `[N, C]` float32, the logits (or scores) of the candidates, descending.
        ids: `[N, C]` int32, the candidates, as the target numbers them.
        confidence: `[N, 1]` float32, predicted probability that the slot's token is accepted; only some heads fill it.
            None = nobody asks.
        mapping: `[V_d]` int32, the target's id of every draft token; None = the same.
    """

    hidden: Buffer
    logits: Buffer
    values: Buffer
    ids: Buffer
    confidence: Buffer | None
    mapping: Array | None

    def row(self, index: int) -> Slots:
        """One slot."""
        return Slots(
            self.hidden.row(index),
            self.logits.row(index),
            self.values.row(index),
            self.ids.row(index),
            None if self.confidence is None else self.confidence.row(index),
            self.mapping,
        )

    def read(self) -> list[Proposal]:
        """All slots, on the host."""
        assert self.confidence is not None, "made for whole drafts"
        values, ids, confidence = (b.read() for b in (self.values, self.ids, self.confidence))
        return [Proposal(*row) for row in zip(values, ids, confidence[:, 0], strict=True)]

    def trace_candidates(self, ops: Ops, values: Buffer, ids: Buffer) -> None:
        """The best logits and the target's ids for them."""
        ops.top_k(values, ids, self.logits)
        if self.mapping is not None:
            ops.map_ids(ids, ids, self.mapping)


class SlotHead(Protocol):
    """Turns logits into candidates.

    Attributes:
        is_chained: What a slot proposes depends on the token before it.
    """

    is_chained: bool

    def n_candidates(self, n_logits: int) -> int:
        """Candidates per slot, C."""

    def allocate(self, executor: Executor, slots: Slots) -> None:
        """Makes the head's own buffers."""

    def trace(self, ops: Ops, slots: Slots) -> None:
        """What can be done for all slots at once."""

    def trace_slot(self, ops: Ops, slots: Slots, index: int, previous: Buffer) -> None:
        """The rest for one slot of a chained head, given the token before it (`[1, 1]` int32, the target's id)."""


class PlainHead:
    """Every slot by itself: the best logits (DFlash)."""

    is_chained = False

    def n_candidates(self, n_logits: int) -> int:
        """Ten, or all."""
        return min(N_CANDIDATES, n_logits)

    def allocate(self, executor: Executor, slots: Slots) -> None:
        """Nothing."""

    def trace(self, ops: Ops, slots: Slots) -> None:
        """Fills values and ids."""
        slots.trace_candidates(ops, slots.values, slots.ids)

    def trace_slot(self, ops: Ops, slots: Slots, index: int, previous: Buffer) -> None:
        """Nothing: see `trace`."""
