"""A whole model that writes ahead, the likeliest token each time: several forwards as one run of one program."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specli.kernels.ops import Extent, Ops
from specli.models.base import Ints, Model
from specli.models.draft import N_CANDIDATES
from specli.models.layers import Rows, Scratch

SLOT = 0  # one sequence
Floats = npt.NDArray[np.float32]


class Writer:
    """Continues the sequence in a model's cache.

    The first forward takes in whatever the cache lacks; every further one reads the likeliest token of the one before
    it, on rows of its own.

    Args:
        model: The model; has room for the context and the tokens ahead.
        n_steps: Tokens to write, N ≥ 1. The last is not evaluated.
        n_logits: Leading tokens of the vocabulary that may be written.
        n_candidates: Best tokens of a step that `write` returns.
    """

    def __init__(self, model: Model, *, n_steps: int, n_logits: int, n_candidates: int = N_CANDIDATES) -> None:
        new, config = model.executor.buffer, model.config
        n_candidates = min(n_candidates, n_logits)
        self.n_steps = n_steps
        self._model = model
        self._n_logits = n_logits
        self._counting = np.arange(model.options.capacity + n_steps, dtype=np.int32)
        self._positions = new(n_steps, 1, Extent.ONE, np.int32)
        self._slots = new(n_steps, 1, Extent.ONE, np.int32)
        self._scratch = Scratch(model.executor, 1, Extent.ONE)
        self._x = new(1, config.n_embd, Extent.ONE)
        self._last = new(1, config.n_embd, Extent.ONE)
        self._logits = new(1, config.n_vocab, Extent.ONE)
        self._values = new(n_steps, n_candidates, Extent.ONE)
        self._ids = new(n_steps, n_candidates, Extent.ONE, np.int32)
        self._program = model.executor.compile(self._trace)

    def write(self, tokens: Ints, position: int) -> tuple[Floats, Ints]:
        """Evaluates tokens and writes on; the cache then holds `len(tokens)` + N - 1 tokens more.

        Args:
            tokens: `[T]`, 1 ≤ T ≤ max_tokens; what follows the cache's sequence.
            position: Of the first.

        Returns:
            Logits `[N, C]` of the best candidates of every step, descending, and their ids; views that the next call
            overwrites.
        """
        n, end, counting = len(tokens), position + len(tokens), self._counting
        self._model.place(tokens, counting[position:end], 0 * tokens, counting[n - 1 : n])
        self._positions.fill(counting[end : end + self.n_steps])
        self._program.run(n, 1)
        self._model.cache.extended(SLOT, end + self.n_steps - 1)
        return self._values.read(), self._ids.read()

    def _trace(self, ops: Ops) -> None:
        model = self._model
        model.trace(ops)
        logits = model.logits.row(0)
        for index in range(self.n_steps):
            ids = self._ids.row(index)
            ops.top_k(self._values.row(index), ids, logits.columns(0, self._n_logits))
            if index + 1 < self.n_steps:
                rows = Rows(self._positions.row(index), self._slots.row(index), self._scratch)
                model.trace_stream(ops, ids.columns(0, 1), self._x, rows)
                model.trace_logits(ops, self._logits, self._last, self._x)
                logits = self._logits
