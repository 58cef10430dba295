"""What the n-gram drafters share: the sequence they have learnt from, and when to forget it.

llama.cpp keeps the tables of ngram-map, ngram-mod and ngram-cache for the life of the server, whatever the next request
holds; drafts then depend on what other requests left behind, and a short prompt after a long one may find stale entries
or learn nothing (reports.md D2, D4, D7). Here a table lives as long as its history does: a request whose prompt goes on
from the history learnt so far (the next turn of a conversation) finds the tables exactly as llama.cpp would have them;
any other prompt starts from empty tables, so that it gets the drafts of a fresh process.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from specli.drafters.base import Draft, Drafter, DraftRequest, TargetBatch


class NgramDrafter(Drafter):
    """A drafter that looks its drafts up in the sequence itself."""

    reads_features = False

    def __init__(self) -> None:
        self._tokens: list[int] = []  # what was learnt from; a prefix of the history until `begin` finds otherwise

    def begin(self, prompt: Sequence[int]) -> None:
        """Keeps the tables if the prompt goes on from what was learnt, else clears them; then learns the prompt."""
        known = len(self._tokens)
        if list(prompt[:known]) != self._tokens:
            self._tokens = []
            self._forget()
        self._learn_prompt(prompt)

    def process(self, batch: TargetBatch) -> None:
        """Nothing: a table reads the history, which comes with every request."""

    @abstractmethod
    def draft(self, request: DraftRequest) -> Draft:
        """Proposes what followed the newest n-gram before."""

    def accept(self, n_accepted: int, *, own: bool) -> None:
        """Nothing, unless a drafter learns from the verdict."""

    def rewind(self, length: int) -> None:
        """Nothing: rejected tokens never enter the history, and `begin` notices a history that was cut."""

    def close(self) -> None:
        """Nothing, unless a drafter keeps a file."""

    @abstractmethod
    def _forget(self) -> None:
        """Back to the state of a new drafter."""

    @abstractmethod
    def _learn_prompt(self, prompt: Sequence[int]) -> None:
        """The drafter's own part of `begin`."""

    def _follow(self, history: Sequence[int]) -> list[int]:
        """Takes over the tokens that came to the history since the last call; the drafter's own copy of it."""
        self._tokens.extend(history[len(self._tokens) :])
        return self._tokens
