"""The links of a sampler chain, one class per sampler (llama.cpp `src/llama-sampler.cpp`, b11434).

A link changes a `Candidates` list in place. Settings are float32, as in llama.cpp. Copies of a chain share the links
that have no state.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from specli.rng import MersenneTwister
from specli.sampling.candidates import (
    Candidates,
    Floats,
    Ids,
    descending,
    entropy,
    exp32,
    log32,
    reduce,
    running_sum,
    total,
)

f32 = np.float32


def power(base: float | np.float32, exponent: np.float32) -> np.float32:
    """Correctly rounded float32 power."""
    rounded: np.float32 = f32(np.float64(base) ** np.float64(exponent))
    return rounded


class Link:
    """One sampler of a chain.

    Attributes:
        keeps_largest: It leaves the largest logit the largest, so a greedy chain can do without it.
        window: How many of the latest tokens it remembers.
    """

    keeps_largest = False
    window = 0

    @property
    def native(self) -> tuple[str, int, float] | None:
        """Name, count and value of the same link in the native library (native.h); None if it has none."""
        return None

    def changes(self, logits: Floats) -> tuple[Ids, Floats] | None:
        """All that `apply` does to a whole row: distinct tokens and their new logits. None if it does other things."""
        return None

    def apply(self, candidates: Candidates) -> None:
        """Changes the list, or does its part of it."""

    def accept(self, token: int) -> None:
        """The token became part of the sequence."""


class Picker(Link):
    """The last link: chooses one candidate."""

    def pick(self, candidates: Candidates) -> int:
        """Chooses a place of the list and leaves its normalised probabilities in `candidates.probabilities`."""
        raise AssertionError("abstract")


def pick_discrete(p: Floats, stream: MersenneTwister) -> int:
    """Draws an index as libstdc++'s `std::discrete_distribution` does: no draw for a single candidate.

    Args:
        p: `[n]` float32 weights.
        stream: Gives one double.
    """
    if len(p) < 2:
        return 0
    wide = p.astype(np.float64)
    cumulative = np.add.accumulate(wide / np.add.accumulate(wide)[-1])
    cumulative[-1] = 1.0
    return int(np.searchsorted(cumulative, stream.double()))


class LogitBias(Link):
    """Adds fixed values to the logits of some tokens.

    Args:
        biases: Pairs of token id and bias; -inf bans a token. Repeated ids add up.
    """

    def __init__(self, biases: Sequence[tuple[int, float]]) -> None:
        sums: dict[int, np.float32] = {}
        for token, bias in biases:
            sums[token] = sums.get(token, f32(0)) + f32(bias)
        self._tokens = np.array(list(sums), np.int32)
        self._biases = np.array(list(sums.values()), f32)

    def changes(self, logits: Floats) -> tuple[Ids, Floats]:
        return self._tokens, logits[self._tokens] + self._biases

    def apply(self, candidates: Candidates) -> None:
        where, which = candidates.locate(self._tokens)
        candidates.change(where, candidates.logits[where] + self._biases[which])


class Penalties(Link):
    """Makes tokens of the last `window` less likely: repetition, presence and frequency penalty."""

    def __init__(self, window: int, repeat: float, frequency: float, presence: float) -> None:
        self.window = window
        self._repeat, self._frequency, self._presence = f32(repeat), f32(frequency), f32(presence)
        self._latest: deque[int] = deque(maxlen=window)
        self._counts: dict[int, int] = {}

    def apply(self, candidates: Candidates) -> None:
        if not self._counts:
            return
        where, which = candidates.locate(np.fromiter(self._counts, np.int32))
        counts = np.fromiter(self._counts.values(), f32)[which]
        candidates.change(where, self._penalised(candidates.logits[where], counts))

    def changes(self, logits: Floats) -> tuple[Ids, Floats]:
        tokens = np.fromiter(self._counts, np.int32)
        return tokens, self._penalised(logits[tokens], np.fromiter(self._counts.values(), f32))

    def _penalised(self, logits: Floats, counts: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):  # of -inf, and of both branches where one is taken
            logits = np.where(logits <= 0, logits * self._repeat, logits / self._repeat)
            penalised: Floats = logits - (counts * self._frequency + self._presence)
        return penalised

    def accept(self, token: int) -> None:
        if len(self._latest) == self.window:
            oldest = self._latest[0]
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        self._latest.append(token)
        self._counts[token] = self._counts.get(token, 0) + 1


class TopNSigma(Link):
    """Bans what lies more than n standard deviations of the finite logits below the largest."""

    keeps_largest = True

    def __init__(self, n: float) -> None:
        self._n = f32(n)

    def apply(self, candidates: Candidates) -> None:
        if len(candidates) < 2:
            return
        logits = candidates.logits
        finite = logits[logits != -np.inf]
        if not len(finite):
            return
        deviation = finite - total(finite) / f32(len(finite))
        sigma = np.sqrt(total(deviation * deviation) / f32(len(finite)))
        was_sorted = candidates.is_sorted
        below = np.flatnonzero(logits < candidates.largest() - self._n * sigma)
        candidates.change(below, np.full(len(below), -np.inf, f32))
        candidates.is_sorted = was_sorted


class TopK(Link):
    """Keeps the k largest logits."""

    keeps_largest = True

    def __init__(self, k: int) -> None:
        self._k = k

    @property
    def native(self) -> tuple[str, int, float]:
        return "top_k", self._k, 0.0

    def apply(self, candidates: Candidates) -> None:
        candidates.keep_largest(self._k)


class TopP(Link):
    """Keeps the most probable tokens whose probabilities reach p together."""

    keeps_largest = True
    _FIRST = 256  # sorted first; the whole list only if these do not reach p

    def __init__(self, p: float, min_keep: int) -> None:
        self._p, self._min_keep = f32(p), min_keep

    @property
    def native(self) -> tuple[str, int, float]:
        return "top_p", self._min_keep, float(self._p)

    def apply(self, candidates: Candidates) -> None:
        p = candidates.softmax()
        if candidates.is_sorted:
            candidates.take(slice(self._cut(p)), is_sorted=True)
            return
        places = reduce(candidates.logits, self._FIRST)
        n = self._cut(p[places])
        if n == len(places) < len(candidates):
            places = reduce(candidates.logits, len(candidates))
            n = self._cut(p[places])
        candidates.take(places[:n], is_sorted=True)

    def _cut(self, p: Floats) -> int:
        reached = int(np.searchsorted(running_sum(p), self._p)) + 1
        return min(max(reached, self._min_keep), len(p))


class MinP(Link):
    """Keeps the tokens at least p times as probable as the most probable one."""

    keeps_largest = True

    def __init__(self, p: float, min_keep: int) -> None:
        self._log_p, self._min_keep = f32(math.log(f32(p))), min_keep

    @property
    def native(self) -> tuple[str, int, float]:
        return "min_p", self._min_keep, float(self._log_p)

    def apply(self, candidates: Candidates) -> None:
        kept = candidates.logits >= candidates.largest() + self._log_p
        n = int(np.count_nonzero(kept))
        if not candidates.is_sorted and n >= max(self._min_keep, 1):
            candidates.take(np.flatnonzero(kept), is_sorted=False)
            return
        candidates.keep_largest(max(n, 1, min(self._min_keep, len(candidates))))


class Typical(Link):
    """Keeps the tokens whose surprise is nearest to the entropy, up to a total probability of p.

    Which tokens are kept is as in llama.cpp. Their order decides which one a random number means, and among equal
    distances llama.cpp leaves it to `std::sort`, which is not stable: here the more likely one comes first. In a whole
    vocabulary of 49152 tokens some hundred distances are equal, and a seed gives another token than llama.cpp's in up
    to 8 of 1000 cases where the distribution is flat, in none where it is as peaked as behind a prompt.
    """

    def __init__(self, p: float, min_keep: int) -> None:
        self._p, self._min_keep = f32(p), min_keep

    def apply(self, candidates: Candidates) -> None:
        candidates.sort()
        p = candidates.softmax()
        order = descending(-np.abs(-log32(p) - entropy(p)))
        n = int(np.searchsorted(running_sum(p[order]), self._p, side="right")) + 1
        candidates.take(order[: max(n, self._min_keep)], is_sorted=False)


class Xtc(Link):
    """With a given probability drops all but the last of the leading tokens that reach a threshold."""

    def __init__(self, probability: float, threshold: float, min_keep: int, stream: MersenneTwister) -> None:
        self._probability, self._threshold, self._min_keep = f32(probability), f32(threshold), min_keep
        self._stream = stream

    def apply(self, candidates: Candidates) -> None:
        if len(candidates) < 2 or self._stream.single() > self._probability:
            return
        candidates.sort()
        n_above = int(np.count_nonzero(candidates.softmax() >= self._threshold))
        n_dropped = n_above - 1
        if n_dropped > 0 and len(candidates) - n_dropped >= self._min_keep:
            candidates.take(slice(n_dropped, None), is_sorted=True)


def apply_temperature(candidates: Candidates, temperature: np.float32) -> None:
    """Divides the logits; at 0 or below only the first of the largest stays (llama.cpp: the others become -inf)."""
    if temperature > 0:
        candidates.scale(temperature)
    else:
        candidates.keep_largest(1)


class Temperature(Link):
    """Divides the logits by a fixed temperature; at 0 or below only the largest stays."""

    keeps_largest = True

    def __init__(self, temperature: float) -> None:
        self._temperature = f32(temperature)

    @property
    def native(self) -> tuple[str, int, float]:
        return ("temperature", 0, float(self._temperature)) if self._temperature > 0 else ("top_k", 1, 0.0)

    def apply(self, candidates: Candidates) -> None:
        apply_temperature(candidates, self._temperature)


class DynamicTemperature(Link):
    """Divides the logits by a temperature within ±δ, chosen by the entropy of the list."""

    def __init__(self, temperature: float, delta: float, exponent: float) -> None:
        t, d = f32(temperature), f32(delta)
        self._low, self._high, self._exponent = max(f32(0), t - d), t + d, f32(exponent)

    def apply(self, candidates: Candidates) -> None:
        if len(candidates) < 2:
            return
        most = -log32(np.array([f32(1) / f32(len(candidates))], f32))[0]
        candidates.sort()
        share = entropy(candidates.softmax()) / most
        with np.errstate(all="ignore"):
            dynamic = self._low + (self._high - self._low) * power(share, self._exponent)
        apply_temperature(candidates, dynamic)


class Distribution(Picker):
    """Draws from the softmax of the list; one double per pick, also from a single candidate."""

    def __init__(self, stream: MersenneTwister) -> None:
        self._stream = stream

    def draw(self) -> float:
        """The number that decides the next pick."""
        return self._stream.double()

    def pick(self, candidates: Candidates) -> int:
        if len(candidates) == 1:
            self.draw()
            candidates.probabilities = np.ones(1, f32)
            return 0
        weights = exp32(candidates.logits - candidates.largest()).astype(np.float64)
        cumulative = np.add.accumulate(weights)
        candidates.probabilities = (weights / cumulative[-1]).astype(f32)
        return int(np.searchsorted(cumulative, cumulative[-1] * self.draw()))


class Mirostat(Picker):
    """Steers the surprise of the tokens towards τ bits (versions 1 and 2).

    The picked token counts, as in llama.cpp; where rejection sampling takes another one of the list, that one does.

    Args:
        version: 1 cuts to k tokens by a fit of Zipf's law, 2 cuts by surprise.
        tau: Wanted surprise.
        eta: Learning rate.
        n_vocab: Tokens of the vocabulary, for version 1.
        stream: Gives one double per pick among several candidates.
    """

    _FIT = 100  # leading tokens that version 1 fits Zipf's law to

    def __init__(self, version: int, tau: float, eta: float, n_vocab: int, stream: MersenneTwister) -> None:
        self._tau, self._eta, self._mu = f32(tau), f32(eta), f32(2) * f32(tau)
        self._n_vocab = n_vocab
        self._limit = self._limit_by_fit if version == 1 else self._limit_by_surprise
        self._version = version
        self._stream = stream
        self._pending: tuple[int, Ids, Floats, np.float32] | None = None  # picked token, list, chances, μ before

    def pick(self, candidates: Candidates) -> int:
        candidates.sort()
        candidates.keep_largest(self._limit(candidates.softmax()))
        p = candidates.probabilities = candidates.softmax()
        index = pick_discrete(p, self._stream)
        self._pending = candidates.token(index), candidates.token_ids(), p, self._mu
        self._mu = self._steered(self._mu, p[index])
        return index

    def accept(self, token: int) -> None:
        pending, self._pending = self._pending, None
        if pending is not None and pending[0] != token:
            _, ids, p, mu = pending
            for chance in p[ids == token]:
                self._mu = self._steered(mu, chance)

    def _steered(self, mu: np.float32, p: np.float32) -> np.float32:
        steered: np.float32 = mu - self._eta * (f32(-math.log2(p)) - self._tau)
        return steered

    def _limit_by_surprise(self, p: Floats) -> int:
        with np.errstate(divide="ignore"):
            surprise = (-np.log2(p.astype(np.float64))).astype(f32)
        return max(int(np.searchsorted(surprise, self._mu, side="right")), 1)

    def _limit_by_fit(self, p: Floats) -> int:
        """How many have the expected surprise μ under Zipf's law with the exponent fitted to the leading tokens."""
        n = min(self._FIT, len(p)) - 1
        if n < 1 or p[n] == 0:
            return 1
        rank = np.arange(1, n + 1, dtype=f32)
        t = log32((rank + f32(1)) / rank)
        b = log32(p[:n] / p[1 : n + 1])
        s = total(t * b) / total(t * t)
        epsilon = s - f32(1)
        with np.errstate(all="ignore"):
            expected = epsilon * power(2, self._mu) / (f32(1) - power(self._n_vocab, -epsilon))
            k = power(expected, f32(1) / s)
        return int(k) if 1 <= k < 2**31 else 1  # beyond int32 llama.cpp's conversion gives the smallest integer


