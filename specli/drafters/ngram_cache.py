"""ngram-cache: the likeliest token after the newest 4, 3, 2 or 1, by counts in this text and earlier ones.

The rules are in docs/speculation.md §5.11.

llama.cpp `common/ngram-cache.cpp` and its use in `common/speculative.cpp`. Three tables: *context*, learnt from the
sequence; *dynamic* and *static*, from the lookup files `-lcd` and `-lcs`. Only n-grams inside what is new since the
last draft are learnt, nothing across its border: a round that produced one token teaches nothing.

Differences: the context table is cleared with its history (`specli.drafters.ngram`), and `-lcd` is written at the end,
with the counts of all contexts added, as llama.cpp's `llama-lookup` does.

Example, no files: history 1 2 3 4 1 2 3 4 and last token 1 give the draft 2 3 4 1 2 3 4 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specli.drafters import TableParts
from specli.drafters.base import Draft, DraftRequest
from specli.drafters.lookup import (
    CANNOT_WRITE,
    MAX_ORDER,
    Followers,
    LookupTable,
    ngram_key,
    ngram_keys,
    read_lookup,
    write_lookup,
)
from specli.drafters.ngram import NgramDrafter, NgramTable
from specli.errors import ResourceError
from specli.files import check_writable

STATIC_ORDER = 2
STATIC_WEIGHT = 100  # a follower that the static table knows counts this much, times its count there


@dataclass(frozen=True)
class _Demand:
    """What an n-gram's followers must show before the best is proposed."""

    min_total: int
    min_percent: int

    def is_met(self, followers: Followers, token: int) -> bool:
        return followers.total >= self.min_total and 100 * followers.counts[token] >= self.min_percent * followers.total


LAX = {1: _Demand(2, 66), 2: _Demand(2, 50), 3: _Demand(1, 50), 4: _Demand(1, 50)}  # context table, by order
STRICT = {1: _Demand(4, 75), 2: _Demand(3, 66), 3: _Demand(2, 66), 4: _Demand(2, 66)}  # dynamic table
STATIC = _Demand(2, 50)


class LookupFiles:
    """The tables of the lookup files, which all sequences share.

    Args:
        n_vocab: Tokens of the vocabulary; files with others are refused.
        static: Lookup file that must exist, or None.
        dynamic: Lookup file that is read if it exists and written by `write`, or None.

    Attributes:
        static: Its table; empty without a file.
        dynamic: Its table; empty without a file.

    Raises:
        ResourceError, FormatError: A file cannot be used.
    """

    def __init__(self, *, n_vocab: int, static: Path | None = None, dynamic: Path | None = None) -> None:
        self.static = LookupTable()
        self.dynamic = LookupTable()
        self._learnt = LookupTable()  # what belongs into the dynamic file, but is not drafted from yet
        self._path = dynamic
        if static is not None:
            if not static.exists():
                raise ResourceError(f"failed to open static lookup cache: {static}")
            self.static = read_lookup(static, n_vocab=n_vocab)
        if dynamic is not None:
            if dynamic.exists():
                self.dynamic = read_lookup(dynamic, n_vocab=n_vocab)
            check_writable(dynamic, CANNOT_WRITE)

    def learn(self, context: LookupTable) -> None:
        """Keeps the counts of a context for the dynamic file."""
        if self._path is not None:
            self._learnt.merge(context)

    def write(self) -> None:
        """Adds what was learnt to the dynamic lookup file.

        Raises:
            ResourceError: The file cannot be written.
        """
        if self._path is not None:
            self.dynamic.merge(self._learnt)
            self._learnt = LookupTable()
            write_lookup(self._path, self.dynamic)


class NgramCache(NgramTable):
    """Proposes up to `n_draft` tokens, one after the other, as long as a table is sure enough.

    Args:
        n_draft: Most tokens of a draft.
        files: The tables that are not of the sequence itself.
    """

    name = "ngram-cache"

    def __init__(self, n_draft: int, files: LookupFiles) -> None:
        super().__init__()
        self.max_draft = n_draft
        self._files = files
        self._context = LookupTable()

    def _forget(self) -> None:
        self._files.learn(self._context)
        self._context = LookupTable()

    def _learn_prompt(self, prompt: Sequence[int]) -> None:
        """Nothing: the first draft learns prompt and first token together, so that n-grams across them count."""

    def draft(self, request: DraftRequest) -> Draft:
        """Proposes token by token; each from the first of context, dynamic and static table that is sure."""
        known, history = len(self._tokens), request.history
        if known <= len(history):
            new = [*history[known:], request.last_token]
            self._context.learn(new)
            self._tokens += new
        if not history:
            return Draft()
        recent = [*history[-MAX_ORDER:], request.last_token]
        start, first_order = len(recent), 0
        while len(recent) < start + self.max_draft:
            token, order = self._next(recent)
            if token is None:
                break
            if len(recent) == start:
                first_order = order
            recent.append(token)
        return Draft(recent[start:], match=first_order)

    def close(self) -> None:
        """Adds what was learnt to the dynamic lookup file."""
        self._forget()
        self._files.write()

    def _next(self, recent: list[int]) -> tuple[int | None, int]:
        """The token to propose, if any, and the length of the n-gram that it followed."""
        keys = list(ngram_keys(recent, len(recent)))
        static = self._files.static.get(ngram_key(recent[-STATIC_ORDER:]))
        for table, demands in ((self._context, LAX), (self._files.dynamic, STRICT)):
            for order in range(len(keys), 0, -1):
                followers = table.get(keys[order - 1])
                if followers is None:
                    continue
                token = weighted_best(followers, static)
                if demands[order].is_met(followers, token):
                    return token, order
        if static is not None and STATIC.is_met(static, static.best):
            return static.best, STATIC_ORDER
        return None, 0


def build_ngram_cache(parts: TableParts) -> NgramDrafter:
    """The drafter with its lookup files."""
    files = LookupFiles(n_vocab=parts.n_vocab, **parts.values)
    return NgramDrafter(lambda: NgramCache(parts.n_draft, files))


def weighted_best(followers: Followers, static: Followers | None) -> int:
    """The first token with the largest count, where a count is multiplied by 100 × the static count, if there is one.

    Only tokens known to both tables need a look: among the others the largest plain count wins, and if its token is
    known to both, its weighted count exceeds every plain one.
    """
    best, counts = followers.best, followers.counts
    if static is None:
        return best
    shared = {token: counts[token] * STATIC_WEIGHT * n for token, n in static.counts.items() if token in counts}
    if not shared:
        return best
    heaviest = max(shared.values())
    ties = [token for token, weight in shared.items() if weight == heaviest]
    if best not in shared:
        if counts[best] > heaviest:
            return best
        if counts[best] == heaviest:
            ties.append(best)
    return max(ties, key=followers.precedence)
