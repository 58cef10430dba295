"""Drafting token by token, for any number of sequences at once: what all drafters with a network share.

llama.cpp `common/speculative.cpp`: a sampler of top_k(10) and dist per sequence. Probabilities are those of the ten
likeliest tokens alone. Ties go to the lowest id, where llama.cpp leaves them open.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from specli.drafters.base import Draft, DraftRequest
from specli.drafters.settings import DraftConfig
from specli.drafters.tree import tree_of
from specli.rng import DRAFT_SALT, RANDOM_SEED, MersenneTwister, resolve_seed

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class DraftCandidates:
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
    ) -> DraftCandidates | None:
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

    def best(self, values: npt.NDArray[np.float32], ids: npt.NDArray[np.int32]) -> DraftCandidates | None:
        """See `DraftCandidates.best`."""
        return DraftCandidates.best(values, ids, temperature=self._temperature)

    def pick(self, candidates: DraftCandidates) -> int:
        """The token to propose."""
        if self._random is None:
            return int(candidates.ids[0])
        cumulative = np.cumsum(candidates.probabilities, dtype=np.float64)
        place = int(np.searchsorted(cumulative, self._random.double() * cumulative[-1]))
        return int(candidates.ids[place])


def likeliest(
    values: npt.NDArray[np.float32],
    ids: npt.NDArray[np.int32],
    config: DraftConfig,
    *,
    limit: int,
    chance: Callable[[float], float] | None = None,
) -> Draft:
    """The greedy draft of steps that are all made, where `p_min` is 0; see `collect`.

    Args:
        values: `[N, C]` logits of every step's candidates, descending.
        ids: `[N, C]`, the candidates.
        config: `n_max`, `n_min`.
        limit: Most tokens that are of use.
        chance: What the best value says of a token's chance to be accepted; None = nothing, unless there are several
            candidates.
    """
    n = min(config.n_max, limit)
    tokens, best = ids[:n, 0].tolist(), values[:n, 0].tolist()
    if not all(map(math.isfinite, best)):
        del tokens[next(i for i, value in enumerate(best) if not math.isfinite(value)) :]
    draft = Draft(tokens)
    if values.shape[1] > 1:
        draft.confidence = [float(1 / np.exp(row - row[0]).sum()) for row in values[: len(tokens)]]
    elif chance is not None:
        draft.confidence = [chance(value) for value in best[: len(tokens)]]
    return long_enough(draft, config)


def logistic(x: float) -> float:
    """1 / (1 + e^-x), of log-odds the chance."""
    return 0.5 + 0.5 * math.tanh(0.5 * x)


def long_enough(draft: Draft, config: DraftConfig) -> Draft:
    """The draft, or an empty one where it is shorter than `n_min`.

    A sampled draft is kept however short: its length depends on the tokens drawn, so dropping it would take tokens away
    because of what they are, and rejection sampling would no longer give the target's distribution. llama.cpp drops it.
    """
    return draft if draft.probabilities is not None or len(draft.tokens) >= config.n_min else Draft()


class GrowingDraft:
    """A sequence's draft while it is made.

    It ends before a token whose best candidate is less likely than `p_min`, and with `n_max` or `limit` tokens. The
    order of the tests is llama.cpp's, so that `n_max` 0 still proposes one token.

    Args:
        sampler: Prepared for this request.
        config: `n_max`, `n_min`, `p_min`.
        limit: Most tokens that are of use.
    """

    def __init__(self, sampler: CandidateSampler, config: DraftConfig, *, limit: int) -> None:
        self._sampler = sampler
        self._config = config
        self._p_min = np.float32(config.p_min)
        self._most = min(config.n_max, limit)
        self._confidence: list[float] = []
        self._draft = Draft(probabilities=None if sampler.is_greedy else [], confidence=self._confidence)

    def push(self, candidates: DraftCandidates | None) -> int | None:
        """Proposes a token, if any.

        Args:
            candidates: Of the next token; None = there are none.

        Returns:
            The token that was proposed; None where nothing is to come behind it, or nothing was proposed.
        """
        draft = self._draft
        if candidates is None or candidates.probabilities[0] < self._p_min:
            return None
        draft.tokens.append(self._sampler.pick(candidates))
        self._confidence.append(float(candidates.probabilities[0]))
        if draft.probabilities is not None:
            draft.probabilities.append((candidates.ids, candidates.probabilities))
        return draft.tokens[-1] if len(draft.tokens) < self._most else None

    def finished(self) -> Draft:
        """The draft; see `long_enough`."""
        return long_enough(self._draft, self._config)


def collect(
    drafts: Sequence[GrowingDraft],
    candidates: Sequence[DraftCandidates | None],
    advance: Callable[[Sequence[int | None]], Sequence[DraftCandidates | None]],
) -> list[Draft]:
    """Makes drafts of several sequences side by side, until each has ended.

    Args:
        drafts: Without tokens yet.
        candidates: Of the first token of each.
        advance: Feeds a proposed token of each and returns the next candidates; None stands for drafts that have ended,
            whose candidates do not count. Not called after the last token of the longest draft.
    """
    tokens = [draft.push(found) for draft, found in zip(drafts, candidates, strict=True)]
    while tokens.count(None) < len(tokens):
        candidates = advance(tokens)
        tokens = [
            None if token is None else draft.push(found)
            for draft, token, found in zip(drafts, tokens, candidates, strict=True)
        ]
    return [draft.finished() for draft in drafts]


class NetworkDrafter(ABC):
    """What drafters with a network share: a sampler per slot, and the choice between whole drafts and single steps.

    A greedy draft without `p_min` is made as a whole, in one run of one program. Otherwise a token is chosen on the
    host after every step. Requests of either kind are drafted for together.

    Args:
        config: Draft length and thresholds, within what the network can make.
        chance: What the value of a whole draft's token (`_write`) says of its chance; None = nothing.

    Attributes:
        p_min_is_of_tokens: `p_min` bounds the probability of the best candidate, and nothing else.
    """

    p_min_is_of_tokens: ClassVar[bool] = True
    reads_batches = True

    def __init__(self, config: DraftConfig, chance: Callable[[float], float] | None = None) -> None:
        self._config = config
        self._chance = chance
        self._growing = config if self.p_min_is_of_tokens else replace(config, p_min=0.0)
        self._samplers: dict[int, CandidateSampler] = {}

    def begin(self, slot: int, prompt: Sequence[int]) -> None:
        """The prompt has been taken in; random numbers start over."""
        self._sampler(slot).reset()

    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Proposes up to `n_max` tokens for each request."""
        is_whole = [self._prepare(request) for request in requests]
        if all(is_whole):
            return self._make_whole(requests) if requests else []
        if not any(is_whole):
            return self._make_stepwise(requests)
        kinds = [[r for r, whole in zip(requests, is_whole, strict=True) if whole == kind] for kind in (False, True)]
        made = iter(self._make_stepwise(kinds[False])), iter(self._make_whole(kinds[True]))
        return [next(made[whole]) for whole in is_whole]

    def cut(self, slot: int, n_tokens: int) -> None:  # noqa: B027
        """Nothing: a network does not learn from its drafts."""

    def accept(self, slot: int, n_accepted: int) -> None:  # noqa: B027
        """Nothing: `process` has seen what was accepted."""

    @abstractmethod
    def _write(self, requests: Sequence[DraftRequest], n_steps: int) -> tuple[Floats, Ints]:
        """Writes ahead, the likeliest token each time.

        Args:
            requests: B of them.
            n_steps: Tokens that are of use, at least 1 and at most `n_max` (1 if that is 0).

        Returns:
            Logits `[B, ≥ n_steps, C]` of the best candidates, descending, and their ids; valid until the next call.
        """

    @abstractmethod
    def _start(self, requests: Sequence[DraftRequest]) -> list[DraftCandidates | None]:
        """Candidates of each request's first token."""

    @abstractmethod
    def _advance(
        self, requests: Sequence[DraftRequest], index: int, tokens: Sequence[int | None]
    ) -> list[DraftCandidates | None]:
        """Candidates of token `index` ≥ 1, given the tokens before it (`collect`)."""

    def _sampler(self, slot: int) -> CandidateSampler:
        found = self._samplers.get(slot)
        if found is None:
            found = self._samplers[slot] = CandidateSampler(probabilistic=self._config.probabilistic)
        return found

    def _prepare(self, request: DraftRequest) -> bool:
        """Readies the request's sampler; whether its draft can be made as a whole."""
        sampler = self._sampler(request.slot)
        sampler.prepare(request)
        return sampler.is_greedy and self._config.p_min <= 0

    def _make_whole(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        longest = max([request.max_tokens for request in requests])
        values, ids = self._write(requests, max(1, min(self._config.n_max, longest)))
        if self._config.tree:
            return [
                long_enough(tree_of(values[row], ids[row], self._config, limit=request.max_tokens), self._config)
                for row, request in enumerate(requests)
            ]
        return [
            likeliest(values[row], ids[row], self._config, limit=request.max_tokens, chance=self._chance)
            for row, request in enumerate(requests)
        ]

    def _make_stepwise(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts = [GrowingDraft(self._sampler(r.slot), self._growing, limit=r.max_tokens) for r in requests]
        indices = itertools.count(1)
        return collect(drafts, self._start(requests), lambda tokens: self._advance(requests, next(indices), tokens))


def trimmed(tokens: Sequence[int | None]) -> Ints:
    """Tokens up to the last that is to be fed, as `[B]` int32; before it, 0 stands for drafts that have ended.

    Networks that keep a row per sequence of a draft go on with the leading ones.
    """
    while tokens[-1] is None:
        tokens = tokens[:-1]
    return np.array([token or 0 for token in tokens], dtype=np.int32)
