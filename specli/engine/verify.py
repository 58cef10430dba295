"""Acceptance rules: which draft tokens stand, given the target's logits (docs/speculation.md §§6.2, 6.3, 7).

llama.cpp `common/sampling.cpp` (common_sampler_sample_and_accept_n and its rejection and synthetic forms), b11434.

All rules sample row after row with the target's sampler and tell it each token that becomes part of the sequence, so
penalties, grammars and random streams advance exactly as in plain decoding. The last token of a verdict is always the
target's own.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import NamedTuple, ParamSpec

import numpy as np

from specli.drafters.base import Draft
from specli.drafters.settings import SynthConfig
from specli.errors import SpecliError, UsageError
from specli.sampling.candidates import Floats, Ids, total
from specli.sampling.sampler import Sampler

Parameters = ParamSpec("Parameters")

logger = logging.getLogger(__name__)

_HALVINGS = 32


class Verdict(NamedTuple):
    """The outcome of a round.

    Attributes:
        tokens: What the sequence grows by: draft tokens that stand, then one token of the target.
        error: Why the target has no token there, as plain decoding would meet it at the same place; then the draft
            tokens that stand come alone.
    """

    tokens: list[int]
    error: SpecliError | None = None

    @property
    def n_accepted(self) -> int:
        """Draft tokens that stand."""
        return len(self.tokens) - (self.error is None)


VerifyRule = Callable[[Draft, Floats, Sampler], Verdict]
"""(draft of k tokens, logits `[k + 1, V]` float32, the target's sampler) → verdict."""


def _up_to_an_error(rule: Callable[Parameters, Iterator[int]]) -> Callable[Parameters, Verdict]:
    """Makes a rule of a generator of tokens; an error keeps the tokens before it, and is raised if there are none."""

    @wraps(rule)
    def judged(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Verdict:
        tokens: list[int] = []
        try:
            for token in rule(*args, **kwargs):
                tokens.append(token)
        except SpecliError as error:
            if not tokens:
                raise
            return Verdict(tokens, error)
        return Verdict(tokens)

    return judged


def lossless_rule(end_ids: frozenset[int]) -> VerifyRule:
    """The ordinary rule: rejection sampling where the drafter sampled and the target samples, else sample-and-match.

    Args:
        end_ids: Tokens that end a generation.
    """

    def rule(draft: Draft, logits: Floats, sampler: Sampler) -> Verdict:
        if draft.probabilities and sampler.config.temperature > 0:
            return rejection(draft, logits, sampler)
        return sample_and_match(draft, logits, sampler, end_ids)

    return rule


@_up_to_an_error
def sample_and_match(draft: Draft, logits: Floats, sampler: Sampler, end_ids: frozenset[int]) -> Iterator[int]:
    """A draft token stands if the target samples the same token there.

    The tokens are those of plain decoding with the same seed, whatever was drafted. An end token that matches before
    the end of the draft closes the round as the target's own token; what was drafted behind it does not count. In a
    tree, which has a row of logits per node behind the first, any of the tokens drafted at a place may match.
    """
    if draft.parents is not None:
        tokens: list[int] = []
        path: list[int] = []
        while len(path) == len(tokens):
            token = _sample(logits[1 + path[-1] if path else 0], sampler)
            yield token
            tokens.append(token)
            path = draft.path(tokens)
            if token in end_ids:
                return
        return
    n_draft = len(draft.tokens)
    for i, drafted in enumerate(draft.tokens):
        token = _sample(logits[i], sampler)
        yield token
        if token != drafted or (token in end_ids and i + 1 < n_draft):
            return
    yield _sample(logits[n_draft], sampler)


@_up_to_an_error
def rejection(draft: Draft, logits: Floats, sampler: Sampler) -> Iterator[int]:
    """A draft token x stands with probability min(1, p(x)/q(x)); else a token is drawn from norm(max(0, p - q)).

    p is the target's distribution after its whole chain, q = `draft.probabilities` what the drafter drew from. The
    tokens follow p exactly (Leviathan et al. 2023, §2.3), and more of them stand than with sample-and-match.
    """
    assert draft.probabilities is not None
    for row, drafted, (draft_ids, draft_p) in zip(logits, draft.tokens, draft.probabilities, strict=False):
        own = sampler.sample(row)
        ids, p = sampler.distribution()
        q = np.zeros(len(row), np.float32)  # [V]
        q[draft_ids] = draft_p
        p_x, q_x = np.float32(p[ids == drafted].sum()), q[drafted]
        stands = q_x > 0 and (p_x >= q_x or sampler.rejections.single() < p_x / q_x)
        token = drafted if stands else _draw_residual(ids, p - q[ids], sampler, own)
        sampler.accept(token)
        yield token
        if not stands:
            return
    yield _sample(logits[len(draft.tokens)], sampler)


def _draw_residual(ids: Ids, residual: Floats, sampler: Sampler, own: int) -> int:
    """Draws from the positive part of p - q; the target's own token if there is none."""
    positive = residual > 0
    if not positive.any():
        return own
    ids, residual = ids[positive], residual[positive]
    start = np.float32(sampler.rejections.single()) * total(residual)
    left = np.subtract.accumulate(np.append(start, residual))[1:]  # float32, one rounding per step
    used_up = np.flatnonzero(left <= 0)
    return int(ids[used_up[0] if len(used_up) else -1])


def _sample(row: Floats, sampler: Sampler) -> int:
    token = sampler.sample(row)
    sampler.accept(token)
    return token


@dataclass(frozen=True)
class SyntheticRates:
    """Acceptance by given chances instead of the models' agreement.

    Attributes:
        rates: Entry i: probability that the first i + 1 draft tokens all stand.
    """

    rates: tuple[float, ...]

    @property
    def conditional(self) -> tuple[float, ...]:
        """Entry i: probability that draft token i stands if those before it do."""
        before = (1.0, *self.rates)
        return tuple(
            rate / previous if previous > 0 else 0.0 for rate, previous in zip(self.rates, before, strict=False)
        )

    @property
    def mean_length(self) -> float:
        """Expected tokens per round, the target's own included."""
        return 1.0 + sum(self.rates)

    @property
    def line(self) -> str:
        """The start-up line, in llama.cpp's words."""
        rates = ", ".join(f"{rate:.6g}" for rate in self.rates)
        return (
            f"synthetic acceptance: n_max = {len(self.rates)}, mean length = {self.mean_length:.6f}, rates = [{rates}]"
        )


def resolve_synthetic(config: SynthConfig, n_max: int, n_configured: int | None = None) -> SyntheticRates | None:
    """Checks the settings against the drafters and says on the log what is in force (docs/speculation.md §7).

    Args:
        config: A mean length, or rates, or neither.
        n_max: Longest draft the drafters make.
        n_configured: Longest draft that was asked for.

    Returns:
        The rates, or None if synthetic acceptance is off.

    Raises:
        UsageError: The settings contradict each other or the drafters.
    """
    if config.length is None and not config.rates:
        return None
    if config.length is not None and config.rates:
        raise UsageError("synthetic acceptance length and rates are mutually exclusive")
    if n_max <= 0:
        raise UsageError("synthetic acceptance requires at least one speculative token")
    if config.length is None:
        _check_rates(config.rates, n_max)
        resolved = SyntheticRates(config.rates)
    else:
        resolved = SyntheticRates(_rates_of_length(config.length, n_max))
    logger.warning("synthetic speculative acceptance is enabled for benchmarking; generated output is not valid")
    if n_configured is not None and n_configured != n_max:
        logger.warning(
            "synthetic acceptance draft limit was reduced from %d to %d by the initialized speculative implementations",
            n_configured,
            n_max,
        )
    logger.info("%s", resolved.line)
    return resolved


def _check_rates(rates: Sequence[float], n_max: int) -> None:
    if len(rates) != n_max:
        raise UsageError(f"synthetic acceptance rates must contain {n_max} values, got {len(rates)}")
    previous = math.inf
    for rate in rates:
        if not (math.isfinite(rate) and 0 <= rate <= 1):
            raise UsageError("synthetic acceptance rates must be finite and within [0, 1]")
        if rate > previous:
            raise UsageError("synthetic acceptance rates must be monotonically non-increasing")
        previous = rate


def _rates_of_length(length: float, n_max: int) -> tuple[float, ...]:
    """Rates p, p², … whose sum is `length` - 1, p by bisection as in llama.cpp.

    Example: n_max 4 and length 3.4 give p = 0.805809203418903.
    """
    if not (math.isfinite(length) and 1 <= length <= n_max + 1):
        raise UsageError(f"synthetic acceptance length must be finite and within [1, {n_max + 1}]")
    if length in (1, n_max + 1):
        p = float(length > 1)
    else:
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            p = (low + high) / 2
            if sum(_powers(p, n_max)) < length - 1:
                low = p
            else:
                high = p
        p = (low + high) / 2
    return tuple(_powers(p, n_max))


def _powers(p: float, n: int) -> list[float]:
    """P, p², …, pⁿ by repeated multiplication."""
    powers = [p]
    while len(powers) < n:
        powers.append(powers[-1] * p)
    return powers


def synthetic_rule(rates: SyntheticRates, end_ids: frozenset[int]) -> VerifyRule:
    """The rule of synthetic acceptance; its decisions come from `Sampler.synthetic`."""
    return partial(synthetic, rates=rates.conditional, end_ids=end_ids)


@_up_to_an_error
def synthetic(
    draft: Draft, logits: Floats, sampler: Sampler, rates: Sequence[float], end_ids: frozenset[int]
) -> Iterator[int]:
    """Draft token i stands with the conditional chance `rates[i]`, whatever the target says; end tokens never do.

    The target samples all the same, so the work per round is that of real decoding. Tokens that stand were not
    generated by the target: penalties see them, the grammar does not.
    """
    assert len(draft.tokens) <= len(rates)
    for row, drafted, rate in zip(logits, draft.tokens, rates, strict=False):
        own = sampler.sample(row)
        if sampler.synthetic.double() >= rate or drafted in end_ids:
            sampler.accept(own)
            yield own
            return
        sampler.accept(drafted, generated=False)
        yield drafted
    yield _sample(logits[len(draft.tokens)], sampler)
