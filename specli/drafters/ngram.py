"""What the n-gram drafters share: a table per sequence, what it has learnt from, and when it forgets that.

llama.cpp keeps the tables of ngram-map, ngram-mod and ngram-cache for the life of the server, whatever the next request
holds; drafts then depend on what other requests left behind, and a short prompt after a long one may find stale entries
or learn nothing (docs/faults.md D2, D4, D7). Here a table lives as long as its history does: a request whose prompt
goes on from the history learnt so far (the next turn of a conversation) finds the tables exactly as llama.cpp would
have them; any other prompt starts from empty tables, so that it gets the drafts of a fresh process.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from specli.drafters.base import Draft, Drafter, DraftRequest, TargetBatch

log = logging.getLogger(__name__)

GRADES = (4, 16)  # tokens before a match that are equal, too


class NgramTable(ABC):
    """What is known of one sequence, in which its own drafts are looked up.

    Attributes:
        name: The spec type.
        max_draft: Most tokens it ever proposes.
        advice: What is wrong with its settings, or None.
    """

    name: str
    max_draft: int
    advice: str | None = None

    def __init__(self) -> None:
        self._tokens: list[int] = []  # what was learnt from; a prefix of the history until `begin` finds otherwise

    def begin(self, prompt: Sequence[int]) -> None:
        """Keeps the tables if the prompt goes on from what was learnt, else clears them; then learns the prompt."""
        known = len(self._tokens)
        if list(prompt[:known]) != self._tokens:
            self._tokens = []
            self._forget()
        self._learn_prompt(prompt)

    @abstractmethod
    def draft(self, request: DraftRequest) -> Draft:
        """Proposes what followed the newest n-gram before."""

    def accept(self, n_accepted: int) -> None:  # noqa: B027 (a default)
        """How many tokens of the latest draft were accepted; nothing to do, unless a table learns from that."""

    def cut(self, n_tokens: int) -> None:  # noqa: B027 (a default)
        """Of the latest draft only the first `n_tokens` will be verified, by choice."""

    def close(self) -> None:  # noqa: B027 (a default)
        """Nothing to do, unless a table keeps a file."""

    @abstractmethod
    def _forget(self) -> None:
        """Back to the state of a new table."""

    @abstractmethod
    def _learn_prompt(self, prompt: Sequence[int]) -> None:
        """The table's own part of `begin`."""

    def _follow(self, history: Sequence[int]) -> list[int]:
        """Takes over the tokens that came to the history since the last call; the table's own copy of it."""
        self._tokens.extend(history[len(self._tokens) :])
        return self._tokens


def match_grade(tokens: Sequence[int], match: int, end: int) -> int:
    """How far two equal n-grams of a history are preceded by equal tokens: 0 = by less than 4, 1 = by less than 16.

    Args:
        tokens: The history.
        match: Index of the earlier one.
        end: Index of the later one, greater.

    Returns:
        0, 1 or 2: the longer the common part, the likelier it goes on.
    """
    n = 0
    while n < GRADES[-1] and match > n and tokens[match - 1 - n] == tokens[end - 1 - n]:
        n += 1
    return sum(n >= least for least in GRADES)


class NgramDrafter(Drafter):
    """A drafter of tables, one for each slot that is used.

    Args:
        make: Makes a table.
    """

    reads_features = False
    reads_batches = False

    def __init__(self, make: Callable[[], NgramTable]) -> None:
        table = make()
        self.name, self.max_draft = table.name, table.max_draft
        self._make = make
        self._tables = {0: table}
        if table.advice is not None:
            log.warning("%s: %s", table.name, table.advice)

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        """See `NgramTable.begin`."""
        self._table(slot).begin(prompt)

    def process(self, parts: Sequence[TargetBatch]) -> None:
        """Nothing to do: a table reads the history, which comes with every request."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See `NgramTable.draft`."""
        return [self._table(request.slot).draft(request) for request in requests]

    def cut(self, slot: int, n_tokens: int) -> None:
        """See `NgramTable.cut`."""
        self._table(slot).cut(n_tokens)

    def accept(self, slot: int, n_accepted: int) -> None:
        """See `NgramTable.accept`."""
        self._table(slot).accept(n_accepted)

    def rewind(self, slot: int, length: int) -> None:
        """Nothing to do: rejected tokens never enter the history, and `begin` notices a history that was cut."""

    def close(self) -> None:
        """See `NgramTable.close`."""
        for table in self._tables.values():
            table.close()

    def _table(self, slot: int) -> NgramTable:
        found = self._tables.get(slot)
        if found is None:
            found = self._tables[slot] = self._make()
        return found