class AdaptiveP(Picker):
    """Prefers tokens whose probability is near a target that adapts to the tokens accepted so far.

    A moving average of the accepted tokens' original probabilities is kept with weight `decay`; the next pick aims at
    2·target - average. A negative target only draws from the list.
    """

    _PEAK = f32(5)  # logit at the target
    _SHARPNESS = f32(10)
    _INVERSE_WIDTH = f32(1) / f32(0.3)

    def __init__(self, target: float, decay: float, stream: MersenneTwister) -> None:
        self._target, self._decay = f32(target), f32(min(max(decay, 0.0), 0.99))
        self._stream = stream
        self._weight = f32(1) / (f32(1) - self._decay)
        self._sum = self._target / (f32(1) - self._decay)
        self._pending: tuple[Ids, Floats] | None = None  # the list, and its tokens' original probabilities

    def pick(self, candidates: Candidates) -> int:
        original = candidates.probabilities = candidates.softmax()
        if self._target < 0:
            return pick_discrete(original, self._stream)
        target = min(self._target, f32(1))
        aim = min(max(f32(2) * target - self._sum / self._weight, f32(0)), f32(1))
        distance = np.abs((original - aim) * self._INVERSE_WIDTH)
        logits = self._PEAK - self._SHARPNESS * distance * distance / (f32(1) + distance)
        candidates.change(np.arange(len(candidates)), np.where(candidates.logits == -np.inf, candidates.logits, logits))
        candidates.probabilities = candidates.softmax()
        index = pick_discrete(candidates.probabilities, self._stream)
        self._pending = candidates.token_ids(), original
        return index

    def accept(self, token: int) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            ids, original = pending
            for p in original[ids == token]:  # the picked one, or the one that rejection sampling takes
                self._sum = p + self._decay * self._sum
                self._weight = f32(1) + self._decay * self._weight
