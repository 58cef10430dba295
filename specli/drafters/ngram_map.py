"""ngram-map-k and ngram-map-k4v: a hash table of n-grams, and what acceptance taught (docs/speculation.md §5.9).

llama.cpp `common/ngram-map.cpp`. Its rules are kept to the letter, since they decide what is drafted:

- the table has 2¹⁸ places and a place once taken is never given to another n-gram;
- n-grams that start within the last n + m + 1 tokens of the prompt are neither found nor entered;
- a draft is read where the n-gram was found, also when ngram-map-k4v has counted another place as more frequent;
- after a round that accepted `a` tokens the same n-gram proposes at most `a`; at 0 it is silent until forgotten.

What llama.cpp does by scanning is done by dictionaries here: the list of n-grams seen is keyed by the n-gram, and what
ngram-map-k4v counts over all earlier occurrences is carried along from each occurrence to the next. Work per token does
not grow with the history.

`begin` differs where llama.cpp would keep entries of an unrelated request, see `specli.drafters.ngram`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from specli.drafters.base import Draft, DraftRequest
from specli.drafters.ngram import NgramTable, match_grade

HASH_FACTOR = 2654435761
HASH_MASK = 0xFFFFFFFF
N_PLACES = 262144
MAX_COUNT = 16380
N_VALUES = 4  # continuations that ngram-map-k4v tells apart


def hash_ngram(tokens: Sequence[int]) -> int:
    """The 32-bit hash of an n-gram; its place in the table is the hash modulo `N_PLACES`."""
    value = 0
    for token in tokens:
        value = (value * HASH_FACTOR + token) & HASH_MASK
    return value


_Tally = tuple[tuple[int, int], ...]  # continuations in the order they were first seen: where, how often


@dataclass
class _Value:
    """One continuation of an n-gram: where it was first seen (0 = unused), how often, and how much of it stood."""

    n_accepted: int
    index: int = 0
    count: int = 0


@dataclass
class _Key:
    """What is known of one n-gram. `counted_to`: index up to which ngram-map-k4v has counted its occurrences."""

    values: list[_Value]
    count: int = 0
    counted_to: int = 0


class NgramMapK(NgramTable):
    """Proposes up to `n_draft` tokens that followed the newest `size_n`."""

    name = "ngram-map-k"

    def __init__(self, n_draft: int, size_n: int) -> None:
        super().__init__()
        self.max_draft = n_draft
        self._n = size_n
        self._forget()

    def _forget(self) -> None:
        self._n_begin = 0  # length of the history at the last `begin`
        self._n_entered = 0  # largest index entered in the table
        self._places: dict[int, int] = {}  # place → index in the history
        self._keys: dict[tuple[int, ...], _Key] = {}
        self._drafted: _Value | None = None
        self._n_tried: int | None = None  # tokens of a draft that was cut

    def _learn_prompt(self, prompt: Sequence[int]) -> None:
        self._n_begin = len(self._follow(prompt))

    def draft(self, request: DraftRequest) -> Draft:
        """Proposes what followed the n-gram where the table has it, or where it newly came to the history."""
        n, m = self._n, self.max_draft
        self._drafted, self._n_tried = None, None
        tokens = self._follow(request.history)
        length = len(tokens)
        if length < 2 * n + m:
            return Draft()
        ngram = [*tokens[length - n + 1 :], request.last_token]
        match = self._find(ngram)
        if not match:
            return Draft()
        key = self._keys.get(tuple(ngram))
        if key is None:
            key = self._keys[tuple(ngram)] = _Key([_Value(m) for _ in range(N_VALUES)])
        key.count = min(key.count + 1, MAX_COUNT)
        self._drafted = self._choose(key, match)
        if self._drafted is None:
            return Draft()
        grade = match_grade(tokens, match, length - n + 1)
        return Draft(tokens[match + n : match + n + min(m, self._drafted.n_accepted)], match=grade)

    def accept(self, n_accepted: int) -> None:
        """The next draft of the same n-gram is no longer than what was accepted of this one.

        Of a draft that was cut and accepted as far as it was tried, nothing more is known.
        """
        if self._drafted is not None and n_accepted != self._n_tried:
            self._drafted.n_accepted = n_accepted

    def cut(self, n_tokens: int) -> None:
        """See `accept`."""
        self._n_tried = n_tokens

    def _choose(self, key: _Key, match: int) -> _Value | None:
        """The continuation to propose, or None for no draft."""
        return key.values[0]

    def _find(self, ngram: list[int]) -> int:
        """Index of an earlier occurrence, 0 if there is none; enters the n-grams new since the last draft.

        Looked at in this order: the table, what is new of the prompt, what is new of the text generated since; in the
        latter two the latest occurrence counts, and the latest n-gram takes a free place.
        """
        tokens, n = self._tokens, self._n
        reach = n + self.max_draft + 1
        limit = len(tokens) - reach
        wanted = hash_ngram(ngram)
        match = self._places.get(wanted % N_PLACES, 0)
        if match >= limit or tokens[match : match + n] != ngram:
            match = 0
        first = self._n_entered + 1
        after_prompt = max(self._n_begin, self._n_entered) + 1
        for start, stop in ((first, self._n_begin - reach + 1), (after_prompt, limit + 1)):
            hashes = self._hashes(start, stop)
            for i in range(stop - 1, start - 1, -1):
                value = hashes[i - start]
                if not match and value == wanted and tokens[i : i + n] == ngram:
                    match = i
                self._places.setdefault(value % N_PLACES, i)
        self._n_entered = max(self._n_entered, limit)
        return match

    def _hashes(self, start: int, stop: int) -> list[int]:
        """Hashes of the n-grams at `start … stop-1`, each made from the one before."""
        if start >= stop:
            return []
        tokens, n = self._tokens, self._n
        leaving = pow(HASH_FACTOR, n, HASH_MASK + 1)
        value = hash_ngram(tokens[start : start + n])
        hashes = [value]
        for i in range(start, stop - 1):
            value = (value * HASH_FACTOR + tokens[i + n] - tokens[i] * leaving) & HASH_MASK
            hashes.append(value)
        return hashes


class NgramMapK4V(NgramMapK):
    """Proposes only if one continuation was seen at least twice as often as all others together.

    Example, n = 2, m = 2: after 5 6 came 1 2 once and 3 4 once, so there is no draft; found again at the second place,
    that one is counted again, 2 against 1, and 3 4 is proposed.
    """

    name = "ngram-map-k4v"

    def __init__(self, n_draft: int, size_n: int, min_hits: int) -> None:
        super().__init__(n_draft, size_n)
        self._min_hits = min_hits

    def _forget(self) -> None:
        super()._forget()
        self._latest: dict[tuple[int, ...], int] = {}
        self._previous = array("i")  # index of the same n-gram's occurrence before, -1 = none
        self._tallies: dict[int, _Tally] = {}  # index of a repeated n-gram → continuations counted up to there

    def _learn_prompt(self, prompt: Sequence[int]) -> None:
        super()._learn_prompt(prompt)
        self._tally_new()

    def draft(self, request: DraftRequest) -> Draft:
        """Proposes what followed the n-gram where it was found, if it is what mostly follows."""
        self._follow(request.history)
        self._tally_new()
        return super().draft(request)

    def _choose(self, key: _Key, match: int) -> _Value | None:
        if key.count < self._min_hits:
            return None
        if key.counted_to:
            for i in self._occurrences(key.counted_to, match):
                self._count(key, i + self._n)
        else:
            for value, (index, count) in zip(key.values, self._tally(match), strict=False):
                value.index, value.count = index, count
        key.counted_to = match
        best = max(key.values, key=lambda value: value.count)  # the first on ties
        others = sum(value.count for value in key.values) - best.count
        return None if others > 0 and best.count < 2 * others else best

    def _count(self, key: _Key, index: int) -> None:
        """Counts the continuation at `index` for a key that was counted before."""
        counted = self._counted(tuple((value.index, value.count) for value in key.values if value.index), index)
        for value, (first, count) in zip(key.values, counted, strict=False):
            if value.index == 0:
                value.n_accepted = self.max_draft
            value.index, value.count = first, count

    def _counted(self, tally: _Tally, index: int) -> _Tally:
        """The tally with the continuation at `index` added; a fifth kind of continuation is not counted."""
        tokens, m = self._tokens, self.max_draft
        continuation = tokens[index : index + m]
        for i, (first, count) in enumerate(tally):
            if tokens[first : first + m] == continuation:
                return (*tally[:i], (first, min(count + 1, MAX_COUNT)), *tally[i + 1 :])
        return (*tally, (index, 1)) if len(tally) < N_VALUES else tally

    def _tally(self, index: int) -> _Tally:
        """The continuations of the n-gram at `index`, counted over its occurrences up to there."""
        return self._tallies.get(index) or ((index + self._n, 1),)

    def _tally_new(self) -> None:
        """Takes in the n-grams whose continuations, and one token more, came to the history."""
        tokens, n = self._tokens, self._n
        for i in range(len(self._previous), len(tokens) - n - self.max_draft):
            ngram = tuple(tokens[i : i + n])
            before = self._latest.get(ngram, -1)
            self._latest[ngram] = i
            self._previous.append(before)
            if before >= 0:
                self._tallies[i] = self._counted(self._tally(before), i + n)

    def _occurrences(self, start: int, stop: int) -> list[int]:
        """Ascending indices from `start` to `stop`, both included, of the n-gram that lies at `stop`."""
        found = []
        while stop >= start:
            found.append(stop)
            stop = self._previous[stop]
        return found[::-1]
