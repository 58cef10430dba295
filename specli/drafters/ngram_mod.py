"""ngram-mod: one pool from the hash of an n-gram to the token that followed it (docs/speculation.md §5.10).

llama.cpp `common/ngram-mod.cpp` and the ngram-mod part of `common/speculative.cpp`. The pool stores no n-grams, so two
with the same hash share an entry and the later one wins; drafts walk through the pool token by token. The hash is taken
modulo 2⁶⁴ and then modulo the pool's 2²² entries in llama.cpp; modulo 2²² at once is the same, and rolls.

A server's sequences share a pool, as in llama.cpp, unless they are told not to; whoever empties it, each enters its
history again. Elsewhere a sequence has a pool of its own, which is cleared with the history (`specli.drafters.ngram`):
drafts do not depend on what others said.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Sequence

from specli.drafters import TableParts
from specli.drafters.base import Draft, DraftRequest
from specli.drafters.ngram import NgramDrafter, NgramTable

N_ENTRIES = 4 * 1024 * 1024
EMPTY = -1
MAX_OCCUPANCY = 0.25
MIN_ADD = 32  # n-grams are added once the history has grown by this much since the last one added
LOW_ACCEPTANCE = 0.25
MAX_LOW_ROUNDS = 5
MIN_GOOD_MATCH = 16

_MASK = N_ENTRIES - 1
_FACTOR = 6364136223846793005 & _MASK

log = logging.getLogger(__name__)


def hash_ngram(tokens: Sequence[int]) -> int:
    """The pool entry of an n-gram."""
    value = 0
    for token in tokens:
        value = (value * _FACTOR + token) & _MASK
    return value


def build_ngram_mod(parts: TableParts) -> NgramDrafter:
    """The drafter, with one pool for all sequences or one for each."""
    pool = NgramModPool() if parts.shared_pool else None
    return NgramDrafter(lambda: NgramMod(parts.n_draft, **parts.values, pool=pool))


class NgramModPool:
    """From the hash of an n-gram to the token that followed it.

    Attributes:
        entries: The tokens; `EMPTY` where no n-gram has been entered.
        n_used: Entries that are not empty.
        epoch: How often the pool has been emptied.
    """

    def __init__(self) -> None:
        self.epoch = -1
        self.clear()

    def clear(self) -> None:
        """Empties the pool."""
        self.entries = array("i", [EMPTY]) * N_ENTRIES
        self.n_used = 0
        self.epoch += 1


class NgramMod(NgramTable):
    """Proposes up to `n_draft` tokens by walking the pool; nothing if the walk ends before `n_min`.

    Args:
        n_draft: Most tokens of a draft.
        n_match: Tokens of an n-gram.
        n_min: Least tokens of a draft.
        pool: Shared with other sequences; None = one of its own.
    """

    name = "ngram-mod"

    def __init__(self, n_draft: int, n_match: int, n_min: int, *, pool: NgramModPool | None = None) -> None:
        super().__init__()
        self._is_alone = pool is None
        self._pool = pool or NgramModPool()
        self.max_draft = n_draft
        self._n = n_match
        self._n_min = n_min
        self._leaving = pow(_FACTOR, self._n, N_ENTRIES)  # weight of the token that leaves a rolling hash
        self._n_low_rounds = 0
        self._start()
        if self._n < MIN_GOOD_MATCH:
            self.advice = f"n-match {self._n} is small, drafts may be poor (below {MIN_GOOD_MATCH})"

    def _forget(self) -> None:
        if self._is_alone:
            self._pool.clear()
        self._start()
        self._n_low_rounds = 0

    def _start(self) -> None:
        """Nothing of the history is in the pool."""
        self._epoch = self._pool.epoch
        self._n_added = 0  # n-grams of the history that are in the pool
        self._n_drafted = 0

    def _clear(self) -> None:
        self._pool.clear()
        self._start()

    def _learn_prompt(self, prompt: Sequence[int]) -> None:
        self._n_added = 0
        self._n_drafted = 0
        self._add(self._follow(prompt))
        occupancy = self._pool.n_used / N_ENTRIES
        if occupancy > MAX_OCCUPANCY:
            log.warning("ngram-mod: occupancy %.2f exceeds %.2f, resetting the pool", occupancy, MAX_OCCUPANCY)
            n_added = self._n_added
            self._clear()
            self._n_added = n_added  # llama.cpp does not add this prompt again

    def _add(self, tokens: list[int]) -> None:
        """Enters the n-grams from the last one added to the newest that has a successor."""
        if self._epoch != self._pool.epoch:  # another sequence has emptied it
            self._epoch, self._n_added = self._pool.epoch, 0
        n, pool, leaving = self._n, self._pool.entries, self._leaving
        stop = len(tokens) - n
        if stop <= self._n_added:
            return
        value, n_new = hash_ngram(tokens[self._n_added : self._n_added + n]), 0
        for i in range(self._n_added, stop):
            following = tokens[i + n]
            n_new += pool[value] == EMPTY
            pool[value] = following
            value = (value * _FACTOR + following - tokens[i] * leaving) & _MASK
        self._pool.n_used += n_new
        self._n_added = stop

    def draft(self, request: DraftRequest) -> Draft:
        """Walks from the newest `n_match` tokens, the last token included, over what it proposes itself."""
        n = self._n
        tokens = self._follow(request.history)
        length = len(tokens)
        self._n_drafted = 0
        if length < n:
            return Draft()
        if self._n_added + MIN_ADD < length or self._epoch != self._pool.epoch:
            self._add(tokens)
        walk = [*tokens[length - n + 1 :], request.last_token]
        value = hash_ngram(walk)
        for i in range(self.max_draft):
            token = self._pool.entries[value]
            if token == EMPTY:
                if i < self._n_min:
                    return Draft()
                break
            value = (value * _FACTOR + token - walk[i] * self._leaving) & _MASK
            walk.append(token)
        self._n_drafted = len(walk) - n
        return Draft(walk[n:])

    def cut(self, n_tokens: int) -> None:
        """A round is poor by what was tried of its draft."""
        self._n_drafted = n_tokens

    def accept(self, n_accepted: int) -> None:
        """Five poor rounds in a row clear the pool; the history is added again with the next draft."""
        if not self._n_drafted:
            return
        if n_accepted / self._n_drafted >= LOW_ACCEPTANCE:
            self._n_low_rounds = 0
            return
        self._n_low_rounds += 1
        if self._n_low_rounds >= MAX_LOW_ROUNDS:
            self._n_low_rounds = 0
            self._clear()
