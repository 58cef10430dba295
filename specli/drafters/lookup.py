"""Lookup tables of ngram-cache: what followed each n-gram, how often, and the files they are kept in.

llama.cpp `common/ngram-cache.cpp` (docs/speculation.md §5.11). A tie between followers is decided there by the
iteration order of `std::unordered_map<int, int>` of libstdc++, so `Followers` keeps that order.

File format (`-lcs`, `-lcd`): records until the end of the file, without header, int32 little endian: 4 tokens of the
n-gram (-1 = unused, at the end), the number k > 0 of followers, then k pairs of token and count > 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from specli.errors import FormatError, ResourceError
from specli.files import write_file

MAX_ORDER = 4
CANNOT_WRITE = "cannot write the lookup cache"
UNUSED = -1

# Bucket counts that libstdc++ steps through as a map grows (`std::__detail::_Prime_rehash_policy`).
_BUCKETS = (
    13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061, 712697, 1447153, 2938679,
)  # fmt: skip
_TOKEN_BITS = 32
_TOKEN_MASK = (1 << _TOKEN_BITS) - 1
_MAX_COUNT = 2**31 - 1


class Followers:
    """Tokens seen after one n-gram with their counts, in libstdc++'s iteration order.

    A new token goes in front of the others of its bucket, and the first of a bucket to the front of all. So one token
    comes before another if its bucket was opened later or, in the same bucket, if it came later. When the number of
    buckets grows, all tokens are entered anew in the order they had.

    Attributes:
        counts: Token → count.
        total: Sum of the counts.
        best: The first token with the largest count.
    """

    __slots__ = ("_came", "_n_buckets", "_opened", "best", "counts", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0
        self.best = UNUSED
        self._n_buckets = _BUCKETS[0]
        self._opened: dict[int, int] = {}  # bucket → when its first token came
        self._came: dict[int, int] = {}  # token → when it came

    def precedence(self, token: int) -> tuple[int, int]:
        """Greater means earlier in the iteration order."""
        return self._opened[token % self._n_buckets], self._came[token]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.counts, key=self.precedence, reverse=True))

    def add(self, token: int, count: int) -> None:
        """Counts a follower `count` more times."""
        counts = self.counts
        if token not in counts:
            if len(counts) == self._n_buckets:
                self._grow()
            self._enter(token)
        counts[token] = new = counts.get(token, 0) + count
        self.total += count
        most = counts.get(self.best, 0)
        if new > most or (new == most and self.precedence(token) > self.precedence(self.best)):
            self.best = token

    def _enter(self, token: int) -> None:
        now = len(self._came)
        self._came[token] = now
        self._opened.setdefault(token % self._n_buckets, now)

    def _grow(self) -> None:
        order = list(self)
        self._n_buckets = _BUCKETS[_BUCKETS.index(self._n_buckets) + 1]
        self._opened.clear()
        self._came.clear()
        for token in order:
            self._enter(token)
        most = self.counts[self.best]
        ties = (token for token, count in self.counts.items() if count == most)
        self.best = max(ties, key=self.precedence)


def ngram_key(tokens: Sequence[int]) -> int:
    """A number for an n-gram of 1 … 4 tokens; the newest token is in the low bits, so that older ones can be added."""
    key = 0
    for token in tokens:
        key = key << _TOKEN_BITS | token + 1
    return key


def ngram_keys(tokens: Sequence[int], end: int) -> Iterator[int]:
    """Keys of the n-grams that end before index `end`, of order 1 up to 4 (or as many tokens as there are)."""
    key = 0
    for order in range(min(MAX_ORDER, end)):
        key |= tokens[end - 1 - order] + 1 << _TOKEN_BITS * order
        yield key


def ngram_tokens(key: int) -> tuple[int, ...]:
    """The n-gram of a key."""
    newest_first = []
    while key:
        newest_first.append((key & _TOKEN_MASK) - 1)
        key >>= _TOKEN_BITS
    return tuple(newest_first[::-1])


class LookupTable:
    """n-gram → followers.

    Nine in ten n-grams of a text have one follower. Such an entry is packed in one integer, `count << 32 | token`: an
    object each would take half a gigabyte at 128k tokens.
    """

    def __init__(self) -> None:
        self._entries: dict[int, int | Followers] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def add(self, key: int, token: int, count: int = 1) -> None:
        """Counts a follower of an n-gram."""
        entry = self._entries.get(key, 0)
        if isinstance(entry, Followers):
            entry.add(token, count)
        elif not entry:
            self._entries[key] = count << _TOKEN_BITS | token
        elif entry & _TOKEN_MASK == token:
            self._entries[key] = entry + (count << _TOKEN_BITS)
        else:
            followers = self._entries[key] = _unpack(entry)
            followers.add(token, count)

    def get(self, key: int) -> Followers | None:
        """The followers of an n-gram, not to be changed; None if it was never seen."""
        entry = self._entries.get(key)
        return _unpack(entry) if isinstance(entry, int) else entry

    def learn(self, tokens: Sequence[int]) -> None:
        """Counts every n-gram of order 1 … 4 that lies within `tokens` and has a successor there."""
        for i in range(1, len(tokens)):
            for key in ngram_keys(tokens, i):
                self.add(key, tokens[i])

    def merge(self, other: LookupTable) -> None:
        """Adds the counts of another table."""
        for key in other:
            followers = other.get(key)
            assert followers is not None
            for token in followers:
                self.add(key, token, followers.counts[token])


def _unpack(entry: int) -> Followers:
    followers = Followers()
    followers.add(entry & _TOKEN_MASK, entry >> _TOKEN_BITS)
    return followers


def read_lookup(path: Path, *, n_vocab: int) -> LookupTable:
    """Reads a lookup file; nothing is allocated beyond the file's own size.

    Raises:
        ResourceError: The file cannot be read.
        FormatError: It is cut off, no lookup file, or made with a vocabulary larger than `n_vocab`.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ResourceError(f"{path}: cannot be read as a lookup cache: {error.strerror}") from error
    if len(data) % 4:
        raise FormatError(f"{path}: lookup cache of {len(data)} bytes is not a whole number of 4-byte words")
    words = np.frombuffer(data, dtype="<i4").tolist()
    table = LookupTable()
    at = 0
    while at < len(words):
        ngram, n_followers = words[at : at + MAX_ORDER], words[at + MAX_ORDER] if at + MAX_ORDER < len(words) else 0
        order = ngram.index(UNUSED) if UNUSED in ngram else MAX_ORDER
        start = at + MAX_ORDER + 1
        pairs = words[start : start + 2 * n_followers] if n_followers > 0 else []
        where = f"{path}: lookup cache record at byte {4 * at}"
        if not pairs or len(pairs) != 2 * n_followers:
            n_left = max(0, len(words) - start)
            raise FormatError(f"{where} names {n_followers} followers, the file has {n_left} more words")
        if order == 0 or any(token != UNUSED for token in ngram[order:]):
            raise FormatError(f"{where} is not an n-gram: {ngram}")
        wrong = next((token for token in ngram[:order] + pairs[::2] if not 0 <= token < n_vocab), None)
        if wrong is not None:
            raise FormatError(f"{where} has token {wrong}, the vocabulary has {n_vocab}")
        if min(pairs[1::2]) < 1:
            raise FormatError(f"{where} has a count of {min(pairs[1::2])}")
        key = ngram_key(ngram[:order])
        for token, count in zip(pairs[::2], pairs[1::2], strict=True):
            table.add(key, token, count)
        at = start + 2 * n_followers
    return table


def write_lookup(path: Path, table: LookupTable) -> None:
    """Writes a lookup file; a failure leaves the old one.

    Raises:
        ResourceError: The file cannot be written.
    """
    words: list[int] = []
    for key in table:
        followers = table.get(key)
        assert followers is not None
        ngram = ngram_tokens(key)
        words += [*ngram, *[UNUSED] * (MAX_ORDER - len(ngram)), len(followers.counts)]
        for token in followers:
            words += [token, min(followers.counts[token], _MAX_COUNT)]
    write_file(path, np.array(words, dtype="<i4").tobytes(), CANNOT_WRITE)
