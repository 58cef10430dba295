"""Drafting token by token, as draft-simple, draft-eagle3 and draft-mtp do it (speculation.md §5.0).

llama.cpp `common/speculative.cpp`: a sampler of top_k(10) and dist per sequence. Probabilities are those of the ten
likeliest tokens alone. Ties go to the lowest id, where llama.cpp leaves them open.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specli.drafters.base import Draft, DraftRequest
from specli.drafters.config import DraftConfig
from specli.rng import DRAFT_SALT, RANDOM_SEED, MersenneTwister, resolve_seed


@dataclass(frozen=True, eq=False)
class Candidates:
    """The likeliest tokens, best first.

    Attributes:
        ids: `[C]` int32, C ≤ 10.
        probabilities: `[C]` float32, summing to 1 over these candidates.
    """

    ids: npt.NDArray[np.int32]
    probabilities: npt.NDArray[np.float32]

    @classmethod
    def best(
        cls, values: npt.NDArray[np.float32], ids: npt.NDArray[np.int32], *, temperature: float = 1.0
    ) -> Candidates | None:
        """Takes them as a draft network's program found them: `[C]` logits, descending, and their tokens."""
        if not np.isfinite(values[0]):
            return None
        weights = np.exp((values - values[0]) / np.float32(temperature))
        return cls(ids.copy(), (weights / weights.sum(dtype=np.float64)).astype(np.float32))


class CandidateSampler:
    """Chooses among the candidates: the best, or with `probabilistic` and a temperature above 0 a sampled one."""

    def __init__(self, *, probabilistic: bool) -> None:
        self._probabilistic = probabilistic
        self._settings: tuple[float, int] | None = None
        self._random: MersenneTwister | None = None  # None: greedy
        self._temperature = 1.0

    @property
    def is_greedy(self) -> bool:
        """Drafts carry no probabilities."""
        return self._random is None

    def prepare(self, request: DraftRequest) -> None:
        """Takes over temperature and seed of the target; the stream starts anew only if one of them changed."""
        settings = (request.temperature, request.seed)
        if settings == self._settings:
            return
        self._settings = settings
        sampled = self._probabilistic and request.temperature > 0
        self._temperature = request.temperature if sampled else 1.0
        seed = request.seed if request.seed == RANDOM_SEED else request.seed ^ DRAFT_SALT
        self._random = MersenneTwister(resolve_seed(seed)) if sampled else None

    def reset(self) -> None:
        """A new request: the stream of random numbers starts over."""
        if self._random is not None:
            self._random.rewind()

    def best(self, values: npt.NDArray[np.float32], ids: npt.NDArray[np.int32]) -> Candidates | None:
        """See `Candidates.best`."""
        return Candidates.best(values, ids, temperature=self._temperature)

    def pick(self, candidates: Candidates) -> int:
        """The token to propose."""
        if self._random is None:
            return int(candidates.ids[0])
        cumulative = np.cumsum(candidates.probabilities, dtype=np.float64)
        place = int(np.searchsorted(cumulative, self._random.double() * cumulative[-1]))
        return int(candidates.ids[place])


def likeliest(values: npt.NDArray[np.float32], ids: npt.NDArray[np.int32], config: DraftConfig, *, limit: int) -> Draft:
    """The greedy draft of steps that are all made, where `p_min` is 0; see `collect`.

    Args:
        values: `[N, C]` logits of every step's candidates, descending.
        ids: `[N, C]`, the candidates.
        config: `n_max`, `n_min`.
        limit: Most tokens that are of use.
    """
    n = min(config.n_max, limit)
    tokens, best = ids[:n, 0].tolist(), values[:n, 0].tolist()
    if not all(map(math.isfinite, best)):
        del tokens[next(i for i, value in enumerate(best) if not math.isfinite(value)) :]
    return long_enough(Draft(tokens), config)


def long_enough(draft: Draft, config: DraftConfig) -> Draft:
    """The draft, or an empty one where it is shorter than `n_min`.

    A sampled draft is kept however short: its length depends on the tokens drawn, so dropping it would take tokens away
    because of what they are, and rejection sampling would no longer give the target's distribution. llama.cpp drops it.
    """
    return draft if draft.probabilities is not None or len(draft.tokens) >= config.n_min else Draft()


def collect(
    candidates: Candidates | None,
    advance: Callable[[int], Candidates | None],
    sampler: CandidateSampler,
    config: DraftConfig,
    *,
    limit: int,
) -> Draft:
    """Proposes until the best candidate is less likely than `p_min`, or `n_max` or `limit` is reached.

    The order of the tests is llama.cpp's, so that `n_max` 0 still proposes one token. What is too short is dropped by
    `long_enough`.

    Args:
        candidates: After the last token of the sequence.
        advance: Feeds a proposed token and returns the next candidates; not called after the last token.
        sampler: Prepared for this request.
        config: `n_max`, `n_min`, `p_min`.
        limit: Most tokens that are of use.
    """
    draft = Draft() if sampler.is_greedy else Draft(probabilities=[])
    while True:
        if candidates is None or candidates.probabilities[0] < np.float32(config.p_min):
            break
        draft.tokens.append(sampler.pick(candidates))
        if draft.probabilities is not None:
            draft.probabilities.append((candidates.ids, candidates.probabilities))
        if len(draft.tokens) >= min(config.n_max, limit):
            break
        candidates = advance(draft.tokens[-1])
    return long_enough(draft, config)
