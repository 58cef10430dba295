"""A whole model that writes ahead, the likeliest token each time: several forwards as one run of one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specli.kernels.ops import Buffer, Extent, Ops, host
from specli.models.base import Ints, Model
from specli.models.draft import N_CANDIDATES
from specli.models.layers import Rows, Scratch

Floats = npt.NDArray[np.float32]


class Beginning(NamedTuple):
    """What a sequence's cache lacks before it is written on.

    Attributes:
        slot: Of the sequence.
        tokens: At least one; what follows its cached tokens.
        position: Of the first.
    """

    slot: int
    tokens: Sequence[int]
    position: int


class Writer:
    """Continues sequences in a model's cache.

    The first forward takes in whatever the caches lack; every further one reads the likeliest token of the one before
    it, a row per sequence. It is recorded once and repeated.

    Args:
        model: The model; has room for the context and the tokens ahead, and for a row of logits per slot.
        n_steps: Most tokens to write, N ≥ 1. The last is not evaluated.
        n_logits: Leading tokens of the vocabulary that may be written.
        n_candidates: Best tokens of a step that `write` returns, C.
    """

    def __init__(self, model: Model, *, n_steps: int, n_logits: int, n_candidates: int = N_CANDIDATES) -> None:
        new, config, n_slots = model.executor.buffer, model.config, model.options.n_slots
        assert n_slots <= model.options.max_outputs
        n_candidates = min(n_candidates, n_logits)
        self.n_steps = n_steps
        self._model = model
        self._n_logits = n_logits
        self._is_normed = model.options.log_probabilities and n_candidates == 1
        self._tokens = new(n_slots, 1, Extent.SEQUENCES, np.int32)
        self._rows = Rows(
            positions=new(n_slots, 1, Extent.SEQUENCES, np.int32),
            slots=new(n_slots, 1, Extent.SEQUENCES, np.int32),
            scratch=Scratch(model.executor, n_slots, Extent.SEQUENCES),
        )
        self._x = new(n_slots, config.n_embd, Extent.SEQUENCES)
        self._last = new(n_slots, config.n_embd, Extent.SEQUENCES)
        self._logits = new(n_slots, config.n_vocab, Extent.SEQUENCES)
        self._values = new(n_slots, n_candidates, Extent.SEQUENCES)
        self._ids = new(n_slots, n_candidates, Extent.SEQUENCES, np.int32)
        self._all_values = new(n_slots * n_steps, n_candidates, Extent.SEQUENCES)  # row b·N + i: step i of sequence b
        self._all_ids = new(n_slots * n_steps, n_candidates, Extent.SEQUENCES, np.int32)
        self._all_rows = new(n_slots, 1, Extent.SEQUENCES, np.int32)  # those of the present step
        self._first_rows = new(n_slots, 1, Extent.SEQUENCES, np.int32)  # those of the first step
        self._first_rows.fill(np.arange(0, n_slots * n_steps, n_steps, dtype=np.int32))
        self._by_sequence = [
            buffer.storage.reshape(n_slots, n_steps, -1) for buffer in (self._all_values, self._all_ids)
        ]
        self._program = model.executor.compile(self._trace)

    def write(self, beginnings: Sequence[Beginning], n_steps: int) -> tuple[Floats, Ints]:
        """Evaluates tokens and writes on; each cache then holds its `tokens` and `n_steps` - 1 tokens more.

        Args:
            beginnings: Of different slots, B ≥ 1; together at most `max_tokens` tokens.
            n_steps: Tokens to write, 1 … N.

        Returns:
            Logits `[B, n_steps, C]` of the best candidates of every step, descending, and their ids; where C is 1 they
            may be log-probabilities (`ModelOptions`). Views that the next call overwrites.
        """
        model, n = self._model, len(beginnings)
        all_tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        outputs: list[int] = []
        for row, (slot, tokens, position) in enumerate(beginnings):
            end = position + len(tokens)
            all_tokens += tokens
            positions += range(position, end)
            slots += [slot] * len(tokens)
            outputs.append(len(all_tokens) - 1)
            if n_steps > 1:
                self._rows.positions.fill(end, row)
                if model.options.n_slots > 1:  # a single one's number is there already
                    self._rows.slots.fill(slot, row)
            model.cache.extended(slot, end + n_steps - 1)
        model.place(_ints(all_tokens), _ints(positions), _ints(slots), _ints(outputs))
        self._program.run(len(all_tokens), n, n, n_steps - 1)
        values, ids = self._by_sequence
        return host(values[:n, :n_steps]), host(ids[:n, :n_steps])

    def _trace(self, ops: Ops) -> None:
        model = self._model
        model.trace(ops)
        ops.copy(self._all_rows, self._first_rows)
        self._trace_choice(ops, model.logits.per_sequence(0, model.options.n_slots))
        ops.repeat(lambda: self._trace_next(ops))

    def _trace_next(self, ops: Ops) -> None:
        ops.copy(self._tokens, self._ids.columns(0, 1))
        self._model.trace_stream(ops, self._tokens, self._x, self._rows)
        self._model.trace_logits(ops, self._logits, self._last, self._x)
        self._trace_choice(ops, self._logits)
        ops.increment(self._rows.positions)

    def _trace_choice(self, ops: Ops, logits: Buffer) -> None:
        """The best candidates of a step, kept where they belong."""
        known = logits.columns(0, self._n_logits)
        ops.top_k(self._values, self._ids, known)
        if self._is_normed:
            ops.log_softmax(self._values, known)
        ops.scatter(self._all_values, self._values, self._all_rows)
        ops.scatter(self._all_ids, self._ids, self._all_rows)
        ops.increment(self._all_rows)


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int32)
