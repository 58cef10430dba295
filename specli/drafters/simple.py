"""draft-simple: a smaller model of the same vocabulary writes ahead (speculation.md §5.1).

llama.cpp `common/speculative.cpp`, `common_speculative_state_draft`. There the draft model reads every batch after the
target, rejected tokens included, and what it evaluated while drafting is thrown away. Kernels are batch-invariant here,
so what is in its cache already is kept as far as it agrees with the sequence, and what is missing is evaluated together
with the first token of the next draft: same drafts, about half the work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from specli.drafters.base import Draft, DraftRequest, TargetBatch
from specli.drafters.config import DraftConfig
from specli.drafters.stepping import CandidateSampler, propose
from specli.models.base import Model

SLOT = 0
UNKNOWN_AS = 0  # what the draft model reads for a token that only the target has


class DraftSimple:
    """Proposes what a small model would write.

    Args:
        model: The draft model; has room for the whole context. Closed with the drafter.
        config: Draft length and thresholds.
        n_vocab: Tokens of the target; nothing beyond them is proposed.
    """

    name = "draft-simple"
    reads_features = False

    def __init__(self, model: Model, config: DraftConfig, *, n_vocab: int) -> None:
        self.max_draft = max(1, config.n_max)
        self._model = model
        self._config = config
        self._n_shared = min(n_vocab, model.config.n_vocab)
        self._sampler = CandidateSampler(probabilistic=config.probabilistic)
        self._told: list[int] = []  # the target's tokens as `process` showed them, rejected tail included
        self._cached: list[int] = []  # the tokens in the draft model's cache
        self._n_agreed = 0  # leading cached tokens known to be the sequence's
        self._is_generating = False

    def begin(self, prompt: Sequence[int]) -> None:
        """The prompt is in the cache once `process` saw it; whatever is missing is evaluated now."""
        self._sampler.reset()
        self._is_generating = True
        self._n_agreed = 0
        missing = self._agree(prompt)
        if missing:
            self._feed(missing, wants_logits=False)

    def process(self, batch: TargetBatch) -> None:
        """Reads a prompt along; the rounds of a generation are caught up with when the next draft is wanted."""
        del self._told[int(batch.positions[0]) :]
        self._told += batch.tokens.tolist()
        if not self._is_generating:
            self._feed(self._agree(self._told), wants_logits=False)

    def draft(self, request: DraftRequest) -> Draft:
        """Proposes up to `n_max` tokens; see `specli.drafters.stepping.propose`."""
        self._sampler.prepare(request)
        missing = self._agree(request.history)
        logits = self._feed([*missing, request.last_token], wants_logits=True)
        return propose(logits, self._advance, self._sampler, self._config, limit=request.max_tokens)

    def accept(self, n_accepted: int, *, own: bool) -> None:
        """Nothing: the history of the next request holds the verdict."""

    def rewind(self, length: int) -> None:
        """Forgets what lies beyond `length`. A new prompt follows."""
        del self._told[length:]
        self._cut(min(length, len(self._cached)))
        self._is_generating = False

    def close(self) -> None:
        """Releases the draft model."""
        self._model.close()

    def _advance(self, token: int) -> torch.Tensor:
        return self._feed([token], wants_logits=True)

    def _agree(self, tokens: Sequence[int]) -> list[int]:
        """Cuts the cache to what it has in common with the sequence `tokens`; returns the tokens it then lacks."""
        end = min(len(self._cached), len(tokens))
        keep = next((i for i in range(self._n_agreed, end) if self._cached[i] != tokens[i]), end)
        self._cut(keep)
        self._n_agreed = len(tokens)
        return list(tokens[len(self._cached) :])

    def _cut(self, length: int) -> None:
        """Cuts the cache, to nothing where recurrent layers no longer know the state at `length`."""
        if not self._model.cache.can_truncate(SLOT, length):
            length = 0
        del self._cached[length:]
        self._model.cache.truncate(SLOT, length)
        self._n_agreed = min(self._n_agreed, length)

    def _feed(self, tokens: list[int], *, wants_logits: bool) -> torch.Tensor:
        """Evaluates tokens behind the cache in batches; the logits `[n_shared]` of the last, `[0]` if not wanted."""
        size = self._model.options.max_tokens
        logits = torch.empty(0)
        for at in range(0, len(tokens), size):
            chunk = np.asarray(tokens[at : at + size], dtype=np.int32)
            chunk[chunk >= self._model.config.n_vocab] = UNKNOWN_AS
            start = len(self._cached)
            positions = np.arange(start, start + len(chunk), dtype=np.int32)
            is_last = at + size >= len(tokens)
            outputs = np.asarray([len(chunk) - 1] if wants_logits and is_last else [], dtype=np.int32)
            out = self._model.forward(chunk, positions, np.full_like(chunk, SLOT), outputs)
            self._cached += tokens[at : at + size]
            if len(outputs):
                logits = out.logits[0, : self._n_shared]
        return logits
