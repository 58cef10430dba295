"""ngram-simple: the tokens that followed the latest earlier occurrence of the newest n-gram (docs/speculation.md §5.8).

llama.cpp `common/ngram-map.cpp`, `common_ngram_simple_draft`, scans the history backwards; a dictionary of the latest
place of every n-gram gives the same match in constant time.

Example, n = 3, m = 4: history 9 1 2 3 4 5 6 7 1 2 and last token 3 give the n-gram 1 2 3, found at index 1, hence the
draft 4 5 6 7.
"""

from __future__ import annotations

from collections.abc import Sequence

from specli.drafters.base import Draft, DraftRequest
from specli.drafters.ngram import NgramTable, match_grade


class NgramSimple(NgramTable):
    """Looks for the newest `size_n` tokens and proposes up to `n_draft` that followed."""

    name = "ngram-simple"

    def __init__(self, n_draft: int, size_n: int) -> None:
        super().__init__()
        self.max_draft = n_draft
        self._n = size_n
        self._forget()
        if self.max_draft < self._n:
            self.advice = f"never drafts, size-m {self.max_draft} is less than size-n {self._n}"

    def _forget(self) -> None:
        self._latest: dict[tuple[int, ...], int] = {}
        self._n_indexed = 1  # a match at index 0 is never used

    def _learn_prompt(self, prompt: Sequence[int]) -> None:
        self._index(prompt)

    def _index(self, history: Sequence[int]) -> list[int]:
        """Enters every n-gram that ends before the last token of the history."""
        n = self._n
        tokens = self._follow(history)
        for i in range(self._n_indexed, len(tokens) - n):
            self._latest[tuple(tokens[i : i + n])] = i
        self._n_indexed = max(self._n_indexed, len(tokens) - n)
        return tokens

    def draft(self, request: DraftRequest) -> Draft:
        """Proposes `size_n` … `n_draft` tokens: llama.cpp drops a draft shorter than the n-gram it was found by."""
        n = self._n
        tokens = self._index(request.history)
        length = len(tokens)
        if length <= n + self.max_draft + 1:
            return Draft()
        match = self._latest.get((*tokens[length - n + 1 :], request.last_token))
        if match is None or length - (match + n) < n or self.max_draft < n:
            return Draft()
        grade = match_grade(tokens, match, length - n + 1)
        return Draft(tokens[match + n : match + n + self.max_draft], match=grade)
