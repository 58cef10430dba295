"""Draft networks that write token by token and read their own hidden state back: EAGLE-3, MTP, Gemma 4 assistants.

Such a network pairs a token with the *state of the position before it*: a state of the target while the token is known
to stand, the network's own while it drafts (llama.cpp `common/speculative.cpp`). States of all sequences lie in one
buffer:

    row s           carried: the state at the newest token of the sequence in slot s
    row S + t       the state at token t of the batch that is taken in, S = number of slots
    last row        zeros: before the first token of a sequence

`ingest` fills it and writes keys and values of the pairs, all that a layer leaves behind for later. What is true of a
pair stays true, so nothing is computed again after a rejection: the row of the last token is carried, and cells that a
draft wrote are overwritten before anybody reads them. `draft` is one run of one program for a whole draft of any number
of sequences: a row each, and a step that is recorded once and repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from specli.kernels.ops import Buffer, Executor, Extent, Ops, Program, Weight, host
from specli.models.base import ModelOptions
from specli.models.draft import N_CANDIDATES, Anchor, Part
from specli.models.layers import Rows, Scratch

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class Step(NamedTuple):
    """What one step of a draft works on, a row per sequence.

    Attributes:
        tokens: `[S, 1]` int32, what it reads.
        before: `[S, D]`, the state before the token.
        after: `[S, D]`, the state at the token, which it writes; may be the same buffer.
        rows: Positions and slots.
    """

    tokens: Buffer
    before: Buffer
    after: Buffer
    rows: Rows


class FeedbackNetwork(ABC):
    """The buffers and programs around such a network. A subclass loads its weights, then calls `_compile`.

    Args:
        executor: Runs it; of the target's kind, because it may multiply borrowed weights.
        options: Number of slots, and the cache's capacity: the context and one draft, and a cell behind them that
            nobody reads.
        features: `[R, ·]` float32, what the target captures.
        width: Elements of a state, D.
        head_width: Elements of what the head multiplies; None = D.
        n_draft: Most tokens of a draft, N ≥ 1.
        n_logits: Tokens the head knows, V_d.
        mapping: `[V_d]` int32, the target's ids of those; None = the same.
        steps: Also make the programs for single steps, and look at several candidates.
        n_blocks: Blocks that take turns: step i is made by block i. 1 = all steps are alike.

    Attributes:
        cell_offset: Cell of a pair minus the position of its token.
        has_cells: It has a cache. If not, every step of a draft stands at the position of the newest token and sees
            what lies before that.
        executor: As given.
        n_draft: As given.
        n_slots: Sequences there is room for, S.
        is_normed: Whole drafts come with log-probabilities.
        logits: `[S, V_d]` float32 of the latest step.
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
        n_blocks: int = 1,
    ) -> None:
        new, n = executor.buffer, features.capacity
        self.executor = executor
        self.n_draft = n_draft
        self.n_slots = n_slots = options.n_slots
        self._features = features
        self._mapping = None if mapping is None else executor.array(mapping)
        self._unread_cell = options.capacity - 1
        self._counting = np.arange(max(options.capacity, n_slots + n), dtype=np.int32)

        states = new(n_slots + n + 1, width, Extent.TOKENS)
        self._states = states
        self._carried = states.per_sequence(0, n_slots)
        self._at = states.rows(n_slots, n_slots + n)  # row t: the state at token t
        self._zero_row = n_slots + n
        self._before = new(n, width, Extent.TOKENS)  # row t: the state before token t
        self._before_rows = new(n, 1, Extent.TOKENS, np.int32)  # where that lies among the states
        self._feature_rows = new(n, 1, Extent.TOKENS, np.int32)
        self._tokens = new(n, 1, Extent.TOKENS, np.int32)
        self._rows = self._new_rows(n, Extent.TOKENS)
        self._newest = new(n_slots, width, Extent.SEQUENCES)
        self._newest_rows = new(n_slots, 1, Extent.SEQUENCES, np.int32)
        self._newest_slots = new(n_slots, 1, Extent.SEQUENCES, np.int32)

        n_candidates = min(N_CANDIDATES, n_logits) if steps else 1  # whole drafts are made of the best alone
        self._steps = self._new_steps(n_draft if n_blocks > 1 else 1, width)
        self._last = new(n_slots, head_width or width, Extent.SEQUENCES)  # what the head multiplies
        self.logits = new(n_slots, n_logits, Extent.SEQUENCES)
        self._values = new(n_slots, n_candidates, Extent.SEQUENCES)
        self._ids = new(n_slots, n_candidates, Extent.SEQUENCES, np.int32)
        self._all_values = new(n_slots * n_draft, n_candidates, Extent.SEQUENCES)  # row b·N + i: step i of sequence b
        self._all_ids = new(n_slots * n_draft, n_candidates, Extent.SEQUENCES, np.int32)
        self._all_rows = new(n_slots, 1, Extent.SEQUENCES, np.int32)  # those of the present step
        self._first_rows = new(n_slots, 1, Extent.SEQUENCES, np.int32)  # those of the first step
        self._first_rows.fill(np.arange(0, n_slots * n_draft, n_draft, dtype=np.int32))
        self._by_sequence = [
            buffer.storage.reshape(n_slots, n_draft, -1) for buffer in (self._all_values, self._all_ids)
        ]
        self._has_steps = steps
        self.is_normed = options.log_probabilities and n_candidates == 1

    # -- use -------------------------------------------------------------------------------------------------------

    def ingest(self, parts: Sequence[Part]) -> None:
        """Takes in tokens whose states the target has just captured; the last of every part is carried on.

        Args:
            parts: Of different slots, at least one; together at most as many tokens as the target takes at once. Of one
                that does not follow, the pair of its first token is in the cache already.
        """
        counting, positions, start = self._counting, self._rows.positions, 0
        for number, (slot, tokens, position, first_row, follows) in enumerate(parts):
            n, cell = len(tokens), position + self.cell_offset
            end, row = start + n, self.n_slots + start
            if cell < 0 or (position > 0 and not follows):
                positions.fill(self._unread_cell, start)
                positions.fill(counting[cell + 1 : cell + n], start + 1)
            else:
                positions.fill(counting[cell : cell + n], start)
            self._tokens.fill(tokens, start)
            self._feature_rows.fill(counting[first_row : first_row + n], start)
            self._before_rows.fill(slot if position > 0 else self._zero_row, start)
            self._before_rows.fill(counting[row : row + n - 1], start + 1)
            if self.n_slots > 1:  # a single one's number is there already
                self._rows.slots.fill(slot, start, end)
                self._newest_slots.fill(slot, number)
            self._newest_rows.fill(row + n - 1, number)
            start = end
        self._ingest.run(start, sequences=len(parts))

    def draft(self, anchors: Sequence[Anchor], n_steps: int) -> tuple[Floats, Ints]:
        """Writes ahead, the likeliest token each time: one run of one program.

        Args:
            anchors: Of different slots, at least one, B.
            n_steps: Tokens to write, 1 … N.

        Returns:
            Logits `[B, n_steps, C]` of the best candidates of every step, descending, and the target's ids of them; C
            is 1 without `steps`, and then they may be log-probabilities (`ModelOptions`). Views that the next run
            overwrites.
        """
        self._place(anchors)
        self._draft.run(sequences=len(anchors), steps=n_steps)
        return self._results(len(anchors), slice(n_steps))

    def start(self, anchors: Sequence[Anchor]) -> tuple[Floats, Ints]:
        """As `draft`, the first step only: logits and ids `[B, C]`. Needs `steps`."""
        self._place(anchors)
        return self._step(0, len(anchors))

    def advance(self, index: int, tokens: Ints) -> tuple[Floats, Ints]:
        """Step `index` ≥ 1 of the first sequences of the draft, reading any tokens in place of the likeliest.

        Args:
            index: Counts up by one from call to call.
            tokens: `[B']`, one for each of the first B' sequences; never more of them than in the call before.
        """
        self._steps[min(index, len(self._steps) - 1)].tokens.fill(tokens)
        return self._step(index, len(tokens))

    def close(self) -> None:
        """Releases the executor."""
        self.executor.close()

    # -- what a subclass says --------------------------------------------------------------------------------------

    @abstractmethod
    def _trace_states(self, ops: Ops) -> None:
        """`_at` from rows `_feature_rows` of `_features`."""

    @abstractmethod
    def _trace_cells(self, ops: Ops) -> None:
        """Keys and values of the pairs (`_before`, `_tokens`) at `_rows`."""

    @abstractmethod
    def _trace_step(self, ops: Ops, step: Step, index: int) -> None:
        """One token: `_last` and the state at it; `index` is 0 where all steps are alike."""

    @abstractmethod
    def _head(self, index: int) -> Weight:
        """What makes logits of step `index`, `(V_d, ·)`."""

    # -- inside ----------------------------------------------------------------------------------------------------

    def _compile(self) -> None:
        """Makes the programs: steps that are alike are one part that is repeated."""
        compile, is_repeated = self.executor.compile, len(self._steps) == 1
        self._ingest = compile(self._trace_ingest)
        self._draft = compile(self._trace_draft)
        self._programs: list[Program] = []  # of a single step; the first of a draft carries the state over
        if self._has_steps and is_repeated:
            self._programs = [self._draft, compile(lambda ops: ops.repeat(lambda: self._trace_next(ops)))]
        elif self._has_steps:
            self._programs = [compile(partial(self._trace_single, index=index)) for index in range(self.n_draft)]

    def _new_steps(self, n: int, width: int) -> list[Step]:
        """The buffers of a step that is repeated, or of `n` steps of which each reads what the one before wrote."""
        new, n_slots = self.executor.buffer, self.n_slots
        states = [new(n_slots, width, Extent.SEQUENCES) for _ in range(n + 1 if n > 1 else 1)]
        shared = self._new_rows(n_slots, Extent.SEQUENCES, ends=not self.has_cells)
        return [
            Step(
                new(n_slots, 1, Extent.SEQUENCES, np.int32),
                states[index],
                states[index + 1 if n > 1 else 0],
                replace(shared, positions=new(n_slots, 1, Extent.SEQUENCES, np.int32)),
            )
            for index in range(n)
        ]

    def _new_rows(self, n: int, extent: Extent, *, ends: bool = False) -> Rows:
        positions, slots, last = (self.executor.buffer(n, 1, extent, np.int32) for _ in range(3))
        return Rows(positions, slots, Scratch(self.executor, n, extent), last if ends else None)

    def _place(self, anchors: Sequence[Anchor]) -> None:
        first = self._steps[0]
        for row, (slot, token, position) in enumerate(anchors):
            first.tokens.fill(token, row)
            if self.n_slots > 1:
                first.rows.slots.fill(slot, row)
            if first.rows.ends is not None:
                first.rows.ends.fill(position, row)
            for index, step in enumerate(self._steps):
                step.rows.positions.fill(position + self.cell_offset + index, row)

    def _step(self, index: int, n_sequences: int) -> tuple[Floats, Ints]:
        self._programs[min(index, len(self._programs) - 1)].run(sequences=n_sequences, steps=1)
        return self._results(n_sequences, index)

    def _results(self, n_sequences: int, steps: slice | int) -> tuple[Floats, Ints]:
        values, ids = self._by_sequence
        return host(values[:n_sequences, steps]), host(ids[:n_sequences, steps])

    def _trace_ingest(self, ops: Ops) -> None:
        self._trace_states(ops)
        ops.gather(self._before, self._states, self._before_rows)
        self._trace_cells(ops)
        ops.gather(self._newest, self._states, self._newest_rows)
        ops.scatter(self._carried, self._newest, self._newest_slots)

    def _trace_draft(self, ops: Ops) -> None:
        if len(self._steps) == 1:
            self._trace_carry(ops)
            ops.repeat(lambda: self._trace_next(ops))
            return
        for index in range(self.n_draft):
            self._trace_single(ops, index)
            if index + 1 < self.n_draft:
                ops.copy(self._steps[index + 1].tokens, self._ids.columns(0, 1))

    def _trace_next(self, ops: Ops) -> None:
        """The step that is repeated; leaves everything as the next one reads it."""
        (step,) = self._steps
        self._trace_one(ops, step, 0)
        ops.copy(step.tokens, self._ids.columns(0, 1))
        if self.has_cells:
            ops.increment(step.rows.positions)

    def _trace_single(self, ops: Ops, index: int) -> None:
        """A step that is no other's like."""
        if index == 0:
            self._trace_carry(ops)
        self._trace_one(ops, self._steps[index], index)

    def _trace_one(self, ops: Ops, step: Step, index: int) -> None:
        self._trace_step(ops, step, index)
        ops.linear([self.logits], self._last, [self._head(index)])
        ops.top_k(self._values, self._ids, self.logits)
        if self.is_normed:
            ops.log_softmax(self._values, self.logits)
        if self._mapping is not None:
            ops.map_ids(self._ids, self._ids, self._mapping)
        ops.scatter(self._all_values, self._values, self._all_rows)
        ops.scatter(self._all_ids, self._ids, self._all_rows)
        ops.increment(self._all_rows)

    def _trace_carry(self, ops: Ops) -> None:
        """What comes before the first step."""
        first = self._steps[0]
        ops.gather(first.before, self._carried, first.rows.slots)
        ops.copy(self._all_rows, self._first_rows)
