"""DRY: tokens that would continue a repetition become less likely, the more the longer it is.

llama.cpp `src/llama-sampler.cpp`, llama_sampler_dry, b11434. A repetition does not reach over a *sequence breaker*,
a string such as a line feed. In terms of tokens a breaker is a head token (one that contains the string, or ends with
its beginning) followed by the tokens of what is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from specli.sampling.candidates import Candidates
from specli.sampling.links import Link, f32
from specli.sampling.vocabulary import SamplerVocabulary

Breakers = dict[int, list[tuple[int, ...]]]
"""Head token → the token sequences that complete a breaker after it; an empty one: the head is a breaker itself."""

_MAX_BREAKER_BYTES = 40
_MAX_TAIL_TOKENS = 20
_LOG_FLOAT_MAX = 88.7228391  # keeps base^exponent finite in float32


def find_breakers(texts: Iterable[str], vocabulary: SamplerVocabulary, n_vocab: int) -> Breakers:
    """Finds how the tokens of a vocabulary can form the given strings.

    Args:
        texts: Sequence breakers; cut to 40 bytes each, empty ones ignored.
        vocabulary: The tokenizer.
        n_vocab: Tokens to look at.
    """
    breakers: Breakers = {}
    pieces = [vocabulary.piece(token, special=True) for token in range(n_vocab)]
    for text in texts:
        whole = text.encode()[:_MAX_BREAKER_BYTES]
        if not whole:
            continue
        heads: Breakers = {token: [()] for token, piece in enumerate(pieces) if whole in piece}
        for n in range(len(whole) - 1, 0, -1):
            tail = tuple(_encode_rest(whole[n:], vocabulary))
            for token in [token for token, piece in enumerate(pieces) if piece.endswith(whole[:n])]:
                if () not in heads.get(token, []):
                    heads.setdefault(token, []).append(tail)
        for token, tails in heads.items():
            known = breakers.setdefault(token, [])
            known += [tail for tail in tails if tail not in known]
    return breakers


def _encode_rest(rest: bytes, vocabulary: SamplerVocabulary) -> list[int]:
    text = rest.decode(errors="replace")
    return vocabulary.encode(text, add_special=False, parse_special=False)[:_MAX_TAIL_TOKENS]


class Dry(Link):
    """Subtracts multiplier · base^(length - allowed) from tokens that would continue a repetition of `length` tokens.

    The lengths are kept up to date as tokens come: the match that ends at a place grows by one if the new token is the
    one behind it, and is over otherwise. One vector operation per token, whatever the window.

    Args:
        multiplier: Strength; not 0.
        base: Growth per token, ≥ 1.
        allowed: Longest repetition that costs nothing.
        window: Latest tokens looked at, ≥ 1.
        breakers: What a repetition does not reach over.
    """

    def __init__(self, multiplier: float, base: float, allowed: int, window: int, breakers: Breakers) -> None:
        self._multiplier, self._base, self._allowed = f32(multiplier), f32(base), allowed
        self._max_exponent = int(f32(_LOG_FLOAT_MAX) / f32(math.log(self._base))) if self._base > f32(1.000001) else 0
        self.window = window
        self._breakers = breakers
        self._tokens = np.empty(0, np.int32)  # [≤ window], newest last
        self._matches = np.empty(0, np.int32)  # as many: tokens up to here that equal the sequence's end

    def accept(self, token: int) -> None:
        is_full = len(self._tokens) == self.window
        in_front = self._matches if is_full else np.insert(self._matches, 0, 0)  # of the token before each place
        self._tokens = np.append(self._tokens[is_full:], np.int32(token))
        self._matches = np.where(self._tokens == token, in_front + 1, 0)

    def apply(self, candidates: Candidates) -> None:
        limit, n = self._reach(), len(self._tokens)
        if n <= self._allowed or limit < self._allowed:
            return
        lengths = np.minimum(self._matches[:-1], np.minimum(np.arange(1, n), limit))
        longest: dict[int, int] = {}
        for place in np.flatnonzero(lengths >= self._allowed):
            token = int(self._tokens[place + 1])
            longest[token] = max(longest.get(token, 0), int(lengths[place]))
        costs = {t: self._cost(n) for t, n in longest.items() if () not in self._breakers.get(t, [])}
        where, which = candidates.locate(np.fromiter(costs, np.int32))
        candidates.change(where, candidates.logits[where] - np.fromiter(costs.values(), f32)[which])

    def _cost(self, length: int) -> np.float32:
        exponent = length - self._allowed
        if self._max_exponent > 0:
            exponent = min(exponent, self._max_exponent)
        with np.errstate(over="ignore"):  # at worst the token is banned
            cost: np.float32 = f32(np.float64(self._multiplier) * np.float64(self._base) ** exponent)
        return cost

    def _reach(self) -> int:
        """How many of the latest tokens lie behind the last breaker."""
        latest = self._tokens[::-1].tolist()  # newest first
        for i, token in enumerate(latest):
            tails = self._breakers.get(token)
            if tails is None:
                continue
            following = tuple(latest[:i][::-1])
            complete = [len(tail) for tail in tails if following[: len(tail)] == tail]
            if complete:
                return i - max(complete)
        return len(self._tokens)
