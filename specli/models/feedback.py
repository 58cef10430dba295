"""Draft networks that write token by token and read their own hidden state back: EAGLE-3, MTP (draft-models.md §§2, 5).

Such a network pairs a token with the *state of the position before it*: a state of the target while the token is known
to stand, the network's own while it drafts. So states go through one buffer, shifted by a row:

    row 0           carried: the state before the first token of the batch
    row 1 + t       the state at the batch's token t
    last row        zeros: before the first token of a sequence

`ingest` fills it and writes keys and values of the pairs (row t, token t), all that a layer leaves behind for later.
What is true of a pair stays true, so nothing is computed again after a rejection: the row of the last token is carried,
and cells that a draft wrote are overwritten before anybody reads them. `draft` is one program for a whole draft.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from specli.kernels.ops import Buffer, Executor, Extent, Ops, Weight
from specli.models.base import ModelOptions
from specli.models.draft import N_CANDIDATES
from specli.models.layers import Rows, Scratch

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class FeedbackNetwork(ABC):
    """The buffers and programs around such a network. A subclass loads its weights, then calls `_compile`.

    Args:
        executor: Runs it; of the target's kind, because it may multiply borrowed weights.
        options: The cache's capacity: the context and one draft, and a cell behind them that nobody reads.
        features: `[T, ·]` float32, what the target captures.
        width: Elements of a state, D.
        head_width: Elements of what the head multiplies; None = D.
        n_draft: Tokens of a draft, N ≥ 1.
        n_logits: Tokens the head knows, V_d.
        mapping: `[V_d]` int32, the target's ids of those; None = the same.
        steps: Also make the programs for single steps, and look at several candidates.

    Attributes:
        cell_offset: Cell of a pair minus the position of its token.
        has_cells: It has a cache. If not, every step of a draft stands at the position of the newest token and sees
            what lies before that.
        executor: As given.
        n_draft: As given.
        logits: `[1, V_d]` float32 of the latest step.
    """

    cell_offset: ClassVar[int] = 0
    has_cells: ClassVar[bool] = True

    def __init__(
        self,
        executor: Executor,
        options: ModelOptions,
        *,
        features: Buffer,
        width: int,
        n_draft: int,
        n_logits: int,
        mapping: npt.NDArray[np.int32] | None = None,
        head_width: int | None = None,
        steps: bool = False,
    ) -> None:
        new, n = executor.buffer, features.capacity
        self.executor = executor
        self.n_draft = n_draft
        self._features = features
        self._mapping = None if mapping is None else executor.array(mapping)
        self._unread_cell = options.capacity - 1
        self._counting = np.arange(options.capacity, dtype=np.int32)

        states = new(n + 2, width, Extent.TOKENS)
        self._states = states
        self._before = states.rows(0, n)  # row t: the state before token t
        self._at = states.rows(1, n + 1)  # row t: the state at token t
        self._zero_row = n + 1
        self._carried = new(1, 1, Extent.ONE, np.int32)  # row of `states` to carry on with
        self._tokens = new(n, 1, Extent.TOKENS, np.int32)
        self._rows = self._new_rows(n, Extent.TOKENS)

        self._ids = new(n_draft, 1, Extent.ONE, np.int32)  # row i: the token that step i reads
        self._fed = new(n_draft + 1, width, Extent.ONE)  # row i: the state that step i reads; it writes row i + 1
        self._steps = self._new_rows(n_draft, Extent.ONE, ends=not self.has_cells)
        self._last = new(1, head_width or width, Extent.ONE)  # what the head multiplies
        self.logits = new(1, n_logits, Extent.ONE)
        n_candidates = min(N_CANDIDATES, n_logits) if steps else 1  # whole drafts are made of the best alone
        self._best_values = new(n_draft, n_candidates, Extent.ONE)
        self._best_ids = new(n_draft, n_candidates, Extent.ONE, np.int32)
        self._has_steps = steps

    # -- use -------------------------------------------------------------------------------------------------------

    def ingest(self, tokens: Ints, position: int, *, follows: bool) -> None:
        """Takes in tokens whose states the target has just captured; the last of these is carried on.

        Args:
            tokens: `[T]`.
            position: Of the first.
            follows: Whether the carried state is the one before the first token. If not, the pair of that token is in
                the cache already.
        """
        n, cell, cells = len(tokens), position + self.cell_offset, self._rows.positions
        if position == 0:
            self._carried.fill(self._zero_row)
        if cell < 0 or (position > 0 and not follows):
            cells.fill(self._unread_cell)
            cells.fill(self._counting[cell + 1 : cell + n], 1)
        else:
            cells.fill(self._counting[cell : cell + n])
        self._tokens.fill(tokens)
        self._ingest.run(n)
        self._carried.fill(n)

    def draft(self, token: int, position: int) -> tuple[Floats, Ints]:
        """Writes ahead, the likeliest token each time: one run of one program.

        Args:
            token: The newest token, not evaluated yet; the carried state is the one before it.
            position: Its position.

        Returns:
            Logits `[N, C]` of the best candidates of every step, descending, and the target's ids of them; C is 1
            without `steps`.
        """
        self._place(token, position)
        self._draft.run(1)
        return self._best_values.read(), self._best_ids.read()

    def start(self, token: int, position: int) -> tuple[Floats, Ints]:
        """As `draft`, the first step only: logits and ids `[C]`. Needs `steps`."""
        self._place(token, position)
        return self._step(0)

    def advance(self, index: int, token: int) -> tuple[Floats, Ints]:
        """Step `index` ≥ 1, reading any token in place of the likeliest."""
        self._ids.fill(token, index)
        return self._step(index)

    def close(self) -> None:
        """Releases the executor."""
        self.executor.close()

    # -- what a subclass says --------------------------------------------------------------------------------------

    @abstractmethod
    def _trace_states(self, ops: Ops) -> None:
        """`_at` from `_features`."""

    @abstractmethod
    def _trace_cells(self, ops: Ops) -> None:
        """Keys and values of the pairs (`_before`, `_tokens`) at `_rows`."""

    @abstractmethod
    def _trace_step(self, ops: Ops, index: int) -> None:
        """One token: `_last` and row `index + 1` of `_fed`, from row `index` of `_fed` and `_ids`, at `_step_rows`."""

    @abstractmethod
    def _head(self, index: int) -> Weight:
        """What makes logits of step `index`, `(V_d, ·)`."""

    # -- inside ----------------------------------------------------------------------------------------------------

    def _compile(self) -> None:
        """Makes the programs."""
        compile = self.executor.compile
        self._ingest = compile(self._trace_ingest)
        self._draft = compile(self._trace_draft)
        self._programs = [compile(self._one_step(index)) for index in range(self.n_draft if self._has_steps else 0)]

    def _step_rows(self, index: int) -> Rows:
        """The row of step `index`."""
        steps = self._steps
        ends = None if steps.ends is None else steps.ends.row(index)
        return Rows(steps.positions.row(index), steps.slots.row(index), steps.scratch, ends)

    def _new_rows(self, n: int, extent: Extent, *, ends: bool = False) -> Rows:
        scratch = Scratch(self.executor, n if extent == Extent.TOKENS else 1, extent)
        positions, slots, last = (self.executor.buffer(n, 1, extent, np.int32) for _ in range(3))
        return Rows(positions, slots, scratch, last if ends else None)

    def _place(self, token: int, position: int) -> None:
        self._ids.fill(token)
        if self._steps.ends is not None:
            self._steps.positions.spread(position)
            self._steps.ends.spread(position)
        else:
            cell = position + self.cell_offset
            self._steps.positions.fill(self._counting[cell : cell + self.n_draft])

    def _step(self, index: int) -> tuple[Floats, Ints]:
        self._programs[index].run(1)
        return self._best_values.read()[index], self._best_ids.read()[index]

    def _trace_ingest(self, ops: Ops) -> None:
        self._trace_carry(ops, self._states.row(0))
        self._trace_states(ops)
        self._trace_cells(ops)

    def _trace_draft(self, ops: Ops) -> None:
        for index in range(self.n_draft):
            self._trace_one(ops, index)
            if index + 1 < self.n_draft:
                ops.copy(self._ids.row(index + 1), self._best_ids.row(index).columns(0, 1))

    def _one_step(self, index: int) -> Callable[[Ops], None]:
        return lambda ops: self._trace_one(ops, index)

    def _trace_one(self, ops: Ops, index: int) -> None:
        if index == 0:
            self._trace_carry(ops, self._fed.row(0))
        self._trace_step(ops, index)
        ops.linear([self.logits], self._last, [self._head(index)])
        values, ids = self._best_values.row(index), self._best_ids.row(index)
        ops.top_k(values, ids, self.logits)
        if self._mapping is not None:
            ops.map_ids(ids, ids, self._mapping)

    def _trace_carry(self, ops: Ops, out: Buffer) -> None:
        ops.gather(out, self._states, self._carried)
